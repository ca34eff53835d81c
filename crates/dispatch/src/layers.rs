//! The layers of one job on their way to one stack.
//!
//! ```text
//! per layer:  blob ─► (manifest: read it ─► the blobs it names) ─► tree
//! upwards:    tree 1 ─► stack 1+2 ─► stack 1+2+3 …   the topmost one makes the job available
//! ```
//!
//! The tracker only says what is wanted next, perhaps repeatedly. Who gets it, who else waits for
//! it and whether the job has it already is not its matter.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use tidemill_core::Digest;

use crate::deps::{Recipe, Root};
use crate::key::{BlobForm, Key, LayerRef, StackKey};

/// Follows one job's layers.
#[derive(Debug)]
pub(crate) struct LayerTracker {
    /// The distinct layers, in the order in which they first stand in the list.
    layers: Vec<Progress>,
    /// The job's list, the lowest first, as positions in `layers`.
    list: Vec<usize>,
    /// The stack of everything up to and including each place of the list.
    stacks: Vec<StackKey>,
    /// How many places of the list are stacked.
    height: usize,
    /// For each blob that has not arrived: the layers that need it, as positions in `layers`.
    users: BTreeMap<Digest, Vec<usize>>,
}

#[derive(Debug)]
struct Progress {
    layer: LayerRef,
    /// What the manifest names, without repetition; empty for a layer without one.
    named: Vec<Digest>,
    reading: bool,
    missing: usize,
    has_tree: bool,
}

/// What the tracker wants next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// A blob, tree or stack.
    Get(Key),
    /// What a manifest, which is here, names.
    Read(Digest),
}

impl LayerTracker {
    /// Follows these layers, the lowest first. Also says what is wanted at once.
    pub(crate) fn new(layers: &[LayerRef]) -> (Self, Vec<Want>) {
        let mut tracker = Self {
            layers: Vec::new(),
            list: Vec::with_capacity(layers.len()),
            stacks: Vec::with_capacity(layers.len()),
            height: 0,
            users: BTreeMap::new(),
        };
        let mut wants = Vec::new();
        let mut positions = BTreeMap::new();
        for layer in layers {
            let next = tracker.layers.len();
            let position = *positions.entry(layer).or_insert(next);
            tracker.list.push(position);
            tracker.stacks.push(match tracker.stacks.last() {
                None => StackKey::lowest(layer),
                Some(below) => below.under(layer),
            });
            if position == next {
                wants.push(tracker.add(layer));
            }
        }
        (tracker, wants)
    }

    fn add(&mut self, layer: &LayerRef) -> Want {
        let position = self.layers.len();
        self.layers.push(Progress {
            layer: layer.clone(),
            named: Vec::new(),
            reading: false,
            missing: 0,
            has_tree: false,
        });
        match layer {
            LayerRef::Local(_) => Want::Get(Key::Tree(layer.clone())),
            LayerRef::Blob { digest, .. } => self.need(position, *digest),
        }
    }

    /// Notes that a layer needs a blob.
    fn need(&mut self, position: usize, digest: Digest) -> Want {
        self.layers[position].missing += 1;
        self.users.entry(digest).or_default().push(position);
        Want::Get(Key::Blob(digest))
    }

    /// Notes that something wanted is here.
    pub(crate) fn arrived(&mut self, key: &Key) -> Vec<Want> {
        match key {
            Key::Blob(digest) => self.blob_arrived(*digest),
            Key::Tree(layer) => {
                if let Some(progress) = self.layers.iter_mut().find(|each| each.layer == *layer) {
                    progress.has_tree = true;
                }
                self.climb()
            }
            Key::Stack(stack) => {
                // A stack that was wanted twice arrives twice if it is here.
                if self.stacks.get(self.height) == Some(stack) {
                    self.height += 1;
                }
                self.climb()
            }
        }
    }

    fn blob_arrived(&mut self, digest: Digest) -> Vec<Want> {
        let users = self.users.remove(&digest).unwrap_or_default();
        let mut wants = Vec::new();
        for position in users {
            let progress = &mut self.layers[position];
            progress.missing -= 1;
            if progress.layer == LayerRef::manifest(digest) {
                progress.reading = true;
                wants.push(Want::Read(digest));
            } else if progress.missing == 0 {
                wants.push(Want::Get(Key::Tree(progress.layer.clone())));
            }
        }
        wants
    }

    /// Whether an answer about this manifest is awaited.
    pub(crate) fn is_reading(&self, manifest: Digest) -> bool {
        let layer = LayerRef::manifest(manifest);
        self.layers
            .iter()
            .any(|progress| progress.reading && progress.layer == layer)
    }

    /// Notes which blobs a manifest names.
    pub(crate) fn manifest_read(&mut self, manifest: Digest, named: Vec<Digest>) -> Vec<Want> {
        let layer = LayerRef::manifest(manifest);
        let Some(position) = self
            .layers
            .iter()
            .position(|progress| progress.reading && progress.layer == layer)
        else {
            return Vec::new();
        };
        let mut seen = BTreeSet::new();
        let named: Vec<_> = named
            .into_iter()
            .filter(|digest| *digest != manifest && seen.insert(*digest))
            .collect();
        let mut wants: Vec<_> = (named.iter())
            .map(|digest| self.need(position, *digest))
            .collect();
        let progress = &mut self.layers[position];
        progress.reading = false;
        progress.named = named;
        if progress.missing == 0 {
            wants.push(Want::Get(Key::Tree(layer)));
        }
        wants
    }

    /// Goes up as far as trees and stacks allow.
    fn climb(&mut self) -> Vec<Want> {
        if self.height == 0 && self.has_tree(0) {
            self.height = 1;
        }
        if self.height > 0 && self.has_tree(self.height) {
            return vec![Want::Get(Key::Stack(self.stacks[self.height]))];
        }
        Vec::new()
    }

    /// Whether the tree at this place of the list is here; false above the top.
    fn has_tree(&self, place: usize) -> bool {
        self.list
            .get(place)
            .is_some_and(|position| self.layers[*position].has_tree)
    }

    /// Whether the topmost stack is here.
    pub(crate) fn is_ready(&self) -> bool {
        self.height == self.list.len()
    }

    /// Whether a manifest is being read.
    pub(crate) fn reads(&self) -> bool {
        self.layers.iter().any(|progress| progress.reading)
    }

    /// How to build a tree or stack that the tracker wanted; nothing for anything else.
    pub(crate) fn recipe(
        &self,
        key: &Key,
        mut path: impl FnMut(&Key) -> PathBuf,
    ) -> Option<Recipe> {
        match key {
            Key::Blob(_) => None,
            Key::Tree(layer) => {
                let progress = self.layers.iter().find(|each| each.layer == *layer)?;
                let own = match layer {
                    LayerRef::Blob {
                        digest,
                        form: BlobForm::Archive | BlobForm::Manifest,
                    } => Some(*digest),
                    LayerRef::Local(_) => None,
                };
                let blobs = own
                    .into_iter()
                    .chain(progress.named.iter().copied())
                    .map(|digest| (digest, path(&Key::Blob(digest))))
                    .collect();
                let layer = layer.clone();
                Some(Recipe::Tree { layer, blobs })
            }
            Key::Stack(stack) => {
                let place = self.stacks.iter().position(|each| each == stack)?;
                let below = place.checked_sub(1)?;
                Some(Recipe::Stack {
                    lower: path(&self.stacked(below)),
                    upper: path(&self.tree(place)),
                })
            }
        }
    }

    /// The paths of a job whose topmost stack is here.
    pub(crate) fn root(&self, path: impl Fn(&Key) -> PathBuf) -> Root {
        Root {
            trees: (0..self.list.len())
                .map(|place| path(&self.tree(place)))
                .collect(),
            top: (self.list.len().checked_sub(1)).map(|top| path(&self.stacked(top))),
        }
    }

    fn tree(&self, place: usize) -> Key {
        Key::Tree(self.layers[self.list[place]].layer.clone())
    }

    /// Everything up to and including this place: a tree at the bottom, a stack above.
    fn stacked(&self, place: usize) -> Key {
        if place == 0 {
            self.tree(place)
        } else {
            Key::Stack(self.stacks[place])
        }
    }
}
