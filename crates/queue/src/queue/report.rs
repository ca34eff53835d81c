//! Reports of runners.

use tidemill_core::{ExecutionId, Grant, Reason, RunnerId, Timestamp};

use crate::attempt::{self, Ending, Return};
use crate::job::{Change, Job, Stage};
use crate::lease::{self, Account, Ask, Speaker};
use crate::offer::{AttemptKey, ClaimNumber, Incarnation};
use crate::queue::Queue;

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

impl Queue {
    /// A runner reports. That renews all its leases; an attempt that it should have and does not name
    /// is lost.
    pub fn report(&mut self, now: Timestamp, report: Report) -> ReportAnswer {
        let Some(runner) = self.runners.get_mut(&report.runner) else {
            return ReportAnswer::UnknownRunner;
        };
        if runner.incarnation != report.incarnation {
            let by = runner.incarnation;
            return ReportAnswer::Replaced { by };
        }
        runner.seen = now;
        runner.settled = runner.settled.max(report.settled);
        runner.profile.draining |= report.draining;
        let who = Speaker {
            runner: &report.runner,
            incarnation: report.incarnation,
        };
        let mut verdicts = Vec::new();
        let mut held = report.held.clone();
        for (key, said) in report.said {
            match self.hear(now, who, key, said) {
                Verdict::Keep => held.push(key),
                verdict => {
                    held.retain(|each| *each != key);
                    verdicts.push((key, verdict));
                }
            }
        }
        held.sort_unstable();
        held.dedup();
        let account = Account {
            who,
            held: &held,
            settled: report.settled,
        };
        verdicts.extend(self.reconcile(now, account));
        ReportAnswer::Attempts(verdicts)
    }

    /// One thing that a runner says of one attempt.
    fn hear(&mut self, now: Timestamp, who: Speaker<'_>, key: AttemptKey, said: Said) -> Verdict {
        let Some(job) = self.jobs.get(&key.execution) else {
            return Verdict::Gone;
        };
        if let Stage::Done { told_by, .. } = job.stage
            && told_by == Some(key.attempt)
        {
            return Verdict::Recorded;
        }
        if lease::fence(job, who, key.attempt).is_err() {
            return Verdict::Gone;
        }
        let (change, verdict) = match said {
            Said::Started { grants } => (attempt::start(job, grants), Verdict::Keep),
            Said::Ended(ending) => (
                attempt::finish(job, ending, now, &self.settings),
                Verdict::Recorded,
            ),
            Said::GivenBack { how, reason } => {
                (attempt::give_back(job, how, reason, now), Verdict::Recorded)
            }
        };
        if let Some(change) = change {
            self.must(now, change);
        }
        verdict
    }

    /// Compares what a runner holds with what the hub believes it holds: what both know of is renewed,
    /// what it does not hold any more is lost, and what is not under way is gone.
    pub(super) fn reconcile(
        &mut self,
        now: Timestamp,
        account: Account<'_>,
    ) -> Vec<(AttemptKey, Verdict)> {
        let until = now.plus(self.settings.lease);
        let mut verdicts = Vec::with_capacity(account.held.len());
        for key in account.held {
            let job = self.jobs.get(&key.execution);
            let Some(job) = job.filter(|job| lease::fence(job, account.who, key.attempt).is_ok())
            else {
                verdicts.push((*key, Verdict::Gone));
                continue;
            };
            let asked = job.lease().and_then(|lease| lease.asked.as_ref());
            let verdict = asked.map_or(Verdict::Keep, |asked| Verdict::End(asked.why.clone()));
            if let Some(change) = lease::renew(job, account.who, until) {
                self.must(now, change);
            }
            verdicts.push((*key, verdict));
        }
        for id in self.missing(account) {
            if let Some(change) = self.lost_by(id, account, now) {
                self.must(now, change);
            }
        }
        verdicts
    }

    fn missing(&self, account: Account<'_>) -> Vec<ExecutionId> {
        let ids = self.index.by_runner.get(account.who.runner);
        let jobs = ids.into_iter().flatten().filter_map(|id| self.jobs.get(id));
        jobs.filter(|job| job.is_known(&self.settings))
            .filter(|job| lease::is_missing(job, account))
            .map(|job| job.id)
            .collect()
    }

    fn lost_by(&self, id: ExecutionId, account: Account<'_>, now: Timestamp) -> Option<Change> {
        let job: &Job = self.jobs.get(&id)?;
        let lease = job.lease()?;
        let runner = &lease.runner;
        let message = if lease.incarnation < account.who.incarnation {
            format!("runner lost: `{runner}` started again without it")
        } else {
            format!("runner lost: `{runner}` does not know of it any more")
        };
        attempt::lose(job, message, None, now, &self.settings)
    }
}
