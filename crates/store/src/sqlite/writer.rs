//! The one task that writes.
//!
//! ```text
//! callers ──► channel ──► group: BEGIN IMMEDIATE ─ each in turn ─ COMMIT ──► observer ──► callers
//!                ▲                                                  │
//!                └──────── what arrives meanwhile is the next group ┘
//! ```
//!
//! A caller is answered after the commit that its change is part of. A change that is refused wrote
//! nothing, so its neighbours go on; if the database itself fails, all of the group fail.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::{Connection, SqliteConnection};
use tidemill_core::{Digest, EventRecord, ExecutionId, Timestamp};
use tidemill_ledger::{Decision, Snapshot, change};
use tokio::sync::{mpsc, oneshot};

use super::connect::Opened;
use super::decode::{self, get};
use super::{delete, write};
use crate::entry::{Forgotten, LogObject};
use crate::fault::{Fault, StoreError, WriteError};
use crate::store::Committed;

/// Changes that may wait for the writer. Whoever comes then waits before the door.
pub(crate) const WAITING_MAX: usize = 1_024;
/// Changes in one commit at most, so that no caller waits for too many others.
const GROUP_MAX: usize = 256;
/// Events of other processes that are read at a time.
const CATCH_UP_EVENTS: i64 = 1_000;

/// Who is told of every committed event.
pub(crate) type Observer = Arc<OnceLock<Box<dyn Fn(&Committed) + Send + Sync>>>;
/// What a caller decides on the snapshot.
pub(crate) type Decide = Box<dyn FnOnce(Option<&Snapshot>) -> Decision<()> + Send>;
type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the writer can be asked.
pub(crate) enum Command {
    /// To write.
    Write(Write),
    /// Whether other processes have written.
    Changed(Reply<bool>),
    /// To stop, once everything before is done.
    Stop(Ending, oneshot::Sender<()>),
}

/// What becomes of the database when the writer stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It is closed.
    Close,
    /// It stays open until the process ends.
    Leave,
}

/// What can be written.
pub(crate) enum Write {
    /// A change of one execution.
    Change(Box<ChangeRequest>),
    /// The owner of an execution.
    Owner {
        id: ExecutionId,
        owner: Option<String>,
        reply: Reply<bool>,
    },
    /// The index of a log.
    Log {
        id: ExecutionId,
        log: Box<LogObject>,
        reply: Reply<bool>,
    },
    /// Executions that are to be forgotten.
    Forget {
        ids: Vec<ExecutionId>,
        reply: Reply<Forgotten>,
    },
}

/// A change of one execution.
pub(crate) struct ChangeRequest {
    pub(crate) id: ExecutionId,
    pub(crate) at: Timestamp,
    pub(crate) owner: Option<String>,
    pub(crate) spec: Option<(Digest, Vec<u8>)>,
    pub(crate) decide: Decide,
    pub(crate) reply: oneshot::Sender<Result<Stored, WriteError>>,
}

/// What came of a change.
pub(crate) struct Stored {
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) records: Vec<EventRecord>,
}

/// What is left to do for one caller once it is known whether the commit went well.
type Finish = Box<dyn FnOnce(Option<&StoreError>) + Send>;

/// What one write did inside the transaction.
struct Done {
    finish: Finish,
    records: Vec<Arc<EventRecord>>,
    position: Option<i64>,
}

/// The task's state.
pub(crate) struct Writer {
    connection: SqliteConnection,
    commands: mpsc::Receiver<Command>,
    observer: Observer,
    lock_wait: Duration,
    /// What SQLite said when it was last looked whether others had written.
    data_version: i64,
    /// The position of the last event that was seen, ours or not.
    position: i64,
    /// True if others have written since the last time that this was asked.
    others_wrote: bool,
}

impl Writer {
    pub(crate) fn new(
        opened: Opened,
        commands: mpsc::Receiver<Command>,
        observer: Observer,
        lock_wait: Duration,
    ) -> Self {
        Self {
            connection: opened.connection,
            commands,
            observer,
            lock_wait,
            data_version: opened.data_version,
            position: opened.position,
            others_wrote: false,
        }
    }

    /// Works until it is told to stop, or until nobody is left who could ask for anything.
    pub(crate) async fn run(mut self) {
        let mut stop = None;
        while stop.is_none() {
            let Some(first) = self.commands.recv().await else {
                break;
            };
            let mut writes = Vec::new();
            let mut next = Some(first);
            while let Some(command) = next {
                match command {
                    Command::Write(write) => writes.push(write),
                    Command::Changed(reply) => {
                        let answer = self.changed().await;
                        // Whoever asked may have gone away.
                        drop(reply.send(answer));
                    }
                    Command::Stop(ending, reply) => {
                        stop = Some((ending, reply));
                        break;
                    }
                }
                next = match writes.len() {
                    GROUP_MAX.. => None,
                    _ => self.commands.try_recv().ok(),
                };
            }
            if !writes.is_empty() {
                self.commit(writes).await;
            }
        }
        self.commands.close();
        let ending = stop.as_ref().map_or(Ending::Close, |(ending, _)| *ending);
        match ending {
            Ending::Close => {
                if let Err(error) = self.connection.close().await {
                    tracing::warn!(%error, "the database did not close cleanly");
                }
            }
            Ending::Leave => std::mem::forget(self.connection),
        }
        if let Some((_, reply)) = stop {
            // Whoever asked may have gone away.
            let _ = reply.send(());
        }
    }

    /// Writes a group in one transaction, and answers everybody in it.
    async fn commit(&mut self, writes: Vec<Write>) {
        let mut done = Vec::with_capacity(writes.len());
        let outcome = self.transaction(writes, &mut done).await;
        let error = outcome.err().map(|error| error.waited_for(self.lock_wait));
        if error.is_none() {
            self.publish(&done);
        }
        for one in done {
            (one.finish)(error.as_ref());
        }
    }

    /// Tells the observer of a group's events, and remembers where its history stands.
    fn publish(&mut self, done: &[Done]) {
        if let Some(position) = done.iter().rev().find_map(|one| one.position) {
            self.position = position;
        }
        let records: Vec<_> = done.iter().flat_map(|one| one.records.clone()).collect();
        self.tell(records, false);
    }

    fn tell(&self, records: Vec<Arc<EventRecord>>, foreign: bool) {
        if let Some(observer) = self.observer.get()
            && !records.is_empty()
        {
            observer(&Committed { records, foreign });
        }
    }

    async fn transaction(
        &mut self,
        writes: Vec<Write>,
        done: &mut Vec<Done>,
    ) -> Result<(), StoreError> {
        let mut writes = writes.into_iter();
        let result = async {
            execute(&mut self.connection, "BEGIN IMMEDIATE", "begin a change").await?;
            // The lock is held, so what others wrote before is all there, and nothing comes between.
            self.catch_up().await?;
            for write in writes.by_ref() {
                self.perform(write, done).await?;
            }
            execute(&mut self.connection, "COMMIT", "commit a change").await
        }
        .await;
        if result.is_err() {
            // SQLite may have rolled back by itself; then this fails and there is nothing to do.
            drop(execute(&mut self.connection, "ROLLBACK", "roll back a change").await);
            done.extend(writes.map(unperformed));
        }
        result
    }

    /// Performs one write. An error is one of the database, and ends the transaction.
    async fn perform(&mut self, write: Write, done: &mut Vec<Done>) -> Result<(), StoreError> {
        match write {
            Write::Change(request) => self.perform_change(*request, done).await,
            Write::Owner { id, owner, reply } => {
                let result = write::set_owner(&mut self.connection, id, owner.as_deref()).await;
                settle(result, reply, done)
            }
            Write::Log { id, log, reply } => {
                let result = write::put_log(&mut self.connection, id, &log).await;
                settle(result, reply, done)
            }
            Write::Forget { ids, reply } => {
                let result = delete::forget(&mut self.connection, &ids).await;
                settle(result, reply, done)
            }
        }
    }

    async fn perform_change(
        &mut self,
        request: ChangeRequest,
        done: &mut Vec<Done>,
    ) -> Result<(), StoreError> {
        let ChangeRequest {
            id,
            at,
            owner,
            spec,
            decide,
            reply,
        } = request;
        let found = match write::find(&mut self.connection, id).await {
            Ok(found) => found,
            // This execution's row is damaged. That is nothing to its neighbours.
            Err(error @ StoreError::Damaged { .. }) => {
                done.push(refuse(reply, WriteError::Store(error)));
                return Ok(());
            }
            Err(error) => {
                done.push(refuse(reply, WriteError::Store(error.clone())));
                return Err(error);
            }
        };
        let before = found.as_ref().map(|found| &found.snapshot);
        let decided = catch_unwind(AssertUnwindSafe(|| decide(before)));
        let Ok(decision) = decided else {
            done.push(refuse(reply, WriteError::Store(StoreError::Panicked)));
            return Ok(());
        };
        let changed = match change(before, id, at, decision.events, decision.origin) {
            Ok(changed) => changed,
            Err(refused) => {
                done.push(refuse(reply, WriteError::Refused(refused)));
                return Ok(());
            }
        };
        let Some(changed) = changed else {
            let snapshot = found.map(|found| found.snapshot);
            let stored = Stored {
                snapshot,
                records: Vec::new(),
            };
            done.push(accept(reply, stored, Vec::new(), None));
            return Ok(());
        };
        let number = found.map(|found| found.number);
        let new = write::NewRow { owner, spec };
        match write::save(&mut self.connection, number, &changed, new).await {
            Ok(position) => {
                let shared = changed.records.iter().cloned().map(Arc::new).collect();
                let stored = Stored {
                    snapshot: Some(changed.snapshot),
                    records: changed.records,
                };
                done.push(accept(reply, stored, shared, position));
                Ok(())
            }
            Err(error) => {
                done.push(refuse(reply, WriteError::Store(error.clone())));
                Err(error)
            }
        }
    }

    /// True if others have written since this was last asked.
    async fn changed(&mut self) -> Result<bool, StoreError> {
        self.catch_up().await?;
        Ok(std::mem::take(&mut self.others_wrote))
    }

    /// Looks whether other processes have written, and tells the observer of their events.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        // It changes if and only if somebody else has committed: our own commits do not count.
        let version: i64 = sqlx::query_scalar("PRAGMA data_version")
            .fetch_one(&mut self.connection)
            .await
            .map_err(|error| Fault::store_error("look for changes of others", error))?;
        if version == self.data_version {
            return Ok(());
        }
        loop {
            let rows = sqlx::query(
                "SELECT position, body FROM event WHERE position > ? ORDER BY position LIMIT ?",
            )
            .bind(self.position)
            .bind(CATCH_UP_EVENTS)
            .fetch_all(&mut self.connection)
            .await
            .map_err(|error| Fault::store_error("read the events of others", error))?;
            let Some(last) = rows.last() else {
                break;
            };
            let position = get(last, 0)?;
            let mut records = Vec::with_capacity(rows.len());
            for row in &rows {
                match decode::event(get(row, 1)?) {
                    Ok(record) => records.push(Arc::new(record)),
                    // A newer Tidemill may write kinds that this one does not know.
                    Err(error) => {
                        tracing::warn!(%error, "an event of another process is passed over")
                    }
                }
            }
            self.position = position;
            self.tell(records, true);
        }
        self.data_version = version;
        self.others_wrote = true;
        Ok(())
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

async fn execute(
    connection: &mut SqliteConnection,
    sql: &'static str,
    doing: &'static str,
) -> Result<(), StoreError> {
    sqlx::query(sql)
        .execute(connection)
        .await
        .map(|_| ())
        .map_err(|error| Fault::store_error(doing, error))
}

/// Answers with the value once the commit went well, and with its error if it did not.
fn settle<T: Send + 'static>(
    result: Result<T, StoreError>,
    reply: Reply<T>,
    done: &mut Vec<Done>,
) -> Result<(), StoreError> {
    let failed = result.as_ref().err().cloned();
    let finish: Finish = Box::new(move |error| {
        let answer = error.cloned().map_or(result, Err);
        // Whoever asked may have gone away; what was done stays done.
        drop(reply.send(answer));
    });
    done.push(Done {
        finish,
        records: Vec::new(),
        position: None,
    });
    failed.map_or(Ok(()), Err)
}

fn accept(
    reply: oneshot::Sender<Result<Stored, WriteError>>,
    stored: Stored,
    records: Vec<Arc<EventRecord>>,
    position: Option<i64>,
) -> Done {
    let finish: Finish = Box::new(move |error| {
        let answer = match error {
            None => Ok(stored),
            Some(error) => Err(WriteError::Store(error.clone())),
        };
        // Whoever asked may have gone away; what was done stays done.
        drop(reply.send(answer));
    });
    Done {
        finish,
        records,
        position,
    }
}

fn refuse(reply: oneshot::Sender<Result<Stored, WriteError>>, why: WriteError) -> Done {
    let finish: Finish = Box::new(move |error| {
        let why = error.cloned().map_or(why, WriteError::Store);
        // Whoever asked may have gone away; nothing was done.
        drop(reply.send(Err(why)));
    });
    Done {
        finish,
        records: Vec::new(),
        position: None,
    }
}

/// A write that its transaction did not get to.
fn unperformed(write: Write) -> Done {
    let mut done = Vec::new();
    match write {
        Write::Change(request) => {
            return refuse(request.reply, WriteError::Store(StoreError::Closed));
        }
        Write::Owner { reply, .. } | Write::Log { reply, .. } => {
            drop(settle(Err(StoreError::Closed), reply, &mut done));
        }
        Write::Forget { reply, .. } => {
            drop(settle(Err(StoreError::Closed), reply, &mut done));
        }
    }
    done.remove(0)
}
