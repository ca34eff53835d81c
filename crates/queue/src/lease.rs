//! Leases: a runner has an attempt as long as it is heard. Only the database's clock counts.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_core::{Attempt, RunnerId, State, Timestamp};

use crate::hub::HubId;
use crate::job::{Change, Job, Stage};
use crate::offer::{AttemptKey, ClaimNumber, Incarnation};

/// A runner has an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Which runner. The lease stands on its own: the runner's row may be gone.
    pub runner: RunnerId,
    /// Which of its lives.
    pub incarnation: Incarnation,
    /// Which attempt.
    pub attempt: Attempt,
    /// Which of the runner's claims got it.
    pub claim: ClaimNumber,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it ends without a report, by the database's clock.
    pub until: Timestamp,
    /// The hub that ends it. Another one does so only once this one is dead.
    pub hub: HubId,
    /// True once its program was started.
    pub started: bool,
    /// What its runner was asked to do.
    pub asked: Option<Asked>,
}

/// A runner was asked to end an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// Why.
    pub why: Ask,
    /// When.
    pub at: Timestamp,
}

/// Why a runner is asked to end an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ask {
    /// Somebody cancelled it.
    Cancel {
        /// Who.
        by: String,
    },
    /// The job's deadline has passed.
    Deadline,
}

impl Lease {
    /// The state of an execution with this lease.
    pub const fn state(&self) -> State {
        match (&self.asked, self.started) {
            (
                Some(Asked {
                    why: Ask::Cancel { .. },
                    ..
                }),
                _,
            ) => State::Cancelling,
            (_, true) => State::Running,
            (_, false) => State::Starting,
        }
    }
}

/// Says that what an attempt says is refused: it is not the one under way. Whoever hears it kills
/// the job and says no more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("attempt {said} is gone: it is not the one under way")]
pub struct Gone {
    /// What was said.
    pub said: Attempt,
}

/// Who says something of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speaker<'a> {
    /// Which runner.
    pub runner: &'a RunnerId,
    /// Which of its lives.
    pub incarnation: Incarnation,
}

/// Refuses what a stale attempt says. A later life of the runner may speak for an attempt of an
/// earlier one: it found the end on its disk.
///
/// # Errors
/// If somebody else has the job, or nobody, or another attempt is under way.
pub fn fence<'a>(job: &'a Job, who: Speaker<'_>, said: Attempt) -> Result<&'a Lease, Gone> {
    job.lease()
        .filter(|lease| {
            lease.attempt == said
                && lease.runner == *who.runner
                && lease.incarnation <= who.incarnation
        })
        .ok_or(Gone { said })
}

/// Renews the lease of an attempt that its runner named.
pub fn renew(job: &Job, who: Speaker<'_>, until: Timestamp) -> Option<Change> {
    let lease = job.lease()?;
    // Claims are numbered anew in each life: what came out of an earlier one's is settled.
    let claim = if lease.incarnation == who.incarnation {
        lease.claim
    } else {
        ClaimNumber::default()
    };
    let renewed = Lease {
        incarnation: who.incarnation,
        claim,
        until: lease.until.max(until),
        ..lease.clone()
    };
    (renewed != *lease).then(|| job.to(Stage::Leased(renewed), Vec::new()))
}

/// What a runner said of what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account<'a> {
    /// Who says it.
    pub who: Speaker<'a>,
    /// The attempts that it named, sorted.
    pub held: &'a [AttemptKey],
    /// Every claim up to this one was answered or given up.
    pub settled: ClaimNumber,
}

/// True if the runner has lost an attempt that the hub believes it holds: it did not name it, and no
/// answer that carries it can be on its way any more.
pub fn is_missing(job: &Job, account: Account<'_>) -> bool {
    let Some(lease) = job.lease() else {
        return false;
    };
    let key = AttemptKey {
        execution: job.id,
        attempt: lease.attempt,
    };
    if lease.runner != *account.who.runner || account.held.binary_search(&key).is_ok() {
        return false;
    }
    lease.incarnation < account.who.incarnation
        || (lease.incarnation == account.who.incarnation && lease.claim <= account.settled)
}

/// When a lease is lost: at its end, but not before runners could report for the time of a whole
/// lease. `None` if nobody could report, because no hub serves.
pub fn lost_at(
    lease: &Lease,
    serving_since: Option<Timestamp>,
    length: Duration,
) -> Option<Timestamp> {
    Some(lease.until.max(serving_since?.plus(length)))
}
