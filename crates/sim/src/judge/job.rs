//! A job in the judge's books.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::Digest;
use tidemill_core::event::Status;
use tidemill_dispatch::{JobRequest, Key, LayerRef, TimerKind};

#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: JobRequest,
    /// How many came before.
    pub(super) arrival: usize,
    pub(super) stage: Stage,
    /// For each height of its list: the tree at the bottom, stacks above.
    pub(super) stacks: Vec<Key>,
    /// What it asked the cache for.
    pub(super) asked: BTreeSet<Key>,
    /// What it holds of that.
    pub(super) held: BTreeSet<Key>,
    /// Manifests that are being read for it.
    pub(super) reading: BTreeSet<Digest>,
    /// What its manifests name: not themselves, and nothing twice.
    pub(super) named: BTreeMap<Digest, Vec<Digest>>,
    /// The timer that runs.
    pub(super) timer: Option<TimerKind>,
    /// What the hub was told.
    pub(super) told: Vec<Status>,
    /// What the hub has to have been told.
    pub(super) to_tell: Vec<Status>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Awaiting,
    Available,
    Executing,
    Dying(Fate),
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Cancelled,
    Dropped,
    TimedOut,
    Defective,
}

impl Job {
    pub(super) fn new(request: JobRequest, arrival: usize, stacks: Vec<Key>) -> Self {
        Self {
            request,
            arrival,
            stage: Stage::Awaiting,
            stacks,
            asked: BTreeSet::new(),
            held: BTreeSet::new(),
            reading: BTreeSet::new(),
            named: BTreeMap::new(),
            timer: None,
            told: Vec::new(),
            to_tell: Vec::new(),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        self.stage != Stage::Ended
    }

    /// Whether its process may be there.
    pub(super) const fn is_mounted(&self) -> bool {
        matches!(self.stage, Stage::Executing | Stage::Dying(_))
    }

    /// Whether it waits for a key.
    pub(super) fn awaits(&self, key: &Key) -> bool {
        self.stage == Stage::Awaiting && self.asked.contains(key) && !self.held.contains(key)
    }

    /// Whether somebody of the order goes first: the greater priority, then no estimate, then the
    /// longer one, then who came first.
    pub(super) fn goes_before(&self, other: &Self) -> bool {
        let (mine, others) = (&self.request.spec, &other.request.spec);
        if mine.priority != others.priority {
            return mine.priority > others.priority;
        }
        match (mine.estimate, others.estimate) {
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(mine), Some(others)) if mine != others => mine > others,
            _ => self.arrival < other.arrival,
        }
    }

    /// What it wants of the cache, as far as it can know, in any order and perhaps repeatedly.
    pub(super) fn wants(&self) -> Vec<Key> {
        let mut wants = Vec::new();
        for layer in &self.request.layers {
            let blobs = self.blobs_of(layer);
            let complete = blobs
                .as_ref()
                .is_some_and(|blobs| blobs.iter().all(|blob| self.has_blob(*blob)));
            match (layer, blobs) {
                (LayerRef::Blob { digest, .. }, None) => wants.push(Key::Blob(*digest)),
                (_, blobs) => wants.extend(blobs.unwrap_or_default().into_iter().map(Key::Blob)),
            }
            if complete {
                wants.push(Key::Tree(layer.clone()));
            }
        }
        for height in 1..self.stacks.len() {
            let tree = Key::Tree(self.request.layers[height].clone());
            let below = &self.stacks[..height];
            if self.held.contains(&tree) && below.iter().all(|key| self.held.contains(key)) {
                wants.push(self.stacks[height].clone());
            }
        }
        wants
    }

    /// The blobs that a tree is built of, in order. Nothing if the manifest has not been read.
    pub(super) fn blobs_of(&self, layer: &LayerRef) -> Option<Vec<Digest>> {
        match layer {
            LayerRef::Local(_) => Some(Vec::new()),
            LayerRef::Blob { digest, .. } if *layer == LayerRef::archive(*digest) => {
                Some(vec![*digest])
            }
            LayerRef::Blob { digest, .. } => {
                let named = self.named.get(digest)?;
                Some([&[*digest], &named[..]].concat())
            }
        }
    }

    /// What one of its trees or stacks is built of. Nothing for a blob, which is fetched.
    pub(super) fn inputs(&self, key: &Key) -> Option<Vec<Key>> {
        match key {
            Key::Blob(_) => None,
            Key::Tree(layer) => {
                let blobs = self.blobs_of(layer)?;
                Some(blobs.into_iter().map(Key::Blob).collect())
            }
            Key::Stack(_) => {
                let height = self.stacks.iter().position(|stack| stack == key)?;
                let below = self.stacks[height.checked_sub(1)?].clone();
                Some(vec![below, Key::Tree(self.request.layers[height].clone())])
            }
        }
    }

    /// Manifests that are here and have to be read.
    pub(super) fn to_read(&self) -> Vec<Digest> {
        let mut digests: Vec<_> = (self.request.layers.iter())
            .filter_map(|layer| match layer {
                LayerRef::Blob { digest, .. } if *layer == LayerRef::manifest(*digest) => {
                    Some(*digest)
                }
                _ => None,
            })
            .filter(|digest| self.has_blob(*digest))
            .filter(|digest| !self.reading.contains(digest) && !self.named.contains_key(digest))
            .collect();
        digests.sort_unstable();
        digests.dedup();
        digests
    }

    /// Whether everything is here up to its topmost stack.
    pub(super) fn has_everything(&self) -> bool {
        let layers = &self.request.layers;
        let trees = layers.iter().map(|layer| Key::Tree(layer.clone()));
        let blobs = layers.iter().map(|layer| self.blobs_of(layer));
        self.stacks.iter().all(|key| self.held.contains(key))
            && trees.into_iter().all(|key| self.held.contains(&key))
            && blobs.into_iter().all(|blobs| {
                blobs.is_some_and(|blobs| blobs.iter().all(|blob| self.has_blob(*blob)))
            })
    }

    fn has_blob(&self, digest: Digest) -> bool {
        self.held.contains(&Key::Blob(digest))
    }
}
