//! The state directory: what is in it, and making it.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The database's name. A directory that has it is a state directory.
const DATABASE: &str = "tidemill.db";
/// Permission bits that let somebody else in.
const OTHERS: u32 = 0o077;

/// Why a directory cannot be the state directory. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// It cannot be made or read.
    #[error("failed to {action} the state directory `{}`", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// There is something else.
    #[error("the state directory `{}` is not a directory", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// It is somebody else's.
    #[error("the state directory `{}` belongs to user {owner}, not to you ({uid})", path.display())]
    NotYours {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who asks.
        uid: u32,
    },
    /// Other users may read or write it, and it was not made by Tidemill, so that it is not closed
    /// to them without asking.
    #[error("the state directory `{}` has other files in it and is open to other users", path.display())]
    Open {
        /// The path.
        path: PathBuf,
    },
}

impl StateDirError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => {
                "name a directory that you may write with --state-dir or TIDEMILL_STATE"
            }
            Self::NotADirectory { .. } | Self::NotYours { .. } => {
                "name another directory with --state-dir or TIDEMILL_STATE"
            }
            Self::Open { .. } => {
                "logs and specs are private: name a new directory, or `chmod 700` this one"
            }
        }
    }
}

/// A state directory that is there and open to its owner only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Makes the directory if it is not there, and closes it to other users if Tidemill made it.
    ///
    /// # Errors
    /// See [`StateDirError`].
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        let failed = |action| {
            move |source| StateDirError::Io {
                action,
                path: path.to_owned(),
                source,
            }
        };
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_dir() => {
                return Err(StateDirError::NotADirectory {
                    path: path.to_owned(),
                });
            }
            Ok(metadata) => {
                is_own(path, &metadata)?;
                if metadata.mode() & OTHERS != 0 {
                    close_to_others(path)?;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(path).map_err(failed("make"))?;
            }
            Err(error) => return Err(failed("read")(error)),
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Makes sure that a state directory that is there is the caller's own, root or not: its owner may have put
    /// links into it, and could not change what somebody else wrote there.
    ///
    /// # Errors
    /// If it is somebody else's.
    pub fn check_owner(path: &Path) -> Result<(), StateDirError> {
        match fs::metadata(path) {
            Ok(metadata) => is_own(path, &metadata),
            // Whoever makes it, or opens it, is told why it cannot be.
            Err(_) => Ok(()),
        }
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database.
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// The spools of logs that are not sealed yet, by execution and attempt.
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The blob store.
    pub fn blobs(&self) -> PathBuf {
        self.path.join("blobs")
    }

    /// Unpacked layers.
    pub fn trees(&self) -> PathBuf {
        self.path.join("trees")
    }

    /// What running sandboxes write on disk, by the sandbox's name.
    pub fn sandboxes(&self) -> PathBuf {
        self.path.join("sandboxes")
    }

    /// One locked file per process that runs executions.
    pub fn owners(&self) -> PathBuf {
        self.path.join("owners")
    }
}

/// Makes a directory that only its owner may use, with those above it.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn is_own(path: &Path, metadata: &Metadata) -> Result<(), StateDirError> {
    let uid = rustix::process::geteuid().as_raw();
    if metadata.uid() == uid {
        return Ok(());
    }
    Err(StateDirError::NotYours {
        path: path.to_owned(),
        owner: metadata.uid(),
        uid,
    })
}

/// A directory that is empty or has our database may be closed; any other is somebody's.
fn close_to_others(path: &Path) -> Result<(), StateDirError> {
    let failed = |action| {
        move |source| StateDirError::Io {
            action,
            path: path.to_owned(),
            source,
        }
    };
    let ours = path.join(DATABASE).exists()
        || fs::read_dir(path).map_err(failed("read"))?.next().is_none();
    if !ours {
        return Err(StateDirError::Open {
            path: path.to_owned(),
        });
    }
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed("close"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn a_new_one_is_closed_to_others_with_all_that_is_above_it() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("a/b");
        StateDir::open(&path).unwrap();
        assert_eq!((mode(&root.path().join("a")), mode(&path)), (0o700, 0o700));
    }

    #[test]
    fn an_open_one_is_closed_only_if_it_is_empty_or_ours() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        StateDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);

        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        fs::write(path.join("letter.txt"), "dear").unwrap();
        let error = StateDir::open(&path).unwrap_err();
        assert!(matches!(error, StateDirError::Open { .. }), "{error}");
        assert_eq!(mode(&path), 0o755);

        fs::write(path.join(DATABASE), "").unwrap();
        StateDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_file_in_its_place_is_told_apart() {
        let root = TempDir::new().unwrap();
        let path = root.path().join("state");
        fs::write(&path, "").unwrap();
        let error = StateDir::open(&path).unwrap_err();
        assert!(
            matches!(error, StateDirError::NotADirectory { .. }),
            "{error}"
        );
        let error = StateDir::open(&path.join("below")).unwrap_err();
        assert!(matches!(error, StateDirError::Io { .. }), "{error}");
    }
}
