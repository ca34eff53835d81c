//! One handle for the record of all executions.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_core::{Digest, ExecutionId, JobSpec};
use tidemill_ledger::retention::Retention;
use tidemill_ledger::{
    CancelAnswer, EventPage, Interest, ListFilter, Redactor, Snapshot, Subscription, Subscriptions,
    cancel,
};
use tidemill_store::{
    Committed, ListCursor, ListPage, NewExecution, OpenError, Resolve, Store, StoreError,
    WriteError,
};
use tokio::task::{JoinError, JoinSet};

use crate::adapter;
use crate::cancels::{CancelWish, Cancels};
use crate::follow::{Follow, Watch};
use crate::log_store::{LogStore, LogViewError};
use crate::owner::{OwnerError, OwnerFile};
use crate::report::{self, Answer, Report};
use crate::state_dir::{StateDir, StateDirError};
use crate::sweep::Remnants;

/// How a hub is opened.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The state directory; made if it is not there.
    pub state_dir: PathBuf,
    /// Which finished executions are forgotten.
    pub retention: Retention,
    /// Removes what attempts of dead processes left on the host.
    pub remnants: Arc<dyn Remnants>,
}

/// Why the hub could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The state directory cannot be used.
    #[error("there is no usable state directory")]
    StateDir(#[source] StateDirError),
    /// The database cannot be opened.
    #[error("the record of executions cannot be opened")]
    Open(#[source] OpenError),
    /// The database does not answer.
    #[error("the record of executions does not answer")]
    Store(#[source] StoreError),
    /// A change was not made.
    #[error("the record of execution {id} was not changed")]
    Write {
        /// Whose.
        id: ExecutionId,
        /// Why.
        #[source]
        source: WriteError,
    },
    /// This process cannot say that it runs executions.
    #[error("this process cannot own executions")]
    Owner(#[source] OwnerError),
    /// The logs cannot be kept.
    #[error("the logs cannot be kept")]
    Logs(#[source] LogViewError),
    /// There is no such execution.
    #[error("there is no execution {id}")]
    Unknown {
        /// The id.
        id: ExecutionId,
    },
    /// The hub was closed meanwhile.
    #[error("the hub was closed")]
    Closed,
    /// A task of the hub panicked.
    #[error("a task of the hub panicked")]
    Panicked(#[source] JoinError),
}

/// A job to be recorded as an execution of this process.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// What to run.
    pub spec: JobSpec,
    /// Values that must not stand in the record.
    pub sensitive: Vec<String>,
    /// Who asked for it.
    pub submitter: Option<String>,
    /// The run that it belongs to.
    pub run: Option<String>,
    /// The request that caused it.
    pub correlation_id: Option<String>,
    /// How many wait before it.
    pub ahead: u64,
}

impl NewJob {
    /// A job of which nothing is known but the spec.
    pub const fn new(spec: JobSpec) -> Self {
        Self {
            spec,
            sensitive: Vec::new(),
            submitter: None,
            run: None,
            correlation_id: None,
            ahead: 0,
        }
    }
}

/// The hub's core. Clones are the same hub.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) state_dir: StateDir,
    pub(crate) store: Store,
    pub(crate) logs: LogStore,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) retention: Retention,
    pub(crate) remnants: Arc<dyn Remnants>,
    cancels: Arc<Cancels>,
    owner: Mutex<Option<OwnerFile>>,
    watch: Watch,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("state_dir", &self.inner.state_dir)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// Opens the state directory. Executions of processes that are dead are recorded as lost before
    /// this returns, and what they left is removed.
    ///
    /// # Errors
    /// If the directory or what is in it cannot be used.
    pub async fn open(config: HubConfig) -> Result<Self, HubError> {
        let state_dir = StateDir::open(&config.state_dir).map_err(HubError::StateDir)?;
        let store = Store::open(&state_dir.database())
            .await
            .map_err(HubError::Open)?;
        let subscriptions = Subscriptions::new();
        let cancels = Arc::new(Cancels::default());
        store.observe({
            let subscriptions = subscriptions.clone();
            let cancels = Arc::clone(&cancels);
            move |committed: &Committed| {
                for record in &committed.records {
                    cancels.observe(record);
                    subscriptions.publish(record);
                }
            }
        });
        let logs = LogStore::open(&state_dir).map_err(HubError::Logs)?;
        let hub = Self {
            inner: Arc::new(Inner {
                watch: Watch::new(store.clone()),
                state_dir,
                store,
                logs,
                subscriptions,
                retention: config.retention,
                remnants: config.remnants,
                cancels,
                owner: Mutex::new(None),
            }),
        };
        hub.sweep_quickly().await?;
        Ok(hub)
    }

    /// The state directory.
    pub fn state_dir(&self) -> &StateDir {
        &self.inner.state_dir
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// Records a job as an execution that this process is going to run.
    ///
    /// # Errors
    /// If it could not be recorded. Then there is no execution.
    pub async fn create(&self, job: NewJob) -> Result<ExecutionId, HubError> {
        let owner = self.own().map_err(HubError::Owner)?;
        self.inner.watch.start();
        let id = adapter::new_execution_id();
        let new = NewExecution {
            id,
            at: adapter::now(),
            spec: Redactor::new(job.sensitive).spec(&job.spec),
            submitter: job.submitter,
            run: job.run,
            correlation_id: job.correlation_id,
            owner: Some(owner),
            ahead: job.ahead,
        };
        self.inner.cancels.adopt(id);
        match self.inner.store.create(new).await {
            Ok(_) => Ok(id),
            Err(source) => {
                self.inner.cancels.forget(id);
                Err(HubError::Write { id, source })
            }
        }
    }

    /// Records what a runner reports. Each report is answered, in the order of the reports; reports
    /// of one execution must not be in one call twice. When this returns, what was taken is on the
    /// disk.
    pub async fn report(&self, reports: Vec<Report>) -> Vec<Result<Answer, HubError>> {
        let count = reports.len();
        let mut writes = JoinSet::new();
        for (place, report) in reports.into_iter().enumerate() {
            let store = self.inner.store.clone();
            // Asked for together, they share a commit.
            writes.spawn(async move { (place, record(&store, report).await) });
        }
        let mut answers: Vec<_> = (0..count).map(|_| Err(HubError::Closed)).collect();
        while let Some(joined) = writes.join_next().await {
            match joined {
                Ok((place, answer)) => answers[place] = answer,
                // Its place says that the hub was closed; why is known only here.
                Err(error) => tracing::error!(%error, "a report was not taken"),
            }
        }
        answers
    }

    /// Asks to cancel an execution, whoever runs it. The request is recorded when this returns.
    ///
    /// # Errors
    /// If the request could not be recorded.
    pub async fn cancel(&self, id: ExecutionId, by: &str) -> Result<CancelAnswer, HubError> {
        let by = by.to_owned();
        self.inner
            .store
            .transact(id, adapter::now(), move |snapshot| {
                cancel::request(snapshot, &by)
            })
            .await
            .map(|written| written.answer)
            .map_err(|source| HubError::Write { id, source })
    }

    /// The next request to cancel an execution of this process, whoever made it. For one waiter at a
    /// time. Cancel safe.
    pub async fn next_cancel(&self) -> CancelWish {
        self.inner.watch.start();
        self.inner.cancels.next().await
    }

    /// The snapshot of one execution.
    ///
    /// # Errors
    /// If there is no such execution, or the store fails.
    pub async fn snapshot(&self, id: ExecutionId) -> Result<Snapshot, HubError> {
        let found = self.inner.store.snapshot(id).await;
        found
            .map_err(HubError::Store)?
            .ok_or(HubError::Unknown { id })
    }

    /// The spec with this digest.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn spec(&self, digest: Digest) -> Result<Option<JobSpec>, HubError> {
        let found = self.inner.store.spec(digest).await;
        found.map_err(HubError::Store)
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
    ) -> Result<ListPage, HubError> {
        let found = self.inner.store.list(filter, limit, after).await;
        found.map_err(HubError::Store)
    }

    /// The events of one execution after a sequence.
    ///
    /// # Errors
    /// If there is no such execution, or the store fails.
    pub async fn events(
        &self,
        id: ExecutionId,
        after: u64,
        limit: usize,
    ) -> Result<EventPage, HubError> {
        let found = self.inner.store.events(id, after, limit).await;
        found
            .map_err(HubError::Store)?
            .ok_or(HubError::Unknown { id })
    }

    /// Which execution has an id that begins or ends with this text.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn resolve(&self, text: &str) -> Result<Resolve, HubError> {
        let found = self.inner.store.resolve(text).await;
        found.map_err(HubError::Store)
    }

    /// Subscribes to what is committed from now on, by this process or another one.
    pub fn subscribe(&self, interest: Interest) -> Subscription {
        self.inner.watch.start();
        self.inner.subscriptions.subscribe(interest)
    }

    /// Follows one execution from a sequence on: every event once and in order, up to its end.
    pub fn follow(&self, id: ExecutionId, after: u64) -> Follow {
        Follow::new(self.clone(), id, after)
    }

    /// Waits until an execution has ended. Cancel safe.
    ///
    /// # Errors
    /// If there is no such execution, or the store fails.
    pub async fn wait(&self, id: ExecutionId) -> Result<Snapshot, HubError> {
        let mut subscription = self.subscribe(Interest::Executions(BTreeSet::from([id])));
        loop {
            let snapshot = self.snapshot(id).await?;
            if snapshot.is_final() {
                return Ok(snapshot);
            }
            if subscription.next().await.is_none() {
                return Err(HubError::Closed);
            }
        }
    }

    /// Closes the hub: followers come to their end, everything that was asked is done. The process
    /// owns nothing afterwards.
    pub async fn close(&self) {
        self.inner.watch.stop();
        self.inner.subscriptions.close();
        self.inner.store.leave().await;
        if let Some(owner) = self.owner().take() {
            owner.remove();
        }
    }

    /// This process's name among the owners; it becomes one if it is none.
    fn own(&self) -> Result<String, OwnerError> {
        let mut owner = self.owner();
        if owner.is_none() {
            *owner = Some(OwnerFile::create(&self.inner.state_dir.owners())?);
        }
        let owner = owner.as_ref().expect("it was made above");
        Ok(owner.name().to_owned())
    }

    /// True if this process has this name.
    pub(crate) fn is_own(&self, name: &str) -> bool {
        self.owner()
            .as_ref()
            .is_some_and(|owner| owner.name() == name)
    }

    fn owner(&self) -> MutexGuard<'_, Option<OwnerFile>> {
        // It is set in one step, so it is whole whoever panicked.
        self.inner
            .owner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

async fn record(store: &Store, report: Report) -> Result<Answer, HubError> {
    let Report {
        execution: id,
        attempt,
        events,
    } = report;
    let at = adapter::now();
    store
        .transact(id, at, move |snapshot| {
            report::decide(snapshot, attempt, events, at)
        })
        .await
        .map(|written| written.answer)
        .map_err(|source| HubError::Write { id, source })
}
