//! Unpacked layers on disk: each is built once, published atomically and never changed again.
//!
//! ```text
//! trees/ready/<name>/root/       the tree
//! trees/ready/<name>/tree.json   what it was made of, and what was left out
//! trees/building/<name>/         under construction; leftovers of the dead are removed by the next
//! trees/locks/<name>             held with flock by the process that builds
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tidemill_core::Digest;

use crate::remove::remove_tree;
use crate::unpack::ArchiveOwners;

/// How long before it was remembered a file must have been left alone.
const MEMO_MARGIN_SECONDS: i64 = 2;

/// The directory of unpacked layers. Any number of processes may use one at the same time.
#[derive(Debug, Clone)]
pub struct TreeStore {
    base: PathBuf,
    owners: ArchiveOwners,
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
        let store = Self { base, owners };
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
            let Ok(lock) = OpenOptions::new()
                .write(true)
                .open(self.locks().join(entry.file_name()))
            else {
                continue;
            };
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let place = entry.path();
            if let Err(error) = remove_tree(&place)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %place.display(), %error, "an abandoned tree could not be removed");
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

    /// The root of a published tree.
    pub fn find(&self, name: &Digest) -> Option<PathBuf> {
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
        let _lock = self.lock(name)?;
        if let Some(root) = self.find(name) {
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
        built
    }

    /// Removes a tree that nothing uses.
    pub fn remove(&self, name: &Digest) -> Result<(), TreeStoreError> {
        let _lock = self.lock(name)?;
        self.remove_leftovers(name)?;
        let place = self.place(name);
        let doomed = self.building().join(name.to_hex());
        match fs::rename(&place, &doomed) {
            Ok(()) => remove_tree(&doomed).map_err(failed("remove", &doomed)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed("remove", &place)(error)),
        }
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
        let path = self.locks().join(name.to_hex());
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(failed("lock", &path)(errno.into())),
            }
        }
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
        store.remove(&name).unwrap();
        assert_eq!(store.find(&name), None);
        store.remove(&name).unwrap();
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
