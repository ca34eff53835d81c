//! Lanes that are put in line, with what their order depends on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::claim::Window;
use crate::job::{Class, Job};
use crate::order::{Age, Head};
use crate::queue::Queue;
use crate::queue::index::{Lane, LaneKey};
use crate::submission::QueueKey;

/// Lanes that are to be put in line, with what the order depends on.
pub(super) struct Lanes<'a> {
    queue: &'a Queue,
    pub(super) classes: Vec<&'a Class>,
    pub(super) keys: Vec<&'a LaneKey>,
    pub(super) lanes: Vec<&'a Lane>,
    pub(super) heads: Vec<Head>,
    /// The last turns of the submitters that the heads name.
    pub(super) turns: Vec<u64>,
    submitters: BTreeMap<(&'a QueueKey, &'a str), usize>,
    /// The queue of each lane, and how many more of each runners may have.
    pub(super) queues: Vec<usize>,
    pub(super) rooms: Vec<u64>,
    numbers: BTreeMap<&'a QueueKey, usize>,
}

impl<'a> Lanes<'a> {
    pub(super) const fn of(queue: &'a Queue) -> Self {
        Self {
            queue,
            classes: Vec::new(),
            keys: Vec::new(),
            lanes: Vec::new(),
            heads: Vec::new(),
            turns: Vec::new(),
            submitters: BTreeMap::new(),
            queues: Vec::new(),
            rooms: Vec::new(),
            numbers: BTreeMap::new(),
        }
    }

    pub(super) fn push(&mut self, class: &'a Class, key: &'a LaneKey, lane: &'a Lane) {
        let Some((age, _)) = lane.jobs.first_key_value() else {
            return;
        };
        let (Reverse(priority), submitter) = key;
        let turns = &mut self.turns;
        let last_turn = || {
            turns.push(self.queue.last_turn(&class.queue, submitter));
            turns.len() - 1
        };
        let number = self.submitters.entry((&class.queue, submitter));
        self.heads.push(Head {
            priority: *priority,
            submitter: *number.or_insert_with(last_turn),
            age: *age,
            served_at: lane.served_at,
        });
        let rooms = &mut self.rooms;
        let room = || {
            rooms.push(self.queue.room(&class.queue));
            rooms.len() - 1
        };
        let number = self.numbers.entry(&class.queue).or_insert_with(room);
        self.queues.push(*number);
        self.classes.push(class);
        self.keys.push(key);
        self.lanes.push(lane);
    }
}

impl Window for Lanes<'_> {
    fn first(&self, lane: usize, behind: Option<Age>) -> Option<&Job> {
        let jobs = &self.lanes[lane].jobs;
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let (_, id) = jobs.range((from, Bound::Unbounded)).next()?;
        self.queue.jobs.get(id)
    }
}
