//! Hubs that start, stop and die.

use tidemill_core::{ExecutionId, Timestamp};

use crate::hub::{self, Hub, HubId};
use crate::queue::Queue;

impl Queue {
    /// A hub starts. Its passes take over what dead ones left.
    pub fn start_hub(&mut self, now: Timestamp, hub: HubId) {
        self.hubs.insert(hub, Hub::starting(now));
    }

    /// A hub stops: from now on it accepts nothing and starts nothing. What waits and cannot go on
    /// without it is interrupted, and if no other hub serves, the rest is paused: at most `limit` jobs
    /// each time. What is left for want of time is taken over when a hub starts. True if there is more.
    pub fn stop_hub(&mut self, now: Timestamp, hub: &HubId, limit: usize) -> bool {
        let Some(row) = self.hubs.get_mut(hub) else {
            return false;
        };
        row.stopping = true;
        let others = self.serves_beside(hub, now);
        let bound = self.index.bound.get(hub).into_iter().flatten();
        let mut ids: Vec<ExecutionId> = bound.map(|(_, id)| *id).take(limit + 1).collect();
        if !others {
            let rest = limit + 1 - ids.len();
            let all = self.index.by_hub.values().flatten().map(|(_, id)| *id);
            ids.extend(all.take(rest));
        }
        let more = ids.len() > limit;
        ids.truncate(limit);
        for id in ids {
            let change = self.jobs.get(&id).and_then(|job| {
                let change = hub::on_stop(job, hub, now, others)?;
                (job.is_known(&self.settings) || job.submission.continues).then_some(change)
            });
            if let Some(change) = change {
                self.must(now, change);
            }
        }
        more
    }

    /// A hub has stopped, and is not coming back.
    pub fn end_hub(&mut self, hub: &HubId) {
        self.hubs.remove(hub);
    }

    /// True if another hub serves.
    fn serves_beside(&self, hub: &HubId, now: Timestamp) -> bool {
        let silence = self.settings.hub_silence;
        let mut others = self.hubs.iter().filter(|(id, _)| *id != hub);
        others.any(|(_, row)| !row.stopping && row.is_alive(now, silence))
    }

    /// True if a hub has ended or gave no sign of life for too long.
    pub(super) fn is_dead(&self, hub: &HubId, now: Timestamp) -> bool {
        let silence = self.settings.hub_silence;
        !(self.hubs.get(hub)).is_some_and(|row| row.is_alive(now, silence))
    }

    /// Takes over what waits and has no hub any more, oldest first, at most `limit` jobs.
    pub(super) fn take_over(&mut self, now: Timestamp, hub: &HubId, limit: usize) -> usize {
        let stopping = |of: &HubId| self.hubs.get(of).is_some_and(|row| row.stopping);
        let dead = |of: &HubId| of != hub && (stopping(of) || self.is_dead(of, now));
        let mut left: Vec<(u64, ExecutionId)> =
            self.index.paused.iter().copied().take(limit).collect();
        for (of, waiting) in &self.index.by_hub {
            // What waits with a hub that only stops goes on by itself.
            if of != hub && self.is_dead(of, now) {
                left.extend(waiting.iter().copied().take(limit));
            }
        }
        left.sort_unstable();
        left.truncate(limit);
        let changes: Vec<_> = left
            .into_iter()
            .filter_map(|(_, id)| {
                let job = self.jobs.get(&id)?;
                let change = hub::take_over(job, hub, now, dead(&job.hub))?;
                (job.is_known(&self.settings) || job.submission.continues).then_some(change)
            })
            .collect();
        let count = changes.len();
        for change in changes {
            self.must(now, change);
        }
        count
    }
}
