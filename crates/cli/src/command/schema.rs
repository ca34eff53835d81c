//! `tidemill schema`: the JSON Schemas of what is read and written.

use schemars::{Schema, schema_for};
use tidemill_core::{Draft, EventRecord, JobSpec};
use tidemill_ledger::Snapshot;

use crate::args::{SchemaArgs, SchemaChoice};
use crate::failure::Failure;
use crate::output::Output;
use crate::result_file::NotRecorded;

pub(crate) fn schema(args: &SchemaArgs, output: &mut Output) -> Result<u8, Failure> {
    output.json_document(&schema_of(args.which))?;
    Ok(0)
}

fn schema_of(which: SchemaChoice) -> Schema {
    match which {
        SchemaChoice::Job => schema_for!(Draft),
        SchemaChoice::Spec => schema_for!(JobSpec),
        SchemaChoice::Record => schema_for!(Snapshot),
        SchemaChoice::Event => schema_for!(EventRecord),
        SchemaChoice::Refusal => schema_for!(NotRecorded<'static>),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};
    use tidemill_core::check::{Surroundings, check};
    use tidemill_core::event::{EVENT_VERSION, Outcome};
    use tidemill_core::{Event, ExecutionId, Grant, Reason, ReasonCode, State, Timestamp};

    use super::*;
    use crate::testing::snapshot;

    fn validates(which: SchemaChoice, value: &Value) -> bool {
        jsonschema::validator_for(schema_of(which).as_value())
            .unwrap()
            .is_valid(value)
    }

    #[test]
    fn the_job_schema_and_the_check_agree_on_shapes() {
        for (job, good) in [
            (json!({ "program": "a" }), true),
            (
                json!({
                    "version": 1, "program": "a", "args": ["b"], "image": "none",
                    "layers": ["dir:x"], "workspace": ".", "env": { "A": "b" },
                    "grants": ["userns", "bind:a:/b:rw"],
                    "limits": { "memory": "1GiB", "cpus": 1.5, "pids": 7, "timeout": null },
                    "stop_signal": "INT", "user": 1000, "tty": true, "priority": -1, "estimate": "1s", "name": null
                }),
                true,
            ),
            (json!({}), false),
            (json!({ "program": 1 }), false),
            (json!({ "program": "a", "programm": "b" }), false),
            (json!({ "program": "a", "args": "b" }), false),
            (
                json!({ "program": "a", "limits": { "memory": true } }),
                false,
            ),
            (
                json!({ "program": "a", "limits": { "memroy": "1GiB" } }),
                false,
            ),
            (json!({ "program": "a", "env": { "A": 1 } }), false),
            (json!({ "program": "a", "tty": "yes" }), false),
            (json!({ "program": "a", "stop_signal": 2 }), true),
            (json!({ "program": "a", "stop_signal": ["INT"] }), false),
            (json!({ "program": "a", "grants": "userns" }), false),
            (json!({ "program": "a", "grants": [["userns"]] }), false),
            (
                json!({ "image": "oci:a", "entrypoint": ["a"], "platform": "linux/arm64" }),
                true,
            ),
            (json!({ "entrypoint": ["a"] }), true),
            (json!({ "program": "a", "entrypoint": "b" }), false),
            (json!({ "program": "a", "found": [] }), false),
            (json!([]), false),
        ] {
            let (spec, found) = check(&Draft::from_json(&job, "/base"), &Surroundings::default());
            assert_eq!(spec.is_some(), good, "{job}: {found:?}");
            assert_eq!(validates(SchemaChoice::Job, &job), good, "{job}");
        }
    }

    #[test]
    fn the_job_schema_and_the_check_agree_on_layers() {
        for (layer, good) in [
            (json!("dir:a=/b"), true),
            (
                json!({ "kind": "dir", "source": "a", "dest": "/b", "canonical": true, "owner": 7 }),
                true,
            ),
            (
                json!({ "kind": "file", "source": "a", "dest": "/b", "mode": "0755", "mtime": 5 }),
                true,
            ),
            (
                json!({
                    "kind": "glob", "include": ["*.a"], "exclude": ["b"], "base": "/x", "strip": "y"
                }),
                true,
            ),
            (
                json!({ "kind": "tar", "source": "a", "strip": "b", "owner": "1:2" }),
                true,
            ),
            (json!({ "kind": "stubs", "paths": ["/a/"] }), true),
            (json!({ "kind": "symlinks", "links": { "/a": "b" } }), true),
            (json!({ "kind": "shared-libs", "binaries": ["/a"] }), true),
            (
                json!({ "kind": "command", "program": "a", "args": ["b"], "env": { "C": "d" } }),
                true,
            ),
            (
                json!({ "kind": "oci", "reference": "a:1", "platform": "linux/arm64", "strip": "b" }),
                true,
            ),
            (json!({ "kind": "oci", "source": "a" }), false),
            (json!({ "kind": "dri", "source": "a" }), false),
            (json!({ "source": "a" }), false),
            (json!({ "kind": "dir" }), false),
            (json!({ "kind": "file", "source": "a" }), false),
            (
                json!({ "kind": "dir", "source": "a", "exclude": ["b"] }),
                false,
            ),
            (json!({ "kind": "glob", "include": "a" }), false),
            (
                json!({ "kind": "symlinks", "links": { "/a": "b" }, "mode": "0644" }),
                false,
            ),
            (
                json!({ "kind": "stubs", "paths": ["/a"], "mtime": "1" }),
                false,
            ),
            (
                json!({ "kind": "command", "program": "a", "shell": true }),
                false,
            ),
            (json!(["dir", "a"]), false),
            (json!(1), false),
        ] {
            let job = json!({ "program": "a", "layers": [layer] });
            let (spec, found) = check(&Draft::from_json(&job, "/base"), &Surroundings::default());
            assert_eq!(spec.is_some(), good, "{job}: {found:?}");
            assert_eq!(validates(SchemaChoice::Job, &job), good, "{job}");
            if let Some(spec) = spec {
                let spec = serde_json::to_value(spec).unwrap();
                assert!(validates(SchemaChoice::Spec, &spec), "{spec}");
            }
        }
    }

    #[test]
    fn a_spec_fits_its_schema() {
        let job = json!({
            "program": "a", "image": "dir:/x", "layers": ["glob:/a/*", "file:/a=/b"],
            "workspace": "/w", "user": "1:2", "stop_signal": 2,
            "grants": ["bind:/a:/b:rw", "userns", "kvm", "device:/dev/net/tun"],
            "limits": { "memory": "1GiB", "cpus": 2, "shm": "1MiB" }
        });
        let (spec, _) = check(&Draft::from_json(&job, "/base"), &Surroundings::default());
        let spec = serde_json::to_value(spec.unwrap()).unwrap();
        assert_eq!(spec["stop_signal"], "SIGINT");
        let bind = json!({ "kind": "bind", "source": "/a", "dest": "/b", "write": true });
        assert_eq!(spec["grants"][0], json!({ "kind": "userns" }));
        assert_eq!(spec["grants"][3], bind);
        assert!(validates(SchemaChoice::Spec, &spec), "{spec}");
        assert!(!validates(SchemaChoice::Spec, &json!({ "program": "a" })));
    }

    #[test]
    fn records_and_events_fit_their_schemas() {
        let mut record = snapshot(1, State::Failed);
        record.signal = Some(9);
        record.grants = vec![Grant::Named {
            name: "userns".into(),
            widens: "more".into(),
        }];
        record.reason = Some(Reason::new(ReasonCode::Memory, "too much").with_hint("raise it"));
        let record = serde_json::to_value(record).unwrap();
        assert!(validates(SchemaChoice::Record, &record), "{record}");
        assert!(!validates(SchemaChoice::Record, &json!({ "version": 1 })));
        let event = EventRecord {
            version: EVENT_VERSION,
            execution: ExecutionId::for_test(1),
            sequence: 1,
            at: Timestamp(1),
            event: Event::Failed {
                reason: Reason::new(ReasonCode::Exit, "it ended"),
                outcome: Some(Outcome::default()),
            },
        };
        let event = serde_json::to_value(event).unwrap();
        assert!(validates(SchemaChoice::Event, &event), "{event}");
        assert!(!validates(SchemaChoice::Event, &record));
    }
}
