//! What one transaction does to one execution: a decision is taken on the snapshot, its events are
//! applied, and what came of it is written as a whole or not at all.

use tidemill_core::{Event, EventRecord, ExecutionId, Timestamp};

use crate::apply::{Applied, Recorded, Refused, apply, create};
use crate::snapshot::{Origin, Snapshot};

/// What somebody who saw the snapshot wants to happen, and what to tell the one who asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<A> {
    /// The events, in order. One that is refused refuses them all.
    pub events: Vec<Event>,
    /// Who runs it, where that changes: on adoption, and whenever its reporter was heard. Absent, a
    /// new execution is this hub's own and an old one stays as it was.
    pub origin: Option<Origin>,
    /// What to tell the one who asked.
    pub answer: A,
}

impl<A> Decision<A> {
    /// Nothing is to happen.
    pub const fn nothing(answer: A) -> Self {
        Self {
            events: Vec::new(),
            origin: None,
            answer,
        }
    }

    /// These events are to happen.
    pub const fn events(events: Vec<Event>, answer: A) -> Self {
        Self {
            events,
            origin: None,
            answer,
        }
    }
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The snapshot afterwards.
    pub snapshot: Snapshot,
    /// The events that were recorded, in order. Followers see each of them.
    pub records: Vec<EventRecord>,
    /// Sequences that leave the kept history because a newer event took their place. Some may be
    /// among `records`.
    pub replaced: Vec<u64>,
    /// How many of the oldest events leave the kept history, once `records` are in it.
    pub dropped: u64,
}

impl Change {
    /// The events of this change that stay in the kept history.
    pub fn kept_records(&self) -> impl Iterator<Item = &EventRecord> {
        self.records
            .iter()
            .filter(|record| !self.replaced.contains(&record.sequence))
    }
}

/// Applies events to an execution, all or none. `None` if nothing changed.
///
/// # Errors
/// If one of the events is refused.
pub fn change(
    before: Option<&Snapshot>,
    id: ExecutionId,
    at: Timestamp,
    events: Vec<Event>,
    origin: Option<Origin>,
) -> Result<Option<Change>, Refused> {
    let mut current = before.cloned();
    let mut records = Vec::with_capacity(events.len());
    let mut replaced = Vec::new();
    let mut dropped = 0;
    for event in events {
        let recorded = match &current {
            None => {
                let origin = origin.clone().unwrap_or(Origin::Local);
                create(id, origin, at, event)?
            }
            Some(snapshot) => match apply(snapshot, at, event)? {
                Applied::Already => continue,
                Applied::Recorded(recorded) => *recorded,
            },
        };
        let Recorded {
            snapshot,
            record,
            replaces,
            drops_oldest,
        } = recorded;
        current = Some(snapshot);
        records.push(record);
        replaced.extend(replaces);
        dropped += u64::from(drops_oldest);
    }
    let Some(mut snapshot) = current else {
        return Ok(None);
    };
    let origin_changed = match origin {
        Some(origin) if origin != snapshot.origin => {
            snapshot.origin = origin;
            true
        }
        _ => false,
    };
    if records.is_empty() && !origin_changed {
        return Ok(None);
    }
    Ok(Some(Change {
        snapshot,
        records,
        replaced,
        dropped,
    }))
}
