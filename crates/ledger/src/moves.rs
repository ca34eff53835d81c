//! Which state may follow which: the table of the specification, and nothing else.

use tidemill_core::State;

/// True if an execution may go from one state to the other. A state does not follow itself: saying
/// it again is no move.
pub const fn allows(from: State, to: State) -> bool {
    match from {
        State::Queued => matches!(
            to,
            State::Starting
                | State::Running
                | State::Paused
                | State::Cancelled
                | State::Failed
                | State::Interrupted
        ),
        State::Paused => matches!(
            to,
            State::Queued | State::Cancelled | State::Failed | State::Interrupted
        ),
        State::Starting => matches!(
            to,
            State::Running | State::Cancelling | State::Failed | State::TimedOut | State::Queued
        ),
        State::Running => matches!(
            to,
            State::Succeeded | State::Failed | State::TimedOut | State::Cancelling | State::Queued
        ),
        State::Cancelling => matches!(
            to,
            State::Cancelled | State::Succeeded | State::Failed | State::TimedOut
        ),
        State::Succeeded
        | State::Failed
        | State::TimedOut
        | State::Cancelled
        | State::Interrupted => false,
    }
}
