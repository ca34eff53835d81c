//! Layers: from what a spec names to directories and files of the host.
//!
//! A directory or file that is taken as it is is used where it is. Everything else becomes a tree in the
//! tree store; each such tree has a key that names its exact content, so that the dispatcher's layer
//! tracker can have it built once for all jobs.

mod add;
mod error;
mod order;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidemill_core::job::JobSpec;
use tidemill_core::oci::OciDigest;
use tidemill_core::{Attributes, Digest, Layer};

use crate::archive::Archive;
use crate::command_layer::CommandLayer;
use crate::copies::Copies;
use crate::glob::{Matches, Patterns};
use crate::host_view::HostView;
use crate::layer_fault::LayerFault;
use crate::oci::{ImageLayers, ImageName, image_tree_name};
use crate::overlay::{Way, walk};
use crate::own_image::{self, OwnRecipe, OwnTrees};
use crate::plan::PlanError;
use crate::shared_libs;
use crate::source::{canonical_dir, canonical_file, owner, refuse_state};
use crate::tree_store::TreeStore;
use crate::unpack::{self, UnpackLimits};

pub(crate) use add::{add_all, whole};
pub use error::LayerError;
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
    /// An OCI image; its layers once they are known.
    Image(Box<ImageName>, Option<Arc<ImageLayers>>),
    Copy(Arc<Copies>),
    Command(Arc<CommandLayer>),
    /// A tree that was built before.
    Built,
    /// Another tree, as a job of this user sees it that is the caller itself; a name is the one of the
    /// accounts, or of the tree itself.
    Own {
        tree: Box<LayerKey>,
        user: String,
        accounts: Option<Box<LayerKey>>,
    },
    /// What another tree has in a directory, with other attributes.
    Dress {
        tree: Box<LayerKey>,
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

    /// What [`build_order`] takes to look at the tree, if it is there and this process does not see enough
    /// of it. An error of that says nothing but that the tree has to be built.
    pub fn look_order(&self, trees: &TreeStore) -> Option<String> {
        trees
            .is_unseen(&self.name)
            .then(|| order::of_look(&self.name))
    }

    /// What [`build_order`] takes to build the tree in another process, if its files have owners that
    /// an ordinary user cannot give them to.
    pub fn order(&self) -> Option<&str> {
        self.order.as_deref()
    }

    /// The OCI image whose layers have to be known before the tree can be built;
    /// [`LayerKey::with_layers`] tells them.
    pub fn image(&self) -> Option<&ImageName> {
        match &self.recipe {
            Recipe::Image(image, None) => Some(image),
            _ => None,
        }
    }

    /// The key of an image's tree, with all that is needed to build it.
    #[must_use]
    pub fn with_layers(self, layers: ImageLayers) -> Self {
        let image = ImageName {
            reference: layers.known_as.clone(),
            manifest: layers.manifest,
            platform: None,
        };
        Self {
            order: Some(order::of_image(&layers)),
            recipe: Recipe::Image(Box::new(image), Some(Arc::new(layers))),
            name: self.name,
        }
    }

    /// The key of an image's tree.
    pub(crate) fn of_image(image: ImageName, trees: &TreeStore) -> Self {
        Self {
            name: image_tree_name(&image.manifest, trees.owners()),
            recipe: Recipe::Image(Box::new(image), None),
            order: None,
        }
    }

    /// The command whose output the tree is, if it is one's: [`build_command`] builds it.
    ///
    /// [`build_command`]: crate::build_command
    pub fn command(&self) -> Option<&CommandLayer> {
        match &self.recipe {
            Recipe::Command(command) => Some(command),
            Recipe::Unpack(_)
            | Recipe::Image(..)
            | Recipe::Copy(_)
            | Recipe::Built
            | Recipe::Own { .. }
            | Recipe::Dress { .. } => None,
        }
    }

    /// The trees that have to be built before this one is.
    pub fn made_of(&self) -> impl Iterator<Item = &Self> {
        let (tree, accounts) = match &self.recipe {
            Recipe::Dress { tree, .. } if tree.command().is_some() || tree.image().is_some() => {
                (Some(tree), None)
            }
            Recipe::Own { tree, accounts, .. } => (Some(tree), accounts.as_ref()),
            _ => (None, None),
        };
        tree.into_iter().chain(accounts).map(|tree| &**tree)
    }

    /// The OCI image whose files the tree has, whatever was done with them.
    pub fn image_below(&self) -> Option<&ImageName> {
        match &self.recipe {
            Recipe::Dress { tree, .. } | Recipe::Own { tree, .. } => tree.image_below(),
            _ => self.image(),
        }
    }

    /// True if the files of the tree belong to more than whoever builds it.
    pub(crate) fn has_owners(&self) -> bool {
        match &self.recipe {
            Recipe::Copy(_) => self.order.is_some(),
            Recipe::Command(_) => false,
            _ => true,
        }
    }

    /// The key of a tree that is there, with other attributes.
    fn of_tree(name: Digest, strip: Option<&str>, attributes: &Attributes) -> Self {
        let tree = Self {
            name,
            recipe: Recipe::Built,
            order: None,
        };
        let order = order::of_tree(&name, strip, attributes);
        dressed(tree, strip, attributes, order)
    }

    /// The key of this tree as a job of this user sees it that is the caller itself.
    pub(crate) fn for_user(self, user: &str, accounts: Option<&Self>) -> Self {
        let accounts = accounts.filter(|accounts| accounts.name != self.name);
        let of = accounts.map(|accounts| &accounts.name);
        Self {
            name: own_image::tree_name(&self.name, user, of),
            order: Some(order::of_own(&self.name, user, of)),
            recipe: Recipe::Own {
                accounts: accounts.cloned().map(Box::new),
                tree: Box::new(self),
                user: user.to_owned(),
            },
        }
    }

    /// The same of trees that are there.
    fn of_own(tree: Digest, user: &str, accounts: Option<Digest>) -> Self {
        let built = |name| Self {
            name,
            recipe: Recipe::Built,
            order: None,
        };
        built(tree).for_user(user, accounts.map(built).as_ref())
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
            Recipe::Unpack(archive) => f.write_str(archive.path()),
            Recipe::Image(image, _) => f.write_str(&image.reference),
            Recipe::Copy(copies) => f.write_str(copies.from()),
            Recipe::Command(command) => {
                write!(f, "the output of `{}`", command.spec().command().join(" "))
            }
            Recipe::Built => write!(f, "the tree {}", self.name),
            Recipe::Dress { tree, .. } | Recipe::Own { tree, .. } => fmt::Display::fmt(tree, f),
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
    if let Some(image) = own_image::find(spec, host, trees)? {
        add(image.key);
    }
    let own = OwnTrees::of_job(spec, host, trees)?;
    for index in 0..spec.layers.len() {
        if let Some(key) = key_at(spec, index, host, trees)? {
            add(match &own {
                Some(own) => own.tree(key),
                None => key,
            });
        }
    }
    Ok(keys)
}

/// The key of an OCI image's tree. Its reference has to be resolved: what it stands for now is no part of it.
pub(crate) fn image_key(
    reference: &str,
    digest: Option<OciDigest>,
    platform: Option<&str>,
    trees: &TreeStore,
) -> Result<LayerKey, PlanError> {
    let manifest = digest.ok_or_else(|| PlanError::Unresolved {
        reference: reference.to_owned(),
    })?;
    let image = ImageName {
        reference: reference.to_owned(),
        manifest,
        platform: platform.map(str::to_owned),
    };
    Ok(LayerKey::of_image(image, trees))
}

/// The tree that one layer of a job needs, if it needs one.
///
/// # Errors
/// If something that the layer names cannot be read.
pub fn key_at(
    spec: &JobSpec,
    index: usize,
    host: &HostView,
    trees: &TreeStore,
) -> Result<Option<LayerKey>, PlanError> {
    let Some(command) = CommandLayer::of(spec, index) else {
        return layer_key(&spec.layers[index], &Surroundings::of(host), trees);
    };
    let name = command.tree_name(host, trees)?;
    let key = LayerKey {
        name,
        recipe: Recipe::Command(Arc::new(command)),
        order: None,
    };
    Ok(Some(match &spec.layers[index] {
        Layer::Command { attributes, .. } if !attributes.are_kept() => {
            let order = order::of_tree(&name, None, attributes);
            dressed(key, None, attributes, order)
        }
        _ => key,
    }))
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
        Layer::Oci { .. } => return oci_key(layer, trees).map(Some),
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
            Copies::of_files(
                "file",
                path.clone(),
                [(PathBuf::from(path), name)],
                *attributes,
            )?
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
    if let Recipe::Own {
        tree,
        user,
        accounts,
    } = &key.recipe
    {
        let recipe = OwnRecipe {
            tree: &tree.name,
            user,
            accounts: accounts.as_ref().map(|accounts| &accounts.name),
        };
        let built = own_image::build(&key.name, &recipe, trees)?;
        return built.ok_or_else(|| LayerError::NotRun {
            what: tree.to_string(),
        });
    }
    trees.get_or_build_with(&key.name, |building| match &key.recipe {
        Recipe::Unpack(archive) => {
            let limits = UnpackLimits::default();
            let mut note = unpack::unpack(archive, building, &limits, trees.owners())?;
            note.from = made_of("tar", archive.path());
            Ok(note)
        }
        Recipe::Image(_, layers) => match layers {
            Some(layers) => {
                let mut note = layers.build(building, trees)?;
                note.from = made_of("oci", &key.to_string());
                Ok(note)
            }
            None => Err(LayerError::NoLayers {
                image: key.to_string(),
            }),
        },
        Recipe::Copy(copies) => {
            let mut note = copies.build(building, trees.owners())?;
            note.from = made_of(copies.kind(), copies.from());
            Ok(note)
        }
        Recipe::Command(_) | Recipe::Built | Recipe::Own { .. } => Err(LayerError::NotRun {
            what: key.to_string(),
        }),
        Recipe::Dress {
            tree,
            strip,
            attributes,
        } => {
            let unpacked = build_layer(tree, trees)?;
            let known_as = tree.to_string();
            let strip = strip.as_deref();
            let root = PlanError::utf8(&unpacked).and_then(|root| below(&root, strip, &known_as));
            let copies = root
                .and_then(|top| Copies::of_dir(Path::new(&top), *attributes, None))
                .map_err(|error| LayerError::Look(Box::new(error)))?
                .with_their_owners(trees.owners());
            let mut note = copies.build(building, trees.owners())?;
            let source = trees.note(&tree.name).unwrap_or_default();
            note.from = source.from;
            // What the source lacks its copy does not have either.
            note.lacks.splice(0..0, source.lacks);
            Ok(note)
        }
    })
}

/// What a tree was made of, for people: the kind and the source.
fn made_of(kind: &str, source: &str) -> String {
    format!("{kind} {source}")
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
    let order = order::of_dressed(archive.path(), strip, attributes);
    Ok(dressed(
        unpack_key(archive, trees),
        strip,
        attributes,
        order,
    ))
}

fn oci_key(layer: &Layer, trees: &TreeStore) -> Result<LayerKey, PlanError> {
    let Layer::Oci {
        reference,
        digest,
        platform,
        strip,
        attributes,
        ..
    } = layer
    else {
        unreachable!("the caller has looked");
    };
    let image = image_key(reference, *digest, platform.as_deref(), trees)?;
    if attributes.are_kept() {
        return Ok(image);
    }
    let order = order::of_tree(&image.name, strip.as_deref(), attributes);
    Ok(dressed(image, strip.as_deref(), attributes, order))
}

/// The key of what another tree has in a directory, with other attributes.
fn dressed(
    tree: LayerKey,
    strip: Option<&str>,
    attributes: &Attributes,
    order: String,
) -> LayerKey {
    let name = format!("dressed 2 {} {strip:?} {attributes:?}", tree.name);
    LayerKey {
        name: Digest::of(name.as_bytes()),
        order: Some(order),
        recipe: Recipe::Dress {
            tree: Box::new(tree),
            strip: strip.map(str::to_owned),
            attributes: *attributes,
        },
    }
}

/// The name of an archive's tree.
pub(crate) fn unpack_name(path: &str, trees: &TreeStore) -> Result<Digest, PlanError> {
    let archive = open_archive(path, trees)?;
    Ok(unpack::tree_name(&archive, trees.owners()))
}

/// The directory of an unpacked archive whose content is wanted.
fn below(root: &str, strip: Option<&str>, archive: &str) -> Result<String, PlanError> {
    let Some(strip) = strip else {
        return Ok(root.to_owned());
    };
    match walk(root, strip) {
        Way::Dir(path) => Ok(path),
        Way::Nothing | Way::Other => Err(PlanError::Layer(LayerFault::NoSuchDir {
            archive: archive.to_owned(),
            strip: strip.to_owned(),
        })),
    }
}

/// What the patterns of a glob match.
pub(crate) fn find_matches(layer: &Layer, host: &Surroundings<'_>) -> Result<Matches, PlanError> {
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

/// True if `path` is inside one of the directories that are never looked into.
pub(crate) fn is_state(path: &Path, state_dir: Option<&Path>) -> bool {
    state_dir.is_some_and(|state_dir| path == state_dir)
}
