//! Removing trees: when the store exceeds its bounds, when they were not used for long, and when somebody
//! asks.

use std::collections::HashSet;
use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use tidemill_core::{ByteSize, Digest};
use tidemill_tree::remove_tree;

use super::eviction::Disk;
use super::fresh;
use super::inventory::keys_of;
use super::layout::{DRAFT, digest_of};
use super::pool::Pool;
use super::record::Record;
use super::{TreeStore, TreeStoreError, failed, fault};
use crate::tree_use::{self, Wanted};
use crate::unpack::ArchiveOwners;

/// How long a tree is kept after it was last used: 30 days.
pub(super) const UNUSED_KEPT_SECONDS: i64 = 30 * 24 * 60 * 60;

/// What shall be removed beside what is of no use to anybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneWish {
    /// Remove the least recently used trees until no more than these bytes on disk are left.
    pub max: Option<ByteSize>,
    /// Bytes on disk that this leaves at least.
    #[serde(default)]
    pub floor: ByteSize,
    /// Remove trees that were last used before this time, in seconds since 1970.
    pub used_before: Option<i64>,
    /// Say what would be removed, and remove nothing.
    pub is_trial: bool,
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// Trees, in the order of their removal.
    pub trees: Vec<PrunedTree>,
    /// Bytes on disk that are free now.
    pub freed_bytes: u64,
    /// Bytes on disk that the trees take up that are left.
    pub left_bytes: u64,
    /// What could not be removed, and why.
    pub failures: Vec<String>,
}

/// A tree that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunedTree {
    /// The digest of all that was in it.
    pub digest: Digest,
    /// What it was made of.
    pub from: String,
    /// Bytes on disk that this freed.
    pub freed_bytes: u64,
}

impl TreeStore {
    /// Removes what nobody can use (leftovers, damaged trees, files that no tree has), and trees as it is
    /// wished; never one that is in use. Needs no room on the disk.
    ///
    /// # Errors
    /// If the store cannot be listed. What cannot be removed stands in the answer.
    pub fn prune(&self, wish: &PruneWish) -> Result<Pruned, TreeStoreError> {
        let mut pruned = Pruned::default();
        if wish.is_trial {
            let inventory = self.inventory()?;
            pruned.freed_bytes = inventory.damaged_bytes + inventory.unused_bytes;
        } else {
            let building = self.layout.building();
            let before = self.bytes_below(&building)?;
            self.remove_abandoned();
            let rest = self.bytes_below(&building)?;
            pruned.freed_bytes += before.saturating_sub(rest) + self.remove_damaged(&mut pruned)?;
            pruned.freed_bytes += self.sweep_pool(&mut pruned.failures);
        }
        let noted = self.usage();
        let (mut ledger, sources) = self.ledger()?;
        let mut failures = Vec::new();
        let mut try_remove = |id: &Digest| {
            if wish.is_trial {
                return Ok(true);
            }
            Ok::<_, TreeStoreError>(self.remove_id(id).unwrap_or_else(|error| {
                failures.push(error.in_one_line());
                false
            }))
        };
        let mut removed = Vec::new();
        if let Some(before) = wish.used_before {
            removed.extend(ledger.evict(0, 0, |id| {
                let used_at = tree_use::used_at(&self.layout.lock(id));
                if used_at.is_some_and(|at| at >= before) {
                    return Ok(false);
                }
                try_remove(id)
            })?);
        }
        if let Some(max) = wish.max {
            removed.extend(ledger.evict(max.0, wish.floor.0, try_remove)?);
        }
        pruned.failures.extend(failures);
        for (digest, freed_bytes) in removed {
            pruned.freed_bytes += freed_bytes;
            pruned.trees.push(PrunedTree {
                digest,
                from: sources.get(&digest).cloned().unwrap_or_default(),
                freed_bytes,
            });
        }
        pruned.left_bytes = ledger.total();
        if wish.is_trial {
            return Ok(pruned);
        }
        self.remove_dangling();
        if let Err(error) = fresh::settle_all(&self.layout) {
            pruned
                .failures
                .push(format!("the disk does not take what was written: {error}"));
        }
        self.set_usage(noted, ledger.total());
        Ok(pruned)
    }

    /// Removes trees by the digests of all that is in them; never one that is in use.
    ///
    /// # Errors
    /// If the store cannot be listed. What cannot be removed stands in the answer.
    pub fn remove_trees(&self, trees: &HashSet<Digest>) -> Result<Pruned, TreeStoreError> {
        let mut pruned = Pruned::default();
        let noted = self.usage();
        let (mut ledger, sources) = self.ledger()?;
        let removed = ledger.evict(0, 0, |id| {
            if !trees.contains(id) {
                return Ok(false);
            }
            Ok::<_, TreeStoreError>(self.remove_id(id).unwrap_or_else(|error| {
                pruned.failures.push(error.in_one_line());
                false
            }))
        })?;
        for (digest, freed_bytes) in removed {
            pruned.freed_bytes += freed_bytes;
            pruned.trees.push(PrunedTree {
                digest,
                from: sources.get(&digest).cloned().unwrap_or_default(),
                freed_bytes,
            });
        }
        pruned.left_bytes = ledger.total();
        self.remove_dangling();
        self.set_usage(noted, ledger.total());
        Ok(pruned)
    }

    /// Removes a tree by a name that it was asked for by. False if somebody uses it, or builds it just now;
    /// then it stays.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self, name: &Digest) -> Result<bool, TreeStoreError> {
        let id = self.resolve(name);
        let removed = self.remove_id(&id)?;
        if removed {
            self.remove_dangling();
        }
        Ok(removed)
    }

    /// Removes a tree. False if somebody uses it; then it stays.
    pub(super) fn remove_id(&self, id: &Digest) -> Result<bool, TreeStoreError> {
        let path = self.layout.lock(id);
        let lock = tree_use::lock(&path, Wanted::AloneNow).map_err(failed("lock", &path))?;
        let Some(lock) = lock else {
            return Ok(false);
        };
        let place = self.layout.place(id);
        let record = Record::read(&place);
        if record.owners() == Some(ArchiveOwners::SubIds) && !rustix::process::geteuid().is_root() {
            // Half of it would stay.
            return Err(failed("remove", &place)(
                io::ErrorKind::PermissionDenied.into(),
            ));
        }
        let keys = match self.listing(id) {
            Ok(listing) => keys_of(&listing, record.owners.as_deref().unwrap_or_default()),
            Err(_) => Vec::new(),
        };
        self.remove_leftovers(id)?;
        let doomed = self.layout.under_way(id);
        match fault::here().and_then(|()| fs::rename(&place, &doomed)) {
            Ok(()) => fault::here()
                .and_then(|()| remove_tree(&doomed))
                .map_err(failed("remove", &doomed))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &place)(error)),
        }
        self.clear_pool(keys);
        // Whoever waits for it finds out that it is another one's now.
        if let Err(error) = fs::remove_file(&path) {
            tracing::debug!(tree = %id, %error, "a lock file stays");
        }
        drop(lock);
        Ok(true)
    }

    /// Takes these out of the pool, as far as no tree has them.
    pub(super) fn clear_pool(&self, keys: Vec<Digest>) {
        let pool = match Pool::open(&self.layout.files()) {
            Ok(pool) => pool,
            Err(error) => {
                tracing::debug!(%error, "the pool of files cannot be opened");
                return;
            }
        };
        for key in keys {
            if let Err(error) = pool.remove_if_unused(&key) {
                tracing::debug!(%key, %error, "a file that no tree has stays in the pool");
            }
        }
    }

    /// Removes what a builder that died left. The caller holds the lock.
    pub(super) fn remove_leftovers(&self, name: &Digest) -> Result<(), TreeStoreError> {
        let place = self.layout.under_way(name);
        match remove_tree(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &place)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the trees under construction whose builders are gone: killed, or ended by a cancel in
    /// the middle of an archive. Nobody may ever ask for the same layer again.
    pub(super) fn remove_abandoned(&self) {
        let mut is_any = false;
        let entries = fs::read_dir(self.layout.building()).into_iter().flatten();
        for entry in entries.flatten() {
            let lock = self.layout.locks().join(entry.file_name());
            let Ok(Some(_lock)) = tree_use::lock(&lock, Wanted::AloneNow) else {
                continue;
            };
            let place = entry.path();
            match remove_tree(&place) {
                Ok(()) => is_any = true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Its owners are sub-ids: whoever unpacks the next archive can remove it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    tracing::debug!(path = %place.display(), %error, "an abandoned tree is left to the unpacker");
                }
                Err(error) => {
                    tracing::warn!(path = %place.display(), %error, "an abandoned tree could not be removed");
                }
            }
        }
        if is_any {
            // What its builder had put into the pool is there for nobody.
            self.sweep_pool(&mut Vec::new());
        }
    }

    /// Takes out of the pool what no tree has. Gives the bytes that this frees.
    pub(super) fn sweep_pool(&self, failures: &mut Vec<String>) -> u64 {
        let swept = Pool::open(&self.layout.files()).and_then(|pool| pool.sweep());
        swept.unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!(%error, "the pool of files could not be swept");
                failures.push(format!(
                    "files that no tree has could not be removed: {error}"
                ));
            }
            0
        })
    }

    fn remove_damaged(&self, pruned: &mut Pruned) -> Result<u64, TreeStoreError> {
        let damaged = self.layout.damaged();
        let before = self.bytes_below(&damaged)?;
        for entry in fs::read_dir(&damaged).into_iter().flatten().flatten() {
            let place = entry.path();
            if let Err(error) = remove_tree(&place) {
                pruned
                    .failures
                    .push(failed("remove", &place)(error).in_one_line());
            }
        }
        Ok(before.saturating_sub(self.bytes_below(&damaged)?))
    }

    /// Removes names of trees that are gone, and lock files that belong to nothing.
    fn remove_dangling(&self) {
        let mut kept: HashSet<Digest> = self
            .published_ids()
            .unwrap_or_default()
            .into_iter()
            .collect();
        self.remove_drafts();
        for (name, id) in self.names() {
            if kept.contains(&id) {
                kept.insert(name);
                continue;
            }
            let path = self.layout.lock(&name);
            // Whoever builds it just now is about to point the name at another tree.
            if let Ok(Some(_lock)) = tree_use::lock(&path, Wanted::AloneNow)
                && self.resolve(&name) == id
                && self.published(&id).is_none()
                && let Err(error) = fs::remove_file(self.layout.name(&name))
            {
                tracing::debug!(%name, %error, "a name of no tree stays");
            }
        }
        for entry in fs::read_dir(self.layout.locks())
            .into_iter()
            .flatten()
            .flatten()
        {
            let Some(id) = digest_of(&entry.file_name()) else {
                continue;
            };
            if kept.contains(&id) || self.layout.under_way(&id).exists() {
                continue;
            }
            let path = entry.path();
            if let Ok(Some(_lock)) = tree_use::lock(&path, Wanted::AloneNow)
                && self.published(&self.resolve(&id)).is_none()
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::debug!(path = %path.display(), %error, "a lock file stays");
            }
        }
    }

    /// Removes links that were not given their names because somebody was killed.
    fn remove_drafts(&self) {
        let entries = fs::read_dir(self.layout.names()).into_iter().flatten();
        for entry in entries.flatten() {
            let file_name = entry.file_name();
            let name = file_name.to_str().and_then(|text| text.strip_prefix(DRAFT));
            let Some(name) = name.and_then(|name| digest_of(name.as_ref())) else {
                continue;
            };
            if let Ok(Some(_lock)) = tree_use::lock(&self.layout.lock(&name), Wanted::AloneNow)
                && let Err(error) = fs::remove_file(entry.path())
            {
                tracing::debug!(%name, %error, "half a name stays");
            }
        }
    }

    /// Removes trees after one was built: those that were not used for long before, and those that are too
    /// many.
    pub(super) fn keep_within_bounds(&self, newest: &Digest) {
        // Trees of sub-ids are removed where they are built.
        if self.is_beside_sub_ids() {
            return;
        }
        self.remove_unused(newest);
        self.make_room();
    }

    /// Removes trees that are too many, or for which the disk has no room: before one is built too, for which
    /// else there might be none.
    pub(super) fn make_room(&self) {
        if self.is_beside_sub_ids() {
            return;
        }
        if let Err(error) = self.shrink() {
            tracing::warn!(%error, "the store of unpacked layers could not be kept within its bounds");
        }
    }

    fn remove_unused(&self, newest: &Digest) {
        let used_at = |id: &Digest| tree_use::used_at(&self.layout.lock(id));
        let Some(now) = used_at(&self.resolve(newest)) else {
            return;
        };
        // A tree without a lock file was made by nobody that we know; it stays.
        let is_old = |id: &Digest| {
            used_at(id).is_some_and(|at| now.saturating_sub(at) > UNUSED_KEPT_SECONDS)
        };
        let old: Vec<Digest> = self
            .published_ids()
            .unwrap_or_default()
            .into_iter()
            .filter(is_old)
            .collect();
        for id in &old {
            if let Err(error) = self.remove_id(id) {
                tracing::warn!(tree = %id, %error, "a tree that was not used for long stays");
            }
        }
        if !old.is_empty() {
            self.remove_dangling();
        }
    }

    /// Removes the least recently used trees if the store exceeds its bounds.
    fn shrink(&self) -> Result<(), TreeStoreError> {
        let bounds = self.bounds();
        let disk = || Disk::of(self.layout.base());
        let noted = self.usage();
        if noted.is_some_and(|sum| bounds.target(sum, disk()).is_none()) {
            return Ok(());
        }
        let (mut ledger, _) = self.ledger()?;
        if let Some(target) = bounds.target(ledger.total(), disk()) {
            let removed = ledger.evict(target, bounds.floor.0, |id| {
                let removed = self.remove_id(id).unwrap_or_else(|error| {
                    tracing::warn!(tree = %id, %error, "a tree stays though there is no room for it");
                    false
                });
                Ok::<_, TreeStoreError>(removed)
            })?;
            if !removed.is_empty() {
                self.remove_dangling();
            }
        }
        self.set_usage(noted, ledger.total());
        Ok(())
    }
}
