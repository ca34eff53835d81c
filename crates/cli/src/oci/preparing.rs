//! The time that a job has until everything that it needs is here.

use std::time::{Duration, Instant};

use tidemill_core::Millis;

/// How long the layers of a job may take, unless it is said otherwise.
const LIMIT: Duration = Duration::from_hours(1);

/// A time to prepare that has begun.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preparing {
    limit: Duration,
    began: Instant,
}

impl Preparing {
    /// Begins now. Without a limit it is an hour.
    pub(crate) fn begin(limit: Option<Millis>) -> Self {
        Self {
            limit: limit.map_or(LIMIT, Millis::as_duration),
            began: Instant::now(),
        }
    }

    /// All of it.
    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// How long it goes on.
    pub(crate) fn spent(&self) -> Duration {
        self.began.elapsed()
    }

    /// What is left of it.
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.spent())
    }
}
