//! A request to cancel a job.

use tidemill_core::{Event, Reason, ReasonCode, State, Timestamp};

use crate::job::{Change, Job, Stage};
use crate::lease::{Ask, Asked, Lease};

/// What to tell the one who asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It is asked for, or done if nothing ran.
    Requested,
    /// Somebody had asked before.
    AlreadyRequested,
    /// It is over.
    AlreadyFinished {
        /// How it ended.
        state: State,
    },
    /// There is no such execution.
    Unknown,
}

/// Decides about a request. What waits is over at once; whoever claims it in that instant conflicts.
pub fn request(job: Option<&Job>, by: &str, now: Timestamp) -> (CancelAnswer, Option<Change>) {
    let Some(job) = job else {
        return (CancelAnswer::Unknown, None);
    };
    match &job.stage {
        Stage::Done { state, .. } => (CancelAnswer::AlreadyFinished { state: *state }, None),
        Stage::Waiting { .. } | Stage::Paused { .. } => {
            let reason = Reason::new(
                ReasonCode::Cancelled,
                format!("cancelled by {by} before it started"),
            );
            let events = vec![
                Event::Cancelling { by: by.to_owned() },
                Event::Cancelled {
                    reason: Some(reason),
                    outcome: None,
                },
            ];
            let change = job.end(now, State::Cancelled, events);
            (CancelAnswer::Requested, Some(change))
        }
        Stage::Leased(_) => match ask(job, by, now) {
            Some(change) => (CancelAnswer::Requested, Some(change)),
            None => (CancelAnswer::AlreadyRequested, None),
        },
    }
}

/// Asks the runner to end its attempt. `None` if somebody asked before, or nobody has the job.
pub(crate) fn ask(job: &Job, by: &str, now: Timestamp) -> Option<Change> {
    let lease = job.lease()?;
    let why = Ask::Cancel { by: by.to_owned() };
    let at = match &lease.asked {
        Some(Asked {
            why: Ask::Cancel { .. },
            ..
        }) => return None,
        // The runner had to end it anyway, and gets no more time for it.
        Some(asked) => asked.at,
        None => now,
    };
    let lease = Lease {
        asked: Some(Asked { why, at }),
        ..lease.clone()
    };
    let events = vec![Event::Cancelling { by: by.to_owned() }];
    Some(job.to(Stage::Leased(lease), events))
}
