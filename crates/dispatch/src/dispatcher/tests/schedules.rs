//! Random schedules against a naive model: whatever comes in, in whatever order, no reference is
//! leaked or released twice (the cache table and [`check`] see to that), no slot is lost, every job
//! ends exactly once, and nobody starts before somebody who has to go first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidemill_core::event::Status;
use tidemill_core::{CpuCount, Digest, JobSpec, Millis, Reason, ReasonCode, Timestamp};

use crate::deps::{Ending, TimerKind};
use crate::dispatcher::Dispatcher;
use crate::job::{JobId, JobRequest};
use crate::key::{Key, LayerRef};
use crate::message::{Cause, Completion, JobEnd, Message};
use crate::script::{Call, World, check, job, mib};
use crate::slots::Capacity;

/// One step of a schedule. Numbers choose among what is possible at that moment.
#[derive(Debug, Clone)]
enum Step {
    Enqueue(Wish),
    Cancel(usize),
    Answer(usize, bool),
    Complete(usize, u8),
    Fire(usize),
    ShutDown,
    Drain,
}

#[derive(Debug, Clone)]
struct Wish {
    priority: i32,
    estimate: Option<u64>,
    layers: Vec<(u8, u8)>,
    memory: u64,
    cpus: u32,
    timeout: bool,
    prepare_timeout: bool,
}

fn wishes() -> impl Strategy<Value = Wish> {
    (
        -1..2_i32,
        prop::option::of(0..3_u64),
        prop::collection::vec((0..3_u8, 0..4_u8), 0..4),
        0..4_u64,
        0..3000_u32,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(priority, estimate, layers, memory, cpus, timeout, prepare_timeout)| Wish {
                priority,
                estimate,
                layers,
                memory,
                cpus,
                timeout,
                prepare_timeout,
            },
        )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        300 => wishes().prop_map(Step::Enqueue),
        60 => any::<usize>().prop_map(Step::Cancel),
        500 => (any::<usize>(), prop::bool::weighted(0.9)).prop_map(|(n, ok)| Step::Answer(n, ok)),
        200 => (any::<usize>(), 0..4_u8).prop_map(|(n, how)| Step::Complete(n, how)),
        60 => any::<usize>().prop_map(Step::Fire),
        1 => Just(Step::ShutDown),
        2 => Just(Step::Drain),
    ];
    prop::collection::vec(step, 1..120)
}

/// Everything that the schedule still owes an answer, and what was seen of each job.
struct Run {
    dispatcher: Dispatcher<World>,
    now: Timestamp,
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    answers: Vec<Call>,
    running: Vec<JobId>,
    timers: Vec<(JobId, TimerKind)>,
    waiting: BTreeSet<JobId>,
    last_status: BTreeMap<JobId, Status>,
    ended: BTreeMap<JobId, Ending>,
    dones: usize,
    stopped: bool,
}

impl Run {
    fn new(capacity: Capacity) -> Self {
        Self {
            dispatcher: Dispatcher::new(capacity, World::default()),
            now: Timestamp(0),
            specs: BTreeMap::new(),
            answers: Vec::new(),
            running: Vec::new(),
            timers: Vec::new(),
            waiting: BTreeSet::new(),
            last_status: BTreeMap::new(),
            ended: BTreeMap::new(),
            dones: 0,
            stopped: false,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Enqueue(wish) => self.enqueue(&wish),
            Step::Cancel(n) => {
                // Unknown, waiting, executing, dying and finished jobs alike.
                let number = n % (self.specs.len() + 1) + 1;
                let job = job(u32::try_from(number).unwrap());
                self.receive(Message::Cancel { job });
            }
            Step::Answer(n, ok) => self.answer(n, ok),
            Step::Complete(n, how) => self.complete(n, how),
            Step::Fire(n) => {
                // Also timers that were dropped: they may have fired just before.
                if let Some((job, timer)) = pick(&self.timers, n) {
                    self.receive(Message::TimerFired { job, timer });
                }
            }
            Step::ShutDown => self.stop(|reason| Message::ShutDown { reason }),
            Step::Drain => self.stop(|reason| Message::Drain { reason }),
        }
    }

    fn stop(&mut self, message: impl FnOnce(Reason) -> Message) {
        self.stopped = true;
        self.receive(message(Reason::new(ReasonCode::Shutdown, "the end")));
    }

    fn enqueue(&mut self, wish: &Wish) {
        let id = job(u32::try_from(self.specs.len() + 1).unwrap());
        let mut spec = JobSpec::new("true", []);
        spec.priority = wish.priority;
        spec.estimate = wish.estimate.map(Millis);
        spec.limits.memory = mib(wish.memory);
        spec.limits.cpus = Some(CpuCount {
            thousandths: wish.cpus,
        });
        spec.limits.timeout = wish.timeout.then_some(Millis(1000));
        let spec = Arc::new(spec);
        self.specs.insert(id, Arc::clone(&spec));
        let layer = |&(kind, name): &(u8, u8)| match kind {
            0 => LayerRef::local(name.to_string()),
            1 => LayerRef::archive(blob(name)),
            _ => LayerRef::manifest(blob(name)),
        };
        let request = JobRequest {
            layers: wish.layers.iter().map(layer).collect(),
            prepare_timeout: wish.prepare_timeout.then_some(Duration::from_secs(60)),
            ..JobRequest::new(spec)
        };
        self.receive(Message::Enqueue { job: id, request });
    }

    fn answer(&mut self, n: usize, ok: bool) {
        if self.answers.is_empty() {
            return;
        }
        let result = if ok {
            Ok(())
        } else {
            Err(Cause::from("no luck"))
        };
        let message = match self.answers.swap_remove(n % self.answers.len()) {
            Call::Fetch(digest) => Message::BlobFetched { digest, result },
            Call::Build(key) => Message::LayerBuilt { key, result },
            Call::Read(digest, job) => {
                // Manifests name some of the few blobs, sometimes twice, sometimes themselves.
                let names = [n / 7, n / 49, n / 7].map(|n| blob(u8::try_from(n % 6).unwrap()));
                let result = result.map(|()| names[..n / 343 % 4].to_vec());
                Message::ManifestRead {
                    digest,
                    job,
                    result,
                }
            }
            call => panic!("{call:?} is not answered"),
        };
        self.receive(message);
    }

    fn complete(&mut self, n: usize, how: u8) {
        if self.running.is_empty() {
            return;
        }
        let job = self.running.swap_remove(n % self.running.len());
        let end = match how {
            0 => JobEnd::ExecutionError(Reason::new(ReasonCode::BadWorkdir, "its own fault")),
            1 => JobEnd::SystemError(Reason::new(ReasonCode::Sandbox, "our fault")),
            _ => JobEnd::Ran(Completion::default()),
        };
        self.receive(Message::JobCompleted { job, end });
    }

    fn receive(&mut self, message: Message) {
        self.now = self.now.plus(Duration::from_secs(1));
        self.dispatcher.receive(self.now, message);
        check(&self.dispatcher);
        let calls = std::mem::take(&mut self.dispatcher.deps_mut().calls);
        for call in calls {
            self.note(call);
        }
        let waiting_keys = self.answers.iter().filter_map(|call| match call {
            Call::Fetch(digest) => Some(Key::Blob(*digest)),
            Call::Build(key) => Some(key.clone()),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        for key in waiting_keys {
            assert!(seen.insert(key.clone()), "{key} is being got twice");
        }
    }

    fn note(&mut self, call: Call) {
        match call {
            Call::Start(job) => {
                assert!(!self.stopped, "{job} starts although the dispatcher stops");
                self.waiting.remove(&job);
                for other in &self.waiting {
                    assert!(self.goes_before(job, *other), "{job} overtook {other}");
                }
                self.running.push(job);
            }
            Call::Timer(job, timer) => self.timers.push((job, timer)),
            Call::Fetch(_) | Call::Build(_) | Call::Read(..) => self.answers.push(call),
            Call::Status(job, status) => {
                assert!(!self.ended.contains_key(&job), "{job} has ended");
                let before = self.last_status.insert(job, status);
                let rank = |status| match status {
                    Status::WaitingForLayers => 1,
                    Status::WaitingToExecute => 2,
                    Status::Executing => 3,
                };
                assert!(
                    before.map_or(0, rank) < rank(status),
                    "{job}: {before:?}, {status:?}"
                );
                if status == Status::WaitingToExecute {
                    self.waiting.insert(job);
                }
            }
            Call::Ended(job, ending) => {
                self.waiting.remove(&job);
                assert!(!self.running.contains(&job), "{job} ended while it ran");
                let before = self.ended.insert(job, ending);
                assert!(before.is_none(), "{job} ended twice");
            }
            Call::Done => self.dones += 1,
        }
    }

    /// The order, written down naively.
    fn goes_before(&self, one: JobId, other: JobId) -> bool {
        let (a, b) = (&self.specs[&one], &self.specs[&other]);
        if a.priority != b.priority {
            return a.priority > b.priority;
        }
        match (a.estimate, b.estimate) {
            (Some(a), Some(b)) if a != b => a > b,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            // Numbers are given in the order of arrival.
            _ => one < other,
        }
    }

    /// Answers everything until nothing is left.
    fn finish(mut self) {
        for round in 0.. {
            assert!(round < 10_000, "the jobs never end");
            if !self.answers.is_empty() {
                self.answer(round, true);
            } else if !self.running.is_empty() {
                self.complete(round, 2);
            } else {
                break;
            }
        }
        assert_eq!(self.dispatcher.jobs().count(), 0, "a job is left");
        assert_eq!(self.ended.len(), self.specs.len(), "not every job ended");
        assert_eq!(
            self.dones,
            usize::from(self.stopped),
            "done is told once, if at all"
        );
        assert_eq!(self.dispatcher.is_done(), self.stopped);
    }
}

fn blob(name: u8) -> Digest {
    Digest::of(&[name])
}

fn pick<T: Copy>(list: &[T], n: usize) -> Option<T> {
    list.get(n.checked_rem(list.len())?).copied()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_schedule_breaks_an_invariant(
        slots in 1..4_u32,
        memory in prop::option::of(1..4_u64),
        cpus in prop::option::of(1..3000_u32),
        steps in steps(),
    ) {
        let mut run = Run::new(Capacity {
            slots: slots.try_into().unwrap(),
            memory: memory.and_then(mib),
            cpus: cpus.map(|thousandths| CpuCount { thousandths }),
        });
        for step in steps {
            run.step(step);
        }
        run.finish();
    }
}
