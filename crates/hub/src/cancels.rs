//! Requests to cancel what this process runs, whoever made them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidemill_core::{Event, EventRecord, ExecutionId};
use tokio::sync::Notify;

/// Somebody wants an execution of this process to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelWish {
    /// Which execution.
    pub execution: ExecutionId,
    /// Who.
    pub by: String,
}

/// The executions of this process and the wishes that nobody has taken yet: one each at most.
#[derive(Debug, Default)]
pub(crate) struct Cancels {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    own: BTreeSet<ExecutionId>,
    wishes: BTreeMap<ExecutionId, String>,
}

impl Cancels {
    /// This process runs an execution.
    pub(crate) fn adopt(&self, id: ExecutionId) {
        self.state().own.insert(id);
    }

    /// It does not after all.
    pub(crate) fn forget(&self, id: ExecutionId) {
        let mut state = self.state();
        state.own.remove(&id);
        state.wishes.remove(&id);
    }

    /// Takes note of an event that was committed, by whomever.
    pub(crate) fn observe(&self, record: &EventRecord) {
        let mut state = self.state();
        if !state.own.contains(&record.execution) {
            return;
        }
        match &record.event {
            Event::Cancelling { by } => {
                state.wishes.insert(record.execution, by.clone());
                drop(state);
                self.wake.notify_one();
            }
            Event::Completed { .. }
            | Event::Failed { .. }
            | Event::TimedOut { .. }
            | Event::Cancelled { .. }
            | Event::Interrupted { .. } => {
                state.own.remove(&record.execution);
                state.wishes.remove(&record.execution);
            }
            _ => {}
        }
    }

    /// The next wish. Cancel safe: a wish is only taken when it is returned. For one waiter at a
    /// time.
    pub(crate) async fn next(&self) -> CancelWish {
        loop {
            let taken = self.state().wishes.pop_first();
            if let Some((execution, by)) = taken {
                return CancelWish { execution, by };
            }
            self.wake.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No step in between can panic, so the data is whole whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
