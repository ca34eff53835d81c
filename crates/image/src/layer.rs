//! Layers: from what a spec names to directories and files of the host.
//!
//! A directory or file is used where it is. Archives, and globs with many matches, become trees in
//! the tree store; each such tree has a key that names its exact content, so that the dispatcher's
//! layer tracker can have it built once for all jobs.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_core::Digest;
use tidemill_core::job::{Image, JobSpec, Layer};
use tidemill_core::root::Owners;

use crate::archive::{Archive, ArchiveError};
use crate::glob::{GatherError, Matches};
use crate::host_view::HostView;
use crate::plan::PlanError;
use crate::source::{canonical_dir, canonical_file, owner, refuse_state};
use crate::stack::{Source, Stack};
use crate::tree_store::{TreeStore, TreeStoreError};
use crate::unpack::{self, UnpackError, UnpackLimits};

/// Matches of a glob that are mounted one by one; more become a tree.
pub const SINGLE_FILES_MAX: usize = 64;

/// A tree that has to be built before a job can be planned. Equal keys stand for equal trees.
#[derive(Debug, Clone)]
pub struct LayerKey {
    name: Digest,
    recipe: Recipe,
}

#[derive(Debug, Clone)]
enum Recipe {
    Unpack(Archive),
    Gather(Arc<Matches>),
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

    /// The archive that the tree is unpacked from, if it is from one.
    pub fn archive(&self) -> Option<&str> {
        match &self.recipe {
            Recipe::Unpack(archive) => Some(archive.path()),
            Recipe::Gather(_) => None,
        }
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
            Recipe::Unpack(archive) => write!(f, "{}", archive.path()),
            Recipe::Gather(matches) => write!(f, "{}/{}", matches.base(), matches.pattern()),
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
        match layer {
            Layer::Tar { source, .. } => add(archive_key(source, trees)?),
            Layer::Glob { base, pattern, .. } => {
                let matches = find_matches(base, pattern, host)?;
                if !is_few(&matches) {
                    add(gather_key(matches));
                }
            }
            Layer::Dir { .. } | Layer::File { .. } => {}
        }
    }
    Ok(keys)
}

/// Builds the tree of a key, or finds the one that another process has built. Returns its root.
/// Blocks, for as long as unpacking takes; not for async code.
pub fn build_layer(key: &LayerKey, trees: &TreeStore) -> Result<PathBuf, LayerError> {
    trees.get_or_build(&key.name, |root| match &key.recipe {
        Recipe::Unpack(archive) => {
            let limits = UnpackLimits::default();
            Ok(unpack::unpack(archive, root, &limits, trees.owners())?)
        }
        Recipe::Gather(matches) => Ok(matches.gather(root)?),
    })
}

/// The key of an archive's tree.
///
/// # Errors
/// If the archive cannot be read.
pub fn archive_key(path: &str, trees: &TreeStore) -> Result<LayerKey, PlanError> {
    let (real, _) = canonical_file(path, "archive")?;
    let archive = Archive::open(&real, trees).map_err(|source| PlanError::Archive {
        path: path.to_owned(),
        source: LayerError::Archive(source),
    })?;
    Ok(LayerKey {
        name: unpack::tree_name(&archive, trees.owners()),
        recipe: Recipe::Unpack(archive),
    })
}

fn gather_key(matches: Matches) -> LayerKey {
    LayerKey {
        name: matches.tree_name(),
        recipe: Recipe::Gather(Arc::new(matches)),
    }
}

fn find_matches(base: &str, pattern: &str, host: &HostView) -> Result<Matches, PlanError> {
    let (real, metadata) = canonical_dir(base, "glob's directory")?;
    Matches::find(real, pattern, owner(&metadata), host.state_dir.as_deref())
}

/// True if the matches can be mounted one by one: few, and none of them is a link.
fn is_few(matches: &Matches) -> bool {
    matches.files().len() <= SINGLE_FILES_MAX && matches.files().iter().all(|file| file.is_plain())
}

/// Adds a layer to a root.
pub(crate) fn add(
    layer: &Layer,
    host: &HostView,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    match layer {
        Layer::Dir { source, dest } => {
            let (path, metadata) = canonical_dir(source, "layer")?;
            if path == "/" {
                return Err(PlanError::ImageIsHost);
            }
            refuse_state(&path, host, "the layer")?;
            let source = Source {
                known_as: path.clone(),
                path,
                owners: whole_or(dest, host, owner(&metadata)),
                why: "a layer".to_owned(),
            };
            stack.add_dir(&source, dest, trees)
        }
        Layer::File { source, dest } => {
            let (path, metadata) = canonical_file(source, "layer")?;
            let source = Source {
                known_as: path.clone(),
                path,
                owners: owner(&metadata),
                why: "a layer".to_owned(),
            };
            stack.add_file(&source, dest, trees)
        }
        Layer::Glob {
            base,
            pattern,
            dest,
        } => {
            let matches = find_matches(base, pattern, host)?;
            if is_few(&matches) {
                return add_few(&matches, dest, trees, stack);
            }
            let known_as = format!("{}/{}", matches.base(), matches.pattern());
            let owners = matches.owners();
            let path = gather_key(matches).find(trees)?;
            let why = "a layer, copied once".to_owned();
            stack.add_dir(
                &Source {
                    path,
                    owners,
                    known_as,
                    why,
                },
                dest,
                trees,
            )
        }
        Layer::Tar { source, dest } => {
            let source = Source {
                path: archive_key(source, trees)?.find(trees)?,
                owners: if host.is_root() {
                    Owners::Range
                } else {
                    Owners::AsIs
                },
                known_as: source.clone(),
                why: "a layer, unpacked".to_owned(),
            };
            stack.add_dir(&source, dest, trees)
        }
    }
}

/// A directory over the whole root is a root file system with its own owners; anywhere else it is
/// the caller's files.
fn whole_or(dest: &str, host: &HostView, owner: Owners) -> Owners {
    match (dest, host.is_root()) {
        ("/", true) => Owners::Range,
        ("/", false) => Owners::AsIs,
        _ => owner,
    }
}

fn add_few(
    matches: &Matches,
    dest: &str,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    for file in matches.files() {
        let relative = PlanError::utf8(file.path())?;
        let path = format!("{}/{relative}", matches.base());
        let source = Source {
            known_as: path.clone(),
            path,
            owners: file.owner(),
            why: format!("a layer: `{}`", matches.pattern()),
        };
        let dest = format!("{}/{relative}", dest.trim_end_matches('/'));
        stack.add_file(&source, &dest, trees)?;
    }
    Ok(())
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
    /// The matches of a glob cannot be copied.
    #[error(transparent)]
    Gather(GatherError),
    /// The store of trees does not work.
    #[error(transparent)]
    Trees(TreeStoreError),
}

impl LayerError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Archive(error) => error.hint(),
            Self::Unpack(error) => error.hint(),
            Self::Gather(error) => error.hint(),
            Self::Trees(_) => "check that the state directory is writable and its disk is not full",
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
