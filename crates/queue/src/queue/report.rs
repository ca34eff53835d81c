//! Reports of runners.

use tidemill_core::Timestamp;

use crate::lease::{Account, Speaker};
use crate::offer::AttemptKey;
use crate::queue::Queue;
use crate::report::{self, Report, ReportAnswer, Verdict};

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
        runner.forget_settled_claim();
        let who = Speaker {
            runner: &report.runner,
            incarnation: report.incarnation,
        };
        let mut verdicts = Vec::new();
        let mut held = report.held.clone();
        for (key, said) in report.said {
            let job = self.jobs.get(&key.execution);
            let (change, verdict) = report::hear(job, who, key, said, now, &self.settings);
            if let Some(change) = change {
                self.must(now, change);
            }
            match verdict {
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

    /// Compares what a runner holds with what the hub believes it holds: what both know of is renewed,
    /// what it does not hold any more is lost, and what is not under way is gone.
    pub(super) fn reconcile(
        &mut self,
        now: Timestamp,
        account: Account<'_>,
    ) -> Vec<(AttemptKey, Verdict)> {
        let mut verdicts = Vec::with_capacity(account.held.len());
        for key in account.held {
            let job = self.jobs.get(&key.execution);
            let (change, verdict) = report::hold(job, account.who, *key, now, &self.settings);
            if let Some(change) = change {
                self.must(now, change);
            }
            verdicts.push((*key, verdict));
        }
        let ids = self.index.by_runner.get(account.who.runner);
        let jobs = ids.into_iter().flatten().filter_map(|id| self.jobs.get(id));
        let missing = jobs.filter_map(|job| report::miss(job, account, now, &self.settings));
        for change in missing.collect::<Vec<_>>() {
            self.must(now, change);
        }
        verdicts
    }
}
