//! What can go wrong with an open store.

use std::sync::Arc;
use std::time::Duration;

use tidemill_ledger::Refused;

/// Why the store could not do what it was asked. Nothing of it was done.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no space left.
    #[error("the disk is full")]
    Full,
    /// The database may not be written.
    #[error("the database cannot be written")]
    ReadOnly,
    /// Another process kept it locked for too long.
    #[error("another process has kept the database locked for {} s", waited.as_secs())]
    Locked {
        /// How long it was waited for.
        waited: Duration,
    },
    /// What is in the file is damaged, or something in it cannot be read.
    #[error("the database is damaged: {what}")]
    Damaged {
        /// What was found.
        what: String,
    },
    /// The decision that the caller passed panicked.
    #[error("the decision on the change panicked")]
    Panicked,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Anything else that the database says.
    #[error("failed to {doing}")]
    Database {
        /// What was tried.
        doing: &'static str,
        /// What the database said. Shared, because one failed commit fails everyone in it.
        #[source]
        source: Arc<sqlx::Error>,
    },
}

/// Why a change was not made. Nothing of it was recorded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The ledger does not allow it.
    #[error("the change was refused")]
    Refused(#[source] Refused),
    /// The store could not write it.
    #[error("the change could not be stored")]
    Store(#[source] StoreError),
}

/// The kinds of trouble that are told apart. <https://sqlite.org/rescode.html>
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Full,
    ReadOnly,
    Locked,
    NotADatabase,
    Corrupt,
    CannotOpen,
    Other,
}

impl Fault {
    /// Which kind an error is of.
    pub(crate) fn of(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code().and_then(|code| code.parse::<i32>().ok());
                code.map_or(Self::Other, Self::of_code)
            }
            sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => Self::Full,
            _ => Self::Other,
        }
    }

    /// Which kind an extended result code is of: its low byte is the primary one.
    fn of_code(code: i32) -> Self {
        /// `SQLITE_IOERR_SHMSIZE`: the shared memory could not be made longer.
        const SHM_SIZE: i32 = 4874;
        match (code, code & 0xff) {
            (SHM_SIZE, _) | (_, 13) => Self::Full,
            (_, 5 | 6) => Self::Locked,
            (_, 8) => Self::ReadOnly,
            (_, 11) => Self::Corrupt,
            (_, 14) => Self::CannotOpen,
            (_, 26) => Self::NotADatabase,
            _ => Self::Other,
        }
    }

    /// What the database says, without its code.
    pub(crate) fn message(error: &sqlx::Error) -> String {
        match error {
            sqlx::Error::Database(error) => error.message().to_owned(),
            other => other.to_string(),
        }
    }

    /// An error of an open store.
    pub(crate) fn store_error(doing: &'static str, error: sqlx::Error) -> StoreError {
        match Self::of(&error) {
            Self::Full => StoreError::Full,
            Self::ReadOnly => StoreError::ReadOnly,
            Self::Locked => StoreError::Locked {
                waited: Duration::ZERO,
            },
            Self::NotADatabase | Self::Corrupt => StoreError::Damaged {
                what: Self::message(&error),
            },
            Self::CannotOpen | Self::Other => StoreError::Database {
                doing,
                source: Arc::new(error),
            },
        }
    }
}

impl StoreError {
    /// The same error; one of a lock says how long it was waited for.
    pub(crate) fn waited_for(self, wait: Duration) -> Self {
        match self {
            Self::Locked { .. } => Self::Locked { waited: wait },
            other => other,
        }
    }
}
