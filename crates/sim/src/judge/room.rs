//! Who fits, who is next, and what is free.

use tidemill_core::{ByteSize, CpuCount};
use tidemill_dispatch::{JobId, Needs, Room};

use super::Judge;
use super::job::{Job, Stage};
use crate::coverage::Kind;

/// What several jobs take.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    slots: u64,
    memory: u64,
    cpu_thousandths: u64,
}

impl Used {
    fn of<'a>(jobs: impl Iterator<Item = &'a Job>) -> Self {
        jobs.fold(Self::default(), |used, job| used.with(job.request.needs))
    }

    fn with(self, needs: Needs) -> Self {
        Self {
            slots: self.slots + 1,
            memory: self.memory + needs.memory.0,
            cpu_thousandths: self.cpu_thousandths + u64::from(needs.cpu_thousandths),
        }
    }
}

impl Judge {
    /// The available job that goes before all others, if it fits.
    pub(super) fn next_to_start(&self) -> Option<JobId> {
        let (id, job) = self.first_available()?;
        self.fits(job).then_some(id)
    }

    fn first_available(&self) -> Option<(JobId, &Job)> {
        let available = self.live().filter(|(_, job)| job.stage == Stage::Available);
        available.reduce(|first, other| {
            if other.1.goes_before(first.1) {
                other
            } else {
                first
            }
        })
    }

    /// Whether a job may start beside those that have a process.
    pub(super) fn fits(&self, job: &Job) -> bool {
        let used = self.used();
        used.slots == 0 || self.is_within(used.with(job.request.needs))
    }

    fn used(&self) -> Used {
        let mounted = self.live().filter(|(_, job)| job.is_mounted());
        Used::of(mounted.map(|(_, job)| job))
    }

    fn is_within(&self, used: Used) -> bool {
        used.slots <= self.slots() && self.is_within_budget(used)
    }

    fn is_within_budget(&self, used: Used) -> bool {
        let memory = self.capacity.memory.map_or(u64::MAX, |memory| memory.0);
        let cpus = self
            .capacity
            .cpus
            .map_or(u64::MAX, |cpus| u64::from(cpus.thousandths));
        used.memory <= memory && used.cpu_thousandths <= cpus
    }

    fn slots(&self) -> u64 {
        self.capacity.slots.get().into()
    }

    /// What the dispatcher has to offer to the hub.
    pub(super) fn room(&self) -> Room {
        let taken = self
            .live()
            .filter(|(_, job)| job.is_mounted() || job.stage == Stage::Available);
        let used = Used::of(taken.map(|(_, job)| job));
        let stopped = self.stop.is_some();
        let left = |all: u64, used: u64| if stopped { 0 } else { all.saturating_sub(used) };
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Room {
            slots: narrow(left(self.slots(), used.slots)),
            memory: (self.capacity.memory).map(|memory| ByteSize(left(memory.0, used.memory))),
            cpus: self.capacity.cpus.map(|cpus| CpuCount {
                thousandths: narrow(left(cpus.thousandths.into(), used.cpu_thousandths)),
            }),
        }
    }

    /// Notes by which rule a job starts before the others.
    pub(super) fn note_why(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        let used = self.used();
        let alone = used.slots == 0 && !self.is_within_budget(used.with(job.request.needs));
        let spec = &job.request.spec;
        let mut kinds = Vec::new();
        for (_, other) in self
            .live()
            .filter(|(_, other)| other.stage == Stage::Available)
        {
            let others = &other.request.spec;
            if other.arrival == job.arrival {
                continue;
            }
            kinds.push(if spec.priority > others.priority {
                Kind::ByPriority
            } else if spec.estimate.is_none() && others.estimate.is_some() {
                Kind::ByUnknownEstimate
            } else if spec.estimate > others.estimate {
                Kind::ByLongestEstimate
            } else {
                Kind::ByArrival
            });
        }
        let at_once = self.expected.endings.is_empty() && job.arrival + 1 == self.arrivals;
        let at_once = at_once && job.told.is_empty();
        self.coverage.hit_if(alone, Kind::LoneLargeJob);
        self.coverage.hit_if(at_once, Kind::EnqueueStartsAtOnce);
        for kind in kinds {
            self.coverage.hit(kind);
        }
    }

    /// Notes what holds back the jobs that are left.
    pub(super) fn note_who_waits(&mut self) {
        let Some((first, _)) = self.first_available() else {
            return;
        };
        let slots_are_full = self.used().slots >= self.slots();
        let others = self
            .live()
            .filter(|(id, job)| *id != first && job.stage == Stage::Available);
        let passed = others.into_iter().any(|(_, job)| self.fits(job));
        self.coverage.hit_if(slots_are_full, Kind::WaitsForASlot);
        self.coverage
            .hit_if(!slots_are_full, Kind::WaitsForTheBudget);
        self.coverage.hit_if(passed, Kind::NobodyPasses);
    }
}
