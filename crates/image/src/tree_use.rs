//! Who uses which tree, and which trees nobody has used for long.
//!
//! The lock file of a tree says both: whoever uses the tree holds it shared for as long as the process
//! has its store open, and its time of modification is when the tree was last asked for.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, Timespec, Timestamps, UTIME_NOW, flock, futimens};
use rustix::io::Errno;
use tidemill_core::Digest;

/// The trees that this process uses, shared by all clones of its store.
#[derive(Debug, Clone, Default)]
pub(crate) struct TreesInUse(Arc<Mutex<BTreeMap<Digest, File>>>);

impl TreesInUse {
    /// True if this process uses the tree already.
    pub(crate) fn has(&self, name: &Digest) -> bool {
        self.lock().contains_key(name)
    }

    /// Keeps the lock file of a tree, which is held shared from here on.
    pub(crate) fn keep(&self, name: &Digest, file: File) -> io::Result<()> {
        flock_retrying(&file, FlockOperation::LockShared)?;
        touch(&file)?;
        self.lock().insert(*name, file);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Digest, File>> {
        // A map of open files is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the lock file of a tree, which is made if missing.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Waits for a lock.
pub(crate) fn flock_retrying(file: &File, operation: FlockOperation) -> io::Result<()> {
    loop {
        match flock(file, operation) {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Locks the file for oneself alone, if nobody uses the tree.
pub(crate) fn try_alone(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// The trees of a directory that were last used this many seconds before the one with this lock file.
pub(crate) fn unused(ready: &Path, locks: &Path, newest: &Digest, seconds: i64) -> Vec<Digest> {
    let used_at = |name: &str| Some(fs::metadata(locks.join(name)).ok()?.mtime());
    let Some(now) = used_at(&newest.to_hex()) else {
        return Vec::new();
    };
    let names = fs::read_dir(ready).into_iter().flatten().flatten();
    names
        .filter_map(|entry| entry.file_name().into_string().ok())
        // A tree without a lock file was made by nobody that we know; it stays.
        .filter(|name| used_at(name).is_some_and(|at| now.saturating_sub(at) > seconds))
        .filter_map(|name| format!("b3:{name}").parse().ok())
        .collect()
}

fn touch(file: &File) -> io::Result<()> {
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
