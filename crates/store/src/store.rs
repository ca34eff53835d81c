//! The store: one handle for everything durable.

use std::path::Path;
use std::sync::Arc;

use tidemill_core::{Digest, EventRecord, ExecutionId, JobSpec, Timestamp};
use tidemill_ledger::retention::Kept;
use tidemill_ledger::{Decision, EventPage, ListFilter, Snapshot};

use crate::entry::{Forgotten, LogObject, NewExecution, Unfinished, Written};
use crate::fault::{StoreError, WriteError};
use crate::listing::{ListCursor, ListPage, Resolve};
use crate::open::{OpenError, OpenOptions};

/// Events that are on the disk, in the order of their commits.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The events.
    pub records: Vec<Arc<EventRecord>>,
    /// True if another process committed them.
    pub foreign: bool,
}

/// The store. Clones are handles to the same one.
#[derive(Debug, Clone)]
pub struct Store {}

impl Store {
    /// Opens the database at this path, and makes it if it is not there.
    ///
    /// # Errors
    /// See [`OpenError`]. The file is left as it was.
    pub async fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, OpenOptions::default()).await
    }

    /// Opens the database at this path in a certain way.
    ///
    /// # Errors
    /// See [`OpenError`]. The file is left as it was.
    pub async fn open_with(_path: &Path, _options: OpenOptions) -> Result<Self, OpenError> {
        todo!()
    }

    /// Calls this with every event from now on, after its commit and before the one who made it is
    /// answered, in the order of commits. It runs on the writer: it must not block. The events of
    /// other processes come when one of [`Store::changed`] and a write of our own notices them.
    /// Only the first observer counts.
    pub fn observe(&self, _observer: impl Fn(&Committed) + Send + Sync + 'static) {
        todo!()
    }

    /// Waits until everything that was asked is done, and closes the database.
    pub async fn close(&self) {
        todo!()
    }

    /// Records a new execution: its spec, and the events `created` and `queued`. Once the future was
    /// polled, dropping it does not take the change back.
    ///
    /// # Errors
    /// If there is an execution with this id, or the store fails.
    pub async fn create(&self, _new: NewExecution) -> Result<Written<()>, WriteError> {
        todo!()
    }

    /// Changes one execution in one transaction: `decide` sees the snapshot and says which events
    /// are to happen. What is asked during a commit shares the next one; a refusal spoils nothing of
    /// its neighbours. Once the future was polled, dropping it does not take the change back.
    ///
    /// # Errors
    /// If one of the events is refused, or the store fails. Then none of them is recorded.
    pub async fn transact<A, F>(
        &self,
        _id: ExecutionId,
        _at: Timestamp,
        _decide: F,
    ) -> Result<Written<A>, WriteError>
    where
        A: Send + 'static,
        F: FnOnce(Option<&Snapshot>) -> Decision<A> + Send + 'static,
    {
        todo!()
    }

    /// Names the process that runs an execution. False if there is no such execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn set_owner(
        &self,
        _id: ExecutionId,
        _owner: Option<String>,
    ) -> Result<bool, StoreError> {
        todo!()
    }

    /// Records a sealed piece of a log. A piece that begins where another one began takes its place.
    /// False if there is no such execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn put_log(&self, _id: ExecutionId, _log: LogObject) -> Result<bool, StoreError> {
        todo!()
    }

    /// Forgets those of these executions that have ended, with their events and logs.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn forget(&self, _ids: Vec<ExecutionId>) -> Result<Forgotten, StoreError> {
        todo!()
    }

    /// True if another process has committed since the last call, or since the store was opened.
    /// Its events have been handed to the observer by then. Costs a few microseconds.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn changed(&self) -> Result<bool, StoreError> {
        todo!()
    }

    /// The snapshot of one execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn snapshot(&self, _id: ExecutionId) -> Result<Option<Snapshot>, StoreError> {
        todo!()
    }

    /// A spec.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn spec(&self, _digest: Digest) -> Result<Option<JobSpec>, StoreError> {
        todo!()
    }

    /// Some executions, newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn list(
        &self,
        _filter: &ListFilter,
        _limit: usize,
        _after: Option<ListCursor>,
    ) -> Result<ListPage, StoreError> {
        todo!()
    }

    /// The events of one execution after a sequence; `None` if there is no such execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn events(
        &self,
        _id: ExecutionId,
        _after: u64,
        _limit: usize,
    ) -> Result<Option<EventPage>, StoreError> {
        todo!()
    }

    /// Which execution has an id that begins or ends with this text. Hyphens do not count.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resolve(&self, _text: &str) -> Result<Resolve, StoreError> {
        todo!()
    }

    /// All executions that have not ended, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError> {
        todo!()
    }

    /// The sealed pieces of an execution's log, by attempt and position.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn logs(&self, _id: ExecutionId) -> Result<Vec<LogObject>, StoreError> {
        todo!()
    }

    /// What the choice of executions to forget has to know of all of them.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn kept(&self) -> Result<Vec<Kept>, StoreError> {
        todo!()
    }
}
