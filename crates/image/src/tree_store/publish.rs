//! From a directory that was filled to a tree that everybody finds, in steps of which each leaves the store
//! whole: the list and the note are written, the place gets its name by one rename, the name that was asked
//! for is pointed at it by another.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use tidemill_core::Digest;
use tidemill_tree::{WalkError, remove_tree};

use super::building::Building;
use super::fresh;
use super::layout::{DRAFT, LIST, NOTE, ROOT, digest_of};
use super::look::note_whole;
use super::record::Record;
use super::{TreeNote, TreeStore, TreeStoreError, failed, fault};
use crate::tree_use::{self, Wanted};

impl TreeStore {
    /// Publishes a tree that is complete, and uses it. The caller holds the lock on its name.
    pub(super) fn publish(
        &self,
        name: &Digest,
        building: &Building,
        note: TreeNote,
    ) -> Result<PathBuf, TreeStoreError> {
        let place = self.layout.under_way(name);
        let finished = building
            .finish()
            .map_err(|error| in_tree(building.root(), error))?;
        let text = finished.listing.encode();
        let id = Digest::of(text.as_bytes());
        let record = Record::new(note, self.owners, finished.unshared_bytes);
        for (file, content) in [(LIST, text.as_bytes()), (NOTE, &record.to_json())] {
            let file = place.join(file);
            fault::here()
                .and_then(|()| fs::write(&file, content))
                .map_err(failed("write", &file))?;
        }
        fault::here()
            .and_then(|()| fresh::mark(&place))
            .map_err(failed("mark", &place))?;
        let path = self.layout.lock(&id);
        let lock = tree_use::lock(&path, Wanted::Shared)
            .map_err(failed("lock", &path))?
            .expect("whoever waits for a lock gets it");
        // Before it is there, so that the sum is never too small.
        self.add_usage(finished.new_bytes + text.len() as u64);
        self.put_in_place(&id, building, &place)?;
        self.point(name, &id)?;
        if let Err(error) = tree_use::touch(&lock) {
            tracing::debug!(tree = %id, %error, "the use of a tree could not be noted");
        }
        note_whole(&lock);
        let root = self.layout.place(&id).join(ROOT);
        self.in_use.keep(name, root.clone(), lock);
        Ok(root)
    }

    /// Gives a complete tree its name, or removes it if there is the same one already.
    fn put_in_place(
        &self,
        id: &Digest,
        building: &Building,
        place: &Path,
    ) -> Result<(), TreeStoreError> {
        let target = self.layout.place(id);
        let is_put = || {
            fault::here()
                .and_then(|()| rename_to_free(place, &target))
                .map_err(failed("publish", &target))
        };
        if is_put()? {
            return Ok(());
        }
        // Another name has it already. Of one that is not whole the new one takes the place.
        if !self.is_as_listed(id) && is_put()? {
            return Ok(());
        }
        fault::here()
            .and_then(|()| remove_tree(place))
            .map_err(failed("remove", place))?;
        self.clear_pool(building.keys());
        Ok(())
    }

    /// Points a name at a tree.
    pub(super) fn point(&self, name: &Digest, id: &Digest) -> Result<(), TreeStoreError> {
        let link = self.layout.name(name);
        // Nobody else makes one of this name while the lock is held.
        let draft = self
            .layout
            .names()
            .join(format!("{DRAFT}{}", name.to_hex()));
        let pointed = match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fault::here()
                .and_then(|()| symlink(id.to_hex(), &draft))
                .and_then(|()| fault::here())
                .and_then(|()| fs::rename(&draft, &link)),
        };
        pointed.map_err(failed("publish", &link))
    }

    /// The names that were asked for, each with the tree that it stands for.
    pub(super) fn names(&self) -> Vec<(Digest, Digest)> {
        let entries = fs::read_dir(self.layout.names()).into_iter().flatten();
        entries
            .flatten()
            .filter_map(|entry| {
                let name = digest_of(&entry.file_name())?;
                let target = fs::read_link(entry.path()).ok()?;
                Some((name, digest_of(target.as_os_str())?))
            })
            .collect()
    }
}

/// Renames a directory if the new name is free. False if it is not.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<bool> {
    let renamed = match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that knows no such flag: a directory that is not empty is not replaced either.
        Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(CWD, from, CWD, to),
        other => other,
    };
    match renamed {
        Ok(()) => Ok(true),
        Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// An error of a walk, with the whole path.
pub(super) fn in_tree(root: &Path, error: WalkError) -> TreeStoreError {
    let path = root.join(OsStr::from_bytes(&error.path));
    failed(error.step, &path)(error.source)
}
