//! One job as a row: everything that a decision about it looks at.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_core::{Attempt, Event, ExecutionId, Reason, RunnerId, State, Timestamp};

use crate::hub::HubId;
use crate::lease::Lease;
use crate::offer::Incarnation;
use crate::order::Age;
use crate::retry::Tries;
use crate::settings::Settings;
use crate::submission::{QueueKey, Requirements, Submission};

/// One accepted job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Whose row it is.
    pub id: ExecutionId,
    /// The number of its acceptance: the age among those of one moment.
    pub arrival: u64,
    /// The format that its submission was stored in.
    pub format: u32,
    /// What was submitted. Never changed.
    pub submission: Arc<Submission>,
    /// The hub that accepted it or took it over.
    pub hub: HubId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When its delay is over: its age is counted from here, whatever becomes of attempts.
    pub in_line_at: Timestamp,
    /// Where it stands.
    pub stage: Stage,
    /// What it has used up.
    pub tries: Tries,
    /// Runners that declined it.
    pub declines: Vec<Decline>,
    /// A runner that takes nothing else until it has room for this one.
    pub hold: Option<Hold>,
}

/// Where a job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// It waits.
    Waiting {
        /// Whether it may be claimed, and if not, what for it waits.
        place: Place,
    },
    /// Its hub stopped.
    Paused {
        /// What the history says.
        why: String,
    },
    /// A runner has it.
    Leased(Lease),
    /// It is over.
    Done {
        /// How.
        state: State,
        /// When.
        at: Timestamp,
        /// True if it took too many runners with it and somebody should look at it.
        set_apart: bool,
        /// The attempt whose own report ended it, so that the report may be repeated.
        told_by: Option<Attempt>,
    },
}

/// Whether a waiting job may be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Its delay is not over.
    Delayed {
        /// Until when.
        until: Timestamp,
    },
    /// The time before its next attempt is not over.
    BackOff {
        /// Until when.
        until: Timestamp,
    },
    /// Others of its group go first.
    Blocked,
    /// It may be claimed.
    Ready,
}

/// A runner that declined a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decline {
    /// Which runner.
    pub runner: RunnerId,
    /// In which of its lives. After a restart it is asked again.
    pub incarnation: Incarnation,
    /// When.
    pub at: Timestamp,
    /// What it said.
    pub reason: Reason,
}

/// A runner that takes nothing else until it has room for a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Which runner.
    pub runner: RunnerId,
    /// Until when another one may take its place.
    pub until: Timestamp,
}

/// What a change expects of the row. Somebody who was faster makes it a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Where the execution stands.
    pub state: State,
    /// The newest attempt that has begun.
    pub attempt: Attempt,
    /// The end of its lease, where the change depends on it: whoever ends a lease for its age must not
    /// overrule a report that came meanwhile.
    pub until: Option<Timestamp>,
}

/// What is to be written of one job: the row if it is still as expected, and the events.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What is expected; nothing of a job that does not exist yet.
    pub expected: Option<Token>,
    /// The row afterwards.
    pub job: Job,
    /// What is appended to the history, in order.
    pub events: Vec<Event>,
}

/// What jobs have in common that the same runners can run: they are matched at once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The queue.
    pub queue: QueueKey,
    /// The kind of work.
    pub kind: String,
    /// The format of the stored submission.
    pub format: u32,
    /// What a runner must have.
    pub requirements: Requirements,
    /// How long they wait for one, in milliseconds.
    pub unsatisfiable_after: Option<u64>,
}

impl Job {
    /// Where the execution stands, in the ledger's words.
    pub const fn state(&self) -> State {
        match &self.stage {
            Stage::Waiting { .. } => State::Queued,
            Stage::Paused { .. } => State::Paused,
            Stage::Leased(lease) => lease.state(),
            Stage::Done { state, .. } => *state,
        }
    }

    /// What a change that was decided on this row expects.
    pub const fn token(&self) -> Token {
        Token {
            state: self.state(),
            attempt: self.tries.last,
            until: None,
        }
    }

    /// True if the row is as expected.
    pub fn is(&self, token: &Token) -> bool {
        self.token()
            == Token {
                until: None,
                ..*token
            }
            && token
                .until
                .is_none_or(|until| self.lease().is_some_and(|lease| lease.until == until))
    }

    /// The lease, if a runner has it.
    pub const fn lease(&self) -> Option<&Lease> {
        match &self.stage {
            Stage::Leased(lease) => Some(lease),
            _ => None,
        }
    }

    /// True if it waits for a runner, for whatever reason.
    pub const fn waits(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. } | Stage::Paused { .. })
    }

    /// Whether it may be claimed, if it waits and is not paused.
    pub const fn place(&self) -> Option<Place> {
        match self.stage {
            Stage::Waiting { place } => Some(place),
            _ => None,
        }
    }

    /// True if this version can read it and knows what to do with it.
    pub fn is_known(&self, settings: &Settings) -> bool {
        self.format <= settings.format && settings.kinds.contains(&self.submission.kind)
    }

    /// True if this life of the runner declined it.
    pub fn was_declined_by(&self, runner: &RunnerId, incarnation: Incarnation) -> bool {
        let mut declines = self.declines.iter();
        declines.any(|each| each.runner == *runner && each.incarnation == incarnation)
    }

    /// Its age among those of its lane and its group.
    pub const fn age(&self) -> Age {
        Age {
            since: self.in_line_at,
            arrival: self.arrival,
        }
    }

    /// Its class.
    pub fn class(&self) -> Class {
        Class {
            queue: self.submission.queue.clone(),
            kind: self.submission.kind.clone(),
            format: self.format,
            requirements: self.submission.requirements.clone(),
            unsatisfiable_after: self.submission.unsatisfiable_after.map(|after| after.0),
        }
    }

    /// When it has waited too long; never if it may wait for ever.
    pub fn expires_at(&self) -> Option<Timestamp> {
        let after = self.submission.expires_after?;
        Some(self.in_line_at.plus(after.as_duration()))
    }

    /// When all of it has to be over.
    pub fn deadline(&self) -> Option<Timestamp> {
        let after = self.submission.deadline_after?;
        Some(self.accepted_at.plus(after.as_duration()))
    }

    /// When something has to be decided about it that nobody says: its time to wait is over, or the
    /// deadline has passed, or a runner that was asked to end it has not.
    pub fn due(&self, settings: &Settings) -> Option<Timestamp> {
        match &self.stage {
            Stage::Waiting { .. } | Stage::Paused { .. } => [self.expires_at(), self.deadline()]
                .into_iter()
                .flatten()
                .min(),
            Stage::Leased(lease) => match &lease.asked {
                Some(asked) => Some(asked.at.plus(settings.end_grace)),
                None => {
                    let start_by = lease.granted_at.plus(settings.start_within);
                    let start_by = Some(start_by).filter(|_| !lease.started);
                    [start_by, self.deadline()].into_iter().flatten().min()
                }
            },
            Stage::Done { .. } => None,
        }
    }

    /// Where it waits when nothing but its group can hold it back.
    pub fn place_in_line(&self) -> Place {
        if self.submission.group.is_some() {
            Place::Blocked
        } else {
            Place::Ready
        }
    }

    /// The change to another stage.
    pub(crate) fn to(&self, stage: Stage, events: Vec<Event>) -> Change {
        let mut job = self.clone();
        job.stage = stage;
        if !matches!(job.stage, Stage::Waiting { .. }) {
            job.hold = None;
        }
        Change {
            expected: Some(self.token()),
            job,
            events,
        }
    }

    /// The change to an end.
    pub(crate) fn end(&self, now: Timestamp, state: State, events: Vec<Event>) -> Change {
        let stage = Stage::Done {
            state,
            at: now,
            set_apart: false,
            told_by: None,
        };
        self.to(stage, events)
    }
}
