//! The queue's limits and lengths of time, each with a name.

use std::collections::BTreeSet;
use std::time::Duration;

/// Jobs that may wait in one queue, unless the queue says otherwise.
pub const WAITING_MAX_DEFAULT: u64 = 100_000;
/// How exact a position is: past so many it is "at least".
pub const POSITION_EXACT_MAX: usize = 100;
/// Jobs in one answer to a claim.
pub const CLAIM_BATCH_MAX: u32 = 256;
/// Lanes that one claim looks at. The next one goes on behind them.
pub const LANES_LOOKED_MAX: usize = 4_096;
/// Jobs that one claim makes ready because their delay or back-off is over. A pass makes the others.
pub const PROMOTED_PER_CLAIM_MAX: usize = 64;
/// Runners with an open claim that are asked whether a new job runs now.
pub const OPEN_CLAIMS_ASKED_MAX: usize = 16;
/// Runners whose declining is kept for one job. Past it the oldest is forgotten.
pub const DECLINES_KEPT_MAX: usize = 64;
/// Submitters whose last turn is remembered. Past it the one who was served longest ago is forgotten.
pub const TURNS_KEPT_MAX: usize = 10_000;
/// Reports that have to fit in a lease, so that a few that come late or not at all cost nothing.
pub const REPORTS_PER_LEASE_MIN: u32 = 3;

/// What an administrator may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Jobs that may wait in one queue.
    pub waiting_max: u64,
    /// How long the first answer to an idempotency key is given again.
    pub idempotency_window: Duration,
    /// A lane that was not served for so long counts as one priority higher, and so on for each
    /// further such time.
    pub ageing_step: Duration,
    /// After so long a job that a runner is large enough for, but has no room for now, makes one such
    /// runner take nothing else until it has.
    pub hold_after: Duration,
    /// How long a lease lasts without a report.
    pub lease: Duration,
    /// How often a runner reports.
    pub report_every: Duration,
    /// A hub that gave no sign of life for so long is dead.
    pub hub_silence: Duration,
    /// A runner that was not heard for so long does not count as one that could run something.
    pub runner_silence: Duration,
    /// How long a runner has to end an attempt that it was asked to end, beyond the lease.
    pub end_grace: Duration,
    /// How long a runner may prepare a job before it has to be started. Past it the job goes back, and
    /// not to that runner, however often that one reports.
    pub start_within: Duration,
    /// After so many lost runners a job is set apart, whatever its policy says.
    pub losses_max: u32,
    /// How long a job waits for a runner that could run it, unless it says otherwise.
    pub unsatisfiable_after: Duration,
    /// The newest format of a stored submission that this version can read.
    pub format: u32,
    /// The kinds of work that this version knows. Jobs of others are left alone.
    pub kinds: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            waiting_max: WAITING_MAX_DEFAULT,
            idempotency_window: Duration::from_secs(24 * 3600),
            ageing_step: Duration::from_secs(600),
            hold_after: Duration::from_secs(300),
            lease: Duration::from_secs(30),
            report_every: Duration::from_secs(5),
            hub_silence: Duration::from_secs(15),
            runner_silence: Duration::from_secs(90),
            end_grace: Duration::from_secs(60),
            start_within: Duration::from_secs(3600),
            losses_max: 3,
            unsatisfiable_after: Duration::from_secs(3600),
            format: crate::submission::FORMAT,
            kinds: BTreeSet::from([crate::submission::KIND_JOB.to_owned()]),
        }
    }
}

/// Says that settings do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    /// Too few reports fit in a lease.
    #[error(
        "a lease of {lease:?} holds fewer than {REPORTS_PER_LEASE_MIN} reports at {report_every:?} \
         each; make the lease longer or the reports more frequent"
    )]
    LeaseTooShort {
        /// The lease.
        lease: Duration,
        /// The time between reports.
        report_every: Duration,
    },
    /// A length of time that is divided by is zero.
    #[error("{name} is zero; it has to be longer")]
    Zero {
        /// Which setting.
        name: &'static str,
    },
}

impl Settings {
    /// Looks whether the settings go together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), BadSettings> {
        for (name, length) in [
            ("ageing_step", self.ageing_step),
            ("report_every", self.report_every),
            ("hub_silence", self.hub_silence),
        ] {
            if length.is_zero() {
                return Err(BadSettings::Zero { name });
            }
        }
        if self.lease < self.report_every * REPORTS_PER_LEASE_MIN {
            return Err(BadSettings::LeaseTooShort {
                lease: self.lease,
                report_every: self.report_every,
            });
        }
        Ok(())
    }
}
