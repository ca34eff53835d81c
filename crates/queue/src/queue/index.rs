//! The indexes of the queue. Each follows from the rows alone, so that they can be made anew and
//! compared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::{Digest, ExecutionId, RunnerId, Timestamp};

use crate::hub::HubId;
use crate::job::{Class, Job, Place, Stage};
use crate::order::Age;
use crate::settings::Settings;
use crate::submission::{GroupKey, QueueKey, Submission};

/// All indexes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Index {
    /// How many wait in each queue.
    counts: BTreeMap<QueueKey, u64>,
    /// How many of each queue runners have.
    running: BTreeMap<QueueKey, u64>,
    /// What waits, by the hub that is responsible, oldest first.
    pub(super) by_hub: BTreeMap<HubId, BTreeSet<(u64, ExecutionId)>>,
    /// Those of them that live and die with their hub.
    pub(super) bound: BTreeMap<HubId, BTreeSet<(u64, ExecutionId)>>,
    /// What is paused, oldest first.
    pub(super) paused: BTreeSet<(u64, ExecutionId)>,
    groups: BTreeMap<GroupKey, Group>,
    pub(super) classes: BTreeMap<Class, ClassIndex>,
    /// Jobs whose delay or back-off ends.
    pub(super) later: BTreeSet<(Timestamp, ExecutionId)>,
    /// Known jobs about which something is to be decided at a time.
    pub(super) due: BTreeSet<(Timestamp, ExecutionId)>,
    pub(super) leases: BTreeSet<ExecutionId>,
    pub(super) by_runner: BTreeMap<RunnerId, BTreeSet<ExecutionId>>,
    /// Waiting jobs that some runner declined.
    pub(super) declined: BTreeSet<ExecutionId>,
}

/// The waiting ones of a group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Group {
    members: BTreeMap<Age, ExecutionId>,
    ready: BTreeSet<ExecutionId>,
    /// Those that wait for nothing but the others.
    blocked: BTreeSet<ExecutionId>,
    /// Those that are alike, the oldest first.
    alike: BTreeMap<(String, Digest, Age), ExecutionId>,
}

/// What waits of one class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ClassIndex {
    /// All that wait and are not paused, oldest first.
    pub(super) line: BTreeMap<Age, ExecutionId>,
    /// Those that may be claimed.
    pub(super) lanes: BTreeMap<LaneKey, Lane>,
    /// Since when no runner could run them.
    pub(super) unmet_since: Option<Timestamp>,
}

/// A lane of a class: priority and submitter.
pub(super) type LaneKey = (Reverse<i32>, String);

/// Jobs that may be claimed and go one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Lane {
    pub(super) jobs: BTreeMap<Age, ExecutionId>,
    /// When one of them was last given to a runner.
    pub(super) served_at: Timestamp,
}

impl Index {
    /// The indexes of these rows.
    pub(super) fn of<'a>(jobs: impl IntoIterator<Item = &'a Job>, settings: &Settings) -> Self {
        let mut index = Self::default();
        for job in jobs {
            index.insert(job, settings);
        }
        index
    }

    /// The part that follows from the rows.
    pub(super) fn rows(&self) -> Self {
        let mut index = self.clone();
        for class in index.classes.values_mut() {
            class.unmet_since = None;
            for lane in class.lanes.values_mut() {
                lane.served_at = Timestamp::default();
            }
        }
        index
    }

    /// A row takes the place of another one, or is new.
    pub(super) fn replace(&mut self, old: Option<&Job>, new: &Job, settings: &Settings) {
        if let Some(old) = old {
            self.remove(old, settings);
        }
        self.insert(new, settings);
        if let Some(old) = old {
            self.prune(old);
        }
    }

    fn insert(&mut self, job: &Job, settings: &Settings) {
        let id = job.id;
        if job.waits() {
            count_up(&mut self.counts, &job.submission.queue);
            if let Some(key) = job.submission.group_key() {
                let group = self.groups.entry(key).or_default();
                group.members.insert(job.age(), id);
                group.alike.insert(alike(job), id);
                match job.place() {
                    Some(Place::Ready) => group.ready.insert(id),
                    Some(Place::Blocked) => group.blocked.insert(id),
                    _ => false,
                };
            }
        }
        match &job.stage {
            Stage::Waiting { place } => {
                let entry = (job.arrival, id);
                let of_hub = self.by_hub.entry(job.hub.clone()).or_default();
                of_hub.insert(entry);
                if !job.submission.continues {
                    let bound = self.bound.entry(job.hub.clone()).or_default();
                    bound.insert(entry);
                }
                let class = self.classes.entry(job.class()).or_default();
                class.line.insert(job.age(), id);
                match place {
                    Place::Delayed { until } | Place::BackOff { until } => {
                        self.later.insert((*until, id));
                    }
                    Place::Ready => {
                        let lane = class.lanes.entry(lane_key(job)).or_default();
                        lane.jobs.insert(job.age(), id);
                    }
                    Place::Blocked => {}
                }
                if !job.declines.is_empty() {
                    self.declined.insert(id);
                }
            }
            Stage::Leased(lease) => {
                self.leases.insert(id);
                count_up(&mut self.running, &job.submission.queue);
                let of_runner = self.by_runner.entry(lease.runner.clone()).or_default();
                of_runner.insert(id);
            }
            Stage::Paused { .. } => {
                self.paused.insert((job.arrival, id));
            }
            Stage::Done { .. } => {}
        }
        if let Some(due) = job.due(settings).filter(|_| job.is_known(settings)) {
            self.due.insert((due, id));
        }
    }

    fn remove(&mut self, job: &Job, settings: &Settings) {
        let id = job.id;
        if job.waits() {
            self.remove_waiting(job);
        }
        match &job.stage {
            Stage::Waiting { place } => {
                if let Place::Delayed { until } | Place::BackOff { until } = place {
                    self.later.remove(&(*until, id));
                }
                let entry = (job.arrival, id);
                take_out(&mut self.by_hub, &job.hub, &entry);
                take_out(&mut self.bound, &job.hub, &entry);
                self.remove_from_class(job);
                self.declined.remove(&id);
            }
            Stage::Leased(lease) => {
                self.leases.remove(&id);
                count_down(&mut self.running, &job.submission.queue);
                take_out(&mut self.by_runner, &lease.runner, &id);
            }
            Stage::Paused { .. } => {
                self.paused.remove(&(job.arrival, id));
            }
            Stage::Done { .. } => {}
        }
        if let Some(due) = job.due(settings) {
            self.due.remove(&(due, id));
        }
    }

    fn remove_waiting(&mut self, job: &Job) {
        count_down(&mut self.counts, &job.submission.queue);
        let Some(key) = job.submission.group_key() else {
            return;
        };
        if let Some(group) = self.groups.get_mut(&key) {
            group.members.remove(&job.age());
            group.alike.remove(&alike(job));
            group.ready.remove(&job.id);
            group.blocked.remove(&job.id);
            if group.members.is_empty() {
                self.groups.remove(&key);
            }
        }
    }

    /// Leaves the class and the lane in place, which know more than their rows do.
    fn remove_from_class(&mut self, job: &Job) {
        let Some(class) = self.classes.get_mut(&job.class()) else {
            return;
        };
        class.line.remove(&job.age());
        if let Some(lane) = class.lanes.get_mut(&lane_key(job)) {
            lane.jobs.remove(&job.age());
        }
    }

    /// Forgets the class and the lane of a job if nothing is left in them.
    fn prune(&mut self, job: &Job) {
        let key = job.class();
        let Some(class) = self.classes.get_mut(&key) else {
            return;
        };
        let lane_key = lane_key(job);
        if (class.lanes.get(&lane_key)).is_some_and(|lane| lane.jobs.is_empty()) {
            class.lanes.remove(&lane_key);
        }
        if class.line.is_empty() {
            self.classes.remove(&key);
        }
    }

    pub(super) fn waiting(&self, queue: &QueueKey) -> u64 {
        self.counts.get(queue).copied().unwrap_or(0)
    }

    pub(super) fn running(&self, queue: &QueueKey) -> u64 {
        self.running.get(queue).copied().unwrap_or(0)
    }

    /// The waiting ones of a group, the first one first.
    pub(super) fn of_group<'a>(
        &'a self,
        group: &GroupKey,
    ) -> impl Iterator<Item = ExecutionId> + use<'a> {
        let group = self.groups.get(group);
        group
            .into_iter()
            .flat_map(|group| group.members.values().copied())
    }

    /// The oldest waiting one of a group that is of the same kind with the same spec.
    pub(super) fn equal_of_group(
        &self,
        group: &GroupKey,
        submission: &Submission,
    ) -> Option<ExecutionId> {
        let (kind, spec) = (&submission.kind, submission.job.spec);
        let least = (kind.clone(), spec, Age::default());
        let alike = &self.groups.get(group)?.alike;
        let ((of_kind, of_spec, _), id) = alike.range(least..).next()?;
        (of_kind == kind && *of_spec == spec).then_some(*id)
    }

    /// Groups that some wait in.
    pub(super) fn groups(&self) -> impl Iterator<Item = &GroupKey> {
        self.groups.keys()
    }

    /// The first of a group, if it waits for nothing but the others of it.
    pub(super) fn first_of_group(&self, group: &GroupKey) -> Option<ExecutionId> {
        let group = self.groups.get(group)?;
        let first = *group.members.values().next()?;
        (group.ready.contains(&first) || group.blocked.contains(&first)).then_some(first)
    }

    /// The one of a group that may be claimed.
    pub(super) fn ready_of_group(&self, group: &GroupKey) -> Option<ExecutionId> {
        self.groups.get(group)?.ready.first().copied()
    }

    /// A job of this lane was given to a runner.
    pub(super) fn served(&mut self, job: &Job, now: Timestamp) {
        if let Some(class) = self.classes.get_mut(&job.class())
            && let Some(lane) = class.lanes.get_mut(&lane_key(job))
        {
            lane.served_at = now;
        }
    }
}

/// The lane of a job in its class.
pub(super) fn lane_key(job: &Job) -> LaneKey {
    (
        Reverse(job.submission.priority),
        job.submission.submitter.clone(),
    )
}

fn alike(job: &Job) -> (String, Digest, Age) {
    let submission = &job.submission;
    (submission.kind.clone(), submission.job.spec, job.age())
}

fn count_up(counts: &mut BTreeMap<QueueKey, u64>, queue: &QueueKey) {
    *counts.entry(queue.clone()).or_default() += 1;
}

fn count_down(counts: &mut BTreeMap<QueueKey, u64>, queue: &QueueKey) {
    if let Some(count) = counts.get_mut(queue) {
        *count -= 1;
        if *count == 0 {
            counts.remove(queue);
        }
    }
}

fn take_out<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
