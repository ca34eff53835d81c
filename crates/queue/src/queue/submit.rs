//! Submitting.

use std::sync::Arc;

use tidemill_core::{Digest, Event, ExecutionId, RunnerId, Timestamp};

use crate::group::{self, Joining};
use crate::hub::HubId;
use crate::job::{Change, Job, Place, Stage};
use crate::order::Position;
use crate::queue::{Queue, Waits};
use crate::retry::Tries;
use crate::settings::OPEN_CLAIMS_ASKED_MAX;
use crate::submission::{AnswerKey, QueueKey, Submission};

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

/// The answer to an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptAnswer {
    pub(super) at: Timestamp,
    spec: Digest,
    answer: Answer,
}

impl Queue {
    /// Takes a submission. `id` is the one that it gets if it becomes a job of its own.
    ///
    /// # Errors
    /// If it is refused.
    pub fn submit(
        &mut self,
        now: Timestamp,
        hub: &HubId,
        id: ExecutionId,
        submission: Submission,
    ) -> Result<Answer, Refusal> {
        self.check_submission(hub, id, &submission)?;
        let answer_key = submission.answer_key();
        if let Some(key) = &answer_key
            && let Some(first) = self.first_answer(now, key, &submission)?
        {
            return Ok(first);
        }
        let spec = submission.job.spec;
        let answer = self.accept(now, hub, id, submission)?;
        if let Some(key) = answer_key {
            let kept = KeptAnswer {
                at: now,
                spec,
                answer: answer.clone(),
            };
            self.answers.insert(key, kept);
        }
        Ok(answer)
    }

    fn check_submission(
        &self,
        hub: &HubId,
        id: ExecutionId,
        submission: &Submission,
    ) -> Result<(), Refusal> {
        if self.hubs.get(hub).is_none_or(|row| row.stopping) {
            return Err(Refusal::HubStopping { hub: hub.clone() });
        }
        if !self.settings.kinds.contains(&submission.kind) {
            let kind = submission.kind.clone();
            return Err(Refusal::UnknownKind { kind });
        }
        if let (Some(delay), Some(deadline)) = (submission.delay, submission.deadline_after)
            && delay >= deadline
        {
            return Err(Refusal::NeverRuns);
        }
        if self.jobs.contains_key(&id) {
            return Err(Refusal::IdTaken { id });
        }
        Ok(())
    }

    fn first_answer(
        &self,
        now: Timestamp,
        key: &AnswerKey,
        submission: &Submission,
    ) -> Result<Option<Answer>, Refusal> {
        let window = self.settings.idempotency_window;
        let kept = self.answers.get(key);
        let Some(kept) = kept.filter(|kept| now.since(kept.at) < window) else {
            return Ok(None);
        };
        if kept.spec != submission.job.spec {
            return Err(Refusal::KeyUsed {
                key: key.key.clone(),
                first: kept.answer.id(),
            });
        }
        Ok(Some(kept.answer.clone()))
    }

    fn accept(
        &mut self,
        now: Timestamp,
        hub: &HubId,
        id: ExecutionId,
        submission: Submission,
    ) -> Result<Answer, Refusal> {
        if let Some(key) = submission.coalescing_key()
            && let Some(job) = self.holder(&key)
        {
            return Ok(Answer::Coalesced { id: job.id });
        }
        let joining = self.joining(&submission);
        let superseded = match joining {
            Joining::Into(id) => return Ok(Answer::Coalesced { id }),
            Joining::InLine => Vec::new(),
            Joining::Instead { cancel_running } => {
                self.superseded(&submission, id, cancel_running, now)
            }
        };
        let leaving = superseded.iter().filter(|change| {
            // One that a runner has is only asked to end; it does not wait.
            matches!(change.job.stage, Stage::Done { .. })
        });
        let leaving = u64::try_from(leaving.count()).unwrap_or(u64::MAX);
        let max = self.waiting_max(&submission.queue);
        if self.waiting(&submission.queue).saturating_sub(leaving) >= max {
            return Err(Refusal::QueueFull {
                queue: submission.queue,
                max,
            });
        }
        let superseded: Vec<_> = superseded
            .into_iter()
            .map(|change| {
                let id = change.job.id;
                self.must(now, change);
                id
            })
            .collect();
        self.insert(now, hub, id, submission);
        let standing = self.standing(now, id);
        let ahead = match &standing {
            Standing::RunsNow { .. } => Some(0),
            Standing::InLine { position, .. } => Some(position.number() - 1),
            Standing::Waits(Waits::Group { position, .. }) => Some(position.number() - 1),
            Standing::Waits(_) => None,
        };
        if let Some(ahead) = ahead {
            self.append(now, id, vec![Event::Queued { ahead }]);
        }
        Ok(Answer::Accepted {
            id,
            standing,
            superseded,
        })
    }

    fn waiting_max(&self, queue: &QueueKey) -> u64 {
        let own = self.queues.get(queue).and_then(|row| row.waiting_max);
        own.unwrap_or(self.settings.waiting_max)
    }

    fn joining(&self, submission: &Submission) -> Joining {
        let (Some(key), Some(group)) = (submission.group_key(), &submission.group) else {
            return Joining::InLine;
        };
        let waiting = self.index.of_group(&key);
        let waiting = waiting.filter_map(|id| self.jobs.get(&id));
        group::join(submission, group.policy, waiting)
    }

    /// What becomes of those whose place a submission takes.
    fn superseded(
        &self,
        submission: &Submission,
        by: ExecutionId,
        cancel_running: bool,
        now: Timestamp,
    ) -> Vec<Change> {
        let Some(key) = submission.group_key() else {
            return Vec::new();
        };
        let running = self.locks.get(&key).filter(|_| cancel_running);
        self.index
            .of_group(&key)
            .chain(running.map(|lock| lock.execution))
            .filter_map(|id| self.jobs.get(&id))
            .filter(|job| job.is_known(&self.settings))
            .filter_map(|job| group::supersede(job, by, &key.name, now))
            .collect()
    }

    fn insert(&mut self, now: Timestamp, hub: &HubId, id: ExecutionId, submission: Submission) {
        self.arrivals += 1;
        let in_line_at = (submission.delay).map_or(now, |delay| now.plus(delay.as_duration()));
        let created = submission.created();
        let mut job = Job {
            id,
            arrival: self.arrivals,
            format: self.settings.format,
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
        let change = Change {
            expected: None,
            job,
            events: vec![created],
        };
        self.must(now, change);
    }

    /// Where a job stands that was just accepted.
    fn standing(&self, now: Timestamp, id: ExecutionId) -> Standing {
        if let Some(runner) = self.runner_for(now, id) {
            return Standing::RunsNow { runner };
        }
        let waits = self.why_waiting(now, id);
        let ready = self
            .jobs
            .get(&id)
            .filter(|job| job.place() == Some(Place::Ready));
        match (ready, waits) {
            (Some(job), waits) => {
                let position = match &waits {
                    Some(Waits::Busy { position, .. } | Waits::Next { position }) => *position,
                    _ => self.position(job, now),
                };
                let but =
                    waits.filter(|waits| !matches!(waits, Waits::Busy { .. } | Waits::Next { .. }));
                Standing::InLine { position, but }
            }
            (None, Some(waits)) => Standing::Waits(waits),
            (None, None) => unreachable!("a job that was just accepted waits"),
        }
    }

    /// The runner with an open claim that would get this job: one that has its image before others, a
    /// fast one before a slow one.
    fn runner_for(&self, now: Timestamp, id: ExecutionId) -> Option<RunnerId> {
        let job = self.jobs.get(&id)?;
        if job.place() != Some(Place::Ready) {
            return None;
        }
        let image = job.submission.requirements.image.as_ref();
        let mut open: Vec<_> = self
            .live_runners(now)
            .filter_map(|runner| runner.open.as_ref())
            .take(OPEN_CLAIMS_ASKED_MAX)
            .collect();
        open.sort_by_key(|offer| {
            let has_image = image.is_none_or(|image| offer.profile.images.contains(image));
            (!has_image, std::cmp::Reverse(offer.profile.speed))
        });
        open.into_iter()
            .find(|offer| {
                let planned = self.plan_claim(now, offer);
                planned.plan.picks.iter().any(|pick| pick.id == id)
            })
            .map(|offer| offer.profile.name.clone())
    }
}
