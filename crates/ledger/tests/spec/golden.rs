//! Formats that outlive a process: every version that was ever written stays readable.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use tidemill_core::EventRecord;
use tidemill_ledger::Snapshot;

use crate::script::after;

/// Reads a golden file; with `TIDEMILL_BLESS` set, writes it first.
fn golden(name: &str, current: &Value) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("TIDEMILL_BLESS").is_some() {
        let text = serde_json::to_string_pretty(current).unwrap();
        std::fs::write(&path, text + "\n").unwrap();
    }
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()
}

/// A life in which every kind of event occurs, over two executions.
fn histories() -> Vec<EventRecord> {
    let long = after(
        "created\nqueued 2\npaused night\nresumed morning\nassigned r1 1\nstatus layers
        started\nstep_started build\nprogress build 1 3 compiling\nstep_completed build ok fine
        diagnostic pids\nlog stderr 0 4\nartifact_kept\nreport_kept\nrequeued\nassigned r2 2
        started\ncancelling ann\ncompleted",
    );
    let ends = [
        "created\nassigned\nstarted\nfailed exit 3",
        "created\nassigned\nstarted\ntimed_out",
        "created\ncancelling ann\ncancelled cancelled",
        "created\ninterrupted",
    ];
    let mut all = long.history;
    all.extend(
        ends.into_iter()
            .map(|road| after(road).history.pop().unwrap()),
    );
    all
}

#[test]
fn events_of_version_1_stay_readable_and_are_still_written_so() {
    let current = serde_json::to_value(histories()).unwrap();
    let golden = golden("events-v1.json", &current);
    let read: Vec<EventRecord> = serde_json::from_value(golden.clone()).unwrap();
    assert_eq!(read, histories());
    assert_eq!(golden, current);
    let kinds: BTreeSet<&str> = read.iter().map(|record| record.event.kind()).collect();
    assert_eq!(
        kinds.len(),
        21,
        "every kind is in the golden file: {kinds:?}"
    );
}

#[test]
fn a_snapshot_of_version_1_stays_readable_and_is_still_written_so() {
    let full = after(
        "created\nqueued 2\nassigned r1 1\nstarted\nrequeued\nassigned r1 2\nstatus layers\nstarted
        step_started build\nprogress build 1 3 compiling\nstep_completed lint bad found
        diagnostic pids\nlog stdout 0 8\nartifact_kept\nreport_kept\ncancelling ann
        failed exit 3",
    );
    let small = after("adopt m1");
    let snapshots = vec![full.snapshot().clone(), small.snapshot().clone()];
    let current = serde_json::to_value(&snapshots).unwrap();
    let golden = golden("snapshots-v1.json", &current);
    let read: Vec<Snapshot> = serde_json::from_value(golden.clone()).unwrap();
    assert_eq!(read, snapshots);
    assert_eq!(golden, current);
}

#[test]
fn what_a_newer_version_adds_is_passed_over() {
    let mut value = serde_json::to_value(after("created").snapshot()).unwrap();
    value["added_later"] = Value::from(1);
    let read: Snapshot = serde_json::from_value(value).unwrap();
    assert_eq!(read, *after("created").snapshot());
}

#[test]
fn a_snapshot_has_a_json_schema_that_names_its_fields() {
    let schema = serde_json::to_value(schemars::schema_for!(Snapshot)).unwrap();
    let fields = schema["properties"].as_object().unwrap();
    let written =
        serde_json::to_value(after("created\nassigned\nstarted\nfailed").snapshot()).unwrap();
    for field in written.as_object().unwrap().keys() {
        assert!(fields.contains_key(field), "{field} is not in the schema");
    }
}
