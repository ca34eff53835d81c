//! What a runner reports, and what it hears.

use tidemill_core::{Grant, Reason, RunnerId, Timestamp};

use crate::attempt::{self, Ending, Return};
use crate::job::{Change, Job, Stage};
use crate::lease::{self, Account, Ask, Speaker};
use crate::offer::{AttemptKey, ClaimNumber, Incarnation};
use crate::settings::Settings;

/// What a runner says every few seconds, and at once when something ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Which runner.
    pub runner: RunnerId,
    /// Which of its lives.
    pub incarnation: Incarnation,
    /// Every claim up to this one was answered or given up.
    pub settled: ClaimNumber,
    /// True if it takes nothing more.
    pub draining: bool,
    /// All attempts that it holds, and those whose end it has not delivered.
    pub held: Vec<AttemptKey>,
    /// What happened to them.
    pub said: Vec<(AttemptKey, Said)>,
}

/// What a runner says of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Its program was started.
    Started {
        /// What it was given of the host.
        grants: Vec<Grant>,
    },
    /// It ended.
    Ended(Ending),
    /// It is given back.
    GivenBack {
        /// How.
        how: Return,
        /// Why.
        reason: Reason,
    },
}

/// What a runner is to do with an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Keep,
    /// End it, and say how it ended.
    End(Ask),
    /// What was said is on record, and nothing more is to be said of it.
    Recorded,
    /// It is not the one under way: kill it and say no more of it.
    Gone,
}

/// What a runner hears to its report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportAnswer {
    /// What to do with each attempt that was named.
    Attempts(Vec<(AttemptKey, Verdict)>),
    /// No such runner is registered.
    UnknownRunner,
    /// A later life of the runner has said something: this one is to kill what it has, and end.
    Replaced {
        /// The later life.
        by: Incarnation,
    },
}

/// One thing that a runner says of one attempt: what is to be written, and what it hears.
pub fn hear(
    job: Option<&Job>,
    who: Speaker<'_>,
    key: AttemptKey,
    said: Said,
    now: Timestamp,
    settings: &Settings,
) -> (Option<Change>, Verdict) {
    let Some(job) = job else {
        return (None, Verdict::Gone);
    };
    if let Stage::Done { told_by, .. } = job.stage
        && told_by == Some(key.attempt)
    {
        return (None, Verdict::Recorded);
    }
    if lease::fence(job, who, key.attempt).is_err() {
        return (None, Verdict::Gone);
    }
    match said {
        Said::Started { grants } => (attempt::start(job, grants), Verdict::Keep),
        Said::Ended(ending) => {
            let change = attempt::finish(job, ending, now, settings);
            (change, Verdict::Recorded)
        }
        Said::GivenBack { how, reason } => {
            let change = attempt::give_back(job, how, reason, now);
            (change, Verdict::Recorded)
        }
    }
}

/// A runner names an attempt that it holds: the lease is renewed, or the attempt is not the one under way.
pub fn hold(
    job: Option<&Job>,
    who: Speaker<'_>,
    key: AttemptKey,
    now: Timestamp,
    settings: &Settings,
) -> (Option<Change>, Verdict) {
    let Some((job, lease)) =
        job.and_then(|job| Some((job, lease::fence(job, who, key.attempt).ok()?)))
    else {
        return (None, Verdict::Gone);
    };
    let asked = lease.asked.as_ref();
    let verdict = asked.map_or(Verdict::Keep, |asked| Verdict::End(asked.why.clone()));
    (lease::renew(job, who, now.plus(settings.lease)), verdict)
}

/// A runner should have a job, by the hub's books. The loss if it does not name it.
pub fn miss(
    job: &Job,
    account: Account<'_>,
    now: Timestamp,
    settings: &Settings,
) -> Option<Change> {
    let lease = job.lease()?;
    if !job.is_known(settings) || !lease::is_missing(job, account) {
        return None;
    }
    let runner = &lease.runner;
    let message = if lease.incarnation < account.who.incarnation {
        format!("runner lost: `{runner}` started again without it")
    } else {
        format!("runner lost: `{runner}` does not know of it any more")
    };
    attempt::lose(job, message, None, now, settings)
}
