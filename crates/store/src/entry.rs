//! What goes into the store and comes out of it, beside snapshots and events.

use tidemill_core::{
    Attempt, ByteSize, Digest, EventRecord, ExecutionId, JobSpec, State, Timestamp,
};
use tidemill_ledger::Snapshot;

/// An execution that this hub is going to run.
#[derive(Debug, Clone)]
pub struct NewExecution {
    /// Its id.
    pub id: ExecutionId,
    /// The time.
    pub at: Timestamp,
    /// The job's spec, sensitive values replaced. Its body is stored once per digest.
    pub spec: JobSpec,
    /// Who asked for it.
    pub submitter: Option<String>,
    /// The run that it belongs to.
    pub run: Option<String>,
    /// The request that caused it.
    pub correlation_id: Option<String>,
    /// The process that will run it, if that is known already.
    pub owner: Option<String>,
    /// How many are ahead of it.
    pub ahead: u64,
}

/// What came of a transaction that was not refused. All of it is on the disk.
#[derive(Debug, Clone)]
pub struct Written<A> {
    /// What the decision answered.
    pub answer: A,
    /// The snapshot afterwards; `None` if there is no such execution.
    pub snapshot: Option<Snapshot>,
    /// The events that were recorded.
    pub records: Vec<EventRecord>,
}

/// An execution that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// Which one.
    pub id: ExecutionId,
    /// Where it stands.
    pub state: State,
    /// The process that runs it. Whether that still lives is for the caller to find out.
    pub owner: Option<String>,
}

/// One sealed piece of the log of one attempt, kept as an object in the blob store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogObject {
    /// Which attempt wrote it.
    pub attempt: Attempt,
    /// The position of its first byte among all bytes that the attempt wrote.
    pub start: u64,
    /// How many bytes the attempt wrote in that piece, kept or not.
    pub bytes: u64,
    /// How many of them went to stdout.
    pub stdout_bytes: u64,
    /// How many of them went to stderr.
    pub stderr_bytes: u64,
    /// How many of them were left out because of the log's limit.
    pub dropped_bytes: u64,
    /// How many lines the piece has.
    pub lines: u64,
    /// The digest that names the object.
    pub digest: Digest,
    /// The object's size, compressed.
    pub object_bytes: ByteSize,
}

/// What was forgotten, so that what it alone used can be removed elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// The executions.
    pub executions: Vec<ExecutionId>,
    /// Log objects that no remaining execution has.
    pub log_objects: Vec<Digest>,
}
