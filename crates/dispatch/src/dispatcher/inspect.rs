//! Reading the dispatcher, without any effect, and checking that it does not contradict itself.

use std::collections::BTreeMap;
use std::fmt;

use tidemill_core::Timestamp;

use crate::deps::Deps;
use crate::dispatcher::Dispatcher;
use crate::job::{Job, JobId, Phase, Stage};
#[cfg(test)]
use crate::key::Key;
use crate::slots::Room;

impl<D: Deps> Dispatcher<D> {
    /// The adapter.
    pub const fn deps(&self) -> &D {
        &self.deps
    }

    /// The adapter.
    pub const fn deps_mut(&mut self) -> &mut D {
        &mut self.deps
    }

    /// Where a job stands; nothing if it is unknown or has ended.
    pub fn phase(&self, job: JobId) -> Option<Phase> {
        self.jobs.get(&job).map(Job::phase)
    }

    /// All jobs, where they stand and since when, in the order of their ids.
    pub fn jobs(&self) -> impl Iterator<Item = (JobId, Phase, Timestamp)> {
        self.jobs
            .iter()
            .map(|(id, job)| (*id, job.phase(), job.since))
    }

    /// What is free beside the jobs that execute or wait for a slot: what the runner tells the hub
    /// when it claims. Jobs that wait for layers are not counted, so that they block nobody; how
    /// many of them there may be is the claimer's matter. Nothing when shut down or drained.
    pub fn room(&self) -> Room {
        if self.stop.is_some() {
            return self.slots.no_room();
        }
        let available = self.queue.iter().map(|(_, id)| self.jobs[&id].needs);
        self.slots.room(available)
    }

    /// Whether the dispatcher was shut down or drained and the last job is gone.
    pub fn is_done(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.done)
    }

    /// Panics if the state contradicts itself. For tests and the simulator, after every message.
    ///
    /// # Panics
    /// If an invariant is broken.
    pub fn check_invariants(&self) {
        let executing = self.jobs.values().filter(|job| job.is_executing());
        self.slots.check(executing.map(|job| job.needs));
        let queued: Vec<_> = self.queue.iter().collect();
        for (place, id) in &queued {
            let job = self.jobs.get(id).expect("a queued job is known");
            assert_eq!(job.place, *place, "{id} stands at a wrong place");
            assert_eq!(job.phase(), Phase::Available, "{id} is queued");
        }
        let available = self
            .jobs
            .values()
            .filter(|job| job.phase() == Phase::Available);
        assert_eq!(
            available.count(),
            queued.len(),
            "an available job is not queued"
        );
        if let Some(next) = self.queue.first() {
            assert!(
                !self.slots.fits(self.jobs[&next].needs),
                "{next} could start"
            );
        }
        for (id, job) in &self.jobs {
            let awaited = job.references.awaited();
            assert!(awaited.is_subset(&self.awaited), "{id} waits for nothing");
            assert!(
                awaited.is_disjoint(job.references.held()),
                "{id} waits for what it has"
            );
            match &job.stage {
                Stage::AwaitingLayers { tracker, .. } => {
                    assert!(!awaited.is_empty() || tracker.reads(), "{id} is stuck");
                }
                Stage::Available { .. } | Stage::Executing(_) => {
                    assert!(awaited.is_empty(), "{id} goes on without {awaited:?}");
                }
            }
        }
        for key in self.builds.keys() {
            assert!(self.awaited.contains(key), "{key} is built for nothing");
        }
        for (id, key) in self.builds.left_behind() {
            assert!(!self.jobs.contains_key(id), "{id} left {key} behind");
        }
        assert!(self.newly_available.is_empty(), "a status was not told");
        if let Some(stop) = &self.stop {
            assert!(
                queued.is_empty(),
                "a job waits although the dispatcher stops"
            );
            assert_eq!(
                stop.done,
                self.jobs.is_empty(),
                "done, exactly when nobody is left"
            );
        }
    }

    /// How many references each key has, over all jobs and what the builds of others read.
    #[cfg(test)]
    pub(crate) fn references(&self) -> BTreeMap<Key, usize> {
        let mut counts = BTreeMap::new();
        let held = self.jobs.values().flat_map(|job| job.references.held());
        let left_behind = self.builds.left_behind().map(|(_, key)| key);
        for key in held.chain(left_behind) {
            *counts.entry(key.clone()).or_default() += 1;
        }
        counts
    }
}

impl<D: Deps> fmt::Debug for Dispatcher<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phases: BTreeMap<_, _> = self.jobs().map(|(id, phase, _)| (id, phase)).collect();
        f.debug_struct("Dispatcher")
            .field("slots", &self.slots)
            .field("jobs", &phases)
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}
