//! The world as the dispatcher sees it: a real cache table and handles, and every call written down.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::event::Status;
use tidemill_core::{ByteSize, Digest, JobSpec, Reason};
use tidemill_dispatch::{
    Bounds, Cache, CacheTable, Defect, Deps, Ending, Eviction, Get, JobId, Key, Recipe, Root,
    TimerKind,
};

use crate::effect::Effect;
use crate::names::Names;
use crate::schedule::{Schedule, size_of};

/// What the dispatcher did since somebody looked last. Shared with the handles, which write down
/// when they are dropped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects(Rc<RefCell<Vec<Effect>>>);

impl Effects {
    pub(crate) fn push(&self, effect: Effect) {
        self.0.borrow_mut().push(effect);
    }

    pub(crate) fn take(&self) -> Vec<Effect> {
        self.0.take()
    }
}

/// A sandbox or a timer.
#[derive(Debug)]
pub(crate) struct Handle {
    effects: Effects,
    dropped: Effect,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.effects.push(self.dropped.clone());
    }
}

/// Writes down, does nothing. Answers come from the schedule's world.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) effects: Effects,
    schedule: Rc<Schedule>,
    names: Rc<RefCell<Names>>,
    table: CacheTable,
    /// How often each key came.
    generations: BTreeMap<Key, u32>,
}

impl Probe {
    pub(crate) fn new(schedule: Rc<Schedule>, names: Rc<RefCell<Names>>) -> Self {
        let mut table = CacheTable::new();
        for key in &schedule.setting.found {
            table.found(key.clone(), size_of(schedule.seed, key));
        }
        Self {
            effects: Effects::default(),
            schedule,
            names,
            table,
            generations: BTreeMap::new(),
        }
    }

    /// Lets the cache remove what it wants.
    pub(crate) fn evict(&mut self, bounds: Bounds) -> Eviction<Key> {
        self.table.evict(bounds, ByteSize(0))
    }

    fn handle(&self, dropped: Effect) -> Handle {
        let effects = self.effects.clone();
        Handle { effects, dropped }
    }
}

impl Cache for Probe {
    fn get(&mut self, key: &Key, job: JobId) -> Get {
        if self.schedule.setting.free_stacks && matches!(key, Key::Stack(_)) {
            self.table.found(key.clone(), ByteSize(0));
        }
        let answer = self.table.get(key, job);
        self.effects.push(Effect::Get(key.clone(), job, answer));
        answer
    }

    fn got(&mut self, key: &Key) -> Vec<JobId> {
        *self.generations.entry(key.clone()).or_default() += 1;
        let waited = self.table.got(key);
        self.table.measured(key, size_of(self.schedule.seed, key));
        self.effects.push(Effect::Got(key.clone(), waited.clone()));
        waited
    }

    fn failed(&mut self, key: &Key) -> Vec<JobId> {
        let waited = self.table.failed(key);
        let effect = Effect::Failed(key.clone(), waited.clone());
        self.effects.push(effect);
        waited
    }

    fn release(&mut self, key: &Key) {
        // Without a reference the judge is to say so, not the table.
        if self.table.references(key) > 0 {
            self.table.release(key);
        }
        self.effects.push(Effect::Release(key.clone()));
    }

    fn path(&self, key: &Key) -> PathBuf {
        if self.table.references(key) == 0 {
            return PathBuf::from("/nowhere");
        }
        let generation = self.generations.get(key).copied().unwrap_or(0);
        self.names.borrow().path(key, generation)
    }
}

impl Deps for Probe {
    type Sandbox = Handle;
    type Timer = Handle;

    fn start_sandbox(&mut self, job: JobId, spec: &Arc<JobSpec>, root: Root) -> Handle {
        self.effects
            .push(Effect::Start(job, Arc::clone(spec), root));
        self.handle(Effect::Kill(job))
    }

    fn start_timer(&mut self, job: JobId, timer: TimerKind, after: Duration) -> Handle {
        self.effects.push(Effect::StartTimer(job, timer, after));
        self.handle(Effect::DropTimer(job, timer))
    }

    fn fetch(&mut self, digest: Digest) {
        self.effects.push(Effect::Fetch(digest));
    }

    fn build(&mut self, key: &Key, recipe: Recipe) {
        self.effects.push(Effect::Build(key.clone(), recipe));
    }

    fn read_manifest(&mut self, digest: Digest, job: JobId, path: PathBuf) {
        self.effects.push(Effect::Read(digest, job, path));
    }

    fn status(&mut self, job: JobId, status: Status) {
        self.effects.push(Effect::Status(job, status));
    }

    fn ended(&mut self, job: JobId, ending: Ending) {
        self.effects.push(Effect::Ended(job, ending));
    }

    fn done(&mut self, reason: &Reason) {
        self.effects.push(Effect::Done(reason.message.clone()));
    }

    fn defect(&mut self, defect: Defect) {
        self.effects.push(Effect::Defect(defect));
    }
}
