//! The judge: what has to hold, whatever happened.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::{Event, ExecutionId};
use tidemill_queue::{AttemptKey, Queue};

use super::Fleet;
use crate::world::replay;

impl Fleet {
    /// A runner that was promised its attempts less than a lease ago has not lost them.
    fn judge_losses(&mut self) {
        let leased = self.leased();
        let before = std::mem::replace(&mut self.leased_before, leased);
        let lease = self.queue.settings().lease;
        for (id, key) in before {
            let still = self.leased_before.get(&id) == Some(&key);
            if still || !last_is_loss(&self.queue, id) {
                continue;
            }
            let renewed = self.renewed.get(&key).copied().unwrap_or_default();
            let alive = self.now.since(renewed) < lease;
            assert!(!alive, "{key:?} was alive and rescued");
        }
    }

    fn leased(&self) -> BTreeMap<ExecutionId, AttemptKey> {
        let leased = self.queue.jobs().filter_map(|job| {
            let attempt = job.lease()?.attempt;
            let execution = job.id;
            Some((execution, AttemptKey { execution, attempt }))
        });
        leased.collect()
    }

    /// What holds after every step.
    pub(crate) fn judge(&mut self) {
        self.queue.check_invariants();
        self.judge_losses();
        let mut groups = BTreeSet::new();
        for books in &self.runners {
            for key in books.running.keys() {
                let job = self.queue.job(key.execution).unwrap();
                // One whose end the hub declared by itself is not known to be gone to its runner yet.
                let believed = job
                    .lease()
                    .is_some_and(|lease| lease.attempt == key.attempt);
                let group = job.submission.group_key().filter(|_| believed);
                if let Some(group) = group {
                    assert!(groups.insert(group.clone()), "two of {group:?} run");
                }
            }
        }
        for id in &self.accepted {
            let job = self
                .queue
                .job(*id)
                .expect("an accepted job never disappears");
            let events = self.queue.history(*id).len();
            if job.state().is_final() {
                let ended = *self.ended.entry(*id).or_insert((job.state(), events));
                assert_eq!(ended, (job.state(), events), "{id} is over");
            }
        }
        for key in &self.recorded {
            let job = self.queue.job(key.execution).unwrap();
            let same = job
                .lease()
                .is_some_and(|lease| lease.attempt == key.attempt);
            assert!(!same, "the end of {key:?} was recorded, and is lost");
        }
    }

    /// What holds when nothing is left to do.
    pub(crate) fn judge_end(&self) {
        for id in &self.accepted {
            let job = self.queue.job(*id).unwrap();
            let why = self.queue.why_waiting(self.now, *id);
            assert!(job.state().is_final(), "{id} is {:?}: {why:?}", job.stage);
            replay(&self.queue, *id);
            let attempts: Vec<_> = self
                .queue
                .history(*id)
                .iter()
                .filter_map(|record| match &record.event {
                    Event::Assigned { attempt, .. } => Some(attempt.0),
                    _ => None,
                })
                .collect();
            let expected: Vec<_> = (1..=job.tries.last.0).collect();
            assert_eq!(attempts, expected, "each attempt begins once");
        }
    }
}

/// True if the last thing in a job's history is that its runner was not heard.
fn last_is_loss(queue: &Queue, id: ExecutionId) -> bool {
    queue.history(id).last().is_some_and(|record| {
        matches!(&record.event,
            Event::Failed { reason, .. } | Event::Requeued { reason }
                if reason.message.contains("was not heard"))
    })
}
