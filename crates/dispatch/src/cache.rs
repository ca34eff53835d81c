//! Blobs, trees and stacks that jobs share, counted by reference.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidemill_core::ByteSize;

use crate::eviction::{self, Bounds, Eviction, Kept};
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

/// The counting half of a cache: who waits, how many references, how large, used when, and so what
/// may go. Pure. An adapter adds paths and removal, or answers [`Get::Here`] by itself for keys that
/// cost nothing (stacks, where the sandbox mounts the trees over each other).
#[derive(Debug, Default)]
pub struct CacheTable {
    entries: BTreeMap<Key, Entry>,
    /// How often a reference was given or given back: the order of uses.
    uses: u64,
}

#[derive(Debug)]
enum Entry {
    Getting { waiting: Vec<JobId> },
    Here(Here),
}

#[derive(Debug, Default)]
struct Here {
    references: usize,
    size: ByteSize,
    last_use: u64,
}

impl CacheTable {
    /// A table that knows of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a key is already on disk, without a reference, as found at the start. What was
    /// used least recently comes first. No effect on a key that the table knows.
    pub fn found(&mut self, key: Key, size: ByteSize) {
        let last_use = self.next_use();
        self.entries.entry(key).or_insert(Entry::Here(Here {
            references: 0,
            size,
            last_use,
        }));
    }

    /// Notes how much removing a key would free. It counts as nothing until then. No effect on a
    /// key that is not here.
    pub fn measured(&mut self, key: &Key, size: ByteSize) {
        if let Some(Entry::Here(here)) = self.entries.get_mut(key) {
            here.size = size;
        }
    }

    /// As [`Cache::get`].
    pub fn get(&mut self, key: &Key, job: JobId) -> Get {
        let last_use = self.next_use();
        match self.entries.get_mut(key) {
            Some(Entry::Here(here)) => {
                here.references += 1;
                here.last_use = last_use;
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
        let last_use = self.next_use();
        let Some(entry) = self.entries.get_mut(key) else {
            return Vec::new();
        };
        match entry {
            Entry::Here(_) => Vec::new(),
            Entry::Getting { waiting } => {
                let waiting = std::mem::take(waiting);
                *entry = Entry::Here(Here {
                    references: waiting.len(),
                    size: ByteSize(0),
                    last_use,
                });
                waiting
            }
        }
    }

    /// As [`Cache::failed`]. Empty for a key that is not being got.
    pub fn failed(&mut self, key: &Key) -> Vec<JobId> {
        match self.entries.get_mut(key) {
            None | Some(Entry::Here(_)) => Vec::new(),
            Some(Entry::Getting { waiting }) => {
                let waiting = std::mem::take(waiting);
                self.entries.remove(key);
                waiting
            }
        }
    }

    /// As [`Cache::release`]. True if that was the last reference, so that the key may be removed.
    pub fn release(&mut self, key: &Key) -> bool {
        let last_use = self.next_use();
        match self.entries.get_mut(key) {
            Some(Entry::Here(here)) if here.references > 0 => {
                here.references -= 1;
                here.last_use = last_use;
                here.references == 0
            }
            _ => {
                debug_assert!(false, "{key} was released without a reference");
                false
            }
        }
    }

    /// Forgets a key that was removed from disk. False, and no effect, if it is in use or being got.
    pub fn remove(&mut self, key: &Key) -> bool {
        let idle = (self.entries.get(key)).is_some_and(Entry::is_idle);
        if idle {
            self.entries.remove(key);
        }
        idle
    }

    /// Makes room for `coming` more bytes, as [`eviction::choose`] says: forgets what was used least
    /// recently, for the caller to remove. Never what somebody holds or what is being got. The
    /// caller moves it out of reach before the next message: a job that asks for it gets it anew.
    #[must_use = "what is forgotten here has to be removed from disk"]
    pub fn evict(&mut self, bounds: Bounds, coming: ByteSize) -> Eviction<Key> {
        if u128::from(self.size().0) + u128::from(coming.0) <= u128::from(bounds.max.0) {
            let (remove, left, over) = (Vec::new(), self.size(), ByteSize(0));
            return Eviction { remove, left, over };
        }
        let kept = self.entries.iter().filter_map(|(key, entry)| match entry {
            Entry::Getting { .. } => None,
            Entry::Here(here) => Some(Kept {
                key,
                size: here.size,
                last_use: here.last_use,
                in_use: !entry.is_idle(),
            }),
        });
        let Eviction { remove, left, over } = eviction::choose(bounds, coming, kept);
        let remove: Vec<Key> = remove.into_iter().cloned().collect();
        for key in &remove {
            self.entries.remove(key);
        }
        Eviction { remove, left, over }
    }

    /// Bytes of everything that is here.
    pub fn size(&self) -> ByteSize {
        let sizes = self.entries.values().map(|entry| match entry {
            Entry::Getting { .. } => 0,
            Entry::Here(here) => here.size.0,
        });
        ByteSize(sizes.fold(0, u64::saturating_add))
    }

    /// How many references a key has.
    pub fn references(&self, key: &Key) -> usize {
        match self.entries.get(key) {
            Some(Entry::Here(here)) => here.references,
            Some(Entry::Getting { .. }) | None => 0,
        }
    }

    /// The keys that are here and that nobody holds: what may be removed.
    pub fn idle(&self) -> impl Iterator<Item = &Key> {
        self.entries
            .iter()
            .filter(|(_, entry)| entry.is_idle())
            .map(|(key, _)| key)
    }

    const fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

impl Entry {
    /// Whether it is here and nobody holds it.
    const fn is_idle(&self) -> bool {
        matches!(self, Self::Here(Here { references: 0, .. }))
    }
}

#[cfg(test)]
mod tests;
