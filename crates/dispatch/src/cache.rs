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

#[cfg(test)]
mod tests {
    use tidemill_core::Digest;

    use super::*;
    use crate::script::job;

    fn key() -> Key {
        Key::Blob(Digest::of(b"key"))
    }

    #[test]
    fn the_first_gets_it_the_others_wait_and_all_hold_it() {
        let mut table = CacheTable::new();
        assert_eq!(table.get(&key(), job(1)), Get::YouGet);
        assert_eq!(table.get(&key(), job(2)), Get::Wait);
        assert_eq!(table.references(&key()), 0);
        assert_eq!(table.got(&key()), [job(1), job(2)]);
        assert_eq!(table.get(&key(), job(3)), Get::Here);
        assert_eq!(table.references(&key()), 3);
        assert!(table.got(&key()).is_empty(), "it has arrived already");
    }

    #[test]
    fn what_failed_is_forgotten() {
        let mut table = CacheTable::new();
        table.get(&key(), job(1));
        assert_eq!(table.failed(&key()), [job(1)]);
        assert!(table.failed(&key()).is_empty());
        assert_eq!(table.get(&key(), job(2)), Get::YouGet);
    }

    #[test]
    fn only_what_nobody_holds_can_be_removed() {
        let mut table = CacheTable::new();
        table.get(&key(), job(1));
        assert!(!table.remove(&key()), "it is being got");
        table.got(&key());
        table.get(&key(), job(2));
        assert!(!table.release(&key()));
        assert!(!table.remove(&key()), "one reference is left");
        assert!(table.idle().next().is_none());
        assert!(table.release(&key()), "that was the last one");
        assert!(table.idle().eq([&key()]));
        assert!(table.remove(&key()));
        assert!(!table.remove(&key()), "it is not there any more");
    }

    #[test]
    fn what_was_found_at_the_start_is_here_and_idle() {
        let mut table = CacheTable::new();
        table.found(key());
        assert!(table.idle().eq([&key()]));
        assert_eq!(table.get(&key(), job(1)), Get::Here);
        table.found(key());
        assert_eq!(
            table.references(&key()),
            1,
            "finding it again changes nothing"
        );
    }

    #[test]
    #[should_panic(expected = "released without a reference")]
    #[cfg(debug_assertions)]
    fn a_release_too_many_is_a_defect() {
        let mut table = CacheTable::new();
        table.found(key());
        table.release(&key());
    }
}
