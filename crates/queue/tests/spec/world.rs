//! A small world around the queue: runners that keep their books, a clock that stands still, and a
//! ledger that has to accept every event.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::{Attempt, ExecutionId, Reason, ReasonCode, State, Timestamp};
use tidemill_ledger::{Applied, Origin, Snapshot, apply, create};
use tidemill_queue::offer::{AttemptKey, ClaimNumber, Incarnation, Offer, Profile};
use tidemill_queue::{
    Answer, ClaimAnswer, Ending, HubId, Queue, Refusal, Report, ReportAnswer, Return, Said,
    Settings, Submission, Verdict,
};

pub(crate) use crate::submissions::{
    exit, failed, in_group, job, profile, queue_named, retrying, with_key, with_label, with_memory,
    with_priority,
};

/// A limit that no test reaches by accident.
pub(crate) const ALL: usize = 10_000;

pub(crate) struct World {
    pub(crate) queue: Queue,
    pub(crate) now: Timestamp,
    pub(crate) hub: HubId,
    pub(crate) runners: BTreeMap<&'static str, Runner>,
    ids: u128,
}

/// A runner's own books.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    pub(crate) profile: Profile,
    pub(crate) incarnation: Incarnation,
    pub(crate) claims: u64,
    pub(crate) held: Vec<AttemptKey>,
}

pub(crate) fn id(number: u128) -> ExecutionId {
    ExecutionId::for_test(number)
}

impl World {
    /// One hub, `a`, and no runner.
    pub(crate) fn new() -> Self {
        Self::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> Self {
        let mut queue = Queue::new(settings).unwrap();
        let now = Timestamp(1_000_000_000);
        let hub = HubId("a".to_owned());
        queue.start_hub(now, hub.clone());
        Self {
            queue,
            now,
            hub,
            runners: BTreeMap::new(),
            ids: 0,
        }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now = self.now.plus(Duration::from_secs(seconds));
    }

    /// Time passes with a pass of the hub every second.
    pub(crate) fn run_for(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.wait(1);
            self.pass();
        }
    }

    pub(crate) fn pass(&mut self) {
        self.queue.pass(self.now, &self.hub.clone(), ALL);
        self.queue.check_invariants();
    }

    pub(crate) fn new_id(&mut self) -> ExecutionId {
        self.ids += 1;
        id(self.ids)
    }

    pub(crate) fn try_submit(&mut self, submission: Submission) -> Result<Answer, Refusal> {
        let id = self.new_id();
        let answer = self.queue.submit(self.now, &self.hub, id, submission);
        self.queue.check_invariants();
        answer
    }

    /// As [`Self::submit`], where looking at all rows would take long.
    pub(crate) fn submit_unchecked(&mut self, submission: Submission) -> u128 {
        let id = self.new_id();
        let answer = self.queue.submit(self.now, &self.hub, id, submission);
        answer.unwrap().id().as_uuid().as_u128()
    }

    /// The number of the job that a submission became.
    pub(crate) fn submit(&mut self, submission: Submission) -> u128 {
        self.try_submit(submission)
            .unwrap()
            .id()
            .as_uuid()
            .as_u128()
    }

    pub(crate) fn runner(&mut self, name: &'static str) {
        self.runner_with(name, profile(name));
    }

    /// A runner begins a life, with nothing in its hands but what is on its disk.
    pub(crate) fn runner_with(&mut self, name: &'static str, profile: Profile) {
        let incarnation = self.queue.hello(self.now, profile.clone());
        let runner = Runner {
            profile,
            incarnation,
            claims: 0,
            held: Vec::new(),
        };
        self.runners.insert(name, runner);
    }

    pub(crate) fn offer(&self, name: &str, slots: u32) -> Offer {
        let runner = &self.runners[name];
        Offer {
            profile: runner.profile.clone(),
            incarnation: runner.incarnation,
            claim: ClaimNumber(runner.claims + 1),
            settled: ClaimNumber(runner.claims),
            slots,
            memory_free: runner.profile.memory,
            cpus_free: runner.profile.cpus,
            held: runner.held.clone(),
        }
    }

    /// The numbers of the jobs that a claim gets.
    pub(crate) fn claim(&mut self, name: &'static str, slots: u32) -> Vec<u128> {
        let offer = self.offer(name, slots);
        self.claim_with(name, &offer)
    }

    pub(crate) fn claim_with(&mut self, name: &'static str, offer: &Offer) -> Vec<u128> {
        let jobs = self.claim_as(name, offer);
        self.queue.check_invariants();
        jobs
    }

    /// As [`Self::claim`], where looking at all rows would take long.
    pub(crate) fn claim_unchecked(&mut self, name: &'static str, slots: u32) -> Vec<u128> {
        let offer = self.offer(name, slots);
        self.claim_as(name, &offer)
    }

    fn claim_as(&mut self, name: &'static str, offer: &Offer) -> Vec<u128> {
        let answer = self.queue.claim(self.now, &self.hub.clone(), offer);
        let ClaimAnswer::Jobs { assignments, held } = answer else {
            return Vec::new();
        };
        let runner = self.runners.get_mut(name).unwrap();
        runner.claims = offer.claim.0;
        let gone = held.iter().filter(|(_, verdict)| *verdict == Verdict::Gone);
        let gone: Vec<_> = gone.map(|(key, _)| *key).collect();
        runner.held.retain(|key| !gone.contains(key));
        runner
            .held
            .extend(assignments.iter().map(|each| each.attempt));
        let ids = assignments.iter().map(|each| each.attempt.execution);
        ids.map(|id| id.as_uuid().as_u128()).collect()
    }

    pub(crate) fn report_of(&self, name: &str, said: Vec<(AttemptKey, Said)>) -> Report {
        let runner = &self.runners[name];
        Report {
            runner: runner.profile.name.clone(),
            incarnation: runner.incarnation,
            settled: ClaimNumber(runner.claims),
            draining: false,
            held: runner.held.clone(),
            said,
        }
    }

    /// Sends a report, does what the answer says, and returns it.
    pub(crate) fn send(&mut self, name: &'static str, report: Report) -> Vec<(u128, Verdict)> {
        let answer = self.queue.report(self.now, report);
        self.queue.check_invariants();
        let ReportAnswer::Attempts(verdicts) = answer else {
            panic!("refused: {answer:?}");
        };
        let runner = self.runners.get_mut(name).unwrap();
        for (key, verdict) in &verdicts {
            if matches!(verdict, Verdict::Gone | Verdict::Recorded) {
                runner.held.retain(|each| each != key);
            }
        }
        let number = |key: AttemptKey| key.execution.as_uuid().as_u128();
        verdicts
            .into_iter()
            .map(|(key, verdict)| (number(key), verdict))
            .collect()
    }

    pub(crate) fn report(&mut self, name: &'static str) -> Vec<(u128, Verdict)> {
        let report = self.report_of(name, Vec::new());
        self.send(name, report)
    }

    pub(crate) fn say(&mut self, name: &'static str, job: u128, said: Said) -> Verdict {
        let key = self.key(job);
        let report = self.report_of(name, vec![(key, said)]);
        let verdicts = self.send(name, report);
        let mut verdicts = verdicts.into_iter().filter(|(number, _)| *number == job);
        verdicts.next().unwrap().1
    }

    pub(crate) fn start(&mut self, name: &'static str, job: u128) {
        let said = Said::Started { grants: Vec::new() };
        self.say(name, job, said);
    }

    pub(crate) fn end(&mut self, name: &'static str, job: u128, ending: Ending) -> Verdict {
        self.say(name, job, Said::Ended(ending))
    }

    /// As [`Self::end`], where looking at all rows would take long.
    pub(crate) fn end_unchecked(&mut self, name: &'static str, job: u128, ending: Ending) {
        let key = self.key(job);
        let report = self.report_of(name, vec![(key, Said::Ended(ending))]);
        self.queue.report(self.now, report);
        let held = &mut self.runners.get_mut(name).unwrap().held;
        held.retain(|each| *each != key);
    }

    pub(crate) fn give_back(&mut self, name: &'static str, job: u128, how: Return) -> Verdict {
        let reason = Reason::new(ReasonCode::Declined, "no room");
        self.say(name, job, Said::GivenBack { how, reason })
    }

    /// The newest attempt of a job.
    pub(crate) fn key(&self, job: u128) -> AttemptKey {
        AttemptKey {
            execution: id(job),
            attempt: self.queue.job(id(job)).unwrap().tries.last,
        }
    }

    pub(crate) fn state(&self, job: u128) -> State {
        self.queue.job(id(job)).unwrap().state()
    }

    pub(crate) fn attempt(&self, job: u128) -> u32 {
        let Attempt(number) = self.queue.job(id(job)).unwrap().tries.last;
        number
    }

    pub(crate) fn why(&self, job: u128) -> String {
        let waits = self.queue.why_waiting(self.now, id(job));
        waits.map_or_else(String::new, |waits| waits.to_string())
    }

    /// The kinds of a job's events, in order.
    pub(crate) fn events(&self, job: u128) -> String {
        let kinds = self
            .queue
            .history(id(job))
            .iter()
            .map(|record| record.event.kind());
        kinds.collect::<Vec<_>>().join(" ")
    }

    /// What the record says of a job, according to the ledger.
    pub(crate) fn snapshot(&self, job: u128) -> Snapshot {
        replay(&self.queue, id(job))
    }

    /// The reason that the record gives.
    pub(crate) fn reason(&self, job: u128) -> String {
        self.snapshot(job).reason.unwrap().message
    }

    /// Claims and ends jobs one by one, until nothing comes any more.
    pub(crate) fn work_off(&mut self, name: &'static str) -> Vec<u128> {
        let mut done = Vec::new();
        loop {
            let jobs = self.claim(name, 1);
            if jobs.is_empty() {
                return done;
            }
            for job in jobs {
                self.end(name, job, exit(0));
                done.push(job);
            }
        }
    }
}

/// Applies a history as the ledger does. It has to accept every event, and to come to the same state.
pub(crate) fn replay(queue: &Queue, id: ExecutionId) -> Snapshot {
    let mut records = queue.history(id).iter();
    let first = records.next().unwrap();
    let created = create(id, Origin::Local, first.at, first.event.clone()).unwrap();
    let snapshot = records.fold(created.snapshot, |before, record| {
        match apply(&before, record.at, record.event.clone()).unwrap() {
            Applied::Recorded(recorded) => recorded.snapshot,
            Applied::Already => panic!("{:?} changes nothing", record.event),
        }
    });
    assert_eq!(snapshot.state, queue.job(id).unwrap().state(), "{id}");
    snapshot
}

impl Drop for World {
    /// Whatever a test did, the ledger agrees.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            for job in self.queue.jobs() {
                replay(&self.queue, job.id);
            }
        }
    }
}
