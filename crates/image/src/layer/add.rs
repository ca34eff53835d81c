//! Adding a layer to a root.

use tidemill_core::Layer;
use tidemill_core::job::JobSpec;
use tidemill_core::root::Owners;

use super::{LayerKey, Surroundings, below, file_name, find_matches, is_few, key_at, layer_dir};
use crate::glob::Matches;
use crate::host_view::HostView;
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
    for (index, layer) in spec.layers.iter().enumerate() {
        let key = key_at(spec, index, host, trees)?;
        add(layer, key, host, trees, stack)?;
    }
    Ok(())
}

fn add(
    layer: &Layer,
    key: Option<LayerKey>,
    host: &HostView,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    let surroundings = Surroundings::of(host);
    match (layer, key) {
        (
            Layer::Dir {
                source,
                dest,
                attributes,
            },
            key,
        ) => {
            let (path, metadata) = layer_dir(source, &surroundings)?;
            let fallback = whole_or(dest, host, owner(&metadata));
            let owners = attributes.owner.map_or(fallback, |_| whole(host));
            let source = match key {
                None => in_place(path, owners),
                Some(key) => copied(&key, path, owners, trees)?,
            };
            stack.add_dir(&source, dest, trees)
        }
        (
            Layer::File {
                source,
                dest,
                attributes,
            },
            key,
        ) => {
            let (path, metadata) = canonical_file(source, "layer")?;
            let owners = attributes.owner.map_or(owner(&metadata), |_| whole(host));
            let source = match key {
                None => in_place(path, owners),
                Some(key) => {
                    let mut source = copied(&key, path, owners, trees)?;
                    source.path = format!("{}/{}", source.path, file_name(dest));
                    source
                }
            };
            stack.add_file(&source, dest, trees)
        }
        (Layer::Glob { dest, .. }, None) => {
            let matches = find_matches(layer, &surroundings)?;
            debug_assert!(is_few(&matches), "many matches have a tree");
            add_few(&matches, dest, trees, stack)
        }
        (
            Layer::Glob {
                dest, attributes, ..
            },
            Some(key),
        ) => {
            let owners = match attributes.owner {
                Some(_) => whole(host),
                None => find_matches(layer, &surroundings)?.owners(),
            };
            let source = copied(&key, key.to_string(), owners, trees)?;
            stack.add_dir(&source, dest, trees)
        }
        (
            Layer::Tar {
                source,
                strip,
                dest,
                attributes,
            },
            Some(key),
        ) => {
            let root = key.find(trees)?;
            let path = if attributes.are_kept() {
                below(&root, strip.as_deref(), source)?
            } else {
                root
            };
            let source = Source {
                path,
                owners: whole(host),
                known_as: source.clone(),
                why: "a layer, unpacked".to_owned(),
            };
            stack.add_dir(&source, dest, trees)
        }
        (Layer::SharedLibs { binaries, dest, .. }, Some(key)) => {
            let libraries = shared_libs::find(binaries, surroundings.root)?;
            libraries.add_to(&key.find(trees)?, dest, whole(host), trees, stack)
        }
        (Layer::Stubs { paths, attributes }, _) => {
            placed::add_stubs(paths, attributes, host, trees, stack)
        }
        (Layer::Symlinks { links }, _) => placed::add_links(links, host, trees, stack),
        (Layer::Command { dest, .. }, Some(key)) => {
            let source = Source {
                path: key.find(trees)?,
                owners: whole(host),
                known_as: key.to_string(),
                why: "a layer".to_owned(),
            };
            stack.lay_dir(&source, dest, trees).map(drop)
        }
        (Layer::Tar { .. } | Layer::SharedLibs { .. } | Layer::Command { .. }, None) => {
            unreachable!("archives, libraries and commands always become a tree")
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
