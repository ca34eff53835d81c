//! Records for tests.

use std::collections::BTreeMap;

use tidemill_core::{Digest, Event, ExecutionId, State, Timestamp};
use tidemill_ledger::{Origin, Snapshot, create};

/// A snapshot as the ledger makes it, with its state set by hand.
pub(crate) fn snapshot(number: u128, state: State) -> Snapshot {
    let created = Event::Created {
        spec: Digest::of(b"spec"),
        name: None,
        labels: BTreeMap::new(),
        command: vec!["true".into()],
        submitter: None,
        run: None,
        correlation_id: None,
    };
    let at = Timestamp(1_772_355_000_123_456);
    let mut snapshot = create(ExecutionId::for_test(number), Origin::Local, at, created)
        .expect("a first event is taken")
        .snapshot;
    snapshot.state = state;
    snapshot
}
