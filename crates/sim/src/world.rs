//! Time that does not pass by itself, and everything that is going to happen in it.
//!
//! The world knows nothing of what happens: `E` is one event of whatever machines are driven, each
//! with its own part of the enum. It gives events one after the other, in the order of their time;
//! events of one instant come in an order that depends on the seed.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::Timestamp;

use crate::chance::{Chance, scramble_all};

/// A virtual clock, a seed, and the events to come.
#[derive(Debug)]
pub struct World<E> {
    seed: u64,
    now: Timestamp,
    /// A search tree instead of a binary heap, because events are taken out of the middle.
    agenda: BTreeMap<Due, E>,
    scheduled: u64,
}

/// When an event comes; names it in its world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    // The order of the fields is the order of events.
    at: Timestamp,
    tie: u64,
    number: u64,
}

impl Due {
    /// The point in time.
    pub const fn at(self) -> Timestamp {
        self.at
    }
}

impl<E> World<E> {
    /// A world in which nothing is going to happen. It begins at the time zero.
    pub const fn new(seed: u64) -> Self {
        Self {
            seed,
            now: Timestamp(0),
            agenda: BTreeMap::new(),
            scheduled: 0,
        }
    }

    /// The virtual time.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Randomness for the thing with this name.
    pub fn chance(&self, label: &[u64]) -> Chance {
        Chance::of(self.seed, label)
    }

    /// Lets an event happen later, or after everything that happens now. The label is the event's
    /// name and decides its place among the events of one instant.
    pub fn schedule(&mut self, after: Duration, label: &[u64], event: E) -> Due {
        self.scheduled += 1;
        let due = Due {
            at: self.now.plus(after),
            tie: scramble_all(self.seed, label),
            number: self.scheduled,
        };
        self.agenda.insert(due, event);
        due
    }

    /// Takes an event back. Nothing if it has happened.
    pub fn cancel(&mut self, due: Due) -> Option<E> {
        self.agenda.remove(&due)
    }

    /// Goes on to the next event. Nothing if there is none; then the world stands still.
    pub fn advance(&mut self) -> Option<E> {
        let (due, event) = self.agenda.pop_first()?;
        self.now = due.at;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn all(mut world: World<&str>) -> Vec<(i64, &str)> {
        std::iter::from_fn(|| {
            let event = world.advance()?;
            Some((world.now().0, event))
        })
        .collect()
    }

    #[test]
    fn events_come_in_the_order_of_their_time() {
        let mut world = World::new(1);
        world.schedule(ms(2), &[1], "later");
        let lost = world.schedule(ms(1), &[2], "lost");
        world.schedule(ms(0), &[3], "now");
        assert_eq!(world.cancel(lost), Some("lost"));
        assert_eq!(world.cancel(lost), None);
        assert_eq!(all(world), [(0, "now"), (2000, "later")]);
    }

    #[test]
    fn events_of_one_instant_come_in_every_order() {
        let order = |seed| {
            let mut world = World::new(seed);
            for (label, event) in [(1, "a"), (2, "b"), (3, "c")] {
                world.schedule(ms(1), &[label], event);
            }
            all(world)
                .into_iter()
                .map(|(_, event)| event)
                .collect::<String>()
        };
        let orders: std::collections::BTreeSet<_> = (0..100).map(order).collect();
        assert_eq!(orders.len(), 6, "{orders:?}");
        assert_eq!(order(5), order(5));
    }
}
