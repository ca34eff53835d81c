//! What sits around the dispatcher and breaks it, or passes everything on.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::event::Status;
use tidemill_core::{ByteSize, Digest, JobSpec, Millis, Reason};
use tidemill_dispatch::{
    Bounds, Cache, Capacity, Completion, Defect, Deps, Ending, Eviction, Get, JobId, JobRequest,
    Key, Message, Recipe, Root, TimerKind,
};

use super::Mutant;
use crate::effect::Effect;
use crate::probe::{Handle, Probe};

/// One opportunity in so many is taken, so that the machine goes wrong in the middle of things.
const EVERY: u32 = 3;

/// The probe, and what spoils it.
#[derive(Debug)]
pub(crate) struct Saboteur {
    pub(crate) probe: Probe,
    mutant: Option<Mutant>,
    opportunities: u32,
    /// Handles that are not dropped when they should be.
    hoard: Vec<Handle>,
    /// Releases that were made before or are made later.
    made: Vec<Key>,
    late: Vec<Key>,
    /// Releases since a job ended or a message came.
    released: Vec<Key>,
    /// Keys of each job, and which of them were started.
    keys: BTreeMap<JobId, Vec<Key>>,
    started: BTreeSet<JobId>,
    /// True specs, where the machine got another one.
    specs: BTreeMap<JobId, Arc<JobSpec>>,
    withheld: Option<Message>,
    is_done: bool,
}

impl Saboteur {
    pub(crate) const fn new(probe: Probe, mutant: Option<Mutant>) -> Self {
        Self {
            probe,
            mutant,
            opportunities: 0,
            hoard: Vec::new(),
            made: Vec::new(),
            late: Vec::new(),
            released: Vec::new(),
            keys: BTreeMap::new(),
            started: BTreeSet::new(),
            specs: BTreeMap::new(),
            withheld: None,
            is_done: false,
        }
    }

    /// The capacity that the machine believes it has.
    pub(crate) fn capacity(mutant: Option<Mutant>, truth: Capacity) -> Capacity {
        let slots = truth.slots.get();
        let other = |slots| NonZeroU32::new(slots).unwrap_or(NonZeroU32::MIN);
        match mutant {
            Some(Mutant::OneSlotMore) => Capacity {
                slots: other(slots + 1),
                ..truth
            },
            Some(Mutant::OneSlotLess) => Capacity {
                slots: other(slots - 1),
                ..truth
            },
            Some(Mutant::IgnoreMemory) => Capacity {
                memory: None,
                ..truth
            },
            Some(Mutant::IgnoreCpus) => Capacity {
                cpus: None,
                ..truth
            },
            _ => truth,
        }
    }

    /// What the machine sees instead of a message.
    pub(crate) fn messages(&mut self, message: Message) -> Vec<Message> {
        if self.mutant.is_none() {
            return vec![message];
        }
        match message {
            Message::Enqueue { job, request } => {
                let request = self.request(job, request);
                self.maybe_reordered(Message::Enqueue { job, request })
            }
            Message::Cancel { .. } if self.strikes(Mutant::LoseCancel) => Vec::new(),
            Message::Cancel { job } if self.started.contains(&job) => {
                self.release_early(job);
                self.maybe_reordered(message)
            }
            Message::JobCompleted { .. } if self.strikes(Mutant::DoubleCompletion) => {
                vec![message.clone(), message]
            }
            Message::BlobFetched { .. } | Message::LayerBuilt { .. } => self.answers(message),
            Message::TimerFired {
                job,
                timer: TimerKind::Prepare,
            } if self.mutant == Some(Mutant::HeedLateTimer) && self.started.contains(&job) => {
                vec![Message::Cancel { job }]
            }
            Message::Drain { reason } if self.mutant == Some(Mutant::HastyDrain) => {
                vec![Message::ShutDown { reason }]
            }
            Message::Drain { ref reason } | Message::ShutDown { ref reason }
                if self.mutant == Some(Mutant::DoneEarly) && !self.is_done =>
            {
                self.is_done = true;
                self.probe.done(reason);
                vec![message]
            }
            message => self.maybe_reordered(message),
        }
    }

    fn answers(&mut self, message: Message) -> Vec<Message> {
        if self.strikes(Mutant::LoseAnswer) {
            return Vec::new();
        }
        if self.strikes(Mutant::DoubleAnswer) {
            return vec![message.clone(), message];
        }
        match message {
            Message::BlobFetched {
                digest,
                result: Err(_),
            } if self.strikes(Mutant::IgnoreFailure) => {
                let result = Ok(());
                vec![Message::BlobFetched { digest, result }]
            }
            Message::LayerBuilt {
                key,
                result: Err(_),
            } if self.strikes(Mutant::IgnoreFailure) => {
                let result = Ok(());
                vec![Message::LayerBuilt { key, result }]
            }
            message => self.maybe_reordered(message),
        }
    }

    /// Withholds a message until the next one was received.
    fn maybe_reordered(&mut self, message: Message) -> Vec<Message> {
        if let Some(withheld) = self.withheld.take() {
            return vec![message, withheld];
        }
        if self.strikes(Mutant::Reorder) {
            self.withheld = Some(message);
            return Vec::new();
        }
        vec![message]
    }

    fn request(&mut self, job: JobId, mut request: JobRequest) -> JobRequest {
        let mut spec = JobSpec::clone(&request.spec);
        match self.mutant {
            Some(Mutant::IgnorePriority) => spec.priority = 0,
            Some(Mutant::ShortestFirst) => {
                let turned = |Millis(estimate)| Millis(1_000_u64.saturating_sub(estimate));
                spec.estimate = spec.estimate.map(turned);
            }
            Some(Mutant::UnknownLast) => {
                spec.estimate.get_or_insert(Millis(0));
            }
            _ => return request,
        }
        self.specs.insert(job, Arc::clone(&request.spec));
        request.spec = Arc::new(spec);
        request
    }

    fn release_early(&mut self, job: JobId) {
        if self.mutant == Some(Mutant::ReleaseAtKill)
            && let Some(key) = self.keys.get(&job).and_then(|keys| keys.last()).cloned()
        {
            self.probe.release(&key);
            self.made.push(key);
        }
    }

    /// Releases what a job that has just ended did not release.
    fn release_rest(&mut self, job: JobId) {
        let released = std::mem::take(&mut self.released);
        let keys = self.keys.get(&job).into_iter().flatten();
        let rest: Vec<_> = keys
            .filter(|key| !released.contains(key))
            .cloned()
            .collect();
        for key in rest {
            self.probe.release(&key);
            self.made.push(key);
        }
    }

    /// The message is done.
    pub(crate) fn after_message(&mut self) {
        self.released.clear();
        for key in std::mem::take(&mut self.late) {
            self.probe.release(&key);
        }
    }

    /// Lets the cache remove what it wants.
    pub(crate) fn evict(&mut self, bounds: Bounds) -> Eviction<Key> {
        let bounds = match self.mutant {
            Some(Mutant::EvictTooMuch) => Bounds {
                max: ByteSize(0),
                ..bounds
            },
            Some(Mutant::IgnoreFloor) => Bounds::at_most(bounds.max),
            _ => bounds,
        };
        let mut eviction = self.probe.evict(bounds);
        if self.mutant == Some(Mutant::EvictInUse) && eviction.over > ByteSize(0) {
            let held = (self.started.iter()).find_map(|job| self.keys.get(job)?.last());
            eviction.remove.extend(held.cloned());
        }
        eviction
    }

    /// Whether this is the mutant and it takes this opportunity.
    fn strikes(&mut self, mutant: Mutant) -> bool {
        if self.mutant != Some(mutant) {
            return false;
        }
        self.opportunities += 1;
        self.opportunities.is_multiple_of(EVERY)
    }
}

impl Cache for Saboteur {
    fn get(&mut self, key: &Key, job: JobId) -> Get {
        let is_wanted = !self.keys.values().flatten().any(|held| held == key);
        if self.mutant == Some(Mutant::HereTooEarly)
            && is_wanted
            && self.strikes(Mutant::HereTooEarly)
        {
            let effect = Effect::Get(key.clone(), job, Get::Here);
            self.probe.effects.push(effect);
            return Get::Here;
        }
        let answer = self.probe.get(key, job);
        if answer == Get::Here && self.mutant.is_some() {
            self.keys.entry(job).or_default().push(key.clone());
        }
        if answer == Get::Wait && self.mutant == Some(Mutant::FetchForWaiters) {
            return Get::YouGet;
        }
        answer
    }

    fn got(&mut self, key: &Key) -> Vec<JobId> {
        let mut waited = self.probe.got(key);
        if self.mutant.is_some() {
            for job in &waited {
                self.keys.entry(*job).or_default().push(key.clone());
            }
        }
        if waited.len() > 1 && self.mutant == Some(Mutant::ForgetWaiter) {
            waited.pop();
        }
        waited
    }

    fn failed(&mut self, key: &Key) -> Vec<JobId> {
        self.probe.failed(key)
    }

    fn release(&mut self, key: &Key) {
        if let Some(place) = self.made.iter().position(|made| made == key) {
            self.made.remove(place);
            return;
        }
        if self.strikes(Mutant::LoseRelease) {
            return;
        }
        if self.mutant == Some(Mutant::ReleaseLate) {
            self.late.push(key.clone());
            return;
        }
        if self.mutant == Some(Mutant::ReleaseBuildInputs) {
            self.released.push(key.clone());
        }
        self.probe.release(key);
        if self.strikes(Mutant::DoubleRelease) {
            self.probe.release(key);
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.probe.path(key)
    }
}

impl Deps for Saboteur {
    /// None where the handle is hoarded or there is none.
    type Sandbox = Option<Handle>;
    type Timer = Option<Handle>;

    fn start_sandbox(&mut self, job: JobId, spec: &Arc<JobSpec>, mut root: Root) -> Option<Handle> {
        if self.mutant == Some(Mutant::StartWithoutTop) {
            root.trees.pop();
        }
        self.started.insert(job);
        let spec = self.specs.get(&job).unwrap_or(spec);
        let handle = self.probe.start_sandbox(job, spec, root);
        if self.strikes(Mutant::KeepSandbox) {
            self.hoard.push(handle);
            return None;
        }
        Some(handle)
    }

    fn start_timer(&mut self, job: JobId, timer: TimerKind, after: Duration) -> Option<Handle> {
        if self.strikes(Mutant::LoseTimer) {
            return None;
        }
        let handle = self.probe.start_timer(job, timer, after);
        if self.strikes(Mutant::KeepTimer) {
            self.hoard.push(handle);
            return None;
        }
        Some(handle)
    }

    fn fetch(&mut self, digest: Digest) {
        if self.strikes(Mutant::LoseFetch) {
            return;
        }
        self.probe.fetch(digest);
        if self.strikes(Mutant::FetchTwice) {
            self.probe.fetch(digest);
        }
    }

    fn build(&mut self, key: &Key, recipe: Recipe) {
        let recipe = match recipe {
            Recipe::Stack { lower, upper } if self.strikes(Mutant::SwapStack) => Recipe::Stack {
                lower: upper,
                upper: lower,
            },
            recipe => recipe,
        };
        self.probe.build(key, recipe);
    }

    fn read_manifest(&mut self, digest: Digest, job: JobId, path: PathBuf) {
        self.probe.read_manifest(digest, job, path);
    }

    fn status(&mut self, job: JobId, status: Status) {
        if self.strikes(Mutant::LoseStatus) {
            return;
        }
        self.probe.status(job, status);
        if self.strikes(Mutant::DoubleStatus) {
            self.probe.status(job, status);
        }
    }

    fn ended(&mut self, job: JobId, ending: Ending) {
        if self.mutant == Some(Mutant::ReleaseBuildInputs) {
            self.release_rest(job);
        }
        self.keys.remove(&job);
        self.started.remove(&job);
        if self.strikes(Mutant::LoseEnding) {
            return;
        }
        let ending = match ending {
            Ending::ExecutionError(reason) if self.mutant == Some(Mutant::MixErrors) => {
                Ending::SystemError(reason)
            }
            Ending::SystemError(reason) if self.mutant == Some(Mutant::MixErrors) => {
                Ending::ExecutionError(reason)
            }
            Ending::Cancelled(_) if self.mutant == Some(Mutant::ReportCancelled) => {
                Ending::Completed(Completion::default())
            }
            ending => ending,
        };
        if self.strikes(Mutant::DoubleEnding) {
            self.probe.ended(job, ending.clone());
        }
        self.probe.ended(job, ending);
    }

    fn done(&mut self, reason: &Reason) {
        if self.mutant != Some(Mutant::LoseDone) && !self.is_done {
            self.probe.done(reason);
        }
    }

    fn defect(&mut self, defect: Defect) {
        self.probe.defect(defect);
    }
}
