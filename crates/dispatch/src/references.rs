//! The references of one job: each key at most once, all released exactly once.

use std::collections::BTreeSet;

use crate::cache::{Cache, Get};
use crate::job::JobId;
use crate::key::Key;

/// What one job holds in the cache, and what it has asked for.
#[derive(Debug, Default)]
pub(crate) struct References {
    held: BTreeSet<Key>,
    awaited: BTreeSet<Key>,
}

impl References {
    /// Asks the cache for a key, unless the job has it or has asked for it already.
    pub(crate) fn ask(&mut self, key: &Key, job: JobId, cache: &mut impl Cache) -> Get {
        if self.held.contains(key) {
            return Get::Here;
        }
        if self.awaited.contains(key) {
            return Get::Wait;
        }
        let answer = cache.get(key, job);
        match answer {
            Get::Here => self.held.insert(key.clone()),
            Get::Wait | Get::YouGet => self.awaited.insert(key.clone()),
        };
        answer
    }

    /// The cache gave the job a reference. False if the job does not wait for it; then the caller
    /// has to release it.
    pub(crate) fn arrived(&mut self, key: &Key) -> bool {
        let awaited = self.awaited.remove(key);
        if awaited {
            self.held.insert(key.clone());
        }
        awaited
    }

    /// Whether the job waits for this key.
    pub(crate) fn awaits(&self, key: &Key) -> bool {
        self.awaited.contains(key)
    }

    /// What is held and has to be released. What is still awaited is released by the dispatcher when
    /// it arrives and the job is gone.
    pub(crate) fn into_held(self) -> BTreeSet<Key> {
        self.held
    }

    /// What is held.
    pub(crate) fn held(&self) -> &BTreeSet<Key> {
        &self.held
    }

    /// What is asked for and not here.
    pub(crate) fn awaited(&self) -> &BTreeSet<Key> {
        &self.awaited
    }
}
