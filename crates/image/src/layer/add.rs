//! Adding a layer to a root.

use tidemill_core::Layer;
use tidemill_core::job::JobSpec;
use tidemill_core::root::Owners;

use super::{LayerKey, Surroundings, below, file_name, find_matches, is_few, key_at, layer_dir};
use crate::glob::Matches;
use crate::host_view::HostView;
use crate::marks;
use crate::own_image::OwnTrees;
use crate::placed;
use crate::plan::PlanError;
use crate::shared_libs;
use crate::source::{canonical_file, owner};
use crate::stack::{Source, Stack};
use crate::tree_store::TreeStore;

/// Adds the layers of a job to a root.
pub(crate) fn add_all(
    spec: &JobSpec,
    host: &HostView,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    let own = OwnTrees::of_job(spec, host, trees)?;
    let mut adder = Adder {
        host,
        trees,
        stack,
        built: own.as_ref().map_or_else(|| whole(host), |own| own.owners),
    };
    for (index, layer) in spec.layers.iter().enumerate() {
        let mut key = key_at(spec, index, host, trees)?;
        if let Some(own) = &own {
            key = key.map(|key| own.tree(key));
        }
        adder.add(layer, key)?;
    }
    Ok(())
}

struct Adder<'a> {
    host: &'a HostView,
    trees: &'a TreeStore,
    stack: &'a mut Stack,
    /// The owners of a tree that has its own.
    built: Owners,
}

impl Adder<'_> {
    fn add(&mut self, layer: &Layer, key: Option<LayerKey>) -> Result<(), PlanError> {
        let Self {
            host, trees, built, ..
        } = *self;
        match (layer, key) {
            (Layer::Dir { .. }, key) => self.add_dir(layer, key),
            (Layer::File { .. }, key) => self.add_file(layer, key),
            (Layer::Glob { dest, .. }, None) => {
                let matches = find_matches(layer, &Surroundings::of(host))?;
                debug_assert!(is_few(&matches), "many matches have a tree");
                add_few(&matches, dest, trees, self.stack)
            }
            (Layer::Glob { dest, .. }, Some(key)) => {
                let owners = match layer.attributes().owner {
                    Some(_) => built,
                    None => find_matches(layer, &Surroundings::of(host))?.owners(),
                };
                let source = copied(&key, key.to_string(), owners, trees)?;
                self.stack.add_dir(&source, dest, trees)
            }
            (Layer::Tar { .. } | Layer::Oci { .. }, Some(key)) => self.add_unpacked(layer, &key),
            (Layer::SharedLibs { binaries, dest, .. }, Some(key)) => {
                let libraries = shared_libs::find(binaries, &host.root)?;
                libraries.add_to(&key.find(trees)?, dest, built, trees, self.stack)
            }
            (Layer::Stubs { paths, attributes }, _) => {
                placed::add_stubs(paths, attributes, host, trees, self.stack)
            }
            (Layer::Symlinks { links }, _) => placed::add_links(links, host, trees, self.stack),
            (Layer::Command { dest, .. }, Some(key)) => {
                let source = Source {
                    path: key.find(trees)?,
                    owners: built,
                    known_as: key.to_string(),
                    why: "a layer".to_owned(),
                };
                self.stack.lay_dir(&source, dest, trees).map(drop)
            }
            (
                Layer::Tar { .. }
                | Layer::Oci { .. }
                | Layer::SharedLibs { .. }
                | Layer::Command { .. },
                None,
            ) => {
                unreachable!("archives, images, libraries and commands always become a tree")
            }
        }
    }

    fn add_dir(&mut self, layer: &Layer, key: Option<LayerKey>) -> Result<(), PlanError> {
        let Layer::Dir { source, dest, .. } = layer else {
            unreachable!("the caller has looked");
        };
        let (path, metadata) = layer_dir(source, &Surroundings::of(self.host))?;
        let fallback = whole_or(dest, self.host, owner(&metadata));
        let owners = self.owners_of(layer, fallback);
        let source = match key {
            None => {
                let source = in_place(path, owners);
                marks::refuse(self.stack, &source, dest)?;
                source
            }
            Some(key) => copied(&key, path, owners, self.trees)?,
        };
        self.stack.add_dir(&source, dest, self.trees)
    }

    fn add_file(&mut self, layer: &Layer, key: Option<LayerKey>) -> Result<(), PlanError> {
        let Layer::File { source, dest, .. } = layer else {
            unreachable!("the caller has looked");
        };
        let (path, metadata) = canonical_file(source, "layer")?;
        let owners = self.owners_of(layer, owner(&metadata));
        let source = match key {
            None => in_place(path, owners),
            Some(key) => {
                let mut source = copied(&key, path, owners, self.trees)?;
                source.path = format!("{}/{}", source.path, file_name(dest));
                source
            }
        };
        self.stack.add_file(&source, dest, self.trees)
    }

    /// Adds what an archive or an image has, or what it has in a directory.
    fn add_unpacked(&mut self, layer: &Layer, key: &LayerKey) -> Result<(), PlanError> {
        let (Layer::Tar {
            source,
            strip,
            dest,
            attributes,
        }
        | Layer::Oci {
            reference: source,
            strip,
            dest,
            attributes,
            ..
        }) = layer
        else {
            unreachable!("the caller has looked");
        };
        let root = key.find(self.trees)?;
        let path = if attributes.are_kept() {
            below(&root, strip.as_deref(), source)?
        } else {
            root
        };
        let source = Source {
            path,
            owners: self.built,
            known_as: source.clone(),
            why: "a layer, unpacked".to_owned(),
        };
        self.stack.add_dir(&source, dest, self.trees)
    }

    /// The owners of a layer whose files keep theirs are the fallback.
    fn owners_of(&self, layer: &Layer, fallback: Owners) -> Owners {
        match layer.attributes().owner {
            Some(_) => self.built,
            None => fallback,
        }
    }
}

/// Something that is used where it is.
fn in_place(path: String, owners: Owners) -> Source {
    Source {
        known_as: path.clone(),
        path,
        owners,
        why: "a layer".to_owned(),
    }
}

/// Something whose copy is used.
fn copied(
    key: &LayerKey,
    known_as: String,
    owners: Owners,
    trees: &TreeStore,
) -> Result<Source, PlanError> {
    Ok(Source {
        path: key.find(trees)?,
        owners,
        known_as,
        why: "a layer, copied once".to_owned(),
    })
}

/// The owners of a tree that has its own.
pub(crate) fn whole(host: &HostView) -> Owners {
    if host.is_root() {
        Owners::Range
    } else {
        Owners::AsIs
    }
}

/// A directory over the whole root is a root file system with its own owners; anywhere else it is
/// the caller's files.
fn whole_or(dest: &str, host: &HostView, owner: Owners) -> Owners {
    if dest == "/" { whole(host) } else { owner }
}

fn add_few(
    matches: &Matches,
    dest: &str,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    for file in matches.files() {
        let relative = PlanError::utf8(file.path())?;
        let appears = PlanError::utf8(file.appears())?;
        let path = format!("{}/{relative}", matches.base());
        let source = Source {
            known_as: path.clone(),
            path,
            owners: file.owner(),
            why: format!("a layer: `{}`", matches.pattern()),
        };
        let dest = format!("{}/{appears}", dest.trim_end_matches('/'));
        stack.add_file(&source, &dest, trees)?;
    }
    Ok(())
}
