//! What happens from outside: a seed made into a setting and a list of steps.
//!
//! Every step stands for itself: without one of them the others mean the same, and what the world
//! does with a job or a blob depends on the seed and on the name of that thing alone. So a schedule
//! that fails can be made shorter by leaving out steps.

mod draw;
mod show;

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{ByteSize, CpuCount, JobSpec, Millis};
use tidemill_dispatch::{Bounds, Capacity, JobId, JobRequest, Key, LayerRef};

use crate::chance::Chance;
use crate::names::key_label;

/// A setting and what happens in it.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// Decides everything else.
    pub seed: u64,
    /// What does not change.
    pub setting: Setting,
    /// In any order; each has its time.
    pub steps: Vec<Step>,
}

/// What does not change during a schedule.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Slots and budget.
    pub capacity: Capacity,
    /// The cache's bounds, if it has any.
    pub bounds: Option<Bounds>,
    /// What is in the cache at the start.
    pub found: Vec<Key>,
    /// True if stacks are always here, as where the sandbox mounts the trees over each other.
    pub free_stacks: bool,
    /// How long fetches and builds take.
    pub pace: Pace,
    /// How long jobs run.
    pub run_pace: Pace,
    /// How many of a hundred fetches, builds and readings of manifests fail.
    pub failures: u32,
    /// How many of a hundred sandboxes cannot be set up.
    pub start_failures: u32,
    /// Which blobs the manifest in each blob names, by their numbers.
    pub manifests: Vec<Vec<u8>>,
    /// True if messages come that break the contract, which the dispatcher has to report.
    pub strays: bool,
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// No time, so that everything happens in one instant and in any order.
    Instant,
    /// All about as long.
    Even,
    /// Mostly quick, some very slow.
    Mixed,
    /// Longer than jobs are patient.
    Slow,
}

impl Pace {
    /// How long one thing takes.
    pub fn draw(self, chance: &mut Chance) -> Duration {
        let millis = match self {
            Self::Instant => 0,
            Self::Even => chance.between(1, 12),
            Self::Mixed if chance.percent(20) => chance.between(30, 200),
            Self::Mixed => chance.below(4),
            Self::Slow => chance.between(20, 150),
        };
        Duration::from_millis(millis.into())
    }
}

/// One thing that somebody does.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its place in the schedule of the seed.
    pub number: usize,
    /// When, from the start.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What somebody does.
#[derive(Debug, Clone)]
pub enum Action {
    /// A job comes.
    Enqueue(JobPlan),
    /// Somebody wants a job to end, whether it is there or not.
    Cancel(JobId),
    /// The immediate stop.
    ShutDown,
    /// The gentle stop.
    Drain,
    /// Something that the contract forbids, if at that moment it does.
    Stray(Stray),
}

/// What must not happen.
#[derive(Debug, Clone)]
pub enum Stray {
    /// A job comes that is there already.
    EnqueueAgain(JobPlan),
    /// A job completes that does not execute.
    CompleteAgain(JobId),
    /// An answer comes once more, or too early.
    AnswerAgain {
        /// About what.
        key: Key,
        /// Whether it says that the key is here.
        ok: bool,
    },
}

/// A job and what it asks for.
#[derive(Debug, Clone)]
pub struct JobPlan {
    /// Its name.
    pub job: JobId,
    /// Its layers, the lowest first.
    pub layers: Vec<LayerRef>,
    /// The greater goes first.
    pub priority: i32,
    /// How long it probably runs.
    pub estimate: Option<Millis>,
    /// Bytes of memory.
    pub memory: Option<ByteSize>,
    /// CPUs.
    pub cpus: Option<CpuCount>,
    /// How long it may run.
    pub timeout: Option<Millis>,
    /// How long its layers may take.
    pub prepare_timeout: Option<Duration>,
}

impl JobPlan {
    /// The request that is enqueued.
    pub fn request(&self) -> JobRequest {
        let mut spec = JobSpec::new("true", []);
        spec.priority = self.priority;
        spec.estimate = self.estimate;
        spec.limits.memory = self.memory;
        spec.limits.cpus = self.cpus;
        spec.limits.timeout = self.timeout;
        JobRequest {
            layers: self.layers.clone(),
            prepare_timeout: self.prepare_timeout,
            ..JobRequest::new(Arc::new(spec))
        }
    }
}

impl Schedule {
    /// The schedule of a seed.
    pub fn of(seed: u64) -> Self {
        draw::schedule(seed)
    }

    /// The same schedule with these of its steps, by their numbers.
    #[must_use]
    pub fn keep(&self, numbers: &[usize]) -> Self {
        let kept = |step: &&Step| numbers.contains(&step.number);
        Self {
            seed: self.seed,
            setting: self.setting.clone(),
            steps: self.steps.iter().filter(kept).cloned().collect(),
        }
    }

    /// The numbers of the steps.
    pub fn numbers(&self) -> Vec<usize> {
        self.steps.iter().map(|step| step.number).collect()
    }
}

/// How large a key is. Stacks often cost nothing, because a sandbox can mount the trees over each
/// other.
pub fn size_of(seed: u64, key: &Key) -> ByteSize {
    let [kind, name] = key_label(key);
    let mut chance = Chance::of(seed, &[SIZE, kind, name]);
    let costs_nothing = matches!(key, Key::Stack(_)) && chance.percent(60);
    ByteSize(if costs_nothing {
        0
    } else {
        chance.between(1, 40).into()
    })
}

/// Labels the sizes of keys.
const SIZE: u64 = 1;
