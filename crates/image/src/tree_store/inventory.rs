//! What is in the store and how much room it takes, without changing anything: files that several trees have
//! count once.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidemill_core::Digest;
use tidemill_tree::{Measured, all_cores, map_all, measure};

use super::eviction::{Candidate, Ledger};
use super::fresh::{self, Freshness};
use super::layout::{LIST, digest_of};
use super::listing::{Kind, Listing, What};
use super::pool::{Pool, Pooled};
use super::record::Record;
use super::{DamagedTree, TreeStore, TreeStoreError, failed};
use crate::tree_use;

/// What is in a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The trees, the one that was used last first.
    pub trees: Vec<TreeEntry>,
    /// Files in the pool.
    pub pool_files: u64,
    /// Bytes on disk of the files in the pool.
    pub pool_bytes: u64,
    /// The part of it that no tree has.
    pub unused_bytes: u64,
    /// The trees that were found damaged and put aside.
    pub damaged: Vec<DamagedTree>,
    /// Bytes on disk of trees that were found damaged.
    pub damaged_bytes: u64,
    /// Bytes on disk of trees under construction and of what dead builders left, as far as this user sees.
    pub building_bytes: u64,
    /// Bytes on disk of it all, each file counted once.
    pub total_bytes: u64,
}

/// A tree in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry {
    /// The digest of all that is in it; of a tree of an older version the name that it was asked for by.
    pub digest: Digest,
    /// The names that it was asked for by.
    pub names: Vec<Digest>,
    /// What it was made of.
    pub from: String,
    /// Files, directories and all else in it.
    pub entries: u64,
    /// Bytes in its files.
    pub bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// The part of them that removing it frees, while all others stay.
    pub own_bytes: u64,
    /// When it was last asked for, in seconds since 1970.
    pub used_at: Option<i64>,
    /// True if somebody uses it, builds or removes it.
    pub in_use: bool,
    /// What is known of its files.
    pub state: TreeState,
    /// What it lacks of its source.
    pub lacks: Vec<String>,
}

/// What is known of a tree's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeState {
    /// They are as they were built.
    Ready,
    /// The machine was started anew before they had surely reached the disk: they are read before they are
    /// used.
    Unchecked,
    /// It was built by an older version, which made no list.
    Unlisted,
}

/// A tree with what it has in the pool.
struct Seen {
    entry: TreeEntry,
    candidate: Candidate,
}

impl TreeStore {
    /// Looks at everything. Needs no room on the disk.
    ///
    /// # Errors
    /// If the store cannot be listed.
    pub fn inventory(&self) -> Result<Inventory, TreeStoreError> {
        let (seen, pooled) = self.look()?;
        let sizes: Vec<u64> = pooled.iter().map(|pooled| pooled.bytes).collect();
        let candidates = seen.iter().map(|seen| seen.candidate.clone()).collect();
        let ledger = Ledger::new(candidates, &sizes);
        let pool_bytes: u64 = sizes.iter().sum();
        let unused = pooled.iter().filter(|pooled| pooled.users == 0);
        let mut inventory = Inventory {
            pool_files: pooled.len() as u64,
            pool_bytes,
            unused_bytes: unused.map(|pooled| pooled.bytes).sum(),
            damaged: self.damaged_trees()?,
            damaged_bytes: self.bytes_below(&self.layout.damaged())?,
            building_bytes: self.bytes_below(&self.layout.building())?,
            ..Inventory::default()
        };
        inventory.total_bytes = pool_bytes + inventory.damaged_bytes + inventory.building_bytes;
        for Seen {
            mut entry,
            candidate,
        } in seen
        {
            let shared = candidate.files.iter().map(|file| sizes[*file]);
            entry.disk_bytes = candidate.own_bytes + shared.sum::<u64>();
            entry.own_bytes = ledger.frees(&candidate);
            inventory.total_bytes += candidate.own_bytes;
            inventory.trees.push(entry);
        }
        inventory
            .trees
            .sort_by_key(|tree| (std::cmp::Reverse(tree.used_at), tree.digest));
        Ok(inventory)
    }

    /// The trees and files as a ledger to remove from, and what each tree was made of.
    pub(super) fn ledger(&self) -> Result<(Ledger, HashMap<Digest, String>), TreeStoreError> {
        let (seen, pooled) = self.look()?;
        let sizes: Vec<u64> = pooled.iter().map(|pooled| pooled.bytes).collect();
        let sources = seen.iter().map(|seen| {
            let entry = &seen.entry;
            (entry.digest, entry.from.clone())
        });
        let sources = sources.collect();
        let candidates = seen.into_iter().map(|seen| seen.candidate).collect();
        Ok((Ledger::new(candidates, &sizes), sources))
    }

    fn look(&self) -> Result<(Vec<Seen>, Vec<Pooled>), TreeStoreError> {
        let files = self.layout.files();
        let pooled = match Pool::open(&files) {
            Ok(pool) => pool
                .list()
                .map_err(|error| failed("list", &files)(error.source))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("open", &files)(error)),
        };
        let places: HashMap<Digest, usize> = pooled
            .iter()
            .enumerate()
            .map(|(place, pooled)| (pooled.key, place))
            .collect();
        let mut names: HashMap<Digest, Vec<Digest>> = HashMap::new();
        for (name, id) in self.names() {
            names.entry(id).or_default().push(name);
        }
        let ids = self.published_ids()?;
        let seen = map_all(&ids, all_cores(), || (), |(), id| self.see(id, &places));
        let mut seen: Vec<Seen> = seen.into_iter().flatten().collect();
        for seen in &mut seen {
            let names = names.remove(&seen.entry.digest).unwrap_or_default();
            seen.entry.names = names;
        }
        Ok((seen, pooled))
    }

    /// The digests of all published trees.
    pub(super) fn published_ids(&self) -> Result<Vec<Digest>, TreeStoreError> {
        let ready = self.layout.ready();
        let entries = match fs::read_dir(&ready) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed("list", &ready))?,
        };
        let mut ids: Vec<Digest> = entries
            .flatten()
            .filter_map(|entry| digest_of(&entry.file_name()))
            .collect();
        ids.sort();
        Ok(ids)
    }

    /// One tree. `None` if it has gone meanwhile.
    fn see(&self, id: &Digest, places: &HashMap<Digest, usize>) -> Option<Seen> {
        let place = self.layout.place(id);
        let record = Record::read(&place);
        let text = fs::read(place.join(LIST)).ok();
        if text.is_none() && self.published(id).is_none() {
            return None;
        }
        let listing = text.as_deref().map(Listing::decode);
        let state = match &listing {
            None => TreeState::Unlisted,
            Some(Err(_)) => TreeState::Unchecked,
            Some(Ok(_)) if fresh::of(&place) == Freshness::Doubtful => TreeState::Unchecked,
            Some(Ok(_)) => TreeState::Ready,
        };
        let list_bytes = text.as_ref().map_or(0, |text| text.len() as u64);
        let own_bytes = match (record.unshared_bytes, &listing) {
            (Some(bytes), Some(_)) => bytes + list_bytes,
            _ => measured(&place).bytes,
        };
        let owners = record.owners.as_deref().unwrap_or_default();
        let files = match &listing {
            Some(Ok(listing)) => pooled_files(listing, owners, places),
            _ => Vec::new(),
        };
        let lock = self.layout.lock(id);
        let used_at = tree_use::used_at(&lock);
        let in_use = tree_use::is_busy(&lock);
        Some(Seen {
            candidate: Candidate {
                id: *id,
                used_at: used_at.unwrap_or(i64::MIN),
                is_busy: in_use,
                own_bytes,
                files,
            },
            entry: TreeEntry {
                digest: *id,
                names: Vec::new(),
                from: record.from,
                entries: record.entries,
                bytes: record.bytes,
                disk_bytes: 0,
                own_bytes: 0,
                used_at,
                in_use,
                state,
                lacks: record.lacks,
            },
        })
    }

    /// Bytes on disk below one of the store's directories.
    pub(super) fn bytes_below(&self, directory: &Path) -> Result<u64, TreeStoreError> {
        let opened = match File::open(directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            other => other.map_err(failed("open", directory))?,
        };
        measure(opened.as_fd(), u64::MAX, |_| true)
            .map(|measured| measured.bytes)
            .map_err(failed("list", directory))
    }
}

fn measured(place: &Path) -> Measured {
    File::open(place)
        .and_then(|place| measure(place.as_fd(), u64::MAX, |_| true))
        .unwrap_or_default()
}

/// The keys that the files of a tree may have in the pool, each once.
pub(super) fn keys_of(listing: &Listing, owners: &str) -> Vec<Digest> {
    let mut equals: HashMap<Digest, u32> = HashMap::new();
    let mut keys = Vec::new();
    for entry in &listing.entries {
        let What::Node(node) = &entry.what else {
            continue;
        };
        if !matches!(node.kind, Kind::File { .. }) {
            continue;
        }
        let first = node.key(owners, 0);
        let ordinal = equals.entry(first).or_default();
        keys.push(if *ordinal == 0 {
            first
        } else {
            node.key(owners, *ordinal)
        });
        *ordinal += 1;
    }
    keys
}

fn pooled_files(listing: &Listing, owners: &str, places: &HashMap<Digest, usize>) -> Vec<usize> {
    let keys = keys_of(listing, owners).into_iter();
    keys.filter_map(|key| places.get(&key).copied()).collect()
}
