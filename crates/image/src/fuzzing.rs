//! Ways into this crate's inside for the fuzz targets. No part of its interface.

use std::io;
use std::path::{Path, PathBuf};

use tidemill_core::root::Owners;

use crate::archive::Archive;
use crate::elf::ElfFile;
use crate::glob::{Matches, Patterns};
use crate::plan::PlanError;
use crate::tree_store::{Building, TreeNote, TreeStore};
use crate::unpack::{self, ArchiveOwners, UnpackError, UnpackLimits};

/// Unpacks an archive into an empty directory, within bounds that a test chooses.
///
/// # Errors
/// As for any archive.
pub fn unpack_archive(
    archive: &str,
    root: &Path,
    trees: &TreeStore,
    limits: &UnpackLimits,
) -> Result<TreeNote, UnpackError> {
    let archive = Archive::open(archive, trees).map_err(UnpackError::Archive)?;
    let owners = ArchiveOwners::of_this_process();
    let place = root.parent().unwrap_or(root);
    let building = Building::new(place, root.to_owned(), None, owners);
    let building = building.map_err(|source| UnpackError::Write {
        archive: archive.path().to_owned(),
        entry: ".".to_owned(),
        step: "open the tree for",
        source,
    })?;
    unpack::unpack(&archive, &building, limits, owners)
}

/// What a pattern matches below a directory, as paths relative to that.
///
/// # Errors
/// If the pattern cannot be used or matches nothing.
pub fn find_matches(base: &str, pattern: &str) -> Result<Vec<PathBuf>, PlanError> {
    let owners = Owners::Job { uid: 0, gid: 0 };
    let patterns = Patterns {
        include: &[pattern.to_owned()],
        exclude: &[],
        strip: None,
    };
    let matches = Matches::find(base.to_owned(), &patterns, owners, None)?;
    let paths = matches.files().iter().map(|file| file.path().to_owned());
    Ok(paths.collect())
}

/// The libraries that a program or library says it needs, and where it wants them looked for.
pub fn needed(path: &Path) -> Option<Vec<String>> {
    let file = ElfFile::read(path).ok()?;
    Some(file.interpreter.into_iter().chain(file.needed).collect())
}

/// Removes a tree whatever its modes, depth and names.
///
/// # Errors
/// What the file system answers.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    tidemill_tree::remove_tree(path)
}
