//! Images of the Open Container Initiative: from layers to one tree.
//!
//! ```text
//! blob ─► layer tree: `index` and files under numbers ─┐
//! blob ─► layer tree ──────────────────────────────────┼─► Merged ─► the image's tree: hard links to the files
//! blob ─► layer tree ──────────────────────────────────┘
//! ```
//!
//! A layer is read once, whichever images have it, and several at a time. The image's tree is flat: a
//! job over sixty layers starts as one over one. Why so stands in docs/design/008.

mod index;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::num::NonZero;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;

use serde::{Deserialize, Serialize};
use tidemill_core::Digest;
use tidemill_core::oci::OciDigest;

use crate::archive::{self, ArchiveError, Ended, Watch};
use crate::beneath::open_root;
use crate::own_image;
use crate::tree_store::{Building, FileAttributes, TreeNote, TreeStore, TreeStoreError};
use crate::unpack::{
    ArchiveOwners, Dress, Files, Lacks, Merged, Names, Reading, UnpackError, UnpackLimits, apply,
    place,
};
use index::LayerIndex;

/// The version of how layers become trees: part of each tree's name.
const FORMAT: u32 = 1;
/// Where a layer's records are in its tree.
const INDEX: &str = "index";
/// Where a layer's files are in its tree.
const FILES: &str = "files";
/// Layers that are read at once.
const AT_ONCE_MAX: usize = 4;
/// Bytes of a layer's index at most.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// An image that a resolved spec names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// What it was called when the spec was written.
    pub reference: String,
    /// The digest of its manifest.
    pub manifest: OciDigest,
    /// What it is for, if that is known.
    pub platform: Option<String>,
}

/// The layers of an image, the lowest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLayers {
    /// The digest of the manifest, which says all that is below.
    pub manifest: OciDigest,
    /// What the image is called, for people.
    pub known_as: String,
    /// The layers.
    pub layers: Vec<ImageLayer>,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageLayer {
    /// Where its blob is. It need not be there if the layer was unpacked before.
    pub blob: PathBuf,
    /// The digest of the blob.
    pub digest: OciDigest,
    /// The digest of the archive in it, before it was compressed.
    pub diff_id: OciDigest,
}

/// Why an image has no tree.
#[derive(Debug, thiserror::Error)]
pub enum ImageTreeError {
    /// A layer cannot be read.
    #[error("layer {number} of {count} of `{image}` cannot be unpacked")]
    Layer {
        /// The layer, from 1.
        number: usize,
        /// How many there are.
        count: usize,
        /// The image.
        image: String,
        /// Why it failed.
        #[source]
        source: Box<UnpackError>,
    },
    /// The content of a layer is not what the image says.
    #[error("layer {number} of `{image}` unpacks to {found}, and the image says {expected}")]
    DiffId {
        /// The layer, from 1.
        number: usize,
        /// The image.
        image: String,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// What was kept of a layer cannot be read back.
    #[error("what was unpacked of layer {number} of `{image}` is damaged")]
    Damaged {
        /// The layer, from 1.
        number: usize,
        /// The image.
        image: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The image's tree cannot be made of its layers.
    #[error("the layers of `{image}` cannot be put together")]
    Merge {
        /// The image.
        image: String,
        /// Why it failed.
        #[source]
        source: Box<UnpackError>,
    },
    /// The tree store failed.
    #[error(transparent)]
    Trees(#[from] TreeStoreError),
}

impl ImageTreeError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Layer { source, .. } | Self::Merge { source, .. } => source.hint(),
            Self::DiffId { .. } => "the image contradicts itself: pull it again, or make it anew",
            Self::Damaged { .. } => "check the store of trees with `tidemill cache verify`",
            Self::Trees(_) => "check that the state directory is writable and its disk is not full",
        }
    }
}

/// The name of an image's tree: a digest of all that its content depends on.
pub(crate) fn image_tree_name(manifest: &OciDigest, owners: ArchiveOwners) -> Digest {
    let owners = owners.word();
    Digest::of(format!("oci image {FORMAT} {manifest} owners={owners}").as_bytes())
}

fn layer_tree_name(diff_id: &OciDigest, owners: ArchiveOwners) -> Digest {
    let owners = owners.word();
    Digest::of(format!("oci layer {FORMAT} {diff_id} owners={owners}").as_bytes())
}

/// The names that trees of an image and of its layers have, whoever unpacked them; of those that are made for
/// a user, the trees for these users.
pub fn image_tree_names(
    manifest: &OciDigest,
    diff_ids: &[OciDigest],
    users: &[String],
) -> Vec<Digest> {
    let mut names = Vec::new();
    for owners in [
        ArchiveOwners::Lost,
        ArchiveOwners::Kept,
        ArchiveOwners::SubIds,
    ] {
        let image = image_tree_name(manifest, owners);
        names.push(image);
        names.extend(
            users
                .iter()
                .map(|user| own_image::tree_name(&image, user, None)),
        );
        names.extend(
            diff_ids
                .iter()
                .map(|diff_id| layer_tree_name(diff_id, owners)),
        );
    }
    names
}

impl ImageLayers {
    /// Makes the image's tree. Its layers are unpacked first, into trees of their own. Blocks for as long as
    /// that takes; not for async code.
    ///
    /// # Errors
    /// If a layer is missing, damaged, too large or not what the image says.
    pub(crate) fn build(
        &self,
        building: &Building,
        trees: &TreeStore,
    ) -> Result<TreeNote, ImageTreeError> {
        self.unpack_all(trees)?;
        self.merge(building, trees)
    }

    /// Unpacks the layers that were not before, several at a time; the largest begins.
    fn unpack_all(&self, trees: &TreeStore) -> Result<(), ImageTreeError> {
        let size = |number: &usize| {
            let blob = &self.layers[*number].blob;
            fs::metadata(blob).map_or(0, |metadata| metadata.len())
        };
        let mut order: Vec<usize> = (0..self.layers.len()).collect();
        order.sort_by_cached_key(|number| std::cmp::Reverse(size(number)));
        let work = Mutex::new(Work {
            todo: order.into(),
            failed: None,
        });
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 1..threads.min(AT_ONCE_MAX).min(self.layers.len()) {
                let work = || self.unpack_next(trees, &work);
                // This thread does all the work if there is no other.
                thread::Builder::new().spawn_scoped(scope, work).ok();
            }
            self.unpack_next(trees, &work);
        });
        let work = work.into_inner().unwrap_or_else(PoisonError::into_inner);
        work.failed.map_or(Ok(()), Err)
    }

    fn unpack_next(&self, trees: &TreeStore, work: &Mutex<Work>) {
        loop {
            // A list is never half changed.
            let mut state = work.lock().unwrap_or_else(PoisonError::into_inner);
            if state.failed.is_some() {
                return;
            }
            let Some(number) = state.todo.pop_front() else {
                return;
            };
            drop(state);
            let unpacked = self.unpack_layer(number, trees);
            if let Err(error) = unpacked {
                let mut state = work.lock().unwrap_or_else(PoisonError::into_inner);
                state.failed.get_or_insert(error);
            }
        }
    }

    fn unpack_layer(&self, number: usize, trees: &TreeStore) -> Result<PathBuf, ImageTreeError> {
        let owners = trees.owners();
        let name = layer_tree_name(&self.layers[number].diff_id, owners);
        trees.doubt(&name);
        trees.get_or_build_with(&name, |building| self.read_layer(number, building, owners))
    }

    /// Reads a layer into a tree of its own.
    fn read_layer(
        &self,
        number: usize,
        building: &Building,
        owners: ArchiveOwners,
    ) -> Result<TreeNote, ImageTreeError> {
        let layer = &self.layers[number];
        let known_as = format!("layer {}", layer.digest);
        let failed = |source| ImageTreeError::Layer {
            number: number + 1,
            count: self.layers.len(),
            image: self.known_as.clone(),
            source: Box::new(source),
        };
        let write = |step| {
            let archive = known_as.clone();
            move |source| {
                failed(UnpackError::Write {
                    archive,
                    entry: ".".to_owned(),
                    step,
                    source,
                })
            }
        };
        let blob = layer.blob.to_str().ok_or_else(|| {
            let path = layer.blob.display().to_string();
            let source = io::Error::new(io::ErrorKind::InvalidFilename, "its path is not UTF-8");
            failed(UnpackError::Archive(ArchiveError::Read { path, source }))
        })?;
        let reader = archive::open(blob, &known_as, Watch::Plain)
            .map_err(|error| failed(UnpackError::Archive(error)))?;
        let files = building.root().join(FILES);
        fs::create_dir(&files).map_err(write("make the directory for the files of"))?;
        let mut records = Vec::new();
        let reading = Reading {
            known_as: &known_as,
            limits: &UnpackLimits::default(),
            names: Names::Layer,
            owners,
            building,
        };
        let keep = |record| {
            records.push(record);
            Ok(())
        };
        let (tally, ended) = reading.run(reader, &files, keep).map_err(failed)?;
        let found = match ended {
            Ended::Plain(digest) => OciDigest::from_bytes(digest),
            Ended::File(_) => unreachable!("the plain bytes were watched"),
        };
        if found != layer.diff_id {
            return Err(ImageTreeError::DiffId {
                number: number + 1,
                image: self.known_as.clone(),
                found: found.to_string(),
                expected: layer.diff_id.to_string(),
            });
        }
        let mut lacks = Lacks::default();
        lacks.read(&tally);
        let note = TreeNote {
            from: known_as.clone(),
            entries: tally.entries,
            bytes: tally.bytes,
            lacks: lacks.sentences(),
        };
        let index = LayerIndex { records, tally };
        let index = open_root(building.root()).and_then(|root| {
            let attributes = FileAttributes {
                mode: 0o600,
                owner: None,
                mtime: Dress::IMPLIED.mtime.timespec(),
                xattrs: &[],
            };
            building.add_file(root.as_fd(), INDEX.as_ref(), &index.encode(), &attributes)
        });
        index.map_err(write("write the list of"))?;
        Ok(note)
    }

    /// Makes the image's tree of its unpacked layers.
    fn merge(&self, building: &Building, trees: &TreeStore) -> Result<TreeNote, ImageTreeError> {
        let owners = trees.owners();
        let failed = |source| ImageTreeError::Merge {
            image: self.known_as.clone(),
            source: Box::new(source),
        };
        let mut tree = Merged::new(UnpackLimits::default().merge());
        let mut sources = Vec::new();
        let mut note = TreeNote {
            from: self.known_as.clone(),
            ..TreeNote::default()
        };
        let mut lacks = Lacks::default();
        for (number, layer) in self.layers.iter().enumerate() {
            let damaged = |source| ImageTreeError::Damaged {
                number: number + 1,
                image: self.known_as.clone(),
                source,
            };
            let source = trees.source(&layer_tree_name(&layer.diff_id, owners))?;
            // It was there a moment ago, and is in use since.
            let source = source.ok_or_else(|| damaged(io::ErrorKind::NotFound.into()))?;
            let index = read_index(source.root()).map_err(damaged)?;
            sources.push(source);
            tree.start_layer();
            let known_as = format!("layer {}", layer.digest);
            for record in index.records {
                apply(&mut tree, record, &known_as).map_err(failed)?;
            }
            note.entries += index.tally.entries;
            note.bytes += index.tally.bytes;
            lacks.read(&index.tally);
        }
        let files = Files::Link(building, &sources, FILES);
        let placed = place(&tree, building.root(), &files, owners, &self.known_as);
        lacks.add(&placed.map_err(failed)?);
        note.lacks = lacks.sentences();
        Ok(note)
    }
}

struct Work {
    todo: VecDeque<usize>,
    failed: Option<ImageTreeError>,
}

fn read_index(layer: &Path) -> io::Result<LayerIndex> {
    let path = layer.join(INDEX);
    let length = fs::metadata(&path)?.len();
    let decoded = (length <= INDEX_BYTES_MAX)
        .then(|| fs::read(&path))
        .transpose()?
        .and_then(|bytes| LayerIndex::decode(&bytes));
    decoded.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its list cannot be read"))
}

#[cfg(test)]
mod tests;
