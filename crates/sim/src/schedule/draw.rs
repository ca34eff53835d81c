//! From a seed to a schedule.

use std::num::NonZeroU32;
use std::time::Duration;

use tidemill_core::{ByteSize, CpuCount, Millis};
use tidemill_dispatch::{Bounds, Capacity, JobId, Key, LayerRef};

use super::{Action, JobPlan, Pace, Schedule, Setting, Step, Stray};
use crate::chance::Chance;
use crate::names::{BLOBS_MAX, blob, job_id};

/// Most seeds have a few jobs, which is where faults are found and understood.
const JOBS_MAX: u32 = 16;

/// Some have many, for the queue and for crowds around one key.
const CROWD_MAX: u32 = 40;

/// Layers of one job, at most, before some are doubled.
const LAYERS_MAX: u32 = 4;

/// In which jobs come, in milliseconds.
const SPAN: u32 = 60;

pub(super) fn schedule(seed: u64) -> Schedule {
    let mut drawer = Drawer::new(seed);
    drawer.jobs();
    drawer.stops();
    if drawer.setting.strays {
        drawer.strays();
    }
    Schedule {
        seed,
        setting: drawer.setting,
        steps: drawer.steps,
    }
}

struct Drawer {
    chance: Chance,
    setting: Setting,
    /// What jobs choose their layers from.
    pool: Vec<LayerRef>,
    /// In which jobs come, in milliseconds.
    span: u32,
    /// How many of a hundred jobs are cancelled.
    cancels: u32,
    steps: Vec<Step>,
    plans: Vec<JobPlan>,
}

impl Drawer {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::of(seed, &[]);
        let pool = pool(&mut chance);
        Self {
            setting: setting(&mut chance, &pool),
            pool,
            span: chance.pick(&[0, SPAN / 4, SPAN / 2, SPAN, 2 * SPAN]),
            cancels: chance.pick(&[0, 20, 40, 70]),
            steps: Vec::new(),
            plans: Vec::new(),
            chance,
        }
    }

    fn step(&mut self, at: u32, action: Action) {
        let number = self.steps.len();
        let at = Duration::from_millis(at.into());
        self.steps.push(Step { number, at, action });
    }

    fn jobs(&mut self) {
        let crowded = self.chance.percent(3);
        let max = if crowded { CROWD_MAX } else { JOBS_MAX };
        for number in 1..=self.chance.between(1, max) {
            let at = self.chance.below(self.span + 1);
            let plan = self.plan(job_id(number, 1));
            self.enqueue(at, plan);
            if self.chance.percent(self.cancels) {
                self.cancel(at, number);
            }
        }
        if self.chance.percent(5) {
            let at = self.chance.below(self.span + 1);
            self.step(at, Action::Cancel(job_id(CROWD_MAX + 1, 1)));
        }
    }

    fn enqueue(&mut self, at: u32, plan: JobPlan) {
        self.plans.push(plan.clone());
        self.step(at, Action::Enqueue(plan));
    }

    /// Cancels a job, perhaps twice, perhaps before it comes, and perhaps tries it once more.
    fn cancel(&mut self, came: u32, number: u32) {
        let job = job_id(number, 1);
        let late = self.chance.pick(&[3, 30, 100, 300]);
        let at = came + self.chance.below(late);
        self.step(at, Action::Cancel(job));
        if self.chance.percent(40) {
            let again = at + self.chance.below(20);
            self.step(again, Action::Cancel(job));
        }
        if self.chance.percent(30) {
            let after = self.chance.below(5);
            let plan = JobPlan {
                job: job_id(number, 2),
                ..self.plans[self.plans.len() - 1].clone()
            };
            self.enqueue(at + after, plan);
        }
    }

    fn plan(&mut self, job: JobId) -> JobPlan {
        let layers = self.layers();
        let budget = self.setting.capacity;
        let chance = &mut self.chance;
        let some = |chance: &mut Chance, percent, max| {
            let number = chance.between(1, max);
            chance.percent(percent).then_some(number)
        };
        let memory = budget.memory.and_then(|_| some(chance, 80, 6));
        let cpus = budget.cpus.and_then(|_| some(chance, 80, 3000));
        let timeout = some(chance, 40, 40).map(|ms| Millis(ms.into()));
        let prepare_timeout = some(chance, 40, 60);
        JobPlan {
            job,
            layers,
            priority: i32::try_from(chance.below(3)).unwrap_or(0) - 1,
            estimate: some(chance, 60, 3).map(|ms| Millis(ms.into())),
            memory: memory.map(|mib| ByteSize::mib(mib.into())),
            cpus: cpus.map(|thousandths| CpuCount { thousandths }),
            timeout,
            prepare_timeout: prepare_timeout.map(|ms| Duration::from_millis(ms.into())),
        }
    }

    /// Layers of its own, or something like those of another job.
    fn layers(&mut self) -> Vec<LayerRef> {
        let chance = &mut self.chance;
        let mut layers = Vec::new();
        if !self.plans.is_empty() && chance.percent(60) {
            let other = chance.below(u32::try_from(self.plans.len()).unwrap_or(1));
            layers.clone_from(&self.plans[other as usize].layers);
            match chance.below(4) {
                0 => layers.truncate(chance.below(LAYERS_MAX) as usize),
                1 => layers.reverse(),
                2 => layers.push(pick(chance, &self.pool)),
                _ => {}
            }
        } else {
            let count = chance.below(LAYERS_MAX + 1);
            layers.extend((0..count).map(|_| pick(chance, &self.pool)));
        }
        if !layers.is_empty() && chance.percent(10) {
            layers.push(layers[0].clone());
        }
        layers
    }

    fn stops(&mut self) {
        let chance = &mut self.chance;
        let ever = self.span + chance.pick(&[0, 30, 150]);
        let (first, second) = (chance.below(ever), chance.below(ever));
        match chance.below(8) {
            0 => self.step(first, Action::ShutDown),
            1 => self.step(first, Action::Drain),
            2 => {
                self.step(first, Action::Drain);
                self.step(second, Action::ShutDown);
                if second > first + 5 {
                    self.step(second + 1, Action::ShutDown);
                }
            }
            3 => {
                // Long after the last job has ended.
                self.step(10_000 + first, Action::Drain);
                self.step(10_000 + second, Action::ShutDown);
            }
            _ => {}
        }
    }

    fn strays(&mut self) {
        for _ in 0..self.chance.between(1, 6) {
            let at = self.chance.below(self.span + 60);
            let index = self
                .chance
                .below(u32::try_from(self.plans.len()).unwrap_or(1));
            let plan = self.plans[index as usize].clone();
            let stray = match self.chance.below(3) {
                0 => Stray::EnqueueAgain(plan),
                1 => Stray::CompleteAgain(plan.job),
                _ => Stray::AnswerAgain {
                    key: key(&mut self.chance, &self.pool),
                    ok: self.chance.percent(60),
                },
            };
            self.step(at, Action::Stray(stray));
        }
    }
}

/// Few layers, so that jobs share them: local ones, archives, manifests.
fn pool(chance: &mut Chance) -> Vec<LayerRef> {
    let blobs = chance.between(1, 5);
    (0..chance.pick(&[1, 3, 5, 8]))
        .map(|_| {
            let number = chance.below(blobs);
            let digest = blob(u8::try_from(number).unwrap_or(0));
            match chance.below(5) {
                0 | 1 => LayerRef::manifest(digest),
                2 | 3 => LayerRef::archive(digest),
                _ => LayerRef::local(format!("l{number}")),
            }
        })
        .collect()
}

fn pick(chance: &mut Chance, pool: &[LayerRef]) -> LayerRef {
    let index = chance.below(u32::try_from(pool.len()).unwrap_or(1));
    pool[index as usize].clone()
}

/// A blob or a tree of the pool.
fn key(chance: &mut Chance, pool: &[LayerRef]) -> Key {
    match pick(chance, pool) {
        LayerRef::Blob { digest, .. } if chance.percent(70) => Key::Blob(digest),
        layer => Key::Tree(layer),
    }
}

fn setting(chance: &mut Chance, pool: &[LayerRef]) -> Setting {
    let found = if chance.percent(25) { 3 } else { 0 };
    Setting {
        capacity: capacity(chance),
        bounds: bounds(chance),
        found: (0..found).map(|_| key(chance, pool)).collect(),
        free_stacks: chance.percent(25),
        pace: chance.pick(&[
            Pace::Instant,
            Pace::Even,
            Pace::Even,
            Pace::Mixed,
            Pace::Slow,
        ]),
        run_pace: chance.pick(&[
            Pace::Instant,
            Pace::Even,
            Pace::Mixed,
            Pace::Slow,
            Pace::Slow,
        ]),
        failures: chance.pick(&[0, 0, 0, 5, 5, 30, 100]),
        start_failures: chance.pick(&[0, 10, 40]),
        manifests: (0..BLOBS_MAX).map(|_| manifest(chance)).collect(),
        strays: chance.percent(20),
    }
}

fn capacity(chance: &mut Chance) -> Capacity {
    let slots = chance.pick(&[1, 1, 2, 3, 4]);
    let budget = chance.pick(&[(false, false), (true, false), (false, true), (true, true)]);
    let memory = chance.between(1, 6);
    let cpus = chance.between(500, 4000);
    Capacity {
        slots: NonZeroU32::new(slots).unwrap_or(NonZeroU32::MIN),
        memory: budget.0.then(|| ByteSize::mib(memory.into())),
        cpus: budget.1.then_some(CpuCount { thousandths: cpus }),
    }
}

fn bounds(chance: &mut Chance) -> Option<Bounds> {
    let max = chance.pick(&[0, 30, 60, 100]);
    let floor = chance.pick(&[0, 0, 20, 50]);
    chance.percent(50).then_some(Bounds {
        max: ByteSize(max),
        floor: ByteSize(floor),
    })
}

/// Names some blobs, perhaps one twice, perhaps itself, perhaps none.
fn manifest(chance: &mut Chance) -> Vec<u8> {
    let count = chance.pick(&[0, 1, 2, 3, 4]);
    (0..count)
        .map(|_| u8::try_from(chance.below(BLOBS_MAX.into())).unwrap_or(0))
        .collect()
}
