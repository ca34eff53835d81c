//! Blobs, trees and stacks that jobs share, counted by reference.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::job::JobId;
use crate::key::Key;

/// What the dispatcher asks of the runner's cache. It keeps who waits for what and how many
/// references each key has; a key with a reference must not be removed.
pub trait Cache {
    /// Asks for a key on behalf of a job. See [`Get`] for what the answers oblige to.
    fn get(&mut self, key: &Key, job: JobId) -> Get;

    /// The key is here now. Gives one reference to each job that waited and returns these jobs, in
    /// the order in which they asked.
    fn got(&mut self, key: &Key) -> Vec<JobId>;

    /// The key cannot be had. Forgets it, so that the next job that asks tries again, and returns
    /// the jobs that waited, in the order in which they asked.
    fn failed(&mut self, key: &Key) -> Vec<JobId>;

    /// Gives one reference back.
    fn release(&mut self, key: &Key);

    /// Where a key is that the caller holds a reference to.
    fn path(&self, key: &Key) -> PathBuf;
}

/// The cache's answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Get {
    /// It is here, and the job has one reference now.
    Here,
    /// Somebody is already getting it; the job gets its reference when it arrives.
    Wait,
    /// The job waits, and the caller starts getting it, now.
    YouGet,
}

/// The counting half of a cache: who waits, how many references. Pure. An adapter adds paths, sizes
/// and removal, or answers [`Get::Here`] by itself for keys that cost nothing (stacks, where the
/// sandbox mounts the trees over each other).
#[derive(Debug, Default)]
pub struct CacheTable {
    entries: BTreeMap<Key, Entry>,
}

#[derive(Debug)]
enum Entry {
    Getting { waiting: Vec<JobId> },
    Here { references: usize },
}

impl CacheTable {
    /// A table that knows of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a key is already on disk, without a reference, as found at the start. No effect
    /// on a key that the table knows.
    pub fn found(&mut self, key: Key) {
        self.entries
            .entry(key)
            .or_insert(Entry::Here { references: 0 });
    }

    /// As [`Cache::get`].
    pub fn get(&mut self, key: &Key, job: JobId) -> Get {
        match self.entries.get_mut(key) {
            Some(Entry::Here { references }) => {
                *references += 1;
                Get::Here
            }
            Some(Entry::Getting { waiting }) => {
                waiting.push(job);
                Get::Wait
            }
            None => {
                let waiting = vec![job];
                self.entries.insert(key.clone(), Entry::Getting { waiting });
                Get::YouGet
            }
        }
    }

    /// As [`Cache::got`]. Empty for a key that is not being got.
    pub fn got(&mut self, key: &Key) -> Vec<JobId> {
        let Some(entry) = self.entries.get_mut(key) else {
            return Vec::new();
        };
        match entry {
            Entry::Here { .. } => Vec::new(),
            Entry::Getting { waiting } => {
                let waiting = std::mem::take(waiting);
                let references = waiting.len();
                *entry = Entry::Here { references };
                waiting
            }
        }
    }

    /// As [`Cache::failed`]. Empty for a key that is not being got.
    pub fn failed(&mut self, key: &Key) -> Vec<JobId> {
        match self.entries.get_mut(key) {
            None | Some(Entry::Here { .. }) => Vec::new(),
            Some(Entry::Getting { waiting }) => {
                let waiting = std::mem::take(waiting);
                self.entries.remove(key);
                waiting
            }
        }
    }

    /// As [`Cache::release`]. True if that was the last reference, so that the key may be removed.
    pub fn release(&mut self, key: &Key) -> bool {
        match self.entries.get_mut(key) {
            Some(Entry::Here { references }) if *references > 0 => {
                *references -= 1;
                *references == 0
            }
            _ => {
                debug_assert!(false, "{key} was released without a reference");
                false
            }
        }
    }

    /// Forgets a key that was removed from disk. False, and no effect, if it is in use or being got.
    pub fn remove(&mut self, key: &Key) -> bool {
        let idle = matches!(self.entries.get(key), Some(Entry::Here { references: 0 }));
        if idle {
            self.entries.remove(key);
        }
        idle
    }

    /// How many references a key has.
    pub fn references(&self, key: &Key) -> usize {
        match self.entries.get(key) {
            Some(Entry::Here { references }) => *references,
            Some(Entry::Getting { .. }) | None => 0,
        }
    }

    /// The keys that are here and that nobody holds: what may be removed.
    pub fn idle(&self) -> impl Iterator<Item = &Key> {
        self.entries
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Here { references: 0 }))
            .map(|(key, _)| key)
    }
}
