//! Connections for reading. A reader never waits for a writer, nor a writer for a reader.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::connect::connect_options;
use crate::fault::{Fault, StoreError};
use crate::open::OpenOptions;

/// Reads at one time; more wait for their turn.
const READERS_MAX: usize = 4;

/// The reading connections of one store, made when they are first needed.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    options: OpenOptions,
    turns: Semaphore,
    idle: Mutex<Vec<SqliteConnection>>,
}

impl Readers {
    pub(crate) fn new(path: PathBuf, options: OpenOptions) -> Self {
        Self {
            path,
            options,
            turns: Semaphore::new(READERS_MAX),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// A connection for one read. One that is not given back, because the read was dropped or
    /// failed, is closed.
    pub(crate) async fn take(&self) -> Result<Reader<'_>, StoreError> {
        let turn = self.turns.acquire().await.map_err(|_| StoreError::Closed)?;
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => connect_options(&self.path, self.options)
                .create_if_missing(false)
                .connect()
                .await
                .map_err(|error| {
                    Fault::store_error("open the database for reading", error)
                        .waited_for(self.options.lock_wait)
                })?,
        };
        Ok(Reader {
            connection,
            home: self,
            _turn: turn,
        })
    }

    /// Closes the idle connections; no read begins any more.
    pub(crate) async fn close(&self) {
        self.turns.close();
        let idle = std::mem::take(&mut *self.idle());
        for connection in idle {
            // Nothing was written through it, so nothing can be lost.
            drop(connection.close().await);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<SqliteConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One read.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) connection: SqliteConnection,
    home: &'a Readers,
    _turn: SemaphorePermit<'a>,
}

impl Reader<'_> {
    /// Gives the connection back for the next read.
    pub(crate) fn give_back(self) {
        if !self.home.turns.is_closed() {
            self.home.idle().push(self.connection);
        }
    }
}
