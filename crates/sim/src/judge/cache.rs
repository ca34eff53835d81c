//! The judge's books about the cache: who waits, how many references, used when, how large.

use std::collections::BTreeMap;

use tidemill_core::ByteSize;
use tidemill_dispatch::{Bounds, Eviction, Get, JobId, Key};

use crate::coverage::{Coverage, Kind};
use crate::fault::{Fault, FaultKind};
use crate::names::{Names, show_job};
use crate::schedule::size_of;

#[derive(Debug)]
pub(super) struct CacheBooks {
    seed: u64,
    /// Stacks are always here and cost nothing.
    free_stacks: bool,
    entries: BTreeMap<Key, Entry>,
    uses: u64,
    references: usize,
}

#[derive(Debug, Default)]
struct Entry {
    here: bool,
    size: u64,
    references: usize,
    waiting: Vec<JobId>,
    last_use: u64,
    /// How often it came.
    generation: u32,
    has_failed: bool,
    was_evicted: bool,
}

impl CacheBooks {
    pub(super) const fn new(seed: u64, free_stacks: bool) -> Self {
        Self {
            seed,
            free_stacks,
            entries: BTreeMap::new(),
            uses: 0,
            references: 0,
        }
    }

    /// It is in the cache at the start.
    pub(super) fn found(&mut self, key: &Key, size: ByteSize) {
        self.uses += 1;
        let last_use = self.uses;
        self.entries.entry(key.clone()).or_insert(Entry {
            here: true,
            size: size.0,
            last_use,
            ..Entry::default()
        });
    }

    /// A message says that it is here.
    pub(super) fn came(&mut self, key: &Key) {
        self.entry(key).generation += 1;
    }

    /// A message says that it cannot be had.
    pub(super) fn failed(&mut self, key: &Key) {
        self.entry(key).has_failed = true;
    }

    pub(super) fn generation(&self, key: &Key) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.generation)
    }

    pub(super) fn has_failed(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.has_failed)
    }

    pub(super) fn was_evicted(&self, key: &Key) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.was_evicted)
    }

    /// How many jobs wait for it, also those that are gone.
    pub(super) fn waiting(&self, key: &Key) -> usize {
        self.entries.get(key).map_or(0, |entry| entry.waiting.len())
    }

    /// How many references there are together.
    pub(super) const fn total(&self) -> usize {
        self.references
    }

    /// Every key that has references, and how many.
    pub(super) fn references(&self) -> impl Iterator<Item = (&Key, usize)> {
        (self.entries.iter())
            .filter(|(_, entry)| entry.references > 0)
            .map(|(key, entry)| (key, entry.references))
    }

    /// Whether a key is there without anybody's doing.
    pub(super) const fn is_free(&self, key: &Key) -> bool {
        self.free_stacks && matches!(key, Key::Stack(_))
    }

    /// A job asks for a key and is answered.
    pub(super) fn on_get(&mut self, key: &Key, job: JobId, answer: Get) -> Result<(), Fault> {
        self.uses += 1;
        let uses = self.uses;
        let is_free = self.is_free(key);
        let entry = self.entry(key);
        entry.here |= is_free;
        let right = match (entry.here, entry.waiting.is_empty()) {
            (true, _) => Get::Here,
            (false, false) => Get::Wait,
            (false, true) => Get::YouGet,
        };
        if answer != right {
            let what = format!("{answer:?}, not {right:?}, to {}", show_job(job));
            return Err(Fault::new(FaultKind::WrongCacheAnswer, what));
        }
        if answer == Get::Here {
            entry.references += 1;
            entry.last_use = uses;
            self.references += 1;
        } else {
            entry.waiting.push(job);
        }
        Ok(())
    }

    /// A key is here, and the cache names who waited and has a reference now.
    pub(super) fn on_got(&mut self, key: &Key, waited: &[JobId]) -> Result<(), Fault> {
        self.uses += 1;
        let uses = self.uses;
        let size = size_of(self.seed, key).0;
        self.check_waited(key, waited)?;
        let entry = self.entry(key);
        entry.here = true;
        entry.size = size;
        entry.references += waited.len();
        entry.last_use = uses;
        self.references += waited.len();
        Ok(())
    }

    /// A key cannot be had, and the cache names who waited.
    pub(super) fn on_failed(&mut self, key: &Key, waited: &[JobId]) -> Result<(), Fault> {
        self.check_waited(key, waited)
    }

    fn check_waited(&mut self, key: &Key, waited: &[JobId]) -> Result<(), Fault> {
        let right = std::mem::take(&mut self.entry(key).waiting);
        if right == waited {
            return Ok(());
        }
        let show = |jobs: &[JobId]| {
            jobs.iter()
                .copied()
                .map(show_job)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let what = format!("waited have [{}], not [{}]", show(&right), show(waited));
        Err(Fault::new(FaultKind::WrongCacheAnswer, what))
    }

    /// A reference is given back. How many are left.
    pub(super) fn on_release(&mut self, key: &Key, names: &Names) -> Result<usize, Fault> {
        self.uses += 1;
        let uses = self.uses;
        let entry = self.entry(key);
        if entry.references == 0 {
            let what = format!("{} has none", names.show(key));
            return Err(Fault::new(FaultKind::ReleasedTwice, what));
        }
        entry.references -= 1;
        entry.last_use = uses;
        let left = entry.references;
        self.references -= 1;
        Ok(left)
    }

    /// Keys that somebody waits for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &Key> {
        (self.entries.iter())
            .filter(|(_, entry)| !entry.waiting.is_empty())
            .map(|(key, _)| key)
    }

    /// The cache removes something between two messages.
    pub(super) fn check_eviction(
        &mut self,
        bounds: Bounds,
        eviction: &Eviction<Key>,
        names: &Names,
        coverage: &mut Coverage,
    ) -> Result<(), Fault> {
        for key in &eviction.remove {
            if !(self.entries.get(key)).is_some_and(|entry| entry.here && entry.references == 0) {
                let what = format!("{} is held, or not there", names.show(key));
                return Err(Fault::new(FaultKind::EvictedInUse, what));
            }
        }
        let (right, left) = self.to_evict(bounds);
        let over = left.saturating_sub(bounds.max.0);
        if (&eviction.remove, eviction.left.0, eviction.over.0) != (&right, left, over) {
            let show = |keys: &[Key]| keys.iter().map(|key| names.show(key)).collect::<Vec<_>>();
            let what = format!(
                "{:?} with {} left and {} over, not {:?} with {left} left and {over} over",
                show(&eviction.remove),
                eviction.left,
                eviction.over,
                show(&right)
            );
            return Err(Fault::new(FaultKind::WrongEviction, what));
        }
        for key in &right {
            let entry = self.entry(key);
            entry.here = false;
            entry.was_evicted = true;
        }
        coverage.hit_if(!right.is_empty(), Kind::Evicted);
        if over > 0 {
            let idle = self.entries.values().any(Entry::frees_something);
            coverage.hit(if idle {
                Kind::EvictionStoppedByFloor
            } else {
                Kind::EvictionStoppedByUse
            });
        }
        Ok(())
    }

    /// One after the other: the least recently used of those that may go, as long as there is too
    /// much. Also how much is left.
    fn to_evict(&self, bounds: Bounds) -> (Vec<Key>, u64) {
        let here = self.entries.values().filter(|entry| entry.here);
        let mut total: u64 = here.map(|entry| entry.size).sum();
        let mut gone = Vec::new();
        while total > bounds.max.0 {
            let next = (self.entries.iter())
                .filter(|(key, entry)| entry.frees_something() && !gone.contains(*key))
                .filter(|(_, entry)| total - entry.size >= bounds.floor.0)
                .min_by_key(|(_, entry)| entry.last_use);
            let Some((key, entry)) = next else {
                break;
            };
            total -= entry.size;
            gone.push(key.clone());
        }
        (gone, total)
    }

    fn entry(&mut self, key: &Key) -> &mut Entry {
        self.entries.entry(key.clone()).or_default()
    }
}

impl Entry {
    const fn frees_something(&self) -> bool {
        self.here && self.references == 0 && self.size > 0
    }
}
