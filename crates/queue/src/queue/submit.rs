//! Submitting.

use std::cmp::Reverse;

use tidemill_core::{Event, ExecutionId, RunnerId, Timestamp};

use crate::hub::HubId;
use crate::job::{Change, Place};
use crate::queue::{Queue, Waits};
use crate::settings::OPEN_CLAIMS_ASKED_MAX;
use crate::submission::{GroupPolicy, QueueKey, Submission};
use crate::submit::{Answer, Decision, KeptAnswer, Refusal, Seen, Standing, decide};

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
        let answer_key = submission.answer_key();
        let spec = submission.job.spec;
        let seen = self.seen(&submission, id, hub);
        let decision = decide(submission, id, hub, &seen, now, &self.settings)?;
        let answer = match decision {
            Decision::Answer(answer) => answer,
            Decision::Accept { superseded, job } => self.accept(now, superseded, *job),
        };
        if let Some(key) = answer_key {
            let kept = self.answers.get(&key);
            let window = self.settings.idempotency_window;
            if kept.is_none_or(|kept| now.since(kept.at) >= window) {
                let at = now;
                if let Some(old) = kept.map(|kept| kept.at) {
                    self.answers_by_age.remove(&(old, key.clone()));
                }
                self.answers_by_age.insert((at, key.clone()));
                let answer = answer.clone();
                self.answers.insert(key, KeptAnswer { at, spec, answer });
            }
        }
        Ok(answer)
    }

    /// What a submission meets.
    fn seen(&self, submission: &Submission, id: ExecutionId, hub: &HubId) -> Seen<'_> {
        let answer = submission.answer_key();
        let holder = submission.coalescing_key();
        let mut seen = Seen {
            stopping: self.hubs.get(hub).is_none_or(|row| row.stopping),
            id_taken: self.jobs.contains_key(&id),
            first: answer.and_then(|key| self.answers.get(&key)),
            holder: holder.and_then(|key| self.holder(&key)).map(|job| job.id),
            waiting: self.waiting(&submission.queue),
            waiting_max: self.waiting_max(&submission.queue),
            arrival: self.arrivals + 1,
            ..Seen::default()
        };
        let (Some(key), Some(group)) = (submission.group_key(), &submission.group) else {
            return seen;
        };
        seen.equal = self.index.equal_of_group(&key, submission);
        if matches!(
            group.policy,
            GroupPolicy::KeepNewest | GroupPolicy::CancelRunning
        ) {
            let waiting = self.index.of_group(&key);
            seen.group_waiting = waiting.filter_map(|id| self.jobs.get(&id)).collect();
        }
        let running = self.locks.get(&key);
        seen.group_running = running.and_then(|lock| self.jobs.get(&lock.execution));
        seen
    }

    fn accept(&mut self, now: Timestamp, superseded: Vec<Change>, job: Change) -> Answer {
        let ids = superseded.iter().map(|change| change.job.id).collect();
        for change in superseded {
            self.must(now, change);
        }
        let id = job.job.id;
        self.arrivals = job.job.arrival;
        self.must(now, job);
        let standing = self.standing(now, id);
        let ahead = match &standing {
            Standing::RunsNow { .. } => Some(0),
            Standing::InLine { position, .. } | Standing::Waits(Waits::Group { position, .. }) => {
                Some(position.number() - 1)
            }
            Standing::Waits(_) => None,
        };
        if let Some(ahead) = ahead {
            self.append(now, id, vec![Event::Queued { ahead }]);
        }
        Answer::Accepted {
            id,
            standing,
            superseded: ids,
        }
    }

    fn waiting_max(&self, queue: &QueueKey) -> u64 {
        let own = self.queues.get(queue).and_then(|row| row.waiting_max);
        own.unwrap_or(self.settings.waiting_max)
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
            (!has_image, Reverse(offer.profile.speed))
        });
        open.into_iter()
            .find(|offer| {
                let planned = self.plan_claim(now, offer);
                planned.plan.picks.iter().any(|pick| pick.id == id)
            })
            .map(|offer| offer.profile.name.clone())
    }
}
