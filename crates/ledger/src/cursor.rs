//! Following one execution without gap and without duplicate.
//!
//! ```text
//! subscribe ─► read the snapshot (or a page of history) ─► Cursor::after(its last sequence)
//!          each event of the subscription ─► Cursor::admit ─► next │ seen before │ gap: read a page
//! ```

use tidemill_core::EventRecord;

/// How far a follower of one execution is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    seen: u64,
}

/// What a follower does with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// It is the next one.
    Next,
    /// It was seen before.
    Duplicate,
    /// Events before it were not seen: read the history after this sequence first.
    Gap {
        /// The last sequence that was seen.
        after: u64,
    },
}

impl Cursor {
    /// A follower that has seen everything through this sequence: 0 for nothing.
    pub const fn after(sequence: u64) -> Self {
        Self { seen: sequence }
    }

    /// The last sequence that was seen.
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Judges an event of a subscription, and moves on if it is the next one.
    pub const fn admit(&mut self, record: &EventRecord) -> Admitted {
        if record.sequence <= self.seen {
            Admitted::Duplicate
        } else if record.sequence == self.seen + 1 {
            self.seen = record.sequence;
            Admitted::Next
        } else {
            Admitted::Gap { after: self.seen }
        }
    }

    /// Moves on to what a page or a snapshot showed. In the history a sequence may be missing where
    /// a newer progress event took its place, so this never goes back and never complains.
    pub const fn advance(&mut self, through: u64) {
        if through > self.seen {
            self.seen = through;
        }
    }
}
