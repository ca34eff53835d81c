//! Unpacked layers on disk: each is built once, published atomically and never changed again.
//!
//! ```text
//! trees/ready/<name>/root/       the tree
//! trees/ready/<name>/tree.json   what it was made of, and what was left out
//! trees/building/<name>/         under construction; leftovers of the dead are removed by the next
//! trees/locks/<name>             held with flock: alone by the process that builds or removes, shared by
//!                                those that use the tree; its time is that of the last use
//! ```
//!
//! A tree that nobody has used for [`UNUSED_KEPT_SECONDS`] goes when another one is built: that is when
//! the room is needed. Trees whose owners are sub-ids can only be removed in the user namespace where
//! those are at hand, which is where the archives are unpacked too.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tidemill_core::Digest;

use crate::tree_use::{self, TreesInUse};
use crate::unpack::ArchiveOwners;
use tidemill_tree::remove_tree;

/// How long before it was remembered a file must have been left alone.
const MEMO_MARGIN_SECONDS: i64 = 2;
/// How long a tree is kept after it was last used: 30 days.
const UNUSED_KEPT_SECONDS: i64 = 30 * 24 * 60 * 60;

/// The directory of unpacked layers. Any number of processes may use one at the same time.
#[derive(Debug, Clone)]
pub struct TreeStore {
    base: PathBuf,
    owners: ArchiveOwners,
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

impl TreeStore {
    /// Opens the store at a directory, which is made if missing (mode 0700: a tree may hold files
    /// that were not meant for everybody).
    pub fn open(base: impl Into<PathBuf>) -> Result<Self, TreeStoreError> {
        let owners = ArchiveOwners::of_this_process();
        let store = Self {
            base: base.into(),
            owners,
            in_use: TreesInUse::default(),
        };
        for directory in [
            store.base.clone(),
            store.ready(),
            store.building(),
            store.locks(),
            store.memo(),
        ] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .map_err(failed("create", &directory))?;
        }
        let base = fs::canonicalize(&store.base).map_err(failed("resolve", &store.base))?;
        let store = Self { base, ..store };
        store.remove_abandoned();
        Ok(store)
    }

    /// Removes the trees under construction whose builders are gone: killed, or ended by a cancel in
    /// the middle of an archive. Nobody may ever ask for the same layer again.
    fn remove_abandoned(&self) {
        for entry in fs::read_dir(self.building())
            .into_iter()
            .flatten()
            .flatten()
        {
            let lock = self.locks().join(entry.file_name());
            let Ok(lock) = File::options().write(true).open(lock) else {
                continue;
            };
            if !tree_use::try_alone(&lock) {
                continue;
            }
            let place = entry.path();
            match remove_tree(&place) {
                Ok(()) => {}
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
    }

    /// The same store, with another answer to what becomes of the owners in archives.
    #[must_use]
    pub const fn with_owners(mut self, owners: ArchiveOwners) -> Self {
        self.owners = owners;
        self
    }

    pub(crate) const fn owners(&self) -> ArchiveOwners {
        self.owners
    }

    /// The root of a published tree, which nobody removes as long as this store is open.
    pub fn find(&self, name: &Digest) -> Option<PathBuf> {
        let root = self.published(name)?;
        if self.in_use.has(name) {
            return Some(root);
        }
        let kept =
            tree_use::open(&self.lock_path(name)).and_then(|file| self.in_use.keep(name, file));
        if let Err(error) = kept {
            // It may be used all the same, and goes only if nobody does so for long.
            tracing::debug!(tree = %name, %error, "the use of a tree could not be noted");
        }
        // Somebody may have removed it before the lock was ours.
        self.published(name)
    }

    fn published(&self, name: &Digest) -> Option<PathBuf> {
        let root = self.place(name).join("root");
        root.is_dir().then_some(root)
    }

    /// What is known of a published tree.
    pub fn note(&self, name: &Digest) -> Option<TreeNote> {
        let bytes = fs::read(self.place(name).join("tree.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// The root of the tree with this name. If it is missing, `build` fills an empty directory,
    /// which is published when it says that it is done. Of several processes that ask at the same
    /// time one builds and the others wait. Blocks; not for async code.
    pub fn get_or_build<E: From<TreeStoreError>>(
        &self,
        name: &Digest,
        build: impl FnOnce(&Path) -> Result<TreeNote, E>,
    ) -> Result<PathBuf, E> {
        if let Some(root) = self.find(name) {
            return Ok(root);
        }
        let lock = self.lock(name)?;
        if let Some(root) = self.published(name) {
            self.use_from(name, lock);
            return Ok(root);
        }
        self.remove_leftovers(name)?;
        let place = self.building().join(name.to_hex());
        let root = place.join("root");
        for directory in [&place, &root] {
            fs::DirBuilder::new()
                .mode(if directory == &root { 0o755 } else { 0o700 })
                .create(directory)
                .map_err(failed("create", directory))?;
        }
        let built = build(&root).and_then(|note| Ok(self.publish(name, &place, &note)?));
        if built.is_err()
            && let Err(error) = remove_tree(&place)
        {
            tracing::warn!(path = %place.display(), %error, "an unfinished tree could not be removed");
        }
        if built.is_ok() {
            self.use_from(name, lock);
            self.remove_unused(name, UNUSED_KEPT_SECONDS);
        }
        built
    }

    /// Goes over from building a tree to using it.
    fn use_from(&self, name: &Digest, lock: File) {
        if let Err(error) = self.in_use.keep(name, lock) {
            tracing::debug!(tree = %name, %error, "the use of a tree could not be noted");
        }
    }

    /// Removes the trees that nobody uses, and that were last used so long before the newest one.
    fn remove_unused(&self, newest: &Digest, seconds: i64) {
        // Trees of sub-ids are removed where they are built.
        if self.owners == ArchiveOwners::SubIds && !rustix::process::geteuid().is_root() {
            return;
        }
        for name in tree_use::unused(&self.ready(), &self.locks(), newest, seconds) {
            if let Err(error) = self.remove(&name) {
                tracing::warn!(tree = %name, %error, "a tree that was not used for long stays");
            }
        }
    }

    /// Removes a tree. False if somebody uses it, or builds it just now; then it stays.
    pub fn remove(&self, name: &Digest) -> Result<bool, TreeStoreError> {
        let path = self.lock_path(name);
        let lock = tree_use::open(&path).map_err(failed("open", &path))?;
        if !tree_use::try_alone(&lock) {
            return Ok(false);
        }
        self.remove_leftovers(name)?;
        let place = self.place(name);
        let doomed = self.building().join(name.to_hex());
        match fs::rename(&place, &doomed) {
            Ok(()) => remove_tree(&doomed).map_err(failed("remove", &doomed))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &place)(error)),
        }
        Ok(true)
    }

    /// The digest of a file that was remembered, if the file has not changed (`changed_at`, in
    /// seconds) around the time when it was taken: times are too coarse to see a second change
    /// at the same moment.
    pub(crate) fn recall(&self, memo: &Digest, changed_at: i64) -> Option<Digest> {
        let path = self.memo().join(memo.to_hex());
        let remembered_at = fs::metadata(&path).ok()?.mtime();
        if remembered_at <= changed_at.saturating_add(MEMO_MARGIN_SECONDS) {
            return None;
        }
        fs::read_to_string(path).ok()?.parse().ok()
    }

    /// Remembers the digest of a file. Only a help: that it failed is no error.
    pub(crate) fn remember(&self, memo: &Digest, content: &Digest) {
        let path = self.memo().join(memo.to_hex());
        let written = tempfile::NamedTempFile::new_in(self.memo()).and_then(|mut file| {
            file.write_all(content.to_string().as_bytes())?;
            file.persist(&path).map(drop).map_err(|error| error.error)
        });
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "a digest could not be remembered");
        }
    }

    fn publish(
        &self,
        name: &Digest,
        place: &Path,
        note: &TreeNote,
    ) -> Result<PathBuf, TreeStoreError> {
        let file = place.join("tree.json");
        let text = serde_json::to_vec(note).expect("a note has no fallible serialiser");
        fs::write(&file, text).map_err(failed("write", &file))?;
        let directory = File::open(place).map_err(failed("open", place))?;
        // A tree is found by its name alone: after a crash of the machine the name must not be there
        // without the bytes.
        rustix::fs::syncfs(&directory).map_err(|errno| failed("sync", place)(errno.into()))?;
        let target = self.place(name);
        fs::rename(place, &target).map_err(failed("publish", &target))?;
        File::open(self.ready())
            .and_then(|ready| ready.sync_all())
            .map_err(failed("sync", &self.ready()))?;
        Ok(target.join("root"))
    }

    fn lock(&self, name: &Digest) -> Result<File, TreeStoreError> {
        let path = self.lock_path(name);
        let file = tree_use::open(&path).map_err(failed("open", &path))?;
        tree_use::flock_retrying(&file, FlockOperation::LockExclusive)
            .map_err(failed("lock", &path))?;
        Ok(file)
    }

    fn lock_path(&self, name: &Digest) -> PathBuf {
        self.locks().join(name.to_hex())
    }

    /// Removes what a builder that died left. The caller holds the lock.
    fn remove_leftovers(&self, name: &Digest) -> Result<(), TreeStoreError> {
        let place = self.building().join(name.to_hex());
        match remove_tree(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &place)(error))
            }
            _ => Ok(()),
        }
    }

    fn place(&self, name: &Digest) -> PathBuf {
        self.ready().join(name.to_hex())
    }

    fn ready(&self) -> PathBuf {
        self.base.join("ready")
    }

    fn building(&self) -> PathBuf {
        self.base.join("building")
    }

    fn memo(&self) -> PathBuf {
        self.base.join("memo")
    }

    fn locks(&self) -> PathBuf {
        self.base.join("locks")
    }
}

fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TreeStoreError + use<> {
    let path = path.to_owned();
    move |source| TreeStoreError::Store { step, path, source }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    fn store() -> (tempfile::TempDir, TreeStore) {
        let base = tempfile::tempdir().unwrap();
        let store = TreeStore::open(base.path().join("trees")).unwrap();
        (base, store)
    }

    fn fill(root: &Path) -> Result<TreeNote, TreeStoreError> {
        fs::write(root.join("file"), "content").map_err(failed("write", root))?;
        Ok(TreeNote {
            from: "a test".to_owned(),
            entries: 1,
            bytes: 7,
            lacks: Vec::new(),
        })
    }

    #[test]
    fn many_who_ask_at_once_build_once() {
        let (_base, store) = store();
        let name = Digest::of(b"tree");
        let (barrier, built) = (Barrier::new(8), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    // A store of its own, as another process has.
                    let store = TreeStore::open(&store.base).unwrap();
                    barrier.wait();
                    let root = store.get_or_build(&name, |root| {
                        built.fetch_add(1, Ordering::Relaxed);
                        fill(root)
                    });
                    assert_eq!(fs::read(root.unwrap().join("file")).unwrap(), b"content");
                });
            }
        });
        assert_eq!(built.into_inner(), 1);
        assert_eq!(store.note(&name).unwrap().from, "a test");
    }

    #[test]
    fn a_failed_build_leaves_nothing_and_is_tried_again() {
        let (_base, store) = store();
        let name = Digest::of(b"tree");
        let failing = store.get_or_build(&name, |root| {
            fill(root)?;
            Err(failed("write", root)(io::ErrorKind::StorageFull.into()))
        });
        let error = failing.unwrap_err();
        assert!(error.to_string().starts_with("failed to write"), "{error}");
        assert_eq!(store.find(&name), None);
        assert_eq!(fs::read_dir(store.building()).unwrap().count(), 0);
        assert!(
            store
                .get_or_build(&name, fill)
                .unwrap()
                .join("file")
                .exists()
        );
    }

    #[test]
    fn what_a_killed_builder_left_is_no_tree() {
        let (_base, store) = store();
        let name = Digest::of(b"tree");
        let left = store.building().join(name.to_hex()).join("root");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("half"), "x").unwrap();
        assert_eq!(store.find(&name), None);
        let root = store.get_or_build(&name, fill).unwrap();
        assert!(!root.join("half").exists());
    }

    #[test]
    fn a_tree_that_is_used_is_not_removed() {
        let (base, store) = store();
        let name = Digest::of(b"tree");
        store.get_or_build(&name, fill).unwrap();
        // Another process uses it too, and goes on when the builder has gone.
        let user = TreeStore::open(base.path().join("trees")).unwrap();
        let root = user.find(&name).unwrap();
        assert!(!user.remove(&name).unwrap());
        drop(store);
        let other = TreeStore::open(base.path().join("trees")).unwrap();
        assert!(!other.remove(&name).unwrap());
        assert!(root.join("file").exists());
        drop(user);
        assert!(other.remove(&name).unwrap());
        assert_eq!(other.find(&name), None);
        assert!(!root.exists());
        // That it is gone is no error.
        assert!(
            TreeStore::open(base.path().join("trees"))
                .unwrap()
                .remove(&name)
                .unwrap()
        );
    }

    #[test]
    fn what_nobody_used_for_long_goes_when_another_tree_is_built() {
        let (base, _) = store();
        let open = || TreeStore::open(base.path().join("trees")).unwrap();
        let [old, young, used, new] = [&b"old"[..], b"young", b"used", b"new"].map(Digest::of);
        let builder = open();
        for name in [&old, &young, &used] {
            builder.get_or_build(name, fill).unwrap();
        }
        let age = |name: &Digest, seconds: u64| {
            let lock = File::options()
                .write(true)
                .open(builder.lock_path(name))
                .unwrap();
            let then = lock.metadata().unwrap().modified().unwrap();
            let then = then - std::time::Duration::from_secs(seconds);
            lock.set_modified(then).unwrap();
        };
        let long = UNUSED_KEPT_SECONDS.unsigned_abs();
        let user = open();
        assert!(user.find(&used).is_some());
        for (name, seconds) in [(&old, long + 60), (&young, long - 60), (&used, long + 60)] {
            age(name, seconds);
        }
        drop(builder);
        let builder = open();
        builder.get_or_build(&new, fill).unwrap();
        let there = [&old, &young, &used, &new].map(|name| builder.published(name).is_some());
        assert_eq!(there, [false, true, true, true]);
        // Being asked for is being used.
        age_all(&builder, long + 60);
        let asking = open();
        assert!(asking.find(&young).is_some());
        drop((asking, user, builder));
        let builder = open();
        builder.get_or_build(&old, fill).unwrap();
        let there = [&old, &young, &used, &new].map(|name| builder.published(name).is_some());
        assert_eq!(there, [true, true, false, false]);
    }

    fn age_all(store: &TreeStore, seconds: u64) {
        for entry in fs::read_dir(store.locks()).unwrap() {
            let lock = File::options()
                .write(true)
                .open(entry.unwrap().path())
                .unwrap();
            let then = lock.metadata().unwrap().modified().unwrap();
            lock.set_modified(then - std::time::Duration::from_secs(seconds))
                .unwrap();
        }
    }

    #[test]
    fn what_dead_builders_left_goes_when_the_store_is_opened() {
        let (base, store) = store();
        let (dead, alive) = (Digest::of(b"dead"), Digest::of(b"alive"));
        for name in [&dead, &alive] {
            drop(store.lock(name).unwrap());
            let left = store.building().join(name.to_hex()).join("root/deep");
            fs::create_dir_all(&left).unwrap();
            fs::write(left.join("half"), "x").unwrap();
        }
        let held = store.lock(&alive).unwrap();
        let opened = TreeStore::open(base.path().join("trees")).unwrap();
        let left: Vec<_> = fs::read_dir(opened.building())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left, [alive.to_hex()]);
        drop(held);
    }

    #[test]
    fn a_digest_is_remembered_only_of_files_at_rest() {
        let (_base, store) = store();
        let (memo, content) = (Digest::of(b"memo"), Digest::of(b"content"));
        store.remember(&memo, &content);
        let now = fs::metadata(store.memo().join(memo.to_hex()))
            .unwrap()
            .mtime();
        assert_eq!(store.recall(&memo, now), None);
        assert_eq!(store.recall(&memo, now - 60), Some(content));
        assert_eq!(store.recall(&Digest::of(b"other"), now - 60), None);
    }
}
