//! Forgetting executions.

use std::collections::BTreeSet;

use sqlx::SqliteConnection;
use tidemill_core::ExecutionId;

use super::decode::{self, get};
use crate::entry::Forgotten;
use crate::fault::{Fault, StoreError};

fn failed(error: sqlx::Error) -> StoreError {
    Fault::store_error("forget executions", error)
}

/// Forgets those of these executions that have ended, and what only they used.
pub(super) async fn forget(
    connection: &mut SqliteConnection,
    ids: &[ExecutionId],
) -> Result<Forgotten, StoreError> {
    let mut forgotten = Forgotten::default();
    let mut specs = BTreeSet::new();
    let mut logs = BTreeSet::new();
    for id in ids {
        let row = sqlx::query(
            "SELECT number, spec FROM execution WHERE id = ? AND finished_at IS NOT NULL",
        )
        .bind(decode::id_bytes(*id))
        .fetch_optional(&mut *connection)
        .await
        .map_err(failed)?;
        let Some(row) = row else {
            continue;
        };
        let number: i64 = get(&row, 0)?;
        specs.insert(get::<Vec<u8>>(&row, 1)?);
        let objects: Vec<Vec<u8>> =
            sqlx::query_scalar("DELETE FROM log WHERE execution = ? RETURNING digest")
                .bind(number)
                .fetch_all(&mut *connection)
                .await
                .map_err(failed)?;
        logs.extend(objects);
        // Events and labels go with it.
        sqlx::query("DELETE FROM execution WHERE number = ?")
            .bind(number)
            .execute(&mut *connection)
            .await
            .map_err(failed)?;
        forgotten.executions.push(*id);
    }
    for spec in specs {
        sqlx::query(
            "DELETE FROM spec
             WHERE digest = ?1 AND NOT EXISTS (SELECT 1 FROM execution WHERE spec = ?1)",
        )
        .bind(spec)
        .execute(&mut *connection)
        .await
        .map_err(failed)?;
    }
    for digest in logs {
        let still: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM log WHERE digest = ?)")
            .bind(&digest)
            .fetch_one(&mut *connection)
            .await
            .map_err(failed)?;
        if !still {
            forgotten.log_objects.push(decode::digest(&digest)?);
        }
    }
    Ok(forgotten)
}
