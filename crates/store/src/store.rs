//! The store: one handle for everything durable.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tidemill_core::{Digest, Event, EventRecord, ExecutionId, JobSpec, Timestamp};
use tidemill_ledger::retention::Kept;
use tidemill_ledger::{Decision, EventPage, ListFilter, Snapshot};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::entry::{Forgotten, LogObject, NewExecution, Unfinished, Written};
use crate::fault::{StoreError, WriteError};
use crate::listing::{ListCursor, ListPage, Resolve};
use crate::open::{OpenError, OpenOptions};
use crate::sqlite::readers::Readers;
use crate::sqlite::writer::{
    ChangeRequest, Command, Decide, Ending, Observer, Stored, WAITING_MAX, Write, Writer,
};
use crate::sqlite::{connect, read};

/// Events that are on the disk, in the order of their commits.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The events.
    pub records: Vec<Arc<EventRecord>>,
    /// True if another process committed them.
    pub foreign: bool,
}

/// The store. Clones are handles to the same one.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    commands: mpsc::Sender<Command>,
    readers: Readers,
    observer: Observer,
    /// Owns the writer: it ends with the last handle.
    _writer: JoinSet<()>,
}

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
    pub async fn open_with(path: &Path, options: OpenOptions) -> Result<Self, OpenError> {
        let opened = connect::open(path, options).await?;
        let (commands, receiver) = mpsc::channel(WAITING_MAX);
        let observer = Observer::default();
        let writer = Writer::new(opened, receiver, Arc::clone(&observer), options.lock_wait);
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run());
        Ok(Self {
            inner: Arc::new(Inner {
                commands,
                readers: Readers::new(path.to_path_buf(), options),
                observer,
                _writer: tasks,
            }),
        })
    }

    /// Calls this with every event from now on, after its commit and before the one who made it is
    /// answered, in the order of commits. It runs on the writer: it must not block. The events of
    /// other processes come when one of [`Store::changed`] and a write of our own notices them.
    /// Only the first observer counts.
    pub fn observe(&self, observer: impl Fn(&Committed) + Send + Sync + 'static) {
        if self.inner.observer.set(Box::new(observer)).is_err() {
            tracing::warn!("the store has an observer already");
        }
    }

    /// Waits until everything that was asked is done, and closes the database. Whoever closes it
    /// last moves the write-ahead log into the database, which takes several syncs of the disk.
    pub async fn close(&self) {
        self.stop(Ending::Close).await;
    }

    /// Waits until everything that was asked is done, and leaves the database open until the process
    /// ends, which has to be soon. What was acknowledged is on the disk; moving it into its place is
    /// left to those who come later, as after a crash, and costs them less than closing costs here.
    pub async fn leave(&self) {
        self.stop(Ending::Leave).await;
    }

    /// Records a new execution: its spec, and the events `created` and `queued`. Once the future was
    /// polled, dropping it does not take the change back.
    ///
    /// # Errors
    /// If there is an execution with this id, or the store fails.
    pub async fn create(&self, new: NewExecution) -> Result<Written<()>, WriteError> {
        let NewExecution {
            id,
            at,
            spec,
            submitter,
            run,
            correlation_id,
            owner,
            ahead,
        } = new;
        let body = spec.to_canonical();
        let digest = Digest::of(&body);
        let created = Event::Created {
            spec: digest,
            command: spec.command(),
            name: spec.name,
            labels: spec.labels,
            submitter,
            run,
            correlation_id,
        };
        let decide: Decide =
            Box::new(move |_| Decision::events(vec![created, Event::Queued { ahead }], ()));
        let (reply, answer) = oneshot::channel();
        let request = ChangeRequest {
            id,
            at,
            owner,
            spec: Some((digest, body)),
            decide,
            reply,
        };
        let stored = self.change(request, answer).await?;
        Ok(Written {
            answer: (),
            snapshot: stored.snapshot,
            records: stored.records,
        })
    }

    /// Changes one execution in one transaction: `decide` sees the snapshot and says which events
    /// are to happen. What is asked during a commit shares the next one; a refusal spoils nothing of
    /// its neighbours. Once the future was polled, dropping it does not take the change back.
    ///
    /// # Errors
    /// If one of the events is refused, or the store fails. Then none of them is recorded.
    pub async fn transact<A, F>(
        &self,
        id: ExecutionId,
        at: Timestamp,
        decide: F,
    ) -> Result<Written<A>, WriteError>
    where
        A: Send + 'static,
        F: FnOnce(Option<&Snapshot>) -> Decision<A> + Send + 'static,
    {
        let (tell, told) = oneshot::channel();
        let decide: Decide = Box::new(move |snapshot| {
            let Decision {
                events,
                origin,
                answer,
            } = decide(snapshot);
            // Whoever asked may have gone away; what is decided is done all the same.
            drop(tell.send(answer));
            Decision {
                events,
                origin,
                answer: (),
            }
        });
        let (reply, answer) = oneshot::channel();
        let request = ChangeRequest {
            id,
            at,
            owner: None,
            spec: None,
            decide,
            reply,
        };
        let stored = self.change(request, answer).await?;
        let answer = told
            .await
            .map_err(|_| WriteError::Store(StoreError::Panicked))?;
        Ok(Written {
            answer,
            snapshot: stored.snapshot,
            records: stored.records,
        })
    }

    /// Names the process that runs an execution. False if there is no such execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn set_owner(
        &self,
        id: ExecutionId,
        owner: Option<String>,
    ) -> Result<bool, StoreError> {
        self.ask(|reply| Command::Write(Write::Owner { id, owner, reply }))
            .await
    }

    /// Records a sealed piece of a log. A piece that begins where another one began takes its place.
    /// False if there is no such execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn put_log(&self, id: ExecutionId, log: LogObject) -> Result<bool, StoreError> {
        let log = Box::new(log);
        self.ask(|reply| Command::Write(Write::Log { id, log, reply }))
            .await
    }

    /// Forgets those of these executions that have ended, with their events and logs.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn forget(&self, ids: Vec<ExecutionId>) -> Result<Forgotten, StoreError> {
        self.ask(|reply| Command::Write(Write::Forget { ids, reply }))
            .await
    }

    /// True if another process has committed since the last call, or since the store was opened.
    /// Its events have been handed to the observer by then. Costs a few microseconds.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn changed(&self) -> Result<bool, StoreError> {
        self.ask(Command::Changed).await
    }

    /// The snapshot of one execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn snapshot(&self, id: ExecutionId) -> Result<Option<Snapshot>, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::snapshot(&mut reader.connection, id).await;
        reader.give_back();
        result
    }

    /// A spec.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn spec(&self, digest: Digest) -> Result<Option<JobSpec>, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::spec(&mut reader.connection, digest).await;
        reader.give_back();
        result
    }

    /// Some executions, newest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn list(
        &self,
        filter: &ListFilter,
        limit: usize,
        after: Option<ListCursor>,
    ) -> Result<ListPage, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::list(&mut reader.connection, filter, limit, after).await;
        reader.give_back();
        result
    }

    /// The events of one execution after a sequence; `None` if there is no such execution.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn events(
        &self,
        id: ExecutionId,
        after: u64,
        limit: usize,
    ) -> Result<Option<EventPage>, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::events(&mut reader.connection, id, after, limit).await;
        reader.give_back();
        result
    }

    /// Which execution has an id that begins or ends with this text. Hyphens do not count.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resolve(&self, text: &str) -> Result<Resolve, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::resolve(&mut reader.connection, text).await;
        reader.give_back();
        result
    }

    /// All executions that have not ended, oldest first.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn unfinished(&self) -> Result<Vec<Unfinished>, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::unfinished(&mut reader.connection).await;
        reader.give_back();
        result
    }

    /// The sealed pieces of an execution's log, by attempt and position.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn logs(&self, id: ExecutionId) -> Result<Vec<LogObject>, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::logs(&mut reader.connection, id).await;
        reader.give_back();
        result
    }

    /// What the choice of executions to forget has to know of all of them.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn kept(&self) -> Result<Vec<Kept>, StoreError> {
        let mut reader = self.inner.readers.take().await?;
        let result = read::kept(&mut reader.connection).await;
        reader.give_back();
        result
    }

    async fn stop(&self, ending: Ending) {
        self.inner.readers.close().await;
        let (reply, done) = oneshot::channel();
        if self.send(Command::Stop(ending, reply)).await.is_ok() {
            // An error means that the writer is gone, which is what was wanted.
            drop(done.await);
        }
    }

    async fn change(
        &self,
        request: ChangeRequest,
        answer: oneshot::Receiver<Result<Stored, WriteError>>,
    ) -> Result<Stored, WriteError> {
        self.send(Command::Write(Write::Change(Box::new(request))))
            .await
            .map_err(WriteError::Store)?;
        answer
            .await
            .unwrap_or(Err(WriteError::Store(StoreError::Closed)))
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Command,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn send(&self, command: Command) -> Result<(), StoreError> {
        self.inner
            .commands
            .send(command)
            .await
            .map_err(|_| StoreError::Closed)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("readers", &self.inner.readers)
            .finish_non_exhaustive()
    }
}
