//! The record of every execution: a snapshot (what is true now) and a history of events (how it
//! came about).
//!
//! A snapshot is only ever changed by [`apply()`], one event at a time. Everything else here decides
//! which events there are to apply: a request to cancel, a report of somebody else's execution, a
//! runner that was lost. Nothing here reads a clock, a file or a socket, and nothing waits.
//!
//! Start reading at [`moves`], then [`mod@apply`], then [`mod@change`], which is what a store does in one
//! transaction.

pub mod admission;
pub mod apply;
pub mod bounds;
pub mod cancel;
pub mod change;
pub mod cursor;
pub mod filter;
pub mod loss;
pub mod moves;
pub mod page;
pub mod redact;
pub mod reported;
pub mod retention;
pub mod snapshot;
pub mod span;
pub mod subscriptions;

pub use apply::{Applied, Recorded, Refused, apply, create};
pub use cancel::CancelAnswer;
pub use change::{Change, Decision, change};
pub use cursor::{Admitted, Cursor};
pub use filter::ListFilter;
pub use page::EventPage;
pub use redact::Redactor;
pub use snapshot::{CancelRequest, Origin, Snapshot};
pub use span::Span;
pub use subscriptions::{Delivery, Interest, Subscription, Subscriptions};
