//! What a store of bounded size removes, where several trees share files: what was used least recently,
//! never what is in use, and never so much that less than a floor is left. A decision only.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tidemill_core::{ByteSize, Digest};

/// The default bound, where the disk is not small.
const MAX_DEFAULT: ByteSize = ByteSize::gib(20);
/// The part of a small disk that the store takes by default.
const DISK_SHARE: u64 = 5;
/// The part of the bound that removing leaves by default, however full the disk is.
const FLOOR_SHARE: u64 = 10;
/// Where the bound is exceeded, so much of it is made free that the next tree does not exceed it at once.
const SLACK_SHARE: u64 = 10;
/// The part of a disk that is kept free, and the most that this is.
const RESERVE_SHARE: u64 = 20;
const RESERVE_MAX: ByteSize = ByteSize::gib(1);

/// How large the store may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheBounds {
    /// Bytes on disk above which trees are removed; without, only a full disk makes them go.
    pub max: Option<ByteSize>,
    /// Bytes on disk that removing leaves at least, though the bound is exceeded or the disk is full: a
    /// store that were emptied again and again would make each job start cold.
    pub floor: ByteSize,
}

impl CacheBounds {
    /// At most so much, with the floor that belongs to it.
    pub const fn at_most(max: ByteSize) -> Self {
        Self {
            max: Some(max),
            floor: ByteSize(max.0 / FLOOR_SHARE),
        }
    }

    /// What suits the disk of a directory: 20 GiB, or a fifth of a disk that has less than 100 GiB.
    pub fn of_disk(path: &Path) -> Self {
        let max = Disk::of(path).map_or(MAX_DEFAULT.0, |disk| disk.total / DISK_SHARE);
        Self::at_most(ByteSize(max.min(MAX_DEFAULT.0)))
    }

    /// What the store shall take up at most when trees are removed: now `total`, on this disk. `None` if
    /// nothing has to go.
    pub(crate) fn target(&self, total: u64, disk: Option<Disk>) -> Option<u64> {
        let by_size = self
            .max
            .filter(|max| total > max.0)
            .map(|max| max.0 - max.0 / SLACK_SHARE);
        let by_disk = disk
            .map(|disk| disk.lacking())
            .filter(|lacking| *lacking > 0)
            .map(|lacking| total.saturating_sub(lacking));
        let target = match (by_size, by_disk) {
            (Some(size), Some(disk)) => size.min(disk),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return None,
        };
        Some(target.max(self.floor.0)).filter(|target| *target < total)
    }
}

/// The disk that the store lies on, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) total: u64,
    /// What this user may still write.
    pub(crate) available: u64,
}

impl Disk {
    /// As statvfs(3) tells it.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let stat = rustix::fs::statvfs(path).ok()?;
        Some(Self {
            total: stat.f_blocks.saturating_mul(stat.f_frsize),
            available: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    /// Bytes that are missing to the reserve.
    fn lacking(self) -> u64 {
        let reserve = (self.total / RESERVE_SHARE).min(RESERVE_MAX.0);
        reserve.saturating_sub(self.available)
    }
}

/// A tree as far as its room matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: Digest,
    /// The lesser goes first.
    pub(crate) used_at: i64,
    /// It must not go.
    pub(crate) is_busy: bool,
    /// Bytes of what no other tree has part in.
    pub(crate) own_bytes: u64,
    /// Its files that others may have too, as places in the list of sizes.
    pub(crate) files: Vec<usize>,
}

/// Who has part in which files.
#[derive(Debug)]
pub(crate) struct Ledger {
    trees: Vec<Candidate>,
    /// Bytes of each file, and how many trees have it.
    files: Vec<(u64, u32)>,
    total: u64,
}

impl Ledger {
    /// Of trees and the sizes of the files that they share. Files that no tree has do not count.
    pub(crate) fn new(mut trees: Vec<Candidate>, sizes: &[u64]) -> Self {
        trees.sort_by_key(|tree| tree.used_at);
        let mut files: Vec<(u64, u32)> = sizes.iter().map(|size| (*size, 0)).collect();
        let mut total = 0_u64;
        for tree in &trees {
            total = total.saturating_add(tree.own_bytes);
            for file in &tree.files {
                let (size, users) = &mut files[*file];
                if *users == 0 {
                    total = total.saturating_add(*size);
                }
                *users += 1;
            }
        }
        Self {
            trees,
            files,
            total,
        }
    }

    /// Bytes of all trees, each file counted once.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Bytes that go with a tree.
    pub(crate) fn frees(&self, tree: &Candidate) -> u64 {
        let files = tree.files.iter().map(|file| self.files[*file]);
        let alone = files.filter(|(_, users)| *users == 1);
        tree.own_bytes + alone.map(|(size, _)| size).sum::<u64>()
    }

    /// Removes trees until no more than `target` bytes are left, the least recently used first. One that
    /// would leave less than `floor` is passed over, and so is one that `remove` says stays. Gives what
    /// was removed, with the bytes that this freed.
    pub(crate) fn evict<E>(
        &mut self,
        target: u64,
        floor: u64,
        mut remove: impl FnMut(&Digest) -> Result<bool, E>,
    ) -> Result<Vec<(Digest, u64)>, E> {
        let mut removed = Vec::new();
        let trees = std::mem::take(&mut self.trees);
        for tree in trees {
            let frees = self.frees(&tree);
            let stays = self.total <= target
                || tree.is_busy
                || self.total.saturating_sub(frees) < floor
                || !remove(&tree.id)?;
            if stays {
                self.trees.push(tree);
                continue;
            }
            for file in &tree.files {
                self.files[*file].1 -= 1;
            }
            self.total = self.total.saturating_sub(frees);
            removed.push((tree.id, frees));
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests;
