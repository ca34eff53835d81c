//! Who is next: priority with ageing, then turns between submitters, then age.
//!
//! Jobs wait in *lanes*: one queue, one class, one priority, one submitter. Within a lane the oldest
//! goes first, so that only the first of each lane has to be looked at, however many wait behind it.
//!
//! Ageing counts from when the lane was last served, not from when the job came: else a submitter with
//! a long lane of old jobs would outrank whoever comes later, and turns would mean nothing. A lane
//! that is passed over for long gains priority until it is served once, so nothing starves.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use tidemill_core::Timestamp;

/// A job's age among those of its lane: the lesser goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Age {
    /// Since when it is in line.
    pub since: Timestamp,
    /// The number of its acceptance.
    pub arrival: u64,
}

/// The head of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The lane's priority.
    pub priority: i32,
    /// The lane's submitter: an index into the turns.
    pub submitter: usize,
    /// The age of its oldest job.
    pub age: Age,
    /// When a job of the lane was last given to a runner; 0 if never.
    pub served_at: Timestamp,
}

/// The priority of a lane with its ageing.
pub fn effective_priority(head: &Head, now: Timestamp, step: Duration) -> i64 {
    let passed_over = now.since(head.age.since.max(head.served_at));
    let steps = passed_over.as_micros() / step.as_micros().max(1);
    i64::from(head.priority) + i64::try_from(steps).unwrap_or(i64::from(u32::MAX))
}

/// What decides, in this order; the lesser goes first.
type Rank = (Reverse<i64>, u64, Age);

/// Lanes in the order in which they are served.
#[derive(Debug)]
pub struct Line {
    now: Timestamp,
    step: Duration,
    heads: Vec<Head>,
    /// The number of each submitter's last turn; 0 if it had none.
    turns: Vec<u64>,
    newest_turn: u64,
    heap: BinaryHeap<Reverse<(Rank, usize)>>,
}

impl Line {
    /// Puts lanes in line. `turns` has the number of the last turn of each submitter that a head names.
    pub fn new(now: Timestamp, step: Duration, heads: Vec<Head>, turns: Vec<u64>) -> Self {
        let newest_turn = turns.iter().copied().max().unwrap_or(0);
        let mut line = Self {
            now,
            step,
            heads,
            turns,
            newest_turn,
            heap: BinaryHeap::new(),
        };
        let all = 0..line.heads.len();
        line.heap = all.map(|lane| Reverse((line.rank(lane), lane))).collect();
        line
    }

    fn rank(&self, lane: usize) -> Rank {
        let head = &self.heads[lane];
        let priority = effective_priority(head, self.now, self.step);
        (Reverse(priority), self.turns[head.submitter], head.age)
    }

    /// The lane that is next, which leaves the line: whoever takes its first job says so with
    /// [`Self::took`], whoever does not is done with it.
    pub fn pop(&mut self) -> Option<usize> {
        loop {
            let Reverse((rank, lane)) = self.heap.pop()?;
            // Its submitter may have had a turn out of another lane. That only makes it later.
            let current = self.rank(lane);
            if current == rank {
                return Some(lane);
            }
            self.heap.push(Reverse((current, lane)));
        }
    }

    /// The first job of a lane was taken, which was its submitter's turn. If there is another one in
    /// the lane, it is in line again.
    pub fn took(&mut self, lane: usize, next: Option<Age>) {
        self.newest_turn += 1;
        let head = &mut self.heads[lane];
        head.served_at = self.now;
        self.turns[head.submitter] = self.newest_turn;
        if let Some(age) = next {
            head.age = age;
            self.heap.push(Reverse((self.rank(lane), lane)));
        }
    }

    /// The head of a lane.
    pub fn head(&self, lane: usize) -> &Head {
        &self.heads[lane]
    }
}

/// How many go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Position {
    /// It is this one; 1 is the next.
    Exactly(u64),
    /// It is this one or a later one: counting further would cost too much.
    AtLeast(u64),
}

impl Position {
    /// The number.
    pub const fn number(self) -> u64 {
        match self {
            Self::Exactly(number) | Self::AtLeast(number) => number,
        }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exactly(number) => write!(f, "position {number}"),
            Self::AtLeast(number) => write!(f, "position {number} or later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn head(priority: i32, submitter: usize, since: i64) -> Head {
        Head {
            priority,
            submitter,
            age: Age {
                since: Timestamp(since),
                arrival: u64::try_from(since).unwrap_or(0),
            },
            served_at: Timestamp(0),
        }
    }

    #[test]
    fn priority_goes_before_turns_and_turns_before_age() {
        let now = Timestamp(1_000);
        let heads = vec![head(0, 0, 1), head(0, 1, 2), head(5, 2, 3), head(0, 3, 0)];
        let mut line = Line::new(now, MINUTE, heads, vec![7, 3, 9, 7]);
        let order: Vec<_> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(order, [2, 1, 3, 0]);
    }

    #[test]
    fn a_turn_out_of_one_lane_counts_in_the_others_of_the_submitter() {
        let heads = vec![head(0, 0, 1), head(0, 0, 2), head(0, 1, 3)];
        let mut line = Line::new(Timestamp(9), MINUTE, heads, vec![0, 0]);
        assert_eq!(line.pop(), Some(0));
        line.took(0, None);
        assert_eq!(line.pop(), Some(2));
        assert_eq!(line.pop(), Some(1));
    }

    #[test]
    fn a_lane_that_is_passed_over_gains_until_it_is_served() {
        let mut lane = head(0, 0, 0);
        let at = |lane: &Head, minutes: u32| {
            effective_priority(lane, Timestamp(0).plus(MINUTE * minutes), MINUTE)
        };
        assert_eq!([at(&lane, 0), at(&lane, 3)], [0, 3]);
        lane.served_at = Timestamp(0).plus(MINUTE * 3);
        assert_eq!([at(&lane, 3), at(&lane, 4)], [0, 1]);
    }
}
