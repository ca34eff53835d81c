//! What comes out of the database, or from another process, as JSON.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::{EventRecord, JobSpec, Timestamp};
use tidemill_ledger::cursor::{Admitted, Cursor};
use tidemill_ledger::{Applied, Snapshot, apply};
use tidemill_sandbox::{Ended, SandboxRequest, StartError, fuzzing};

/// Each line is a snapshot, an event, a spec or a message of the launcher, or none. What is one comes
/// back as it was; events are applied or refused, and a follower never goes back.
pub fn record(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let mut snapshot: Option<Snapshot> = None;
    let mut cursor = Cursor::after(0);
    for line in text.lines() {
        snapshot = read::<Snapshot>(line).or(snapshot);
        read::<JobSpec>(line);
        for type_name in [
            is::<SandboxRequest>(line),
            is::<Ended>(line),
            is::<StartError>(line),
        ] {
            // None of them may take long or panic; most lines are none of them.
            std::hint::black_box(type_name);
        }
        std::hint::black_box(fuzzing::read_message(line.as_bytes()));
        let Some(event) = read::<EventRecord>(line) else {
            continue;
        };
        let seen = cursor.seen();
        match cursor.admit(&event) {
            Admitted::Next => assert_eq!(Some(cursor.seen()), seen.checked_add(1)),
            Admitted::Duplicate => assert_eq!(cursor.seen(), seen),
            Admitted::Gap { after } => {
                assert_eq!((after, cursor.seen()), (seen, seen));
                cursor.advance(event.sequence);
            }
        }
        assert!(cursor.seen() >= seen);
        if let Some(before) = &snapshot
            && let Ok(Applied::Recorded(recorded)) = apply(before, at(before), event.event)
        {
            let next = before.last_sequence.saturating_add(1);
            assert_eq!(recorded.snapshot.last_sequence, next);
            snapshot = Some(recorded.snapshot);
        }
    }
}

fn at(before: &Snapshot) -> Timestamp {
    Timestamp(before.updated_at.0.saturating_add(1))
}

fn is<T: DeserializeOwned>(line: &str) -> bool {
    serde_json::from_str::<T>(line).is_ok()
}

fn read<T>(line: &str) -> Option<T>
where
    T: DeserializeOwned + Serialize + PartialEq + Debug,
{
    let value: T = serde_json::from_str(line).ok()?;
    let text = serde_json::to_string(&value).expect("what was read can be written");
    let again: T = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(again, value);
    Some(value)
}
