//! Requests to cancel.
//!
//! The request and the `cancelling` event are one step: whoever sees the token can already rely on
//! the record. So the decision here is written first, and the runner is told afterwards.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_core::{Event, Reason, ReasonCode, State};

use crate::change::Decision;
use crate::snapshot::Snapshot;

/// What somebody who asks to cancel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum CancelAnswer {
    /// The request is recorded. What had not started is finished already.
    Requested,
    /// Somebody asked before.
    AlreadyRequested,
    /// It is over.
    AlreadyFinished {
        /// How it ended.
        state: State,
    },
    /// There is no such execution.
    Unknown,
}

/// Decides on a request to cancel.
pub fn request(snapshot: Option<&Snapshot>, by: &str) -> Decision<CancelAnswer> {
    let Some(snapshot) = snapshot else {
        return Decision::nothing(CancelAnswer::Unknown);
    };
    if snapshot.is_final() {
        return Decision::nothing(CancelAnswer::AlreadyFinished {
            state: snapshot.state,
        });
    }
    if snapshot.cancel.is_some() {
        return Decision::nothing(CancelAnswer::AlreadyRequested);
    }
    let mut events = vec![Event::Cancelling { by: by.to_owned() }];
    let waits = matches!(snapshot.state, State::Queued | State::Paused);
    // Somebody else's execution may have started by now: its reporter has to say what became of it.
    if waits && !snapshot.is_reported() {
        events.push(Event::Cancelled {
            reason: Some(Reason::new(
                ReasonCode::Cancelled,
                format!("cancelled by {by} before it started"),
            )),
            outcome: None,
        });
    }
    Decision::events(events, CancelAnswer::Requested)
}
