//! The pass that every hub makes every second or so: whatever follows from the time alone. Each part
//! looks at a bounded number of rows and goes on where it left off; what it cannot decide about, it
//! passes over.

use std::ops::Bound;

use tidemill_core::{ExecutionId, Timestamp};

use crate::hub::HubId;
use crate::job::{Change, Class, Job};
use crate::matching::{NoRunner, could_run, no_runner};
use crate::offer::Profile;
use crate::patience;
use crate::queue::Queue;
use crate::queue::index::LaneKey;
use crate::rescue::{Rescuer, rescue};
use crate::submission::{CoalescingKey, GroupKey};

/// Rows that one part looks at for each one that it may change.
const LOOKED_PER_CHANGE: usize = 8;

/// Where the parts go on.
#[derive(Debug, Clone, Default)]
pub(super) struct Cursors {
    pub(super) lane: Option<(Class, LaneKey)>,
    lease: Option<ExecutionId>,
    class: Option<Class>,
    declined: Option<ExecutionId>,
    group: Option<GroupKey>,
    key: Option<CoalescingKey>,
}

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassReport {
    /// Jobs whose delay or back-off was over.
    pub promoted: usize,
    /// Jobs of dead hubs that go on.
    pub taken_over: usize,
    /// Jobs about which something was decided because its time had come.
    pub due: usize,
    /// Attempts that were lost.
    pub lost: usize,
    /// Jobs that nobody could run for too long.
    pub given_up: usize,
    /// Group places and coalescing keys that nobody was behind.
    pub freed: usize,
}

impl Queue {
    /// Does what follows from the time, for at most `limit` jobs each. It is the hub's sign of life.
    pub fn pass(&mut self, now: Timestamp, hub: &HubId, limit: usize) -> PassReport {
        let silence = self.settings.hub_silence;
        let Some(row) = self.hubs.get_mut(hub) else {
            return PassReport::default();
        };
        row.give_sign(now, silence);
        let stopping = row.stopping;
        let mut report = PassReport {
            promoted: self.promote(now, limit),
            ..PassReport::default()
        };
        if !stopping {
            report.taken_over = self.take_over(now, hub, limit);
        }
        report.due = self.decide_due(now, hub, limit);
        report.lost = self.rescue(now, hub, limit);
        report.given_up = self.give_up(now, limit) + self.give_up_declined(now, limit);
        report.freed = self.free_orphans(limit);
        self.forget_answers(now, limit);
        report
    }

    /// Lets jobs be claimed whose delay or back-off is over, the one that is over longest first.
    pub(super) fn promote(&mut self, now: Timestamp, limit: usize) -> usize {
        let over: Vec<_> = self
            .index
            .later
            .iter()
            .take_while(|(until, _)| *until <= now)
            .map(|(_, id)| *id)
            .take(limit)
            .collect();
        let count = over.len();
        for id in over {
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            let (from, to, group) = (job.place(), job.place_in_line(), job.submission.group_key());
            if let Some(from) = from {
                self.place(id, from, to);
            }
            if let Some(group) = group {
                self.settle(&group);
            }
        }
        count
    }

    /// Decides about jobs that have waited too long, whose deadline has passed, or whose runner was
    /// asked to end them and does not.
    fn decide_due(&mut self, now: Timestamp, hub: &HubId, limit: usize) -> usize {
        let due = self.index.due.iter().take_while(|(at, _)| *at <= now);
        let changes: Vec<_> = due
            .take(limit.saturating_mul(LOOKED_PER_CHANGE))
            .filter_map(|(_, id)| {
                let job = self.jobs.get(id)?;
                if job
                    .lease()
                    .is_some_and(|lease| self.is_others(&lease.hub, hub, now))
                {
                    return None;
                }
                patience::when_due(job, now, &self.settings)
            })
            .take(limit)
            .collect();
        self.make(now, changes)
    }

    /// True if a lease is for another hub to end, which lives.
    fn is_others(&self, owner: &HubId, hub: &HubId, now: Timestamp) -> bool {
        owner != hub && !self.is_dead(owner, now)
    }

    /// Ends leases whose runner was not heard, and makes those of dead hubs this hub's.
    fn rescue(&mut self, now: Timestamp, hub: &HubId, limit: usize) -> usize {
        let from = self.cursors.lease.map_or(Bound::Unbounded, Bound::Excluded);
        let looked: Vec<_> = self
            .index
            .leases
            .range((from, Bound::Unbounded))
            .copied()
            .take(limit)
            .collect();
        self.cursors.lease = (looked.len() == limit)
            .then(|| looked.last().copied())
            .flatten();
        let changes: Vec<_> = looked
            .into_iter()
            .filter_map(|id| self.rescue_one(self.jobs.get(&id)?, now, hub))
            .collect();
        let lost = changes.iter().filter(|change| change.job.lease().is_none());
        let lost = lost.count();
        self.make(now, changes);
        lost
    }

    fn rescue_one(&self, job: &Job, now: Timestamp, hub: &HubId) -> Option<Change> {
        let rescuer = Rescuer {
            hub,
            owner_is_dead: self.is_dead(&job.lease()?.hub, now),
            serving_since: self.serving_since(now),
        };
        rescue(job, rescuer, now, &self.settings)
    }

    /// Ends jobs of classes that no runner could run for too long.
    fn give_up(&mut self, now: Timestamp, limit: usize) -> usize {
        let classes = self.next_classes(limit);
        let mut changes = Vec::new();
        for class in classes {
            let miss = self.no_runner(&class, now);
            let Some(index) = self.index.classes.get_mut(&class) else {
                continue;
            };
            let Some(miss) = miss else {
                index.unmet_since = None;
                continue;
            };
            let since = *index.unmet_since.get_or_insert(now);
            let line = self.index.classes[&class].line.values();
            let over = line
                .filter_map(|id| self.jobs.get(id))
                .take_while(|job| patience::gives_up_at(job, since, &self.settings) <= now)
                .take(limit - changes.len().min(limit));
            changes.extend(over.map(|job| patience::give_up(job, &miss, now)));
        }
        self.make(now, changes)
    }

    /// The next known classes to be looked at, each once in a round.
    fn next_classes(&mut self, limit: usize) -> Vec<Class> {
        let from = self.cursors.class.as_ref();
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let classes = self
            .index
            .classes
            .range::<Class, _>((from, Bound::Unbounded));
        let classes: Vec<_> = classes
            .map(|(class, _)| class.clone())
            .take(limit)
            .collect();
        self.cursors.class = (classes.len() == limit)
            .then(|| classes.last().cloned())
            .flatten();
        let known = |class: &Class| self.class_is_known(class);
        classes.into_iter().filter(known).collect()
    }

    /// Why no runner that was heard lately could run jobs of a class. `None` if one could.
    pub(super) fn no_runner(&self, class: &Class, now: Timestamp) -> Option<NoRunner> {
        let profiles = self.live_runners(now).map(|runner| &runner.profile);
        no_runner(&class.queue, &class.requirements, profiles)
    }

    /// Ends jobs that every runner declined that could run them.
    fn give_up_declined(&mut self, now: Timestamp, limit: usize) -> usize {
        let from = self
            .cursors
            .declined
            .map_or(Bound::Unbounded, Bound::Excluded);
        let looked: Vec<_> = self
            .index
            .declined
            .range((from, Bound::Unbounded))
            .copied()
            .take(limit)
            .collect();
        self.cursors.declined = (looked.len() == limit)
            .then(|| looked.last().copied())
            .flatten();
        let changes: Vec<_> = looked
            .into_iter()
            .filter_map(|id| {
                let job = self.jobs.get(&id)?;
                let last = job.declines.last()?;
                let over = now.since(last.at) >= patience::patience(job, &self.settings);
                (over && job.is_known(&self.settings) && self.is_declined_by_all(job, now))
                    .then(|| patience::give_up_declined(job, now))?
            })
            .collect();
        self.make(now, changes)
    }

    /// True if there are runners that could run a job, and each of them declined it.
    pub(super) fn is_declined_by_all(&self, job: &Job, now: Timestamp) -> bool {
        let needs = &job.submission.requirements;
        let able =
            |profile: &Profile| profile.serves(&job.submission.queue) && could_run(needs, profile);
        let mut able = self
            .live_runners(now)
            .filter(|runner| able(&runner.profile))
            .map(|runner| job.was_declined_by(&runner.profile.name, runner.incarnation))
            .peekable();
        able.peek().is_some() && able.all(|declined| declined)
    }

    /// Forgets answers whose window is over, the oldest first.
    fn forget_answers(&mut self, now: Timestamp, limit: usize) {
        let window = self.settings.idempotency_window;
        for _ in 0..limit {
            let oldest = self.answers_by_age.first();
            if oldest.is_none_or(|(at, _)| now.since(*at) < window) {
                break;
            }
            if let Some((_, key)) = self.answers_by_age.pop_first() {
                self.answers.remove(&key);
            }
        }
    }

    /// Frees group places and coalescing keys that nobody is behind.
    fn free_orphans(&mut self, limit: usize) -> usize {
        let from = self.cursors.group.as_ref();
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let groups = self.locks.range::<GroupKey, _>((from, Bound::Unbounded));
        let groups: Vec<_> = groups.map(|(group, _)| group.clone()).take(limit).collect();
        self.cursors.group = (groups.len() == limit)
            .then(|| groups.last().cloned())
            .flatten();
        let before = self.locks.len();
        for group in groups {
            self.settle(&group);
        }
        let freed = before - self.locks.len();
        let from = self.cursors.key.as_ref();
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let keys = self
            .keys
            .range::<CoalescingKey, _>((from, Bound::Unbounded));
        let keys: Vec<_> = keys.map(|(key, _)| key.clone()).take(limit).collect();
        self.cursors.key = (keys.len() == limit)
            .then(|| keys.last().cloned())
            .flatten();
        let orphaned: Vec<_> = keys
            .into_iter()
            .filter(|key| self.holder(key).is_none())
            .collect();
        for key in &orphaned {
            self.keys.remove(key);
        }
        freed + orphaned.len()
    }

    /// Makes changes that were decided on the present rows; one that conflicts keeps none of the
    /// others from being made.
    fn make(&mut self, now: Timestamp, changes: Vec<Change>) -> usize {
        let results = changes.into_iter().map(|change| self.commit(now, change));
        results.filter(Result::is_ok).count()
    }
}
