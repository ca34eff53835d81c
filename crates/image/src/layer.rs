//! Layers: from what a spec names to directories and files of the host.
//!
//! A directory or file that is taken as it is is used where it is. Everything else becomes a tree in the
//! tree store; each such tree has a key that names its exact content, so that the dispatcher's layer
//! tracker can have it built once for all jobs.

mod add;
mod order;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_core::job::{Image, JobSpec};
use tidemill_core::{Attributes, Digest, Layer};

use crate::archive::{Archive, ArchiveError};
use crate::copies::{Copies, GatherError};
use crate::glob::{Matches, Patterns};
use crate::host_view::HostView;
use crate::layer_fault::LayerFault;
use crate::overlay::{Way, walk};
use crate::plan::PlanError;
use crate::shared_libs;
use crate::source::{canonical_dir, canonical_file, owner, refuse_state};
use crate::tree_store::{TreeStore, TreeStoreError};
use crate::unpack::{self, UnpackError, UnpackLimits};

pub(crate) use add::{add, whole};
pub use order::{OrderError, build_order};

/// Matches of a glob that are mounted one by one; more become a tree.
pub const SINGLE_FILES_MAX: usize = 64;

/// A tree that has to be built before a job can be planned. Equal keys stand for equal trees.
#[derive(Debug, Clone)]
pub struct LayerKey {
    name: Digest,
    recipe: Recipe,
    /// What is asked of somebody who can give files to their owners.
    order: Option<String>,
}

#[derive(Debug, Clone)]
enum Recipe {
    Unpack(Archive),
    Copy(Arc<Copies>),
    /// What an archive has in a directory, with other attributes.
    Dress {
        archive: Archive,
        strip: Option<String>,
        attributes: Attributes,
    },
}

impl LayerKey {
    /// The name of the tree: a digest of all that its content depends on.
    pub const fn name(&self) -> &Digest {
        &self.name
    }

    /// True if the tree is there.
    pub fn is_built(&self, trees: &TreeStore) -> bool {
        trees.find(&self.name).is_some()
    }

    /// What [`build_order`] takes to build the tree in another process, if its files have owners that
    /// an ordinary user cannot give them to.
    pub fn order(&self) -> Option<&str> {
        self.order.as_deref()
    }

    pub(crate) fn find(&self, trees: &TreeStore) -> Result<String, PlanError> {
        let root = trees.find(&self.name).ok_or_else(|| PlanError::NotBuilt {
            what: self.to_string(),
        })?;
        PlanError::utf8(&root)
    }
}

impl fmt::Display for LayerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.recipe {
            Recipe::Unpack(archive) | Recipe::Dress { archive, .. } => f.write_str(archive.path()),
            Recipe::Copy(copies) => f.write_str(copies.from()),
        }
    }
}

impl PartialEq for LayerKey {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for LayerKey {}

impl Hash for LayerKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for LayerKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LayerKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name.cmp(&other.name)
    }
}

/// The trees that a job needs, each once, in the order of its image and layers. Reads archives whole
/// when they are new (their digest is remembered); blocks.
///
/// # Errors
/// If something that the spec names cannot be read.
pub fn layer_keys(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
) -> Result<Vec<LayerKey>, PlanError> {
    let mut keys: Vec<LayerKey> = Vec::new();
    let mut add = |key: LayerKey| {
        if !keys.contains(&key) {
            keys.push(key);
        }
    };
    match &spec.image {
        Image::Tar { path } => add(archive_key(path, trees)?),
        Image::Oci { reference, .. } => {
            return Err(PlanError::OciUnavailable {
                reference: reference.clone(),
            });
        }
        Image::Host | Image::None | Image::Dir { .. } => {}
    }
    for layer in &spec.layers {
        if let Some(key) = layer_key(layer, &Surroundings::of(host), trees)? {
            add(key);
        }
    }
    Ok(keys)
}

/// What of the host matters for a layer beside the paths that it names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    /// The host's own root directory.
    pub(crate) root: &'a Path,
    /// The directory that no layer may show.
    pub(crate) state_dir: Option<&'a Path>,
}

impl<'a> Surroundings<'a> {
    pub(crate) fn of(host: &'a HostView) -> Self {
        Self {
            root: &host.root,
            state_dir: host.state_dir.as_deref(),
        }
    }
}

/// The tree that a layer needs, if it is not used where it is and does not depend on the root that it is
/// laid over.
pub(crate) fn layer_key(
    layer: &Layer,
    host: &Surroundings<'_>,
    trees: &TreeStore,
) -> Result<Option<LayerKey>, PlanError> {
    let copies = match layer {
        Layer::Tar {
            source,
            strip,
            attributes,
            ..
        } => return tar_key(source, strip.as_deref(), attributes, trees).map(Some),
        Layer::Dir {
            source, attributes, ..
        } if !attributes.are_kept() => {
            let path = layer_dir(source, host)?.0;
            Copies::of_dir(Path::new(&path), *attributes, host.state_dir)?
        }
        Layer::File {
            source,
            dest,
            attributes,
        } if !attributes.are_kept() => {
            let (path, _) = canonical_file(source, "layer")?;
            let name = PathBuf::from(file_name(dest));
            Copies::of_files(path.clone(), [(PathBuf::from(path), name)], *attributes)?
        }
        Layer::Glob { attributes, .. } => {
            let matches = find_matches(layer, host)?;
            if attributes.are_kept() && is_few(&matches) {
                return Ok(None);
            }
            Copies::of_matches(&matches, *attributes)?
        }
        Layer::SharedLibs {
            binaries,
            attributes,
            ..
        } => shared_libs::find(binaries, host.root)?.copies(*attributes)?,
        Layer::Dir { .. }
        | Layer::File { .. }
        | Layer::Stubs { .. }
        | Layer::Symlinks { .. }
        | Layer::Command { .. } => return Ok(None),
    };
    Ok(Some(LayerKey {
        name: copies.tree_name(trees.owners()),
        order: copies
            .attributes()
            .owner
            .map(|_| order::of_layer(layer, host)),
        recipe: Recipe::Copy(Arc::new(copies)),
    }))
}

/// The directory that a layer takes, and what is known of it.
fn layer_dir(
    source: &str,
    host: &Surroundings<'_>,
) -> Result<(String, std::fs::Metadata), PlanError> {
    let (path, metadata) = canonical_dir(source, "layer")?;
    if path == "/" {
        return Err(PlanError::ImageIsHost);
    }
    refuse_state(&path, host.state_dir, "the layer")?;
    Ok((path, metadata))
}

/// The last name of a path.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Builds the tree of a key, or finds the one that another process has built. Returns its root.
/// Blocks, for as long as unpacking takes; not for async code.
///
/// # Errors
/// Why there is none.
pub fn build_layer(key: &LayerKey, trees: &TreeStore) -> Result<PathBuf, LayerError> {
    trees.get_or_build_with(&key.name, |building| match &key.recipe {
        Recipe::Unpack(archive) => {
            let limits = UnpackLimits::default();
            let root = building.root();
            Ok(unpack::unpack(archive, root, &limits, trees.owners())?)
        }
        Recipe::Copy(copies) => Ok(copies.build(building, trees.owners())?),
        Recipe::Dress {
            archive,
            strip,
            attributes,
        } => {
            let unpacked = build_layer(&unpack_key(archive.clone(), trees), trees)?;
            let root = PlanError::utf8(&unpacked).and_then(|root| below(&root, strip, archive));
            let copies = root
                .and_then(|top| Copies::of_dir(Path::new(&top), *attributes, None))
                .map_err(|error| LayerError::Look(Box::new(error)))?
                .with_their_owners(trees.owners());
            let mut note = copies.build(building, trees.owners())?;
            archive.path().clone_into(&mut note.from);
            Ok(note)
        }
    })
}

/// The key of an archive's tree.
///
/// # Errors
/// If the archive cannot be read.
pub fn archive_key(path: &str, trees: &TreeStore) -> Result<LayerKey, PlanError> {
    Ok(unpack_key(open_archive(path, trees)?, trees))
}

fn open_archive(path: &str, trees: &TreeStore) -> Result<Archive, PlanError> {
    let (real, _) = canonical_file(path, "archive")?;
    Archive::open(&real, trees).map_err(|source| PlanError::Archive {
        path: path.to_owned(),
        source: LayerError::Archive(source),
    })
}

fn unpack_key(archive: Archive, trees: &TreeStore) -> LayerKey {
    LayerKey {
        name: unpack::tree_name(&archive, trees.owners()),
        order: Some(order::of_archive(archive.path())),
        recipe: Recipe::Unpack(archive),
    }
}

fn tar_key(
    source: &str,
    strip: Option<&str>,
    attributes: &Attributes,
    trees: &TreeStore,
) -> Result<LayerKey, PlanError> {
    let archive = open_archive(source, trees)?;
    if attributes.are_kept() {
        return Ok(unpack_key(archive, trees));
    }
    let unpacked = unpack::tree_name(&archive, trees.owners());
    let name = format!("dressed 1 {unpacked} {strip:?} {attributes:?}");
    Ok(LayerKey {
        name: Digest::of(name.as_bytes()),
        order: Some(order::of_dressed(archive.path(), strip, attributes)),
        recipe: Recipe::Dress {
            archive,
            strip: strip.map(str::to_owned),
            attributes: *attributes,
        },
    })
}

/// The directory of an unpacked archive whose content is wanted.
fn below(root: &str, strip: &Option<String>, archive: &Archive) -> Result<String, PlanError> {
    let Some(strip) = strip else {
        return Ok(root.to_owned());
    };
    match walk(root, strip) {
        Way::Dir(path) => Ok(path),
        Way::Nothing | Way::Other => Err(PlanError::Layer(LayerFault::NoSuchDir {
            archive: archive.path().to_owned(),
            strip: strip.clone(),
        })),
    }
}

/// What the patterns of a glob match.
fn find_matches(layer: &Layer, host: &Surroundings<'_>) -> Result<Matches, PlanError> {
    let Layer::Glob {
        base,
        include,
        exclude,
        strip,
        ..
    } = layer
    else {
        unreachable!("only globs have patterns");
    };
    let (real, metadata) = canonical_dir(base, "glob's directory")?;
    let patterns = Patterns {
        include,
        exclude,
        strip: strip.as_deref(),
    };
    Matches::find(real, &patterns, owner(&metadata), host.state_dir)
}

/// True if the matches can be mounted one by one: few, and none of them is a link.
fn is_few(matches: &Matches) -> bool {
    matches.files().len() <= SINGLE_FILES_MAX && matches.files().iter().all(|file| file.is_plain())
}

/// Why a tree could not be built.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(ArchiveError),
    /// The archive cannot be unpacked.
    #[error(transparent)]
    Unpack(UnpackError),
    /// Files of the host cannot be copied.
    #[error(transparent)]
    Gather(GatherError),
    /// What is unpacked cannot be looked through.
    #[error(transparent)]
    Look(Box<PlanError>),
    /// The store of trees does not work.
    #[error(transparent)]
    Trees(TreeStoreError),
}

impl LayerError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Archive(error) => error.hint().into(),
            Self::Unpack(error) => error.hint().into(),
            Self::Gather(error) => error.hint().into(),
            Self::Look(error) => error.hint(),
            Self::Trees(_) => {
                "check that the state directory is writable and its disk is not full".into()
            }
        }
    }
}

impl From<TreeStoreError> for LayerError {
    fn from(error: TreeStoreError) -> Self {
        Self::Trees(error)
    }
}

impl From<UnpackError> for LayerError {
    fn from(error: UnpackError) -> Self {
        Self::Unpack(error)
    }
}

impl From<GatherError> for LayerError {
    fn from(error: GatherError) -> Self {
        Self::Gather(error)
    }
}

/// True if `path` is inside one of the directories that are never looked into.
pub(crate) fn is_state(path: &Path, state_dir: Option<&Path>) -> bool {
    state_dir.is_some_and(|state_dir| path == state_dir)
}
