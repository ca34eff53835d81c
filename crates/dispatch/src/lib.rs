//! The dispatcher: it decides what one runner does next.
//!
//! A pure state machine. [`Message`]s go in one at a time, calls on [`Deps`] come out, and nothing
//! in here reads a clock, touches a file, awaits or blocks. The real runner, the local run and the
//! simulator all drive the same machine. It must never learn what a sandbox, a tar or a hub is.
//!
//! Start reading at [`Dispatcher`], then [`Message`] (what goes in) and [`Deps`] (what comes out).
//! The life of one job:
//!
//! ```text
//! enqueue ──► awaiting layers ──► available ──► executing: nominal ──► ended
//!                  │                  │            │  cancelled ─────► ended, nothing told
//!                  │                  │            └─ timed out ─────► ended, told as timed out
//!                  └──────────────────┴─ cancel, failure, time to prepare, shut down, drain ─► ended
//! ```
//!
//! # Writing an adapter
//!
//! One task owns the dispatcher and feeds it from one channel:
//! `loop { dispatcher.receive(now(), channel.recv().await) }`. The calls of [`Deps`] return at once;
//! whatever takes time is started there and answers later with a message. [`CacheTable`] is a ready
//! implementation of the counting half of [`Cache`]; between two messages it also says what to remove
//! from a cache that has grown too large.

mod builds;
pub mod cache;
pub mod deps;
pub mod dispatcher;
pub mod eviction;
pub mod job;
pub mod key;
mod layers;
pub mod message;
mod order;
mod references;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod script;
pub mod slots;

pub use cache::{Cache, CacheTable, Get};
pub use deps::{Defect, Deps, Ending, Recipe, Root, TimerKind};
pub use dispatcher::Dispatcher;
pub use eviction::{Bounds, Eviction, Kept};
pub use job::{JobId, JobRequest, Phase};
pub use key::{BlobForm, Key, LayerRef, StackKey};
pub use message::{Cause, Completion, JobEnd, Message};
pub use slots::{Capacity, Needs, Room};
