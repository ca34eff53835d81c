//! Connections, and bringing the schema up to date.
//!
//! Opening is on the way to every start of a job, so a database that is up to date costs one
//! connection and two reads, and no write.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Row, SqliteConnection};

use super::migration::{APPLICATION_ID, MIGRATIONS, known_version};
use crate::fault::Fault;
use crate::open::{OpenError, OpenOptions};

/// How long to wait before asking again for a lock that SQLite itself does not wait for.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// The smallest page that a database may have.
const PAGE_BYTES_MIN: u64 = 512;
/// What every database begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// A connection to an up-to-date database, and where its history stands.
pub(crate) struct Opened {
    pub(crate) connection: SqliteConnection,
    pub(crate) data_version: i64,
    pub(crate) position: i64,
}

/// How connections to a database are made.
pub(crate) fn connect_options(path: &Path, options: OpenOptions) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .foreign_keys(true)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(options.lock_wait)
        .disable_statement_logging()
}

/// Opens the database at this path, and brings its schema up to date.
pub(crate) async fn open(path: &Path, options: OpenOptions) -> Result<Opened, OpenError> {
    let failed = |doing| move |error| open_error(path, options, doing, error);
    refuse_rest(path)?;
    let mut connection = connect_options(path, options)
        .connect()
        .await
        .map_err(failed("open"))?;
    match prepare(&mut connection, path, options).await {
        Ok((data_version, position)) => Ok(Opened {
            connection,
            data_version,
            position,
        }),
        Err(error) => {
            // The first error is the one to tell; the connection is gone either way.
            drop(connection.close().await);
            Err(error)
        }
    }
}

/// Refuses a file that is shorter than the smallest page, which no database is. SQLite takes one of a
/// single byte for an empty database and would write over it.
fn refuse_rest(path: &Path) -> Result<(), OpenError> {
    // What cannot be looked at is told when it is opened. A rollback journal restores what it covers.
    let is_covered = || {
        let mut journal = path.as_os_str().to_owned();
        journal.push("-journal");
        Path::new(&journal).exists()
    };
    let Ok(file) = std::fs::metadata(path) else {
        return Ok(());
    };
    if !file.is_file() || !(1..PAGE_BYTES_MIN).contains(&file.len()) || is_covered() {
        return Ok(());
    }
    let start = std::fs::read(path).unwrap_or_default();
    let path = path.to_path_buf();
    if start.starts_with(MAGIC) {
        return Err(OpenError::Damaged {
            path,
            what: format!("it is cut short, to {} bytes", file.len()),
        });
    }
    Err(OpenError::NotADatabase { path })
}

/// What the head of a database says.
struct Head {
    application: i64,
    version: u32,
    data_version: i64,
    is_empty: bool,
}

async fn prepare(
    connection: &mut SqliteConnection,
    path: &Path,
    options: OpenOptions,
) -> Result<(i64, i64), OpenError> {
    let failed = |doing| move |error| open_error(path, options, doing, error);
    let mut head = read_head(connection).await.map_err(failed("read"))?;
    judge(&head, path)?;
    if head.version < known_version() {
        if head.version == 0 {
            use_wal(connection, options)
                .await
                .map_err(failed("set up"))?;
        }
        migrate(connection, path, options).await?;
        head = read_head(connection).await.map_err(failed("read"))?;
    }
    let position = sqlx::query_scalar(
        "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)",
    )
    .fetch_one(connection)
    .await
    .map_err(failed("read"))?;
    Ok((head.data_version, position))
}

async fn read_head(connection: &mut SqliteConnection) -> Result<Head, sqlx::Error> {
    let row = sqlx::query(
        "SELECT (SELECT application_id FROM pragma_application_id),
                (SELECT user_version FROM pragma_user_version),
                (SELECT data_version FROM pragma_data_version),
                NOT EXISTS (SELECT 1 FROM sqlite_schema)",
    )
    .fetch_one(connection)
    .await?;
    let version: i64 = row.try_get(1)?;
    Ok(Head {
        application: row.try_get(0)?,
        // A negative version is none of ours; it is told as newer than all.
        version: u32::try_from(version).unwrap_or(u32::MAX),
        data_version: row.try_get(2)?,
        is_empty: row.try_get(3)?,
    })
}

/// Refuses a database that is not ours or that we do not know yet.
fn judge(head: &Head, path: &Path) -> Result<(), OpenError> {
    let fresh = head.is_empty && head.version == 0 && head.application == 0;
    if !fresh && head.application != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.into() });
    }
    if head.version > known_version() {
        return Err(OpenError::Newer {
            path: path.into(),
            found: head.version,
            known: known_version(),
        });
    }
    Ok(())
}

/// Turns on the write-ahead log, which the file remembers. SQLite does not wait for the lock that
/// this needs, so that is done here.
async fn use_wal(
    connection: &mut SqliteConnection,
    options: OpenOptions,
) -> Result<(), sqlx::Error> {
    let mut waited = Duration::ZERO;
    loop {
        let mode = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL")
            .fetch_one(&mut *connection)
            .await;
        match mode {
            Ok(mode) => {
                if mode != "wal" {
                    // Correct all the same, only slower: some file systems cannot share memory.
                    tracing::warn!(mode, "the database is not in WAL mode");
                }
                return Ok(());
            }
            Err(error) if Fault::of(&error) == Fault::Locked && waited < options.lock_wait => {
                tokio::time::sleep(LOCK_POLL).await;
                waited += LOCK_POLL;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Runs the migrations that are missing, all in one transaction.
async fn migrate(
    connection: &mut SqliteConnection,
    path: &Path,
    options: OpenOptions,
) -> Result<(), OpenError> {
    let failed = |doing| move |error| open_error(path, options, doing, error);
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await
        .map_err(failed("lock"))?;
    let migrated = migrate_locked(connection, path, options).await;
    let end = if migrated.is_ok() {
        "COMMIT"
    } else {
        "ROLLBACK"
    };
    let ended = sqlx::raw_sql(end).execute(connection).await;
    migrated?;
    ended.map(|_| ()).map_err(failed("set up"))
}

async fn migrate_locked(
    connection: &mut SqliteConnection,
    path: &Path,
    options: OpenOptions,
) -> Result<(), OpenError> {
    let failed = |doing| move |error| open_error(path, options, doing, error);
    // Another process may have done it while the lock was waited for.
    let head = read_head(connection).await.map_err(failed("read"))?;
    judge(&head, path)?;
    let missing = MIGRATIONS.iter().enumerate().skip(head.version as usize);
    for (index, migration) in missing {
        sqlx::raw_sql(*migration)
            .execute(&mut *connection)
            .await
            .map_err(failed("set up"))?;
        let version = format!("PRAGMA user_version = {}", index + 1);
        sqlx::raw_sql(AssertSqlSafe(version))
            .execute(&mut *connection)
            .await
            .map_err(failed("set up"))?;
    }
    Ok(())
}

/// Tells what is wrong with a database that could not be opened.
fn open_error(
    path: &Path,
    options: OpenOptions,
    doing: &'static str,
    error: sqlx::Error,
) -> OpenError {
    let path = path.to_path_buf();
    match Fault::of(&error) {
        Fault::Full => OpenError::Full { path },
        Fault::Locked => OpenError::Locked {
            path,
            waited: options.lock_wait,
        },
        Fault::NotADatabase => OpenError::NotADatabase { path },
        Fault::Corrupt => OpenError::Damaged {
            path,
            what: Fault::message(&error),
        },
        Fault::ReadOnly | Fault::CannotOpen => access_error(path, doing, error),
        Fault::Other => OpenError::Database {
            doing,
            path,
            source: error,
        },
    }
}

/// SQLite says "cannot open" for many reasons. The system is asked which one it is.
fn access_error(path: PathBuf, doing: &'static str, error: sqlx::Error) -> OpenError {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if !directory.is_dir() {
        return OpenError::NoDirectory { path };
    }
    let write_into = Access::WRITE_OK | Access::EXEC_OK;
    if let Err(errno) = rustix::fs::access(&directory, write_into) {
        return OpenError::ReadOnly {
            path: directory,
            source: errno.into(),
        };
    }
    if path.is_dir() {
        return OpenError::NotADatabase { path };
    }
    match rustix::fs::access(&path, Access::WRITE_OK) {
        Err(errno) if errno != rustix::io::Errno::NOENT => OpenError::ReadOnly {
            path,
            source: errno.into(),
        },
        _ => OpenError::Database {
            doing,
            path,
            source: error,
        },
    }
}
