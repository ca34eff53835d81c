//! The judge: the rules of the dispatcher written down a second time, naively, and held against
//! everything that a dispatcher does.
//!
//! Before each message the judge predicts from its own books what has to come of it; afterwards it
//! compares. It never looks at the machine's books, only at the calls that came out. It may be slow:
//! it goes through all jobs, sorts what it needs and keeps nothing that could be computed.

mod cache;
mod compare;
mod job;
mod layers;
mod room;
mod rules;
mod told;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tidemill_core::{Digest, Reason, ReasonCode};
use tidemill_dispatch::{
    Bounds, Capacity, Defect, Ending, Eviction, JobId, Key, Message, Phase, Room, TimerKind,
};

use crate::coverage::{Coverage, Kind};
use crate::effect::Effect;
use crate::fault::{Fault, FaultKind};
use crate::names::{Names, show_job};
use crate::schedule::{Schedule, size_of};
use cache::CacheBooks;
use compare::Seen;
use job::{Fate, Job, Stage};

/// Knows what has to happen.
#[derive(Debug)]
pub(crate) struct Judge {
    capacity: Capacity,
    names: Rc<RefCell<Names>>,
    jobs: BTreeMap<JobId, Job>,
    arrivals: usize,
    /// Keys in the cache.
    here: BTreeSet<Key>,
    /// Keys that somebody is getting.
    getting: BTreeSet<Key>,
    /// Builds that go on: who asked for them first, and what they read.
    builds: BTreeMap<Key, Build>,
    /// References of jobs that are gone, which their builds need.
    left_behind: Vec<LeftBehind>,
    cache: CacheBooks,
    stop: Option<Stop>,
    expected: Expected,
    coverage: Coverage,
}

#[derive(Debug)]
struct Stop {
    reason: Reason,
    drains: bool,
    done: bool,
}

/// A tree or a stack that is being built.
#[derive(Debug)]
struct Build {
    by: JobId,
    inputs: Vec<Key>,
}

/// One reference to something that builds read whose job is gone.
#[derive(Debug)]
struct LeftBehind {
    key: Key,
    builds: BTreeSet<Key>,
}

/// What has to come of one message, in whatever order, except for the starts.
#[derive(Debug, Default)]
struct Expected {
    gets: Vec<(Key, JobId)>,
    /// Fetches and builds.
    begun: Vec<Key>,
    reads: Vec<(Digest, JobId)>,
    endings: Vec<ExpectedEnding>,
    starts: Vec<JobId>,
    kills: Vec<JobId>,
    timers: Vec<(JobId, TimerKind, Duration)>,
    timer_drops: Vec<(JobId, TimerKind)>,
    done: Option<String>,
    defects: Vec<Defect>,
}

#[derive(Debug)]
struct ExpectedEnding {
    job: JobId,
    how: Ends,
    /// How many references it gives back.
    held: usize,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and only for one message"
)]
enum Ends {
    As(Ending),
    /// A system error with this code and these words in its message.
    SystemError {
        code: ReasonCode,
        mentions: Vec<String>,
    },
}

/// What the dispatcher says of itself after a message.
pub(crate) struct SelfReport<'a> {
    pub(crate) room: Room,
    pub(crate) is_done: bool,
    pub(crate) phase: &'a dyn Fn(JobId) -> Option<Phase>,
}

impl Judge {
    pub(crate) fn new(schedule: &Schedule, names: Rc<RefCell<Names>>) -> Self {
        let mut cache = CacheBooks::new(schedule.seed, schedule.setting.free_stacks);
        let mut here = BTreeSet::new();
        for key in &schedule.setting.found {
            cache.found(key, size_of(schedule.seed, key));
            here.insert(key.clone());
        }
        Self {
            capacity: schedule.setting.capacity,
            names,
            jobs: BTreeMap::new(),
            arrivals: 0,
            here,
            getting: BTreeSet::new(),
            builds: BTreeMap::new(),
            left_behind: Vec::new(),
            cache,
            stop: None,
            expected: Expected::default(),
            coverage: Coverage::new(),
        }
    }

    /// Works out what has to come of a message that is about to be received.
    pub(crate) fn predict(&mut self, message: &Message) {
        self.expected = Expected::default();
        match message {
            Message::Enqueue { job, request } => self.on_enqueue(*job, request),
            Message::Cancel { job } => self.on_cancel(*job),
            Message::JobCompleted { job, end } => self.on_completed(*job, end),
            Message::TimerFired { job, timer } => self.on_timer(*job, *timer),
            Message::BlobFetched { digest, result } => {
                self.on_answer(&Key::Blob(*digest), result.as_ref().err());
            }
            Message::LayerBuilt { key, result } => self.on_answer(key, result.as_ref().err()),
            Message::ManifestRead {
                digest,
                job,
                result,
            } => self.on_manifest(*digest, *job, result.as_deref()),
            Message::ShutDown { reason } => self.on_shut_down(reason),
            Message::Drain { reason } => self.on_drain(reason),
        }
        self.settle();
    }

    /// Compares what has to come of the message with what came, and with what the dispatcher says of
    /// itself.
    pub(crate) fn check(
        &mut self,
        effects: &[Effect],
        report: Option<&SelfReport<'_>>,
    ) -> Result<(), Fault> {
        let mut seen = Seen::default();
        let references_before = self.cache.total();
        for effect in effects {
            self.see(effect, references_before, &mut seen)?;
        }
        self.compare(seen)?;
        self.check_statuses()?;
        report.map_or(Ok(()), |report| self.check_report(report))
    }

    /// What the cache removed between two messages.
    pub(crate) fn evicted(
        &mut self,
        bounds: Bounds,
        eviction: &Eviction<Key>,
    ) -> Result<(), Fault> {
        let names = self.names.borrow();
        for (key, build) in &self.builds {
            if let Some(input) = build
                .inputs
                .iter()
                .find(|key| eviction.remove.contains(key))
            {
                let what = format!(
                    "{}, of which {} is built",
                    names.show(input),
                    names.show(key)
                );
                return Err(Fault::new(FaultKind::EvictedInUse, what));
            }
        }
        self.cache
            .check_eviction(bounds, eviction, &names, &mut self.coverage)?;
        for key in &eviction.remove {
            self.here.remove(key);
        }
        Ok(())
    }

    /// Everything was answered: nothing may be left.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        let left: Vec<_> = self.live().map(|(id, _)| show_job(id)).collect();
        if left.is_empty() {
            return Ok(());
        }
        let what = format!("everything was answered, and left are {}", left.join(", "));
        Err(Fault::new(FaultKind::NeverEnds, what))
    }

    /// Whether a job came and has not ended.
    pub(crate) fn is_live(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(Job::is_live)
    }

    /// Whether somebody is getting a key.
    pub(crate) fn is_getting(&self, key: &Key) -> bool {
        self.getting.contains(key)
    }

    pub(crate) const fn coverage(&mut self) -> &mut Coverage {
        &mut self.coverage
    }

    fn live(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs
            .iter()
            .filter(|(_, job)| job.is_live())
            .map(|(id, job)| (*id, job))
    }

    /// A job leaves, whatever its stage, and holds nothing any more.
    fn leave(&mut self, id: JobId, how: Ends) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let held = std::mem::take(&mut job.held);
        let left_before = self.left_behind.len();
        for key in &held {
            let builds: BTreeSet<_> = (self.builds.iter())
                .filter(|(_, build)| build.by == id && build.inputs.contains(key))
                .map(|(built, _)| built.clone())
                .collect();
            if !builds.is_empty() {
                let key = key.clone();
                self.left_behind.push(LeftBehind { key, builds });
            }
        }
        let left = self.left_behind.len() - left_before;
        self.coverage.hit_if(left > 0, Kind::LeavesABuildBehind);
        let held = held.len() - left;
        if job.stage == Stage::Executing {
            self.expected.kills.push(id);
        }
        if let Some(timer) = job.timer.take() {
            self.expected.timer_drops.push((id, timer));
        }
        job.asked.clear();
        job.stage = Stage::Ended;
        self.expected
            .endings
            .push(ExpectedEnding { job: id, how, held });
    }

    /// An executing job is told to die, unless it was told before.
    fn doom(&mut self, id: JobId, fate: Fate) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.stage == Stage::Executing {
            job.stage = Stage::Dying(fate);
            self.expected.kills.push(id);
            if let Some(timer) = job.timer.take() {
                self.expected.timer_drops.push((id, timer));
            }
        }
    }

    /// After every message: jobs ask for what they want next, those that have everything wait for
    /// a slot, and those that fit start.
    fn settle(&mut self) {
        let awaiting: Vec<_> = self
            .live()
            .filter(|(_, job)| job.stage == Stage::Awaiting)
            .map(|(id, _)| id)
            .collect();
        for id in awaiting {
            self.pursue(id);
        }
        self.start_jobs();
        let is_empty = self.live().next().is_none();
        if let Some(stop) = &mut self.stop
            && !stop.done
            && is_empty
        {
            stop.done = true;
            self.expected.done = Some(stop.reason.message.clone());
        }
    }

    fn start_jobs(&mut self) {
        while let Some(id) = self.next_to_start() {
            self.note_why(id);
            let Some(job) = self.jobs.get_mut(&id) else {
                return;
            };
            job.stage = Stage::Executing;
            if let Some(after) = job.request.spec.limits.timeout {
                job.timer = Some(TimerKind::Run);
                let timer = (id, TimerKind::Run, after.as_duration());
                self.expected.timers.push(timer);
            }
            self.expected.starts.push(id);
        }
        self.note_who_waits();
        let several = self.expected.starts.len() > 1;
        self.coverage.hit_if(several, Kind::SeveralStart);
    }
}
