//! Following: what other processes commit is noticed, and one execution can be followed from any
//! event to its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemill_core::{EventRecord, ExecutionId, State};
use tidemill_ledger::{Admitted, Cursor, Delivery, Interest, Subscription};
use tidemill_store::Store;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::hub::{Hub, HubError};

/// How often the database is asked whether another process has committed.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Events that are read at once where a follower has to catch up.
const PAGE_EVENTS: usize = 256;

/// Looks for commits of other processes, from the moment somebody cares for them.
#[derive(Debug)]
pub(crate) struct Watch {
    store: Store,
    task: Mutex<JoinSet<()>>,
}

impl Watch {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            task: Mutex::new(JoinSet::new()),
        }
    }

    /// Starts looking, if that has not happened.
    pub(crate) fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_empty() {
            task.spawn(look(self.store.clone()));
        }
    }

    /// Stops looking.
    pub(crate) fn stop(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        task.abort_all();
    }
}

async fn look(store: Store) {
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The events are handed to the observer. A failure is met again, and told, by whoever asks
        // the store for something.
        if let Err(error) = store.changed().await {
            tracing::debug!(%error, "commits of other processes cannot be seen");
        }
    }
}

/// Follows one execution: every event once and in order, up to its end, from the history where there
/// is a history and live afterwards.
#[derive(Debug)]
pub struct Follow {
    hub: Hub,
    id: ExecutionId,
    cursor: Cursor,
    subscription: Subscription,
    /// Events that were read and not given yet.
    ready: VecDeque<Arc<EventRecord>>,
    /// True if the history has to be read before the next live event counts.
    behind: bool,
    over: bool,
}

impl Follow {
    pub(crate) fn new(hub: Hub, id: ExecutionId, after: u64) -> Self {
        let subscription = hub.subscribe(Interest::one(id));
        Self {
            hub,
            id,
            cursor: Cursor::after(after),
            subscription,
            ready: VecDeque::new(),
            behind: true,
            over: false,
        }
    }

    /// The next event; `None` after the last one. Cancel safe.
    ///
    /// # Errors
    /// If there is no such execution, the store fails or the hub is closed.
    pub async fn next(&mut self) -> Result<Option<Arc<EventRecord>>, HubError> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                self.over |= ends(&record);
                return Ok(Some(record));
            }
            if self.over {
                return Ok(None);
            }
            if self.behind {
                self.catch_up().await?;
                continue;
            }
            match self.subscription.next().await {
                None => return Err(HubError::Closed),
                Some(Delivery::Lagged { .. }) => self.behind = true,
                Some(Delivery::Event(record)) => match self.cursor.admit(&record) {
                    Admitted::Next => self.ready.push_back(record),
                    Admitted::Duplicate => {}
                    Admitted::Gap { .. } => self.behind = true,
                },
            }
        }
    }

    /// Reads a page of history.
    async fn catch_up(&mut self) -> Result<(), HubError> {
        let after = self.cursor.seen();
        let page = self.hub.events(self.id, after, PAGE_EVENTS).await?;
        self.behind = page.more;
        if let Some(last) = page.events.last() {
            self.cursor.advance(last.sequence);
        } else {
            // Asked for more than there is: an execution that has ended says nothing more.
            self.over = self.hub.snapshot(self.id).await?.is_final();
        }
        self.ready.extend(page.events.into_iter().map(Arc::new));
        Ok(())
    }
}

/// True if an event is the last one that moves an execution.
fn ends(record: &EventRecord) -> bool {
    State::from_name(match record.event.kind() {
        "completed" => "succeeded",
        other => other,
    })
    .is_some_and(State::is_final)
}
