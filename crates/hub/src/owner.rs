//! Who runs executions: one file per process, which it holds locked as long as it lives.
//!
//! A process that can take the lock of another one's file knows that the other one is dead. It keeps
//! the lock while it cleans up, so two never clean up at once.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::adapter;
use crate::state_dir;

/// Says that the file that marks an owner could not be made or looked at.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{}`", path.display())]
pub struct OwnerError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OwnerError {
    let path = path.to_owned();
    move |source| OwnerError {
        action,
        path,
        source,
    }
}

/// A locked file of an owner: this process, or a dead one that is being cleaned up after. Dropping
/// it ends the ownership; the file stays until it is removed.
#[derive(Debug)]
pub(crate) struct OwnerFile {
    name: String,
    path: PathBuf,
    _lock: File,
}

/// Whether an owner lives.
#[derive(Debug)]
pub(crate) enum Life {
    /// It lives, or somebody else is cleaning up after it.
    Held,
    /// It is dead, and this process holds its lock now.
    Dead(OwnerFile),
}

impl OwnerFile {
    /// Makes this process an owner. The file is locked before anybody can see it under its name.
    pub(crate) fn create(owners: &Path) -> Result<Self, OwnerError> {
        let name = adapter::new_owner_name();
        let fresh = owners.join(format!(".{name}"));
        let path = owners.join(&name);
        state_dir::make(owners).map_err(failed("make", owners))?;
        let lock = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)
            .map_err(failed("make", &fresh))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| failed("lock", &fresh)(errno.into()))?;
        fs::rename(&fresh, &path).map_err(failed("rename", &fresh))?;
        Ok(Self {
            name,
            path,
            _lock: lock,
        })
    }

    /// Looks whether an owner lives, and takes its place if it is dead. The file of a dead one is
    /// made if it is gone.
    pub(crate) fn probe(owners: &Path, name: &str) -> Result<Life, OwnerError> {
        let path = owners.join(name);
        loop {
            state_dir::make(owners).map_err(failed("make", owners))?;
            let lock = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(failed("open", &path))?;
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Life::Held),
                Err(errno) => return Err(failed("lock", &path)(errno.into())),
            }
            // Somebody who cleaned up may have removed the file between opening and locking.
            if is_same_file(&lock, &path) {
                return Ok(Life::Dead(Self {
                    name: name.to_owned(),
                    path,
                    _lock: lock,
                }));
            }
        }
    }

    /// The owner's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Removes the file: nothing is left that belongs to this owner.
    pub(crate) fn remove(self) {
        // A file that stays is found and removed by the next sweep.
        fs::remove_file(&self.path).ok();
    }
}

/// True if the open file is what the path names now.
pub(crate) fn is_same_file(file: &File, path: &Path) -> bool {
    let (Ok(held), Ok(named)) = (file.metadata(), fs::metadata(path)) else {
        return false;
    };
    (held.dev(), held.ino()) == (named.dev(), named.ino())
}

/// The names of all owners that have a file.
pub(crate) fn names(owners: &Path) -> Result<Vec<String>, OwnerError> {
    let entries = match fs::read_dir(owners) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", owners)(error)),
    };
    let names = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'));
    Ok(names.collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn an_owner_is_alive_as_long_as_its_lock_is_held() {
        let root = TempDir::new().unwrap();
        let owners = root.path().join("owners");
        let owner = OwnerFile::create(&owners).unwrap();
        let name = owner.name().to_owned();
        assert_eq!(names(&owners).unwrap(), std::slice::from_ref(&name));
        assert!(matches!(
            OwnerFile::probe(&owners, &name).unwrap(),
            Life::Held
        ));
        drop(owner);
        let Life::Dead(dead) = OwnerFile::probe(&owners, &name).unwrap() else {
            panic!("its lock was given up");
        };
        // While one cleans up, the others keep away.
        assert!(matches!(
            OwnerFile::probe(&owners, &name).unwrap(),
            Life::Held
        ));
        dead.remove();
        assert!(names(&owners).unwrap().is_empty());
    }

    #[test]
    fn an_owner_without_a_file_is_dead() {
        let root = TempDir::new().unwrap();
        let owners = root.path().join("owners");
        assert!(matches!(
            OwnerFile::probe(&owners, "gone").unwrap(),
            Life::Dead(_)
        ));
    }
}
