//! The queue: what waits, in which order, who may claim it, and what becomes of an attempt.
//!
//! Pure: no file, no clock, no database, no randomness. Decisions are functions over rows ([`Job`],
//! [`hub::Hub`], [`offer::Offer`] …) that a store loads, and their results are [`job::Change`]s: what is
//! expected of a row, the row afterwards, the events that are appended to its history. A store makes a
//! change by compare and set. [`Queue`] is a whole machine in memory that consists of these decisions; a
//! store with SQL has to equal it.
//!
//! Start reading at [`job`] (the row), then [`order`] (who is next), [`claim`] (who gets it), [`lease`]
//! and [`attempt`] (what becomes of it), then [`queue`]. The life of one job:
//!
//! ```text
//! submit ──► delayed ──► blocked ──► ready ──► leased ──────────────────► done
//!              │          (group)     │ ▲        │  ▲ renewed by reports     ▲
//!              │             ▲        │ │        │                           │
//!              └─ paused ◄───┴────────┘ └────────┴─ declined, handed back,   │
//!                 (no hub serves)        back-off   lost, to be tried again  │
//!                    └──────────────────────────────── cancelled, expired, ──┘
//!                                                      superseded, given up
//! ```

pub mod attempt;
pub mod cancel;
pub mod claim;
pub mod group;
pub mod hub;
pub mod job;
pub mod lease;
pub mod matching;
pub mod offer;
pub mod order;
pub mod patience;
pub mod queue;
pub mod retry;
pub mod settings;
pub mod submission;

pub use attempt::{Ending, Return};
pub use cancel::CancelAnswer;
pub use hub::HubId;
pub use job::{Change, Job, Place, Stage};
pub use offer::{AttemptKey, ClaimNumber, Incarnation, Offer, Profile, Serves};
pub use order::Position;
pub use queue::{
    Answer, ClaimAnswer, Queue, Refusal, Report, ReportAnswer, Said, Standing, Verdict, Waits,
};
pub use settings::Settings;
pub use submission::{QueueKey, Requirements, Submission, Tenant, Tier};
