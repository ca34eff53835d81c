//! Marks of overlayfs in a directory that is used where it is.
//!
//! What lies over something else is merged by overlayfs, which takes some things for orders: a character device
//! 0:0 and an empty file with an attribute are whiteouts and hide what is below them, a directory may be marked
//! to hide all below it, and a file or directory may be marked to be found elsewhere. Nobody who names a
//! directory means that, so such a layer is refused. Trees of the store have no marks.
//!
//! Only directories that are merged are looked into: a mark where nothing is below hides nothing. So a layer
//! with a place of its own costs nothing, however large it is.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::llistxattr;
use tidemill_core::root::Tree;

use crate::glob::LOOKED_AT_MAX;
use crate::layer_fault::LayerFault;
use crate::overlay::{self, Found};
use crate::plan::PlanError;
use crate::stack::{Resolved, Source, Stack};

/// The attributes that overlayfs obeys in the directories of a sandbox. It is mounted with `userxattr`, so
/// none of `trusted` counts.
const OBEYED: [&str; 4] = [
    "user.overlay.opaque",
    "user.overlay.whiteout",
    "user.overlay.redirect",
    "user.overlay.metacopy",
];

/// Entries of a directory from which on the names below it are read, so that only files that cover something
/// are asked for their attributes. Fewer are all asked, which costs less.
const NAMES_FROM: usize = 64;

/// A directory of a layer that is merged with what is below it.
struct Merged {
    /// On the host.
    from: PathBuf,
    below: Below,
}

/// What a directory is merged with.
enum Below {
    /// What this path of the sandbox has: these directories, as far as that is no mount.
    Known { at: String, lower: Vec<Tree> },
    /// Nobody looked: no path of a plan leads there.
    Unknown,
}

/// Refuses a directory that has a mark of overlayfs where it is merged with what the stack has at `dest`.
pub(crate) fn refuse(stack: &Stack, source: &Source, dest: &str) -> Result<(), PlanError> {
    let Resolved { path, found } = stack.resolve(dest)?;
    let top = merged(stack, PathBuf::from(&source.path), path, found);
    let mut todo: Vec<Merged> = top.into_iter().collect();
    let mut looked_at = 0;
    while let Some(merged_here) = todo.pop() {
        let failed = |source| PlanError::Source {
            what: "layer",
            path: merged_here.from.to_string_lossy().into_owned(),
            source,
        };
        let entries = match fs::read_dir(&merged_here.from) {
            // Nobody in the sandbox can look into it either, or it is gone.
            Err(error) if is_closed(&error) => continue,
            entries => entries.map_err(failed)?,
        };
        let entries: Result<Vec<DirEntry>, io::Error> = entries.collect();
        let entries = entries.map_err(failed)?;
        let names = match entries.len() {
            0..NAMES_FROM => None,
            _ => names_below(stack, &merged_here.below),
        };
        for entry in entries {
            looked_at += 1;
            if looked_at > LOOKED_AT_MAX {
                return Err(PlanError::TooManyFiles {
                    pattern: "**".to_owned(),
                    base: source.path.clone(),
                    max: LOOKED_AT_MAX,
                });
            }
            let below = look_below(stack, &merged_here, &entry).map_err(failed)?;
            let has_something_below = names
                .as_ref()
                .is_none_or(|names| names.contains(&entry.file_name()));
            if is_marked(&entry, below.is_some(), has_something_below).map_err(failed)? {
                let fault = LayerFault::Mark {
                    path: entry.path().to_string_lossy().into_owned(),
                    mark: describe(&entry),
                };
                return Err(fault.into());
            }
            todo.extend(below);
        }
    }
    Ok(())
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound
    )
}

/// The directory of a layer at a path, if there is something below that it is merged with.
fn merged(stack: &Stack, from: PathBuf, at: String, found: Found) -> Option<Merged> {
    let Found::Dir(lower) = found else {
        return None;
    };
    let is_merged = !lower.is_empty() || stack.mounts_below(&at).next().is_some();
    let below = Below::Known { at, lower };
    is_merged.then_some(Merged { from, below })
}

/// An entry of a layer, if it is a directory that is merged with something.
fn look_below(stack: &Stack, above: &Merged, entry: &DirEntry) -> io::Result<Option<Merged>> {
    if !entry.file_type()?.is_dir() {
        return Ok(None);
    }
    let (from, name) = (entry.path(), entry.file_name());
    let unknown = |from| Merged {
        from,
        below: Below::Unknown,
    };
    let Below::Known { at, lower } = &above.below else {
        return Ok(Some(unknown(from)));
    };
    let Some(name) = name.to_str() else {
        let has = |tree: &Tree| Path::new(&tree.path).join(&name).is_dir();
        return Ok(lower.iter().any(has).then(|| unknown(from)));
    };
    let at = format!("{}/{name}", at.trim_end_matches('/'));
    let (at, found) = match stack.look(&at, name, lower) {
        // A link of the root itself, such as `/bin`: the directory goes over what it leads to.
        Found::Link(_) => match stack.resolve(&at) {
            Ok(Resolved { path, found }) => (path, found),
            Err(_) => return Ok(None),
        },
        found => (at, found),
    };
    Ok(merged(stack, from, at, found))
}

/// The names that there are below a directory of a layer. `None` if they are not known.
fn names_below(stack: &Stack, below: &Below) -> Option<HashSet<OsString>> {
    let Below::Known { at, lower } = below else {
        return None;
    };
    let mut names = HashSet::new();
    for tree in lower {
        for entry in fs::read_dir(&tree.path).ok()? {
            names.insert(entry.ok()?.file_name());
        }
    }
    let mounts = stack.mounts_below(at);
    let mounts = mounts.filter_map(|mount| overlay::below(&mount.dest, at));
    names.extend(mounts.filter_map(|rest| rest.split('/').next().map(OsString::from)));
    Some(names)
}

/// True if overlayfs takes an entry for more than it is. Of a directory that is not merged it does not; of
/// a file with nothing below it nobody sees it.
fn is_marked(entry: &DirEntry, is_merged: bool, has_something_below: bool) -> io::Result<bool> {
    let kind = entry.file_type()?;
    if kind.is_char_device() {
        return Ok(entry.metadata()?.rdev() == 0);
    }
    let is_asked = is_merged || (kind.is_file() && has_something_below);
    Ok(is_asked && obeyed(&entry.path()).is_some())
}

/// The first attribute of a file that overlayfs obeys.
fn obeyed(path: &Path) -> Option<&'static str> {
    // More than a file system lets anybody set as names; what cannot be listed is not seen by overlayfs.
    let mut names = [0_u8; 4096];
    let length = llistxattr(path, &mut names[..]).ok()?;
    let mut names = names[..length].split(|byte| *byte == 0);
    names.find_map(|name| {
        let known = OBEYED.iter().find(|known| known.as_bytes() == name);
        known.copied()
    })
}

/// What is said of an entry with a mark.
fn describe(entry: &DirEntry) -> String {
    match obeyed(&entry.path()) {
        Some(attribute) => format!("has the attribute {attribute}"),
        None => "is a character device 0:0".to_owned(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
