//! What is read outside of transactions that write.

use sqlx::{QueryBuilder, Sqlite, SqliteConnection};
use tidemill_core::{ByteSize, Digest, ExecutionId, JobSpec};
use tidemill_ledger::page::{PagePosition, page_limit};
use tidemill_ledger::retention::Kept;
use tidemill_ledger::{EventPage, ListFilter, Snapshot};

use super::decode::{self, count, get, uncount};
use crate::entry::{LogObject, Unfinished};
use crate::fault::{Fault, StoreError};
use crate::listing::{AMBIGUOUS_LISTED_MAX, ListCursor, ListPage, PAGE_EXECUTIONS_MAX, Resolve};

fn failed(doing: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| Fault::store_error(doing, error)
}

/// The snapshot of one execution.
pub(crate) async fn snapshot(
    connection: &mut SqliteConnection,
    id: ExecutionId,
) -> Result<Option<Snapshot>, StoreError> {
    let text: Option<String> = sqlx::query_scalar("SELECT snapshot FROM execution WHERE id = ?")
        .bind(decode::id_bytes(id))
        .fetch_optional(connection)
        .await
        .map_err(failed("read a snapshot"))?;
    text.as_deref().map(decode::snapshot).transpose()
}

/// A spec by its digest.
pub(crate) async fn spec(
    connection: &mut SqliteConnection,
    digest: Digest,
) -> Result<Option<JobSpec>, StoreError> {
    let body: Option<Vec<u8>> = sqlx::query_scalar("SELECT body FROM spec WHERE digest = ?")
        .bind(digest.as_bytes().to_vec())
        .fetch_optional(connection)
        .await
        .map_err(failed("read a spec"))?;
    body.map(|body| {
        serde_json::from_slice(&body).map_err(|error| StoreError::Damaged {
            what: format!("spec {digest}: {error}"),
        })
    })
    .transpose()
}

/// A page of the list of executions, newest first.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: &ListFilter,
    limit: usize,
    after: Option<ListCursor>,
) -> Result<ListPage, StoreError> {
    let limit = limit.clamp(1, PAGE_EXECUTIONS_MAX);
    let mut query = QueryBuilder::<Sqlite>::new("SELECT snapshot FROM execution WHERE true");
    if let Some(cursor) = after {
        query
            .push(" AND (created_at, id) < (")
            .push_bind(cursor.created_at.0)
            .push(", ")
            .push_bind(decode::id_bytes(cursor.id))
            .push(")");
    }
    if !filter.states.is_empty() {
        query.push(" AND state IN (");
        let mut states = query.separated(", ");
        for state in &filter.states {
            states.push_bind(state.as_str());
        }
        query.push(")");
    }
    let columns = [
        (" AND name = ", &filter.name),
        (" AND run = ", &filter.run),
        (" AND submitter = ", &filter.submitter),
    ];
    for (condition, wanted) in columns {
        if let Some(wanted) = wanted {
            query.push(condition).push_bind(wanted.clone());
        }
    }
    for (key, value) in &filter.labels {
        query
            .push(" AND EXISTS (SELECT 1 FROM label WHERE execution = number AND key = ")
            .push_bind(key.clone())
            .push(" AND value = ")
            .push_bind(value.clone())
            .push(")");
    }
    query
        .push(" ORDER BY created_at DESC, id DESC LIMIT ")
        .push_bind(count(limit as u64 + 1));
    let found: Vec<String> = query
        .build_query_scalar()
        .fetch_all(connection)
        .await
        .map_err(failed("list executions"))?;
    let more = found.len() > limit;
    let executions: Vec<Snapshot> = found
        .iter()
        .take(limit)
        .map(|text| decode::snapshot(text))
        .collect::<Result<_, _>>()?;
    let next = executions.last().filter(|_| more).map(|last| ListCursor {
        created_at: last.created_at,
        id: last.id,
    });
    Ok(ListPage { executions, next })
}

/// A page of the history of one execution.
pub(crate) async fn events(
    connection: &mut SqliteConnection,
    id: ExecutionId,
    after: u64,
    limit: usize,
) -> Result<Option<EventPage>, StoreError> {
    let limit = page_limit(Some(limit));
    // One statement sees one state of the database, so the page and the snapshot fit together. The
    // snapshot comes once, with the row that has no event.
    let rows = sqlx::query(
        "WITH wanted AS (SELECT number, snapshot FROM execution WHERE id = ?1)
         SELECT 0, snapshot,
                (SELECT min(sequence) FROM event WHERE execution = wanted.number)
         FROM wanted
         UNION ALL
         SELECT * FROM (
             SELECT sequence, body, NULL FROM event
             WHERE execution = (SELECT number FROM wanted) AND sequence > ?2
             ORDER BY sequence LIMIT ?3)
         ORDER BY 1",
    )
    .bind(decode::id_bytes(id))
    .bind(count(after))
    .bind(count(limit as u64 + 1))
    .fetch_all(connection)
    .await
    .map_err(failed("read events"))?;
    let Some((head, rows)) = rows.split_first() else {
        return Ok(None);
    };
    let snapshot = decode::snapshot(get(head, 1)?)?;
    let first_kept: Option<i64> = get(head, 2)?;
    let found = rows
        .iter()
        .map(|row| decode::event(get(row, 1)?))
        .collect::<Result<_, StoreError>>()?;
    let position = PagePosition {
        after,
        first_kept: first_kept.map_or(0, uncount),
        last_sequence: snapshot.last_sequence,
        events_truncated: snapshot.events_truncated,
    };
    Ok(Some(EventPage::new(found, limit, &position)))
}

/// Which execution a shortened id stands for.
pub(crate) async fn resolve(
    connection: &mut SqliteConnection,
    text: &str,
) -> Result<Resolve, StoreError> {
    let digits: String = text
        .chars()
        .filter(|c| *c != '-')
        .map(|c| c.to_ascii_uppercase())
        .collect();
    if digits.is_empty() || digits.len() > 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(Resolve::Unknown);
    }
    let bound = |fill: &str| -> Vec<u8> {
        let padded = format!("{digits}{}", fill.repeat(32 - digits.len()));
        let number = u128::from_str_radix(&padded, 16)
            .expect("thirty-two hexadecimal digits are a number of 128 bits");
        number.to_be_bytes().to_vec()
    };
    // The beginning is found by the index; the end, and the beginning of the twelve digits that lists
    // show, by looking at every entry of it.
    let found: Vec<Vec<u8>> = sqlx::query_scalar(
        "SELECT id FROM execution WHERE id BETWEEN ?1 AND ?2
         UNION
         SELECT id FROM execution WHERE ?3 < 32
             AND (substr(hex(id), -?3) = ?4 OR substr(hex(id), -12, ?3) = ?4)
         ORDER BY id DESC LIMIT ?5",
    )
    .bind(bound("0"))
    .bind(bound("F"))
    .bind(count(digits.len() as u64))
    .bind(digits)
    .bind(count(AMBIGUOUS_LISTED_MAX as u64))
    .fetch_all(connection)
    .await
    .map_err(failed("look up an id"))?;
    let ids: Vec<ExecutionId> = found
        .iter()
        .map(|bytes| decode::id(bytes))
        .collect::<Result<_, _>>()?;
    Ok(match ids[..] {
        [] => Resolve::Unknown,
        [id] => Resolve::Found(id),
        _ => Resolve::Ambiguous(ids),
    })
}

/// All executions that have not ended, oldest first.
pub(crate) async fn unfinished(
    connection: &mut SqliteConnection,
) -> Result<Vec<Unfinished>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, state, owner FROM execution WHERE finished_at IS NULL ORDER BY created_at, id",
    )
    .fetch_all(connection)
    .await
    .map_err(failed("list unfinished executions"))?;
    rows.iter()
        .map(|row| {
            Ok(Unfinished {
                id: decode::id(get(row, 0)?)?,
                state: decode::state(get(row, 1)?)?,
                owner: get(row, 2)?,
            })
        })
        .collect()
}

/// The sealed pieces of one execution's log.
pub(crate) async fn logs(
    connection: &mut SqliteConnection,
    id: ExecutionId,
) -> Result<Vec<LogObject>, StoreError> {
    let rows = sqlx::query(
        "SELECT attempt, start, bytes, stdout_bytes, stderr_bytes, dropped_bytes, lines, digest,
                object_bytes
         FROM log WHERE execution = (SELECT number FROM execution WHERE id = ?)
         ORDER BY attempt, start",
    )
    .bind(decode::id_bytes(id))
    .fetch_all(connection)
    .await
    .map_err(failed("read the index of a log"))?;
    rows.iter().map(decode::log).collect()
}

/// What the choice of executions to forget has to know.
pub(crate) async fn kept(connection: &mut SqliteConnection) -> Result<Vec<Kept>, StoreError> {
    let rows = sqlx::query(
        "SELECT id, finished_at, event_bytes + log_bytes + snapshot_bytes FROM execution",
    )
    .fetch_all(connection)
    .await
    .map_err(failed("list what is kept"))?;
    rows.iter()
        .map(|row| {
            Ok(Kept {
                id: decode::id(get(row, 0)?)?,
                finished_at: decode::time(get(row, 1)?),
                bytes: ByteSize(uncount(get(row, 2)?)),
            })
        })
        .collect()
}
