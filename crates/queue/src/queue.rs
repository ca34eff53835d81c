//! The whole queue in memory, made of nothing but the decisions of this crate.
//!
//! It is what a store with SQL has to equal, and what the simulator drives. Every change of a job goes
//! through [`Queue::commit`]: compare, set, append to the history.

mod claim;
mod hubs;
mod index;
mod lanes;
mod pass;
mod report;
mod submit;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::event::EVENT_VERSION;
use tidemill_core::{Event, EventRecord, ExecutionId, RunnerId, Timestamp};

use crate::cancel::{self, CancelAnswer};
use crate::group::Lock;
use crate::hub::{Hub, HubId};
use crate::job::{Change, Class, Job, Place, Stage};
use crate::offer::{ClaimNumber, Incarnation, Offer, Profile};
use crate::settings::{BadSettings, Settings};
use crate::submission::{AnswerKey, CoalescingKey, GroupKey, QueueKey};
use crate::submit::KeptAnswer;

pub use claim::{Assignment, ClaimAnswer, Planned};
use index::Index;
pub use pass::PassReport;
pub use waiting::Waits;

/// The whole queue.
#[derive(Debug, Clone)]
pub struct Queue {
    settings: Settings,
    hubs: BTreeMap<HubId, Hub>,
    runners: BTreeMap<RunnerId, Runner>,
    queues: BTreeMap<QueueKey, QueueRow>,
    jobs: BTreeMap<ExecutionId, Job>,
    history: BTreeMap<ExecutionId, Vec<EventRecord>>,
    /// One waiting job per coalescing key.
    keys: BTreeMap<CoalescingKey, ExecutionId>,
    answers: BTreeMap<AnswerKey, KeptAnswer>,
    answers_by_age: BTreeSet<(Timestamp, AnswerKey)>,
    locks: BTreeMap<GroupKey, Lock>,
    index: Index,
    /// The last turn of each submitter of a queue.
    turns: BTreeMap<(QueueKey, String), u64>,
    newest_turn: u64,
    arrivals: u64,
    incarnations: u64,
    cursors: pass::Cursors,
}

/// What is known of a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Runner {
    profile: Profile,
    incarnation: Incarnation,
    seen: Timestamp,
    settled: ClaimNumber,
    /// Its open claim, if nothing was there for it.
    open: Option<Offer>,
}

impl Runner {
    /// A claim that the runner gave up, or that it made before it began to drain, gets nothing any more.
    fn forget_settled_claim(&mut self) {
        let (settled, draining) = (self.settled, self.profile.draining);
        self.open = (self.open.take()).filter(|open| open.claim > settled && !draining);
    }
}

/// What is set for one queue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct QueueRow {
    paused: Option<String>,
    waiting_max: Option<u64>,
    running_max: Option<u64>,
}

/// Why a change was not made. Nothing of it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Somebody was faster: the row is not as expected any more.
    #[error("somebody was faster")]
    Changed,
    /// Another one of the group is with a runner.
    #[error("another one of the group is with a runner")]
    GroupBusy,
}

impl Queue {
    /// An empty queue.
    ///
    /// # Errors
    /// If the settings do not go together.
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        settings.check()?;
        Ok(Self {
            settings,
            hubs: BTreeMap::new(),
            runners: BTreeMap::new(),
            queues: BTreeMap::new(),
            jobs: BTreeMap::new(),
            history: BTreeMap::new(),
            keys: BTreeMap::new(),
            answers: BTreeMap::new(),
            answers_by_age: BTreeSet::new(),
            locks: BTreeMap::new(),
            index: Index::default(),
            turns: BTreeMap::new(),
            newest_turn: 0,
            arrivals: 0,
            incarnations: 0,
            cursors: pass::Cursors::default(),
        })
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Other settings, as a hub of another version has them. What waits stays as it is.
    ///
    /// # Errors
    /// If they do not go together.
    pub fn set_settings(&mut self, settings: Settings) -> Result<(), BadSettings> {
        settings.check()?;
        self.settings = settings;
        // Which jobs are known depends on them.
        self.index = Index::of(self.jobs.values(), &self.settings);
        Ok(())
    }

    /// One job.
    pub fn job(&self, id: ExecutionId) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// All jobs, oldest id first.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// The history of one job, as a ledger would be given it.
    pub fn history(&self, id: ExecutionId) -> &[EventRecord] {
        self.history.get(&id).map_or(&[], Vec::as_slice)
    }

    /// How many jobs of a queue wait, for whatever reason.
    pub fn waiting(&self, queue: &QueueKey) -> u64 {
        self.index.waiting(queue)
    }

    /// Pauses a queue: it accepts and does not start.
    pub fn pause(&mut self, queue: &QueueKey, why: impl Into<String>) {
        self.queues.entry(queue.clone()).or_default().paused = Some(why.into());
    }

    /// Ends the pause of a queue.
    pub fn resume(&mut self, queue: &QueueKey) {
        self.queues.entry(queue.clone()).or_default().paused = None;
    }

    /// Sets how many jobs may wait in a queue; the hub's setting if `None`.
    pub fn set_waiting_max(&mut self, queue: &QueueKey, max: Option<u64>) {
        self.queues.entry(queue.clone()).or_default().waiting_max = max;
    }

    /// Sets how many jobs of a queue runners may have at once; as many as there is room for if `None`.
    pub fn set_running_max(&mut self, queue: &QueueKey, max: Option<u64>) {
        self.queues.entry(queue.clone()).or_default().running_max = max;
    }

    /// How many more jobs of a queue runners may have.
    fn room(&self, queue: &QueueKey) -> u64 {
        let max = self.queues.get(queue).and_then(|row| row.running_max);
        max.map_or(u64::MAX, |max| {
            max.saturating_sub(self.index.running(queue))
        })
    }

    /// Asks to cancel a job.
    pub fn cancel(&mut self, now: Timestamp, id: ExecutionId, by: &str) -> CancelAnswer {
        let (answer, change) = cancel::request(self.jobs.get(&id), by, now);
        if let Some(change) = change {
            self.must(now, change);
        }
        answer
    }

    /// Makes a change if the job is still as the change expects: whoever decided on something older
    /// changes nothing, and hears so.
    ///
    /// # Errors
    /// If somebody was faster.
    pub fn commit(&mut self, now: Timestamp, change: Change) -> Result<(), Conflict> {
        let Change {
            expected,
            job,
            events,
        } = change;
        let id = job.id;
        let old = self.jobs.get(&id);
        match (old, &expected) {
            (None, None) => {}
            (Some(old), Some(token)) if old.is(token) => {}
            _ => return Err(Conflict::Changed),
        }
        if old.is_some_and(|old| matches!(old.stage, Stage::Done { .. })) {
            return Err(Conflict::Changed);
        }
        let group = job.submission.group_key();
        let begins = job.lease().filter(|lease| {
            old.and_then(Job::lease)
                .is_none_or(|before| before.attempt != lease.attempt)
        });
        if let (Some(group), Some(lease)) = (&group, begins) {
            let lock = Lock {
                execution: id,
                attempt: lease.attempt,
            };
            self.lock(group, lock)?;
        }
        let old = self.jobs.remove(&id);
        self.index.replace(old.as_ref(), &job, &self.settings);
        if let Some(old) = &old {
            self.release_key(old);
        }
        self.append(now, id, events);
        self.take_key(&job);
        self.jobs.insert(id, job);
        if let Some(group) = group {
            self.settle(&group);
        }
        Ok(())
    }

    /// Makes a change that was decided on the present row.
    fn must(&mut self, now: Timestamp, change: Change) {
        let result = self.commit(now, change);
        debug_assert_eq!(result, Ok(()), "the row was read a moment ago");
    }

    fn append(&mut self, at: Timestamp, execution: ExecutionId, events: Vec<Event>) {
        let history = self.history.entry(execution).or_default();
        for event in events {
            let last = history.last().map_or(0, |record| record.sequence);
            history.push(EventRecord {
                version: EVENT_VERSION,
                execution,
                sequence: last + 1,
                at,
                event,
            });
        }
    }

    /// Takes the place of a group. A lock that nobody is behind is no obstacle.
    fn lock(&mut self, group: &GroupKey, lock: Lock) -> Result<(), Conflict> {
        if let Some(other) = self.locks.get(group)
            && !other.is_orphaned(self.jobs.get(&other.execution))
        {
            return Err(Conflict::GroupBusy);
        }
        self.locks.insert(group.clone(), lock);
        Ok(())
    }

    /// Frees a group that nobody has, and lets the first of those that wait for it be claimed.
    fn settle(&mut self, group: &GroupKey) {
        if let Some(lock) = self.locks.get(group)
            && lock.is_orphaned(self.jobs.get(&lock.execution))
        {
            self.locks.remove(group);
        }
        let free = !self.locks.contains_key(group);
        let first = self.index.first_of_group(group).filter(|_| free);
        let ready = self.index.ready_of_group(group);
        if ready == first {
            return;
        }
        if let Some(id) = ready {
            self.place(id, Place::Ready, Place::Blocked);
        }
        if let Some(id) = first {
            self.place(id, Place::Blocked, Place::Ready);
        }
    }

    /// Moves a waiting job from one place to another, which is no event.
    fn place(&mut self, id: ExecutionId, from: Place, to: Place) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.place() == Some(from) {
            let old = job.clone();
            job.stage = Stage::Waiting { place: to };
            self.index.replace(Some(&old), job, &self.settings);
        }
    }

    /// A waiting job holds its coalescing key, unless a newer one has it.
    fn take_key(&mut self, job: &Job) {
        let Some(key) = job.submission.coalescing_key().filter(|_| job.waits()) else {
            return;
        };
        if self.holder(&key).is_none() {
            self.keys.insert(key, job.id);
        }
    }

    fn release_key(&mut self, job: &Job) {
        if let Some(key) = job.submission.coalescing_key()
            && self.keys.get(&key) == Some(&job.id)
        {
            self.keys.remove(&key);
        }
    }

    /// The waiting job that holds a key. A key whose job does not wait any more is held by nobody.
    fn holder(&self, key: &CoalescingKey) -> Option<&Job> {
        let job = self.jobs.get(self.keys.get(key)?)?;
        job.waits().then_some(job)
    }

    fn serving_since(&self, now: Timestamp) -> Option<Timestamp> {
        crate::hub::serving_since(self.hubs.values(), now, self.settings.hub_silence)
    }

    /// Runners that were heard not long ago.
    fn live_runners(&self, now: Timestamp) -> impl Iterator<Item = &Runner> {
        let silence = self.settings.runner_silence;
        (self.runners.values()).filter(move |runner| now.since(runner.seen) < silence)
    }

    fn is_paused(&self, queue: &QueueKey) -> bool {
        self.queues
            .get(queue)
            .is_some_and(|row| row.paused.is_some())
    }

    fn class_is_known(&self, class: &Class) -> bool {
        class.format <= self.settings.format && self.settings.kinds.contains(&class.kind)
    }

    /// Checks that the books agree with the rows.
    ///
    /// # Panics
    /// If they do not.
    pub fn check_invariants(&self) {
        let fresh = Index::of(self.jobs.values(), &self.settings);
        assert_eq!(
            self.index.rows(),
            fresh,
            "the indexes are those of the rows"
        );
        for (key, id) in &self.keys {
            let holder = self.jobs.get(id).expect("a key names a job");
            assert!(holder.waits(), "a key is held by one that waits");
            assert_eq!(holder.submission.coalescing_key().as_ref(), Some(key));
        }
        for (group, lock) in &self.locks {
            let holder = self.jobs.get(&lock.execution);
            assert!(!lock.is_orphaned(holder), "somebody has {group:?}");
        }
        for group in self.index.groups() {
            let free = !self.locks.contains_key(group);
            let first = self.index.first_of_group(group).filter(|_| free);
            assert_eq!(
                self.index.ready_of_group(group),
                first,
                "who is next in {group:?}"
            );
        }
        for job in self.jobs.values() {
            let group = job.submission.group_key();
            if let (Some(lease), Some(group)) = (job.lease(), group) {
                let lock = self.locks.get(&group).expect("who runs has the group");
                assert_eq!((lock.execution, lock.attempt), (job.id, lease.attempt));
            }
            assert!(job.tries.charged <= job.tries.last.0);
        }
    }
}
