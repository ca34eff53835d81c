//! The outside that decisions need: the clock, and ids that nobody else has.

use std::time::{SystemTime, UNIX_EPOCH};

use tidemill_core::{ExecutionId, Timestamp};
use uuid::Uuid;

/// The time now: the hub's one look at the clock.
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// A new execution's id.
pub fn new_execution_id() -> ExecutionId {
    ExecutionId::from_uuid(Uuid::now_v7())
}

/// A new process's name among the owners of executions.
pub(crate) fn new_owner_name() -> String {
    Uuid::now_v7().as_hyphenated().to_string()
}
