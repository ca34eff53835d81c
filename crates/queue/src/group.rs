//! Concurrency groups: at most one of a group is with a runner, and each submission says what becomes
//! of the others.

use tidemill_core::{Attempt, Event, ExecutionId, Reason, ReasonCode, State, Timestamp};

use crate::cancel;
use crate::job::{Change, Job};
use crate::submission::GroupPolicy;

/// Who has the place of a group. A row of its own with a unique key, so that two claims can never
/// both have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Which execution.
    pub execution: ExecutionId,
    /// In which attempt.
    pub attempt: Attempt,
}

impl Lock {
    /// True if nobody is behind it any more: whoever finds it so may free it. `holder` is the row of
    /// the execution that it names, if there is one.
    pub fn is_orphaned(&self, holder: Option<&Job>) -> bool {
        holder
            .and_then(Job::lease)
            .is_none_or(|lease| lease.attempt != self.attempt)
    }
}

/// What a submission does to the others of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joining {
    /// It gets in line behind them.
    InLine,
    /// A waiting one takes it in.
    Into(ExecutionId),
    /// It takes the place of those that wait.
    Instead {
        /// True if the one that a runner has is asked to end, too.
        cancel_running: bool,
    },
}

/// Decides what a submission does to the others of its group. `equal` is the oldest of those that wait and
/// are of the same kind with the same spec.
pub fn join(policy: GroupPolicy, equal: Option<ExecutionId>) -> Joining {
    match policy {
        GroupPolicy::QueueAll => Joining::InLine,
        GroupPolicy::KeepNewest => Joining::Instead {
            cancel_running: false,
        },
        GroupPolicy::CancelRunning => Joining::Instead {
            cancel_running: true,
        },
        GroupPolicy::Coalesce => equal.map_or(Joining::InLine, Joining::Into),
    }
}

/// What becomes of one of the group when a newer one takes its place: one that waits is cancelled, one
/// that a runner has is asked to end.
pub fn supersede(old: &Job, by: ExecutionId, group: &str, now: Timestamp) -> Option<Change> {
    let who = format!("{by}, which took its place in group `{group}`");
    if old.waits() {
        let reason = Reason::new(ReasonCode::Cancelled, format!("superseded by {who}"));
        let events = vec![Event::Cancelled {
            reason: Some(reason),
            outcome: None,
        }];
        return Some(old.end(now, State::Cancelled, events));
    }
    cancel::ask(old, &who, now)
}
