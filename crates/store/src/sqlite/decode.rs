//! Between rows and values.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tidemill_core::{Attempt, ByteSize, Digest, EventRecord, ExecutionId, State, Timestamp};
use tidemill_ledger::Snapshot;

use crate::entry::LogObject;
use crate::fault::{Fault, StoreError};

/// An id as the database keeps it.
pub(crate) fn id_bytes(id: ExecutionId) -> Vec<u8> {
    id.as_uuid().as_bytes().to_vec()
}

/// An id out of the database.
pub(crate) fn id(bytes: &[u8]) -> Result<ExecutionId, StoreError> {
    let bytes: [u8; 16] = bytes
        .try_into()
        .map_err(|_| damaged("an id that is not 16 bytes long"))?;
    let text = u128::from_be_bytes(bytes);
    format!("{text:032x}")
        .parse()
        .map_err(|_| damaged("an id that is none"))
}

/// A digest out of the database.
pub(crate) fn digest(bytes: &[u8]) -> Result<Digest, StoreError> {
    bytes
        .try_into()
        .map(Digest::from_bytes)
        .map_err(|_| damaged("a digest that is not 32 bytes long"))
}

/// A snapshot out of the database.
pub(crate) fn snapshot(text: &str) -> Result<Snapshot, StoreError> {
    serde_json::from_str(text).map_err(|error| damaged(format!("a snapshot: {error}")))
}

/// An event out of the database.
pub(crate) fn event(text: &str) -> Result<EventRecord, StoreError> {
    serde_json::from_str(text).map_err(|error| damaged(format!("an event: {error}")))
}

/// A state out of the database.
pub(crate) fn state(name: &str) -> Result<State, StoreError> {
    State::from_name(name).ok_or_else(|| damaged(format!("a state: `{name}`")))
}

/// A time out of the database.
pub(crate) fn time(micros: Option<i64>) -> Option<Timestamp> {
    micros.map(Timestamp)
}

/// A count as the database keeps it. SQLite has no unsigned integers; nothing that is counted here
/// comes near the bound.
pub(crate) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A count out of the database.
pub(crate) fn uncount(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// A row of the table `log`, its columns in the order of the table, from `attempt` on.
pub(crate) fn log(row: &SqliteRow) -> Result<LogObject, StoreError> {
    let number = |index: usize| -> Result<i64, StoreError> { get(row, index) };
    let counted = |index: usize| number(index).map(uncount);
    let digest_bytes: Vec<u8> = get(row, 7)?;
    Ok(LogObject {
        attempt: Attempt(u32::try_from(number(0)?).unwrap_or(u32::MAX)),
        start: counted(1)?,
        bytes: counted(2)?,
        stdout_bytes: counted(3)?,
        stderr_bytes: counted(4)?,
        dropped_bytes: counted(5)?,
        lines: counted(6)?,
        digest: digest(&digest_bytes)?,
        object_bytes: ByteSize(counted(8)?),
    })
}

/// One column of a row.
pub(crate) fn get<'r, T>(row: &'r SqliteRow, index: usize) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(index)
        .map_err(|error| Fault::store_error("read a row", error))
}

fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Damaged { what: what.into() }
}
