//! A store that keeps everything in memory and does the obvious thing.

use std::collections::BTreeMap;

use tidemill_core::{Digest, EventRecord, ExecutionId, JobSpec, Timestamp};
use tidemill_ledger::page::PagePosition;
use tidemill_ledger::{Decision, EventPage, ListFilter, Refused, Snapshot, change};

use crate::entry::{Forgotten, LogObject, Unfinished};
use crate::listing::{AMBIGUOUS_LISTED_MAX, ListCursor, ListPage, Resolve};

/// A store in memory.
#[derive(Debug, Default, Clone)]
pub struct Model {
    rows: BTreeMap<ExecutionId, Row>,
    specs: BTreeMap<Digest, JobSpec>,
}

#[derive(Debug, Clone, Default)]
struct Row {
    snapshot: Option<Snapshot>,
    history: Vec<EventRecord>,
    owner: Option<String>,
    logs: Vec<LogObject>,
}

impl Model {
    /// Stores a spec, and names the owner of an execution that is created next.
    pub fn prepare(&mut self, id: ExecutionId, spec: &JobSpec, owner: Option<String>) {
        if self.rows.contains_key(&id) {
            return;
        }
        self.specs.insert(spec.digest(), spec.clone());
        self.rows.entry(id).or_default().owner = owner;
    }

    /// Changes one execution.
    ///
    /// # Errors
    /// If one of the events is refused.
    pub fn transact<A>(
        &mut self,
        id: ExecutionId,
        at: Timestamp,
        decide: impl FnOnce(Option<&Snapshot>) -> Decision<A>,
    ) -> Result<(A, Vec<EventRecord>), Refused> {
        let before = self.snapshot(id);
        let Decision {
            events,
            origin,
            answer,
        } = decide(before.as_ref());
        let Some(made) = change(before.as_ref(), id, at, events, origin)? else {
            return Ok((answer, Vec::new()));
        };
        let row = self.rows.entry(id).or_default();
        row.history.extend(made.records.iter().cloned());
        row.history
            .retain(|record| !made.replaced.contains(&record.sequence));
        for _ in 0..made.dropped {
            row.history.remove(0);
        }
        row.snapshot = Some(made.snapshot);
        Ok((answer, made.records))
    }

    /// Names the process that runs an execution.
    pub fn set_owner(&mut self, id: ExecutionId, owner: Option<String>) -> bool {
        self.row_mut(id).map(|row| row.owner = owner).is_some()
    }

    /// Records a sealed piece of a log.
    pub fn put_log(&mut self, id: ExecutionId, log: LogObject) -> bool {
        let put = |row: &mut Row| {
            row.logs
                .retain(|old| (old.attempt, old.start) != (log.attempt, log.start));
            row.logs.push(log);
            row.logs.sort_by_key(|log| (log.attempt, log.start));
        };
        self.row_mut(id).map(put).is_some()
    }

    /// Forgets those that have ended.
    pub fn forget(&mut self, ids: &[ExecutionId]) -> Forgotten {
        let mut forgotten = Forgotten::default();
        let mut objects = Vec::new();
        for id in ids {
            if self.snapshot(*id).is_some_and(|s| s.is_final())
                && let Some(row) = self.rows.remove(id)
            {
                objects.extend(row.logs.into_iter().map(|log| log.digest));
                forgotten.executions.push(*id);
            }
        }
        objects.sort();
        objects.dedup();
        objects.retain(|digest| {
            !self
                .all()
                .any(|(_, row)| row.logs.iter().any(|log| log.digest == *digest))
        });
        forgotten.log_objects = objects;
        let used: Vec<Digest> = self.snapshots().map(|snapshot| snapshot.spec).collect();
        self.specs.retain(|digest, _| used.contains(digest));
        forgotten
    }

    /// The snapshot of one execution.
    pub fn snapshot(&self, id: ExecutionId) -> Option<Snapshot> {
        self.rows.get(&id).and_then(|row| row.snapshot.clone())
    }

    /// A spec.
    pub fn spec(&self, digest: Digest) -> Option<JobSpec> {
        self.specs.get(&digest).cloned()
    }

    /// A page of the list.
    pub fn list(&self, filter: &ListFilter, limit: usize, after: Option<ListCursor>) -> ListPage {
        let place = |snapshot: &Snapshot| (snapshot.created_at, snapshot.id);
        let mut found: Vec<Snapshot> = self
            .snapshots()
            .filter(|snapshot| filter.matches(snapshot))
            .filter(|snapshot| after.is_none_or(|c| place(snapshot) < (c.created_at, c.id)))
            .cloned()
            .collect();
        found.sort_by_key(|snapshot| std::cmp::Reverse(place(snapshot)));
        let more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| more).map(|last| ListCursor {
            created_at: last.created_at,
            id: last.id,
        });
        ListPage {
            executions: found,
            next,
        }
    }

    /// A page of the history.
    pub fn events(&self, id: ExecutionId, after: u64, limit: usize) -> Option<EventPage> {
        let row = self.rows.get(&id)?;
        let snapshot = row.snapshot.as_ref()?;
        let found = row
            .history
            .iter()
            .filter(|record| record.sequence > after)
            .cloned()
            .collect();
        let position = PagePosition {
            after,
            first_kept: row.history.first().map_or(0, |record| record.sequence),
            last_sequence: snapshot.last_sequence,
            events_truncated: snapshot.events_truncated,
        };
        Some(EventPage::new(found, limit, &position))
    }

    /// What a shortened id stands for.
    pub fn resolve(&self, text: &str) -> Resolve {
        let text = text.replace('-', "").to_ascii_lowercase();
        let mut ids: Vec<ExecutionId> = self
            .snapshots()
            .map(|snapshot| snapshot.id)
            .filter(|id| {
                let digits = id.as_uuid().simple().to_string();
                !text.is_empty()
                    && (digits.starts_with(&text)
                        || digits.ends_with(&text)
                        || digits[20..].starts_with(&text))
            })
            .collect();
        ids.reverse();
        ids.truncate(AMBIGUOUS_LISTED_MAX);
        match ids[..] {
            [] => Resolve::Unknown,
            [id] => Resolve::Found(id),
            _ => Resolve::Ambiguous(ids),
        }
    }

    /// All executions that have not ended, oldest first.
    pub fn unfinished(&self) -> Vec<Unfinished> {
        let mut all: Vec<(Timestamp, Unfinished)> = self
            .all()
            .filter_map(|(id, row)| row.snapshot.as_ref().map(|snapshot| (id, row, snapshot)))
            .filter(|(_, _, snapshot)| !snapshot.is_final())
            .map(|(id, row, snapshot)| {
                let unfinished = Unfinished {
                    id: *id,
                    state: snapshot.state,
                    owner: row.owner.clone(),
                };
                (snapshot.created_at, unfinished)
            })
            .collect();
        all.sort_by_key(|(at, unfinished)| (*at, unfinished.id));
        all.into_iter().map(|(_, unfinished)| unfinished).collect()
    }

    /// The sealed pieces of a log.
    pub fn logs(&self, id: ExecutionId) -> Vec<LogObject> {
        self.rows
            .get(&id)
            .map(|row| row.logs.clone())
            .unwrap_or_default()
    }

    fn all(&self) -> impl Iterator<Item = (&ExecutionId, &Row)> {
        self.rows.iter()
    }

    fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        self.rows.values().filter_map(|row| row.snapshot.as_ref())
    }

    fn row_mut(&mut self, id: ExecutionId) -> Option<&mut Row> {
        self.rows.get_mut(&id).filter(|row| row.snapshot.is_some())
    }
}
