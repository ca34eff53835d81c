//! Several hubs, several runners, a network that loses things, and the judge.

mod hubs;
mod judge;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::sample::Index;
use tidemill_core::{ExecutionId, State, Timestamp};
use tidemill_queue::offer::{AttemptKey, ClaimNumber, Incarnation, Offer};
use tidemill_queue::queue::Planned;
use tidemill_queue::{
    Answer, Change, ClaimAnswer, Ending, HubId, Queue, Report, ReportAnswer, Return, Said,
    Settings, Submission, Verdict, attempt, cancel,
};

use crate::submissions::profile;
use crate::world::id;

const RUNNERS: [&str; 3] = ["r0", "r1", "r2"];

pub(crate) struct Fleet {
    queue: Queue,
    now: Timestamp,
    hubs: Vec<HubId>,
    hubs_made: usize,
    runners: Vec<Runner>,
    ids: u128,
    plans: Vec<(Offer, HubId, Planned)>,
    kept: Vec<Report>,
    decisions: Vec<Change>,
    /// What the judge remembers.
    accepted: BTreeSet<ExecutionId>,
    ended: BTreeMap<ExecutionId, (State, usize)>,
    /// Who was given each attempt.
    given: BTreeMap<AttemptKey, (usize, Incarnation)>,
    /// When an answer last promised a runner its attempts.
    renewed: BTreeMap<AttemptKey, Timestamp>,
    leased_before: BTreeMap<ExecutionId, AttemptKey>,
    /// Ends that a runner was told are on record.
    recorded: BTreeSet<AttemptKey>,
}

/// A runner's own books. What has ended is on its disk until the hub has it.
struct Runner {
    incarnation: Incarnation,
    claims: u64,
    running: BTreeMap<AttemptKey, Timestamp>,
    outbox: BTreeMap<AttemptKey, Said>,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let settings = Settings {
            unsatisfiable_after: Duration::from_secs(120),
            ..Settings::default()
        };
        let mut fleet = Self {
            queue: Queue::new(settings).unwrap(),
            now: Timestamp(1_000_000_000),
            hubs: Vec::new(),
            hubs_made: 0,
            runners: Vec::new(),
            ids: 0,
            plans: Vec::new(),
            kept: Vec::new(),
            decisions: Vec::new(),
            accepted: BTreeSet::new(),
            ended: BTreeMap::new(),
            given: BTreeMap::new(),
            renewed: BTreeMap::new(),
            leased_before: BTreeMap::new(),
            recorded: BTreeSet::new(),
        };
        fleet.start_hub();
        fleet.start_hub();
        for name in RUNNERS {
            let incarnation = fleet.queue.hello(fleet.now, profile(name));
            fleet.runners.push(Runner {
                incarnation,
                claims: 0,
                running: BTreeMap::new(),
                outbox: BTreeMap::new(),
            });
        }
        fleet
    }

    fn hub(&self, which: &Index) -> Option<HubId> {
        (!self.hubs.is_empty()).then(|| which.get(&self.hubs).clone())
    }

    pub(crate) fn submit(&mut self, hub: &Index, submission: Submission) {
        let Some(hub) = self.hub(hub) else {
            return;
        };
        self.ids += 1;
        let before = self.queue.jobs().count();
        match self.queue.submit(self.now, &hub, id(self.ids), submission) {
            Ok(Answer::Accepted { id, .. } | Answer::Coalesced { id }) => {
                self.accepted.insert(id);
                assert!(self.queue.job(id).is_some());
            }
            Err(_) => assert_eq!(self.queue.jobs().count(), before),
        }
    }

    fn offer(&self, runner: usize, slots: u32) -> Offer {
        let profile = profile(RUNNERS[runner]);
        let books = &self.runners[runner];
        Offer {
            incarnation: books.incarnation,
            claim: ClaimNumber(books.claims + 1),
            settled: ClaimNumber(books.claims),
            slots,
            memory_free: profile.memory,
            cpus_free: profile.cpus,
            held: books.held(),
            profile,
        }
    }

    pub(crate) fn claim(&mut self, runner: &Index, slots: u32, lost: bool) {
        let runner = runner.index(RUNNERS.len());
        let offer = self.offer(runner, slots);
        for hub in self.hubs.clone() {
            let answer = self.queue.claim(self.now, &hub, &offer);
            match answer {
                ClaimAnswer::HubStopping => continue,
                ClaimAnswer::Jobs { assignments, held } => {
                    let keys = assignments.iter().map(|each| each.attempt);
                    self.give(runner, keys.clone());
                    if !lost {
                        let until = self.now.plus(self.queue.settings().lease);
                        let books = &mut self.runners[runner];
                        books.claims += 1;
                        books.running.extend(keys.map(|key| (key, until)));
                        self.obey(runner, held);
                    }
                }
                other => panic!("{other:?}"),
            }
            return;
        }
    }

    /// Each attempt is given to one life of one runner, however often.
    fn give(&mut self, runner: usize, keys: impl Iterator<Item = AttemptKey>) {
        let incarnation = self.runners[runner].incarnation;
        for key in keys {
            let to = *self.given.entry(key).or_insert((runner, incarnation));
            assert_eq!(to, (runner, incarnation), "{key:?} was given twice");
            self.renewed.insert(key, self.now);
        }
    }

    pub(crate) fn give_claim_up(&mut self, runner: &Index) {
        self.runners[runner.index(RUNNERS.len())].claims += 1;
    }

    pub(crate) fn plan(&mut self, runner: &Index) {
        let offer = self.offer(runner.index(RUNNERS.len()), 2);
        if let Some(hub) = self.hubs.first() {
            let planned = self.queue.plan_claim(self.now, &offer);
            self.plans.push((offer, hub.clone(), planned));
        }
    }

    /// The answer of a slow hub, which nobody waits for any more.
    pub(crate) fn commit_plan(&mut self, which: &Index) {
        if self.plans.is_empty() {
            return;
        }
        let (offer, hub, planned) = self.plans.swap_remove(which.index(self.plans.len()));
        let got = self.queue.commit_claim(self.now, &hub, &offer, &planned);
        let runner = RUNNERS
            .iter()
            .position(|name| *name == offer.profile.name.0);
        self.give(runner.unwrap(), got.iter().map(|each| each.attempt));
    }

    fn report_of(&self, runner: usize) -> Report {
        let books = &self.runners[runner];
        Report {
            runner: profile(RUNNERS[runner]).name,
            incarnation: books.incarnation,
            settled: ClaimNumber(books.claims),
            draining: false,
            held: books.held(),
            said: books.outbox.clone().into_iter().collect(),
        }
    }

    pub(crate) fn report(&mut self, runner: &Index, lost: bool) {
        self.report_by(runner.index(RUNNERS.len()), lost);
    }

    fn report_by(&mut self, runner: usize, lost: bool) {
        if self.hubs.is_empty() {
            return;
        }
        let report = self.report_of(runner);
        for key in &report.held {
            self.renewed.insert(*key, self.now);
        }
        let ReportAnswer::Attempts(verdicts) = self.queue.report(self.now, report) else {
            panic!("a runner of the present life is heard");
        };
        self.take_recorded(&verdicts);
        if !lost {
            let until = self.now.plus(self.queue.settings().lease);
            for deadline in self.runners[runner].running.values_mut() {
                *deadline = until;
            }
            self.obey(runner, verdicts);
        }
    }

    /// What is on record is the end of the newest attempt, not of one before it.
    fn take_recorded(&mut self, verdicts: &[(AttemptKey, Verdict)]) {
        for (key, verdict) in verdicts {
            if *verdict == Verdict::Recorded {
                let newest = self.queue.job(key.execution).unwrap().tries.last;
                assert_eq!(newest, key.attempt, "a stale attempt was believed");
                self.recorded.insert(*key);
            }
        }
    }

    fn obey(&mut self, runner: usize, verdicts: Vec<(AttemptKey, Verdict)>) {
        let books = &mut self.runners[runner];
        for (key, verdict) in verdicts {
            match verdict {
                Verdict::Keep => {
                    if matches!(books.outbox.get(&key), Some(Said::Started { .. })) {
                        books.outbox.remove(&key);
                    }
                }
                Verdict::End(_) => {
                    if books.running.remove(&key).is_some() {
                        let ending = Ending::Cancelled {
                            reason: None,
                            outcome: None,
                        };
                        books.outbox.insert(key, Said::Ended(ending));
                    }
                }
                Verdict::Recorded | Verdict::Gone => {
                    books.running.remove(&key);
                    books.outbox.remove(&key);
                }
            }
        }
    }

    pub(crate) fn keep_report(&mut self, runner: &Index) {
        let report = self.report_of(runner.index(RUNNERS.len()));
        self.kept.push(report);
    }

    /// A report comes late, perhaps for the second time. Nobody hears the answer.
    pub(crate) fn deliver_kept(&mut self, which: &Index) {
        if self.kept.is_empty() || self.hubs.is_empty() {
            return;
        }
        let report = which.get(&self.kept).clone();
        let held = report.held.clone();
        if let ReportAnswer::Attempts(verdicts) = self.queue.report(self.now, report) {
            self.renewed
                .extend(held.into_iter().map(|key| (key, self.now)));
            self.take_recorded(&verdicts);
        }
    }

    fn pick(&self, runner: &Index, which: &Index) -> Option<(usize, AttemptKey)> {
        let runner = runner.index(RUNNERS.len());
        let keys: Vec<_> = self.runners[runner].running.keys().copied().collect();
        (!keys.is_empty()).then(|| (runner, *which.get(&keys)))
    }

    pub(crate) fn start(&mut self, runner: &Index, which: &Index) {
        if let Some((runner, key)) = self.pick(runner, which) {
            let said = Said::Started { grants: Vec::new() };
            self.runners[runner].outbox.insert(key, said);
        }
    }

    pub(crate) fn end(&mut self, runner: &Index, which: &Index, ending: Ending) {
        if let Some((runner, key)) = self.pick(runner, which) {
            self.runners[runner].running.remove(&key);
            self.runners[runner].outbox.insert(key, Said::Ended(ending));
        }
    }

    pub(crate) fn give_back(&mut self, runner: &Index, which: &Index, how: Return) {
        if let Some((runner, key)) = self.pick(runner, which) {
            let reason = tidemill_core::Reason::new(tidemill_core::ReasonCode::Declined, "no room");
            self.runners[runner].running.remove(&key);
            let said = Said::GivenBack { how, reason };
            self.runners[runner].outbox.insert(key, said);
        }
    }

    pub(crate) fn restart(&mut self, runner: &Index) {
        let runner = runner.index(RUNNERS.len());
        let incarnation = self.queue.hello(self.now, profile(RUNNERS[runner]));
        let books = &mut self.runners[runner];
        books.incarnation = incarnation;
        books.claims = 0;
        books.running.clear();
        books
            .outbox
            .retain(|_, said| matches!(said, Said::Ended(_)));
    }

    fn job(&self, which: &Index) -> Option<ExecutionId> {
        let jobs: Vec<_> = self.accepted.iter().copied().collect();
        (!jobs.is_empty()).then(|| *which.get(&jobs))
    }

    pub(crate) fn cancel(&mut self, which: &Index) {
        if let Some(id) = self.job(which) {
            self.queue.cancel(self.now, id, "somebody");
        }
    }

    /// Somebody reads a row and decides, and takes long to write what came of it.
    pub(crate) fn decide(&mut self, which: &Index, how: u8) {
        let settings = self.queue.settings().clone();
        let Some(job) = self.job(which).and_then(|id| self.queue.job(id)) else {
            return;
        };
        let change = match how {
            0 => cancel::request(Some(job), "somebody", self.now).1,
            1 => job.lease().and_then(|lease| {
                let until = Some(lease.until);
                let over = lease.until <= self.now;
                let text = "runner lost: it was not heard".to_owned();
                over.then(|| attempt::lose(job, text, until, self.now, &settings))?
            }),
            _ => tidemill_queue::patience::when_due(job, self.now, &settings),
        };
        self.decisions.extend(change);
    }

    pub(crate) fn commit_decision(&mut self, which: &Index) {
        if !self.decisions.is_empty() {
            let which = which.index(self.decisions.len());
            let change = self.decisions.swap_remove(which);
            // A conflict is as good as anything: then it is somebody else's change that counts.
            let _committed = self.queue.commit(self.now, change);
        }
    }

    /// Time passes, and runners end what they could not renew, by their own clock.
    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
        for books in &mut self.runners {
            books.running.retain(|_, deadline| *deadline > self.now);
        }
    }
}

impl Runner {
    fn held(&self) -> Vec<AttemptKey> {
        let held: BTreeSet<_> = self
            .running
            .keys()
            .chain(self.outbox.keys())
            .copied()
            .collect();
        held.into_iter().collect()
    }
}
