//! Which available job starts next.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tidemill_core::{JobSpec, Millis};

use crate::job::JobId;

/// A job's place: the lesser goes first. No two jobs have equal places, because each has its own
/// arrival number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    // The order of the fields is the order of comparison.
    priority: Reverse<i32>,
    estimate: Estimate,
    arrival: u64,
}

/// The lesser goes first: an unknown estimate, since the job may be the longest, then the longest
/// (which keeps the tail of a test run short).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Estimate {
    Unknown,
    Known(Reverse<Millis>),
}

impl Place {
    /// The place of a job that arrived as the `arrival`-th.
    pub(crate) fn of(spec: &JobSpec, arrival: u64) -> Self {
        Self {
            priority: Reverse(spec.priority),
            estimate: spec.estimate.map_or(Estimate::Unknown, |estimate| {
                Estimate::Known(Reverse(estimate))
            }),
            arrival,
        }
    }

    /// When the job arrived, counted in jobs.
    pub(crate) const fn arrival(&self) -> u64 {
        self.arrival
    }
}

/// The available jobs. A search tree instead of a binary heap, because a cancelled job is taken out
/// of the middle.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    jobs: BTreeMap<Place, JobId>,
}

impl Queue {
    pub(crate) fn insert(&mut self, place: Place, job: JobId) {
        let before = self.jobs.insert(place, job);
        debug_assert!(before.is_none(), "two jobs have one place");
    }

    pub(crate) fn remove(&mut self, place: Place) {
        let removed = self.jobs.remove(&place);
        debug_assert!(removed.is_some(), "the job was not in the queue");
    }

    /// Who is next.
    pub(crate) fn first(&self) -> Option<JobId> {
        self.jobs.first_key_value().map(|(_, job)| *job)
    }

    /// All, the next first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, JobId)> {
        self.jobs.iter().map(|(place, job)| (*place, *job))
    }
}
