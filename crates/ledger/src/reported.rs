//! Executions that someone else runs and only reports here.
//!
//! A reporter has a sequence of its own. What it reports is taken in at most once and in order, and
//! judged like everything else: an event that the state machine refuses is passed over.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_core::{Event, ExecutionId, Reason, ReasonCode, RunnerId, Timestamp};

use crate::apply::{Applied, Refused, apply};
use crate::change::Decision;
use crate::snapshot::{Origin, Snapshot};

/// How often a reporter lets itself be heard.
pub const HEARTBEAT_EVERY: Duration = Duration::from_secs(2);
/// After so much silence an unfinished execution is given up.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What became of an adoption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Adoption {
    /// It is held here from now on.
    Adopted,
    /// This reporter's execution is held here already. Nothing changed.
    Already,
    /// This hub runs it itself.
    RunHere,
    /// Somebody else reports it.
    ReportedByAnother,
}

/// Decides whether a reporter's execution is taken in. `created` is the event that makes it.
pub fn adopt(
    snapshot: Option<&Snapshot>,
    by: &RunnerId,
    at: Timestamp,
    created: Event,
) -> Decision<Adoption> {
    match snapshot.map(|snapshot| &snapshot.origin) {
        None => Decision {
            events: vec![created],
            origin: Some(Origin::Reported {
                by: by.clone(),
                last_heard: at,
                through: 0,
            }),
            answer: Adoption::Adopted,
        },
        Some(Origin::Local) => Decision::nothing(Adoption::RunHere),
        Some(Origin::Reported { by: other, .. }) if other != by => {
            Decision::nothing(Adoption::ReportedByAnother)
        }
        Some(Origin::Reported { .. }) => Decision::nothing(Adoption::Already),
    }
}

/// What a reporter is told about one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ReportAnswer {
    /// The report was read.
    Held {
        /// The last of the reporter's sequences that was taken in: it resumes with the next.
        through: u64,
        /// True if somebody asked to cancel, which only the process that runs it can do.
        cancel_requested: bool,
        /// The sequences of this report that were passed over because they cannot have happened.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed_over: Vec<u64>,
    },
    /// No execution of this reporter with that id is held here.
    NothingHeld,
}

/// Decides on a report: a list of the reporter's own sequences and events. An empty list is a
/// heartbeat.
pub fn report(
    snapshot: Option<&Snapshot>,
    by: &RunnerId,
    at: Timestamp,
    events: &[(u64, Event)],
) -> Decision<ReportAnswer> {
    let held = snapshot.and_then(|snapshot| match &snapshot.origin {
        Origin::Reported {
            by: held, through, ..
        } if held == by => Some((snapshot, *through)),
        _ => None,
    });
    let Some((snapshot, mut through)) = held else {
        return Decision::nothing(ReportAnswer::NothingHeld);
    };
    let mut current = snapshot.clone();
    let mut taken = Vec::new();
    let mut passed_over = Vec::new();
    for (sequence, event) in events {
        if *sequence <= through {
            continue;
        }
        if *sequence != through + 1 {
            break;
        }
        through = *sequence;
        match take(&current, at, event) {
            Ok(None) => {}
            Ok(Some(after)) => {
                current = after;
                taken.push(event.clone());
            }
            Err(_) => passed_over.push(*sequence),
        }
    }
    Decision {
        events: taken,
        origin: Some(Origin::Reported {
            by: by.clone(),
            last_heard: at,
            through,
        }),
        answer: ReportAnswer::Held {
            through,
            cancel_requested: current.cancel.is_some() && !current.is_final(),
            passed_over,
        },
    }
}

/// The snapshot after a reported event; `None` if it is on record already.
fn take(current: &Snapshot, at: Timestamp, event: &Event) -> Result<Option<Snapshot>, Refused> {
    if matches!(event, Event::Created { .. }) {
        return Ok(None);
    }
    Ok(match apply(current, at, event.clone())? {
        Applied::Already => None,
        Applied::Recorded(recorded) => Some(recorded.snapshot),
    })
}

/// The event that follows from a reporter's silence, if it has lasted too long.
pub fn fallen_silent(snapshot: &Snapshot, now: Timestamp) -> Option<Event> {
    let Origin::Reported { by, last_heard, .. } = &snapshot.origin else {
        return None;
    };
    let silence = now.since(*last_heard);
    if snapshot.is_final() || silence < SILENCE_MAX {
        return None;
    }
    let message = format!(
        "nothing has been heard from its reporter {by} for {} s",
        silence.as_secs()
    );
    let hint = "look whether that process still runs and can reach the hub";
    Some(Event::Failed {
        reason: Reason::new(ReasonCode::Unavailable, message).with_hint(hint),
        outcome: None,
    })
}

/// The ids, among many, of executions whose reporter has been silent for too long.
pub fn silent<'a>(
    snapshots: impl IntoIterator<Item = &'a Snapshot>,
    now: Timestamp,
) -> Vec<(ExecutionId, Event)> {
    snapshots
        .into_iter()
        .filter_map(|snapshot| fallen_silent(snapshot, now).map(|event| (snapshot.id, event)))
        .collect()
}
