//! Which finished executions are forgotten first.

use std::time::Duration;

use tidemill_core::{ByteSize, ExecutionId, Timestamp};

/// How many executions are kept. An absent bound does not bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// How long after its end an execution is kept.
    pub age: Option<Duration>,
    /// How many are kept, the unfinished ones counted too.
    pub count: Option<u64>,
    /// How many bytes all of them may take, the unfinished ones counted too.
    pub bytes: Option<ByteSize>,
}

/// What the choice has to know of one execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Which execution.
    pub id: ExecutionId,
    /// When it ended; absent while it has not.
    pub finished_at: Option<Timestamp>,
    /// What it takes.
    pub bytes: ByteSize,
}

/// The executions that have to go, the one that ended first coming first. One that has not ended is
/// never among them, however old it is and whatever it takes.
pub fn to_forget(retention: &Retention, now: Timestamp, all: &[Kept]) -> Vec<ExecutionId> {
    let mut finished: Vec<(Timestamp, &Kept)> = all
        .iter()
        .filter_map(|kept| kept.finished_at.map(|at| (at, kept)))
        .collect();
    finished.sort_by_key(|(at, kept)| (*at, kept.id));
    let mut count = all.len() as u64;
    let mut bytes: u128 = all.iter().map(|kept| u128::from(kept.bytes.0)).sum();
    let mut gone = Vec::new();
    for (at, kept) in finished {
        let too_old = retention.age.is_some_and(|age| now.since(at) > age);
        let too_many = retention.count.is_some_and(|max| count > max);
        let too_large = retention.bytes.is_some_and(|max| bytes > u128::from(max.0));
        if !(too_old || too_many || too_large) {
            break;
        }
        count -= 1;
        bytes -= u128::from(kept.bytes.0);
        gone.push(kept.id);
    }
    gone
}
