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
