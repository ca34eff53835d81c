//! Unpacked layers on disk: each is built once, published atomically and never changed again.
//!
//! ```text
//! trees/names/<name>             a symbolic link: what was asked for, to the digest of the tree
//! trees/ready/<digest>/root/     the tree, named by all that is in it
//! trees/ready/<digest>/list      what is in it, entry by entry; its digest is the name
//! trees/ready/<digest>/tree.json what it was made of, and what was left out
//! trees/ready/<digest>/fresh     there until the tree has surely reached the disk
//! trees/files/ab/<key>           files that trees share, each a hard link
//! trees/building/<name>/         under construction, or being removed; leftovers of the dead are removed
//! trees/damaged/<digest>/        found damaged, and out of use
//! trees/locks/<name or digest>   held with flock: alone by the process that builds or removes, shared by
//!                                those that use the tree; its time is that of the last use, and in it is
//!                                when all of the tree was last looked at
//! trees/usage                    the most that all this takes up
//! ```
//!
//! Trees of older versions lie in `ready` under the name of what was asked for, and have no list; they are
//! used as they are.
//!
//! Start reading at [`TreeStore::get_or_build_with`], then `building`. Trees whose owners are sub-ids can
//! only be removed in the user namespace where those are at hand, which is where they are built too.

pub(crate) mod building;
mod content;
mod damage;
mod eviction;
mod fault;
mod finish;
mod fresh;
mod inventory;
mod layout;
mod listing;
mod look;
mod memo;
pub(crate) mod new_file;
mod pool;
mod publish;
mod record;
mod removal;
mod shift;
pub(crate) mod source;
mod survey;
mod usage;
mod verify;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tidemill_core::Digest;

use self::fresh::Freshness;
use self::layout::{LIST, Layout, NOTE, ROOT, digest_of};
use self::listing::Listing;
use self::pool::Pool;
use self::record::Record;
use crate::tree_use::{self, TreesInUse, Wanted};
use crate::unpack::ArchiveOwners;
use tidemill_tree::remove_tree;

pub use self::building::{Added, Building, FileAttributes};
pub use self::damage::DamagedTree;
pub use self::eviction::CacheBounds;
pub use self::inventory::{Inventory, TreeEntry, TreeState};
pub use self::new_file::NewFile;
pub use self::removal::{PruneWish, Pruned, PrunedTree};
pub use self::source::SourceTree;
pub use self::verify::{Finding, Verified};

/// Times that a tree is looked for when it is exchanged while that happens.
const TRIES: usize = 8;

/// The directory of unpacked layers. Any number of processes may use one at the same time.
#[derive(Debug, Clone)]
pub struct TreeStore {
    layout: Layout,
    owners: ArchiveOwners,
    bounds: Option<CacheBounds>,
    in_use: TreesInUse,
}

/// What is known of a published tree beside its files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeNote {
    /// What it was made of, for people.
    pub from: String,
    /// Entries in it.
    pub entries: u64,
    /// Bytes in its files.
    pub bytes: u64,
    /// What the tree lacks of its source, in sentences.
    #[serde(default)]
    pub lacks: Vec<String>,
}

/// Why a tree could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum TreeStoreError {
    /// The store's own directories are not usable.
    #[error("failed to {step} `{path}` in the store of unpacked layers")]
    Store {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl TreeStoreError {
    /// The error with its cause.
    fn in_one_line(&self) -> String {
        let Self::Store { source, .. } = self;
        format!("{self}: {source}")
    }
}

impl TreeStore {
    /// Opens the store at a directory, which is made if missing (mode 0700: a tree may hold files
    /// that were not meant for everybody).
    pub fn open(base: impl Into<PathBuf>) -> Result<Self, TreeStoreError> {
        let base = base.into();
        let make = |directory: &Path| {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
        };
        make(&base).map_err(failed("create", &base))?;
        let base = fs::canonicalize(&base).map_err(failed("resolve", &base))?;
        let layout = Layout::at(base);
        for directory in layout.directories() {
            match make(&directory) {
                // A full disk does not keep anybody from looking and from making room.
                Err(error) if is_full(&error) => {
                    tracing::debug!(directory = %directory.display(), %error, "a directory is missing");
                }
                made => made.map_err(failed("create", &directory))?,
            }
        }
        let store = Self {
            layout,
            owners: ArchiveOwners::of_this_process(),
            bounds: None,
            in_use: TreesInUse::default(),
        };
        store.remove_abandoned();
        Ok(store)
    }

    /// The same store, with another answer to what becomes of the owners in archives.
    #[must_use]
    pub const fn with_owners(mut self, owners: ArchiveOwners) -> Self {
        self.owners = owners;
        self
    }

    /// The same store, with bounds that are chosen and not those that suit its disk.
    #[must_use]
    pub const fn with_bounds(mut self, bounds: CacheBounds) -> Self {
        self.bounds = Some(bounds);
        self
    }

    pub(crate) const fn owners(&self) -> ArchiveOwners {
        self.owners
    }

    /// The bounds that hold.
    pub fn bounds(&self) -> CacheBounds {
        self.bounds
            .unwrap_or_else(|| CacheBounds::of_disk(self.layout.base()))
    }

    /// The root of a published tree, which nobody removes as long as this store is open.
    pub fn find(&self, name: &Digest) -> Option<PathBuf> {
        if let Some(root) = self.in_use.root(name) {
            if root.is_dir() {
                return Some(root);
            }
            // It was found damaged and put aside.
            self.in_use.let_go(name);
        }
        self.use_tree(name).unwrap_or_else(|error| {
            // It may be used all the same, and goes only if nobody does so for long.
            tracing::debug!(tree = %name, %error, "the use of a tree could not be noted");
            self.published(&self.resolve(name))
        })
    }

    fn use_tree(&self, name: &Digest) -> io::Result<Option<PathBuf>> {
        for _ in 0..TRIES {
            let id = self.resolve(name);
            if self.published(&id).is_none() {
                return Ok(None);
            }
            let path = self.layout.lock(&id);
            let Some(lock) = tree_use::lock(&path, Wanted::Shared)? else {
                continue;
            };
            // Somebody may have removed it, or put another in its place, before the lock was ours.
            if self.resolve(name) != id {
                continue;
            }
            let Some(root) = self.published(&id) else {
                continue;
            };
            let last_used = lock.metadata()?;
            tree_use::touch(&lock)?;
            if !self.is_fit(&id, &lock, last_used.mtime_nsec().unsigned_abs() / 1000)? {
                return Ok(None);
            }
            self.in_use.keep(name, root.clone(), lock);
            return Ok(Some(root));
        }
        Ok(None)
    }

    /// The digest of the tree that has this name. One of an older version has the name itself.
    fn resolve(&self, name: &Digest) -> Digest {
        fs::read_link(self.layout.name(name))
            .ok()
            .and_then(|target| digest_of(target.as_os_str()))
            .unwrap_or(*name)
    }

    fn published(&self, id: &Digest) -> Option<PathBuf> {
        let root = self.layout.place(id).join(ROOT);
        root.is_dir().then_some(root)
    }

    /// What is known of a published tree.
    pub fn note(&self, name: &Digest) -> Option<TreeNote> {
        let place = self.layout.place(&self.resolve(name));
        let bytes = fs::read(place.join(NOTE)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The digest of all that is in a published tree. Trees of older versions have none.
    pub fn tree_digest(&self, name: &Digest) -> Option<Digest> {
        let id = self.resolve(name);
        let list = self.layout.place(&id).join(LIST);
        list.is_file().then_some(id)
    }

    /// A published tree as a source of files for another one. It stays in use as long as this store is
    /// open. `None` if there is no such tree, or one of an older version, of whose files too little is known.
    ///
    /// # Errors
    /// If it cannot be opened, or its list cannot be read.
    pub fn source(&self, name: &Digest) -> Result<Option<SourceTree>, TreeStoreError> {
        let Some(root) = self.find(name) else {
            return Ok(None);
        };
        let Some(id) = self.tree_digest(name) else {
            return Ok(None);
        };
        let listing = self.listing(&id)?;
        SourceTree::new(id, root.clone(), listing)
            .map(Some)
            .map_err(failed("open", &root))
    }

    fn listing(&self, id: &Digest) -> Result<Listing, TreeStoreError> {
        let path = self.layout.place(id).join(LIST);
        let text = fs::read(&path).map_err(failed("read", &path))?;
        Listing::decode(&text).map_err(|error| {
            let source = io::Error::new(io::ErrorKind::InvalidData, error);
            failed("read", &path)(source)
        })
    }

    /// As [`TreeStore::get_or_build_with`], for a builder that puts files into the directory without
    /// handing them over.
    pub fn get_or_build<E: From<TreeStoreError>>(
        &self,
        name: &Digest,
        build: impl FnOnce(&Path) -> Result<TreeNote, E>,
    ) -> Result<PathBuf, E> {
        self.get_or_build_with(name, |building| build(building.root()))
    }

    /// The root of the tree with this name. If it is missing, `build` fills an empty directory,
    /// which is published when it says that it is done. Of several processes that ask at the same
    /// time one builds and the others wait. Blocks; not for async code.
    ///
    /// # Errors
    /// Those of `build`; and of the store itself.
    pub fn get_or_build_with<E: From<TreeStoreError>>(
        &self,
        name: &Digest,
        build: impl FnOnce(&Building) -> Result<TreeNote, E>,
    ) -> Result<PathBuf, E> {
        if let Some(root) = self.find(name) {
            return Ok(root);
        }
        let path = self.layout.lock(name);
        let lock = tree_use::lock(&path, Wanted::Alone)
            .map_err(failed("lock", &path))?
            .expect("whoever waits for a lock gets it");
        if let Some(root) = self.built_meanwhile(name, &lock) {
            return Ok(root);
        }
        self.settle_doubts();
        self.make_room();
        let place = self.layout.under_way(name);
        let building = match self.begin(name, &place) {
            Ok(building) => building,
            Err(error) => {
                // The error is what the caller hears of; the next one who builds removes it.
                self.remove_leftovers(name).ok();
                return Err(error.into());
            }
        };
        // The directory was made a moment ago.
        if let Ok(now) = fs::metadata(&place).map(|place| place.mtime())
            && let Err(error) = fresh::settle_older(&self.layout, now)
        {
            tracing::debug!(%error, "trees are read again after the next start of the machine");
        }
        let built = build(&building).and_then(|note| Ok(self.publish(name, &building, note)?));
        match &built {
            Ok(_) => self.keep_within_bounds(name),
            Err(_) => self.abandon(&building, &place),
        }
        built
    }

    /// Before files of other trees are linked: after a crash of the machine those that may not be whole are
    /// read, once.
    fn settle_doubts(&self) {
        for id in self.published_ids().unwrap_or_default() {
            if fresh::of(&self.layout.place(&id)) == Freshness::Doubtful {
                self.is_whole(&id);
            }
        }
    }

    /// A tree that another process has published while this one waited for the lock on its name.
    fn built_meanwhile(&self, name: &Digest, lock: &File) -> Option<PathBuf> {
        if self.resolve(name) != *name {
            return self.find(name);
        }
        // One of an older version: its lock is the one that is held already.
        let root = self.published(name)?;
        let kept = tree_use::share(lock)
            .and_then(|()| tree_use::touch(lock))
            .and_then(|()| lock.try_clone());
        match kept {
            Ok(lock) => self.in_use.keep(name, root.clone(), lock),
            Err(error) => {
                tracing::debug!(tree = %name, %error, "the use of a tree could not be noted");
            }
        }
        Some(root)
    }

    /// Makes the empty directory of a tree to come. The caller holds the lock on its name.
    fn begin(&self, name: &Digest, place: &Path) -> Result<Building, TreeStoreError> {
        self.remove_leftovers(name)?;
        let root = place.join(ROOT);
        for (directory, mode) in [(place, 0o700), (&*root, 0o755)] {
            fault::here()
                .and_then(|()| fs::DirBuilder::new().mode(mode).create(directory))
                .map_err(failed("create", directory))?;
        }
        let pool = match Pool::open(&self.layout.files()) {
            Ok(pool) => Some(pool),
            Err(error) => {
                tracing::debug!(%error, "files are not shared");
                None
            }
        };
        Building::new(place, root, pool, self.owners).map_err(failed("open", place))
    }

    /// Removes what a build left that failed.
    fn abandon(&self, building: &Building, place: &Path) {
        if let Err(error) = remove_tree(place) {
            tracing::warn!(path = %place.display(), %error, "an unfinished tree could not be removed");
        }
        self.clear_pool(building.keys());
    }
}

/// True for an error of a disk or quota that is full.
fn is_full(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSPC | Errno::DQUOT)
    )
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TreeStoreError + use<> {
    let path = path.to_owned();
    move |source| TreeStoreError::Store { step, path, source }
}

#[cfg(test)]
mod tests;
