//! What is written inside a transaction.

use sqlx::SqliteConnection;
use tidemill_core::{Digest, EventRecord, ExecutionId};
use tidemill_ledger::{Change, Snapshot};

use super::decode::{self, count, get};
use crate::entry::LogObject;
use crate::fault::{Fault, StoreError};

fn failed(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| Fault::store_error(doing, error)
}

/// An execution as a transaction finds it.
pub(super) struct Found {
    /// Its row.
    pub(super) number: i64,
    /// Its snapshot.
    pub(super) snapshot: Snapshot,
}

/// What belongs to a new execution beside its snapshot.
pub(super) struct NewRow {
    /// The process that will run it.
    pub(super) owner: Option<String>,
    /// The body of its spec, if that is known here.
    pub(super) spec: Option<(Digest, Vec<u8>)>,
}

/// Looks for an execution.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    id: ExecutionId,
) -> Result<Option<Found>, StoreError> {
    let row = sqlx::query("SELECT number, snapshot FROM execution WHERE id = ?")
        .bind(decode::id_bytes(id))
        .fetch_optional(connection)
        .await
        .map_err(failed("read a snapshot"))?;
    row.map(|row| {
        Ok(Found {
            number: get(&row, 0)?,
            snapshot: decode::snapshot(get(&row, 1)?)?,
        })
    })
    .transpose()
}

/// Writes a change; gives the position of its last event.
pub(super) async fn save(
    connection: &mut SqliteConnection,
    number: Option<i64>,
    change: &Change,
    new: NewRow,
) -> Result<Option<i64>, StoreError> {
    let number = match number {
        Some(number) => number,
        None => insert(connection, &change.snapshot, new).await?,
    };
    let mut event_bytes = 0;
    let mut position = None;
    for record in change.kept_records() {
        let (at, bytes) = insert_event(connection, number, record).await?;
        position = Some(at);
        event_bytes += bytes;
    }
    for sequence in &change.replaced {
        event_bytes -= delete_event(connection, number, *sequence).await?;
    }
    if change.dropped > 0 {
        event_bytes -= delete_oldest(connection, number, change.dropped).await?;
    }
    update(connection, number, &change.snapshot, event_bytes).await?;
    Ok(position)
}

/// Makes the row of a new execution, with what never changes. The rest follows with `update`.
async fn insert(
    connection: &mut SqliteConnection,
    snapshot: &Snapshot,
    new: NewRow,
) -> Result<i64, StoreError> {
    if let Some((digest, body)) = new.spec {
        sqlx::query("INSERT INTO spec (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING")
            .bind(digest.as_bytes().to_vec())
            .bind(body)
            .execute(&mut *connection)
            .await
            .map_err(failed("store a spec"))?;
    }
    let inserted = sqlx::query(
        "INSERT INTO execution
             (id, created_at, state, name, run, submitter, owner, spec, snapshot)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')",
    )
    .bind(decode::id_bytes(snapshot.id))
    .bind(snapshot.created_at.0)
    .bind(snapshot.state.as_str())
    .bind(&snapshot.name)
    .bind(&snapshot.run)
    .bind(&snapshot.submitter)
    .bind(new.owner)
    .bind(snapshot.spec.as_bytes().to_vec())
    .execute(&mut *connection)
    .await
    .map_err(failed("store an execution"))?;
    let number = inserted.last_insert_rowid();
    for (key, value) in &snapshot.labels {
        sqlx::query("INSERT INTO label (execution, key, value) VALUES (?, ?, ?)")
            .bind(number)
            .bind(key)
            .bind(value)
            .execute(&mut *connection)
            .await
            .map_err(failed("store a label"))?;
    }
    Ok(number)
}

async fn update(
    connection: &mut SqliteConnection,
    number: i64,
    snapshot: &Snapshot,
    event_bytes: i64,
) -> Result<(), StoreError> {
    let text = to_json(snapshot);
    sqlx::query(
        "UPDATE execution
         SET state = ?, finished_at = ?, snapshot_bytes = ?, snapshot = ?,
             event_bytes = event_bytes + ?
         WHERE number = ?",
    )
    .bind(snapshot.state.as_str())
    .bind(snapshot.finished_at.map(|at| at.0))
    .bind(count(text.len() as u64))
    .bind(text)
    .bind(event_bytes)
    .bind(number)
    .execute(connection)
    .await
    .map_err(failed("store a snapshot"))?;
    Ok(())
}

/// Gives the position of the event and the bytes that it takes.
async fn insert_event(
    connection: &mut SqliteConnection,
    number: i64,
    record: &EventRecord,
) -> Result<(i64, i64), StoreError> {
    let body = to_json(record);
    let bytes = count(body.len() as u64);
    let inserted = sqlx::query("INSERT INTO event (execution, sequence, body) VALUES (?, ?, ?)")
        .bind(number)
        .bind(count(record.sequence))
        .bind(body)
        .execute(connection)
        .await
        .map_err(failed("store an event"))?;
    Ok((inserted.last_insert_rowid(), bytes))
}

/// Gives the bytes that the event took.
async fn delete_event(
    connection: &mut SqliteConnection,
    number: i64,
    sequence: u64,
) -> Result<i64, StoreError> {
    let freed: Option<i64> = sqlx::query_scalar(
        "DELETE FROM event WHERE execution = ? AND sequence = ? RETURNING octet_length(body)",
    )
    .bind(number)
    .bind(count(sequence))
    .fetch_optional(connection)
    .await
    .map_err(failed("replace an event"))?;
    Ok(freed.unwrap_or(0))
}

/// Gives the bytes that the events took.
async fn delete_oldest(
    connection: &mut SqliteConnection,
    number: i64,
    events: u64,
) -> Result<i64, StoreError> {
    let freed: Vec<i64> = sqlx::query_scalar(
        "DELETE FROM event WHERE position IN
             (SELECT position FROM event WHERE execution = ?1 ORDER BY sequence LIMIT ?2)
         RETURNING octet_length(body)",
    )
    .bind(number)
    .bind(count(events))
    .fetch_all(connection)
    .await
    .map_err(failed("drop the oldest events"))?;
    Ok(freed.into_iter().sum())
}

/// Names the process that runs an execution. False if there is none.
pub(super) async fn set_owner(
    connection: &mut SqliteConnection,
    id: ExecutionId,
    owner: Option<&str>,
) -> Result<bool, StoreError> {
    let updated = sqlx::query("UPDATE execution SET owner = ? WHERE id = ?")
        .bind(owner)
        .bind(decode::id_bytes(id))
        .execute(connection)
        .await
        .map_err(failed("name an owner"))?;
    Ok(updated.rows_affected() > 0)
}

/// Records a sealed piece of a log. False if there is no such execution.
pub(super) async fn put_log(
    connection: &mut SqliteConnection,
    id: ExecutionId,
    log: &LogObject,
) -> Result<bool, StoreError> {
    let number: Option<i64> = sqlx::query_scalar("SELECT number FROM execution WHERE id = ?")
        .bind(decode::id_bytes(id))
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed("look up an execution"))?;
    let Some(number) = number else {
        return Ok(false);
    };
    sqlx::query(
        "INSERT OR REPLACE INTO log
             (execution, attempt, start, bytes, stdout_bytes, stderr_bytes, dropped_bytes, lines,
              digest, object_bytes)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(number)
    .bind(i64::from(log.attempt.0))
    .bind(count(log.start))
    .bind(count(log.bytes))
    .bind(count(log.stdout_bytes))
    .bind(count(log.stderr_bytes))
    .bind(count(log.dropped_bytes))
    .bind(count(log.lines))
    .bind(log.digest.as_bytes().to_vec())
    .bind(count(log.object_bytes.0))
    .execute(&mut *connection)
    .await
    .map_err(failed("store the index of a log"))?;
    sqlx::query(
        "UPDATE execution
         SET log_bytes = (SELECT sum(object_bytes) FROM log WHERE execution = ?1)
         WHERE number = ?1",
    )
    .bind(number)
    .execute(connection)
    .await
    .map_err(failed("store the size of a log"))?;
    Ok(true)
}

fn to_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value)
        .expect("snapshots and events have only string keys and no fallible serialiser")
}
