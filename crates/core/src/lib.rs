//! The words that every Tidemill crate shares: ids, digests, job specs, events, states, limits and
//! the stable codes of errors.
//!
//! Pure: no file, no clock, no thread, no network. Whoever needs an id or the time passes it in.
//! Start reading at [`job`], then [`event`] and [`state`].

pub mod braces;
pub mod check;
pub mod diagnostic;
pub mod digest;
pub mod draft;
pub mod event;
pub mod grant;
pub mod id;
pub mod job;
pub mod layer;
pub mod limits;
pub mod oci;
pub mod reason;
pub mod root;
pub mod signal;
pub mod state;
pub mod time;
pub mod usage;

pub use check::check;
pub use diagnostic::{Diagnostic, DiagnosticCode, Severity};
pub use digest::Digest;
pub use draft::Draft;
pub use event::{Event, EventRecord, LogPiece, Stream};
pub use grant::{Grant, GrantRequest};
pub use id::{Attempt, ExecutionId, RunnerId};
pub use job::JobSpec;
pub use layer::{Attributes, Layer, Modes};
pub use limits::{ByteSize, CpuCount, Limits};
pub use reason::{Reason, ReasonCode};
pub use root::{Allow, RootPlan};
pub use signal::{StopSignal, signal_name};
pub use state::State;
pub use time::{Millis, Timestamp};
pub use usage::{LogTotals, Usage};
