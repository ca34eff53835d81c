//! Opening a database: what may be wrong with it, each told apart.

use std::path::PathBuf;
use std::time::Duration;

/// How long a lock of another process is waited for, unless it is said otherwise.
pub const LOCK_WAIT_DEFAULT: Duration = Duration::from_secs(10);

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// How long a lock of another process is waited for.
    pub lock_wait: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            lock_wait: LOCK_WAIT_DEFAULT,
        }
    }
}

/// Why a database could not be opened. It was left as it was.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory that it should be in is not there.
    #[error("`{}` is in a directory that does not exist", path.display())]
    NoDirectory {
        /// The database.
        path: PathBuf,
    },
    /// The directory or the file may not be written.
    #[error("`{}` cannot be written", path.display())]
    ReadOnly {
        /// The directory or file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// There is no space left.
    #[error("the disk that `{}` is on is full", path.display())]
    Full {
        /// The database.
        path: PathBuf,
    },
    /// A newer version of Tidemill wrote it.
    #[error(
        "`{}` was written by a newer Tidemill (schema {found}; this one knows up to {known})",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema that this binary knows.
        known: u32,
    },
    /// The file is a database of some other program.
    #[error("`{}` is a database of another program", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is no database.
    #[error("`{}` is not a database", path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is a damaged database.
    #[error("`{}` is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// Another process kept it locked for too long.
    #[error("another process has kept `{}` locked for {} s", path.display(), waited.as_secs())]
    Locked {
        /// The database.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Anything else.
    #[error("failed to {doing} `{}`", path.display())]
    Database {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the database said.
        #[source]
        source: sqlx::Error,
    },
}
