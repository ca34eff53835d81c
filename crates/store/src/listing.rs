//! Finding executions: pages of a list, and ids that people shortened.

use std::fmt;
use std::str::FromStr;

use tidemill_core::{ExecutionId, Timestamp};
use tidemill_ledger::Snapshot;

/// Executions of one page at most.
pub const PAGE_EXECUTIONS_MAX: usize = 1_000;
/// Executions that an ambiguous id lists at most.
pub const AMBIGUOUS_LISTED_MAX: usize = 10;

/// Some executions, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct ListPage {
    /// The executions.
    pub executions: Vec<Snapshot>,
    /// Where the next page begins, if there is one.
    pub next: Option<ListCursor>,
}

/// A place in the list: right after one execution. As text it is opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    /// When that execution was made.
    pub created_at: Timestamp,
    /// Its id.
    pub id: ExecutionId,
}

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at.0, self.id.as_uuid().simple())
    }
}

/// Says that a text is not a cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cursor that a list gave")]
pub struct ParseCursorError(String);

impl FromStr for ListCursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once('.')
            .and_then(|(at, id)| {
                Some(Self {
                    created_at: Timestamp(at.parse().ok()?),
                    id: id.parse().ok()?,
                })
            })
            .ok_or_else(|| ParseCursorError(text.to_owned()))
    }
}

/// What a shortened id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolve {
    /// Exactly one execution.
    Found(ExecutionId),
    /// Several: the newest of them, [`AMBIGUOUS_LISTED_MAX`] at most.
    Ambiguous(Vec<ExecutionId>),
    /// None.
    Unknown,
}
