//! Pages of a history.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_core::EventRecord;

/// Events of one page at most.
pub const PAGE_EVENTS_MAX: usize = 1_000;

/// Some events of one execution, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventPage {
    /// The events after the sequence that was asked for, up to the limit.
    pub events: Vec<EventRecord>,
    /// The sequence of the execution's last event, on this page or not.
    pub last_sequence: u64,
    /// True if more follow.
    pub more: bool,
    /// True if events before this page were dropped, because the history is bounded.
    pub truncated: bool,
    /// True if some of them come after the sequence that was asked for: the reader has not seen
    /// them and cannot any more.
    pub gap: bool,
}

impl EventPage {
    /// Puts a page together. `found` are the kept events after `after` in order, at least one more
    /// than `limit` if there are that many; `first_kept` is the oldest sequence that the history
    /// still has.
    pub fn new(found: Vec<EventRecord>, limit: usize, position: &PagePosition) -> Self {
        let mut events = found;
        let more = events.len() > limit;
        events.truncate(limit);
        Self {
            events,
            last_sequence: position.last_sequence,
            more,
            truncated: position.events_truncated,
            gap: position.events_truncated
                && position.after.saturating_add(1) < position.first_kept,
        }
    }

    /// The sequence to ask for next.
    pub fn next_after(&self, after: u64) -> u64 {
        self.events.last().map_or(after, |record| record.sequence)
    }
}

/// Where a page stands in its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePosition {
    /// The sequence that was asked for.
    pub after: u64,
    /// The oldest sequence that the history still has.
    pub first_kept: u64,
    /// The sequence of the execution's last event.
    pub last_sequence: u64,
    /// True once events were dropped from the beginning of the history.
    pub events_truncated: bool,
}

/// The limit that counts, for the one that was asked for.
pub const fn page_limit(asked: Option<usize>) -> usize {
    match asked {
        Some(0) => 1,
        Some(limit) if limit < PAGE_EVENTS_MAX => limit,
        _ => PAGE_EVENTS_MAX,
    }
}
