//! What becomes of an execution whose runner, or whose process, is gone.

use tidemill_core::{Event, Reason, State};

use crate::snapshot::Snapshot;

/// Whether another attempt is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Another attempt is to come.
    Allowed,
    /// That was the last.
    Exhausted,
}

/// The event that follows from the loss of whoever had an execution; `None` if it is over anyway,
/// or waits and may go on waiting.
pub fn runner_lost(snapshot: &Snapshot, reason: Reason, retry: Retry) -> Option<Event> {
    match (snapshot.state, retry) {
        (State::Starting | State::Running, Retry::Allowed) => Some(Event::Requeued { reason }),
        (State::Starting | State::Running, Retry::Exhausted) => Some(Event::Failed {
            reason,
            outcome: None,
        }),
        (State::Cancelling, _) => Some(Event::Cancelled {
            reason: Some(reason),
            outcome: None,
        }),
        (State::Queued | State::Paused, Retry::Exhausted) => Some(Event::Interrupted { reason }),
        (State::Queued | State::Paused, Retry::Allowed) => None,
        (
            State::Succeeded
            | State::Failed
            | State::TimedOut
            | State::Cancelled
            | State::Interrupted,
            _,
        ) => None,
    }
}
