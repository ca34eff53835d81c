//! Submitting: whether a submission becomes a job, and what becomes of others by it.

use std::sync::Arc;

use tidemill_core::{Digest, ExecutionId, RunnerId, Timestamp};

use crate::group::{self, Joining};
use crate::hub::HubId;
use crate::job::{Change, Job, Place, Stage};
use crate::order::Position;
use crate::queue::Waits;
use crate::retry::Tries;
use crate::settings::Settings;
use crate::submission::{QueueKey, Submission};

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is a job of its own now.
    Accepted {
        /// Its id.
        id: ExecutionId,
        /// Where it stands.
        standing: Standing,
        /// Those of its group whose place it took.
        superseded: Vec<ExecutionId>,
    },
    /// A waiting one took it in.
    Coalesced {
        /// Which one.
        id: ExecutionId,
    },
}

impl Answer {
    /// The job that the submission became.
    pub const fn id(&self) -> ExecutionId {
        match self {
            Self::Accepted { id, .. } | Self::Coalesced { id } => *id,
        }
    }
}

/// Where a new job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A runner with an open claim takes it as soon as it is told.
    RunsNow {
        /// Which runner is to be told.
        runner: RunnerId,
    },
    /// It is in line.
    InLine {
        /// Its place.
        position: Position,
        /// What keeps it from being run, if it is not only that runners are busy.
        but: Option<Waits>,
    },
    /// It is not in line yet.
    Waits(Waits),
}

/// Why a submission was refused. Nothing of what waits is changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The hub takes nothing more.
    #[error("hub `{hub}` is stopping; submit to another one, or again when it is back")]
    HubStopping {
        /// Which hub.
        hub: HubId,
    },
    /// As many wait as may.
    #[error(
        "queue `{queue}` has {max} waiting jobs, as many as it may; try again later, or have an \
         administrator raise its limit"
    )]
    QueueFull {
        /// Which queue.
        queue: QueueKey,
        /// Its limit.
        max: u64,
    },
    /// This version does not know such work.
    #[error("this hub does not know jobs of kind `{kind}`; use a newer hub")]
    UnknownKind {
        /// The kind.
        kind: String,
    },
    /// The key was used for something else.
    #[error(
        "idempotency key `{key}` was used for another job, {first}; use a new key for a new job"
    )]
    KeyUsed {
        /// The key.
        key: String,
        /// What it was used for.
        first: ExecutionId,
    },
    /// The deadline would pass before the delay is over.
    #[error("it could never run: its delay is as long as its deadline or longer")]
    NeverRuns,
    /// There is such a job.
    #[error("there is a job {id} already")]
    IdTaken {
        /// The id.
        id: ExecutionId,
    },
}

/// The answer to an idempotency key, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// When it was given.
    pub at: Timestamp,
    /// The digest of the spec that it was given to.
    pub spec: Digest,
    /// The answer.
    pub answer: Answer,
}

/// What a submission meets. All of it is loaded in the transaction that writes what comes of it.
#[derive(Debug, Clone, Default)]
pub struct Seen<'a> {
    /// True if the hub takes nothing more.
    pub stopping: bool,
    /// True if there is a job of the id that this one would get.
    pub id_taken: bool,
    /// What was answered to its idempotency key.
    pub first: Option<&'a KeptAnswer>,
    /// The waiting job that holds its coalescing key.
    pub holder: Option<ExecutionId>,
    /// The oldest waiting one of its group that is of the same kind with the same spec.
    pub equal: Option<ExecutionId>,
    /// Those of its group that wait; needed only if it takes their place.
    pub group_waiting: Vec<&'a Job>,
    /// The one of its group that a runner has.
    pub group_running: Option<&'a Job>,
    /// How many wait in its queue.
    pub waiting: u64,
    /// How many may.
    pub waiting_max: u64,
    /// The number of its acceptance.
    pub arrival: u64,
}

/// What is to be done with a submission.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Nothing: this is the answer.
    Answer(Answer),
    /// It becomes a job.
    Accept {
        /// What becomes of those whose place it takes.
        superseded: Vec<Change>,
        /// The job. Its first event is made; how many are ahead of it is told when that is known.
        job: Box<Change>,
    },
}

/// Decides what becomes of a submission. `id` is the one that it gets if it becomes a job.
///
/// # Errors
/// If it is refused. Then nothing is to be changed.
pub fn decide(
    submission: Submission,
    id: ExecutionId,
    hub: &HubId,
    seen: &Seen<'_>,
    now: Timestamp,
    settings: &Settings,
) -> Result<Decision, Refusal> {
    check(&submission, id, hub, seen, settings)?;
    if let Some(first) = first_answer(&submission, seen, now, settings)? {
        return Ok(Decision::Answer(first));
    }
    if let Some(id) = seen.holder {
        return Ok(Decision::Answer(Answer::Coalesced { id }));
    }
    let group = submission.group.as_ref();
    let superseded = match group.map(|group| group::join(group.policy, seen.equal)) {
        Some(Joining::Into(id)) => return Ok(Decision::Answer(Answer::Coalesced { id })),
        Some(Joining::InLine) | None => Vec::new(),
        Some(Joining::Instead { cancel_running }) => {
            let running = seen.group_running.filter(|_| cancel_running);
            let name = group.map_or("", |group| &group.name);
            let others = seen.group_waiting.iter().copied().chain(running);
            others
                .filter(|job| job.is_known(settings))
                .filter_map(|job| group::supersede(job, id, name, now))
                .collect()
        }
    };
    // One that a runner has is only asked to end; it did not wait.
    let leaving = superseded
        .iter()
        .filter(|change| !change.job.state().is_final());
    let leaving = superseded.len() - leaving.count();
    let staying = (seen.waiting).saturating_sub(u64::try_from(leaving).unwrap_or(u64::MAX));
    if staying >= seen.waiting_max {
        return Err(Refusal::QueueFull {
            queue: submission.queue,
            max: seen.waiting_max,
        });
    }
    let job = Box::new(accept(submission, id, hub, seen.arrival, now, settings));
    Ok(Decision::Accept { superseded, job })
}

fn check(
    submission: &Submission,
    id: ExecutionId,
    hub: &HubId,
    seen: &Seen<'_>,
    settings: &Settings,
) -> Result<(), Refusal> {
    if seen.stopping {
        return Err(Refusal::HubStopping { hub: hub.clone() });
    }
    if !settings.kinds.contains(&submission.kind) {
        let kind = submission.kind.clone();
        return Err(Refusal::UnknownKind { kind });
    }
    if let (Some(delay), Some(deadline)) = (submission.delay, submission.deadline_after)
        && delay >= deadline
    {
        return Err(Refusal::NeverRuns);
    }
    if seen.id_taken {
        return Err(Refusal::IdTaken { id });
    }
    Ok(())
}

fn first_answer(
    submission: &Submission,
    seen: &Seen<'_>,
    now: Timestamp,
    settings: &Settings,
) -> Result<Option<Answer>, Refusal> {
    let window = settings.idempotency_window;
    let first = seen.first.filter(|first| now.since(first.at) < window);
    let (Some(first), Some(key)) = (first, &submission.idempotency_key) else {
        return Ok(None);
    };
    if first.spec != submission.job.spec {
        return Err(Refusal::KeyUsed {
            key: key.clone(),
            first: first.answer.id(),
        });
    }
    Ok(Some(first.answer.clone()))
}

/// The job that a submission becomes.
fn accept(
    submission: Submission,
    id: ExecutionId,
    hub: &HubId,
    arrival: u64,
    now: Timestamp,
    settings: &Settings,
) -> Change {
    let in_line_at = (submission.delay).map_or(now, |delay| now.plus(delay.as_duration()));
    let created = submission.created();
    let mut job = Job {
        id,
        arrival,
        format: settings.format,
        submission: Arc::new(submission),
        hub: hub.clone(),
        accepted_at: now,
        in_line_at,
        stage: Stage::Waiting {
            place: Place::Delayed { until: in_line_at },
        },
        tries: Tries::default(),
        declines: Vec::new(),
        hold: None,
    };
    if in_line_at <= now {
        job.stage = Stage::Waiting {
            place: job.place_in_line(),
        };
    }
    Change {
        expected: None,
        job,
        events: vec![created],
    }
}
