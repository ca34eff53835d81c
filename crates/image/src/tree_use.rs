//! Who uses which tree, and who builds or removes one.
//!
//! The lock file of a tree says it all: whoever uses the tree holds it shared for as long as the process
//! has its store open, and its time of modification is when the tree was last asked for. Whoever builds or
//! removes one holds it alone. A lock file goes with its tree: so whoever has got a lock looks whether the
//! file is still the one with that name.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens};
use rustix::io::Errno;
use tidemill_core::Digest;

/// The trees that this process uses, shared by all clones of its store.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreesInUse(Arc<Mutex<BTreeMap<Digest, InUse>>>);

/// A tree that this process uses.
#[derive(Debug)]
struct InUse {
    root: PathBuf,
    /// Held shared as long as it is open.
    _lock: File,
}

impl TreesInUse {
    /// The root of the tree that this process uses by this name.
    pub(crate) fn root(&self, name: &Digest) -> Option<PathBuf> {
        self.lock().get(name).map(|used| used.root.clone())
    }

    /// Keeps the lock of a tree, which is held shared, for a name of the tree.
    pub(crate) fn keep(&self, name: &Digest, root: PathBuf, lock: File) {
        self.lock().insert(*name, InUse { root, _lock: lock });
    }

    /// Uses the tree by this name no more.
    pub(crate) fn let_go(&self, name: &Digest) {
        self.lock().remove(name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Digest, InUse>> {
        // A map of open files is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// With others that use the tree; waits for one that builds or removes it.
    Shared,
    /// Alone; waits for all others.
    Alone,
    /// Alone, if nobody else has it.
    AloneNow,
}

/// Locks a lock file, which is made if missing. `None` if it is wanted now and somebody has it.
///
/// # Errors
/// What the file system answers.
pub(crate) fn lock(path: &Path, wanted: Wanted) -> io::Result<Option<File>> {
    let operation = match wanted {
        Wanted::Shared => FlockOperation::LockShared,
        Wanted::Alone => FlockOperation::LockExclusive,
        Wanted::AloneNow => FlockOperation::NonBlockingLockExclusive,
    };
    loop {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path)?;
        match flock(&file, operation) {
            Ok(()) if is_still(&file, path)? => return Ok(Some(file)),
            // Its tree was removed in the meantime, and the file with it.
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if wanted == Wanted::AloneNow => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Goes over from having a lock alone to sharing it.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn share(file: &File) -> io::Result<()> {
    loop {
        match flock(file, FlockOperation::LockShared) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn is_still(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(theirs) => Ok((ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if somebody uses the tree with this lock file, builds or removes it. Looks without waiting, and
/// changes nothing.
pub(crate) fn is_busy(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
}

/// When the tree with this lock file was last asked for, in seconds since 1970.
pub(crate) fn used_at(path: &Path) -> Option<i64> {
    Some(fs::metadata(path).ok()?.mtime())
}

/// Notes that the tree was asked for.
///
/// # Errors
/// What the file system answers.
pub(crate) fn touch(file: &File) -> io::Result<()> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    Ok(futimens(file, &times)?)
}
