//! Who follows what is recorded.
//!
//! A publisher never waits: what a subscriber does not take in time is counted, not kept, and the
//! subscriber is told how much that was before anything else. A subscription that was dropped is
//! forgotten at the next event.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tidemill_core::{EventRecord, ExecutionId};

use crate::bounds::SUBSCRIBER_BEHIND_MAX;

/// Which executions a subscriber wants to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interest {
    /// All of them.
    All,
    /// These.
    Executions(BTreeSet<ExecutionId>),
}

impl Interest {
    /// One execution.
    pub fn one(id: ExecutionId) -> Self {
        Self::Executions(BTreeSet::from([id]))
    }

    /// True if the subscriber wants to hear of this one.
    pub fn covers(&self, id: ExecutionId) -> bool {
        match self {
            Self::All => true,
            Self::Executions(ids) => ids.contains(&id),
        }
    }
}

/// What a subscriber is given.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// The next event.
    Event(Arc<EventRecord>),
    /// So many events were missed. Resume from the snapshot and a [`crate::Cursor`].
    Lagged {
        /// How many.
        missed: u64,
    },
}

/// All subscriptions of one hub. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Subscriptions {
    members: Arc<Mutex<Vec<Weak<Mailbox>>>>,
}

impl Subscriptions {
    /// A registry without subscribers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Subscribes. What is published from now on arrives.
    pub fn subscribe(&self, interest: Interest) -> Subscription {
        let mailbox = Arc::new(Mailbox {
            content: Mutex::new(Content {
                interest,
                waiting: VecDeque::new(),
                missed: 0,
                closed: false,
                waker: None,
            }),
        });
        lock(&self.members).push(Arc::downgrade(&mailbox));
        Subscription { mailbox }
    }

    /// Hands an event to everybody who wants it. Never waits for any of them.
    pub fn publish(&self, record: &Arc<EventRecord>) {
        let mut wakers = Vec::new();
        lock(&self.members).retain(|member| {
            let Some(mailbox) = member.upgrade() else {
                return false;
            };
            wakers.extend(mailbox.put(record));
            true
        });
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How many subscriptions are remembered. One that was dropped counts until the next event.
    pub fn len(&self) -> usize {
        lock(&self.members).len()
    }

    /// True if no subscription is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends every subscription: each gets what is waiting for it, then the end.
    pub fn close(&self) {
        let members = std::mem::take(&mut *lock(&self.members));
        for mailbox in members.iter().filter_map(Weak::upgrade) {
            let waker = {
                let mut content = lock(&mailbox.content);
                content.closed = true;
                content.waker.take()
            };
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriptions")
            .field("members", &self.len())
            .finish()
    }
}

/// One subscriber's end. Dropping it ends the subscription.
pub struct Subscription {
    mailbox: Arc<Mailbox>,
}

impl Subscription {
    /// Changes what this subscriber wants to hear of, from the next event on. What is waiting for
    /// it already and is no longer wanted is taken away.
    pub fn set_interest(&self, interest: Interest) {
        let mut content = lock(&self.mailbox.content);
        content
            .waiting
            .retain(|record| interest.covers(record.execution));
        content.interest = interest;
    }

    /// The next delivery if there is one, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        lock(&self.mailbox.content).take()
    }

    /// The next delivery; `None` once the registry was closed. Cancel safe: a delivery is only
    /// taken when it is returned.
    pub async fn next(&mut self) -> Option<Delivery> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// The next delivery, for those who poll by hand.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let mut content = lock(&self.mailbox.content);
        if let Some(delivery) = content.take() {
            return Poll::Ready(Some(delivery));
        }
        if content.closed {
            return Poll::Ready(None);
        }
        content.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let content = lock(&self.mailbox.content);
        f.debug_struct("Subscription")
            .field("interest", &content.interest)
            .field("waiting", &content.waiting.len())
            .field("missed", &content.missed)
            .finish()
    }
}

struct Mailbox {
    content: Mutex<Content>,
}

struct Content {
    interest: Interest,
    waiting: VecDeque<Arc<EventRecord>>,
    /// Events that were not kept for the subscriber and that it has not been told of.
    missed: u64,
    closed: bool,
    waker: Option<Waker>,
}

impl Mailbox {
    /// Puts an event into the mailbox; gives back who is to be woken, once no lock is held.
    fn put(&self, record: &Arc<EventRecord>) -> Option<Waker> {
        let mut content = lock(&self.content);
        if !content.interest.covers(record.execution) {
            return None;
        }
        if content.missed > 0 {
            // Nothing is kept until it has been told: it resumes from its cursor anyway.
            content.missed += 1;
        } else if content.waiting.len() >= SUBSCRIBER_BEHIND_MAX {
            content.missed = content.waiting.len() as u64 + 1;
            content.waiting.clear();
        } else {
            content.waiting.push_back(Arc::clone(record));
        }
        content.waker.take()
    }
}

impl Content {
    fn take(&mut self) -> Option<Delivery> {
        if self.missed > 0 {
            let missed = std::mem::take(&mut self.missed);
            return Some(Delivery::Lagged { missed });
        }
        self.waiting.pop_front().map(Delivery::Event)
    }
}

/// Locks. A panic of another thread cannot leave the data half changed: no step in between calls
/// anything that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
