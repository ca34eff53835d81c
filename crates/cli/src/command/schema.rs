//! `tidemill schema`: the JSON Schemas of what is read and written.

use schemars::{Schema, schema_for};
use tidemill_core::{Draft, EventRecord, JobSpec};
use tidemill_ledger::Snapshot;

use crate::args::{SchemaArgs, SchemaChoice};
use crate::failure::Failure;
use crate::output::Output;

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
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::{Value, json};
    use tidemill_core::check::{Surroundings, check};

    use super::*;

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
                    "limits": { "memory": "1GiB", "cpus": 1.5, "pids": 7, "timeout": null },
                    "user": 1000, "tty": true, "priority": -1, "estimate": "1s", "name": null
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
            (json!({ "program": "a", "found": [] }), false),
            (json!([]), false),
        ] {
            let (spec, found) = check(&Draft::from_json(&job, "/base"), &Surroundings::default());
            assert_eq!(spec.is_some(), good, "{job}: {found:?}");
            assert_eq!(validates(SchemaChoice::Job, &job), good, "{job}");
        }
    }

    #[test]
    fn a_spec_fits_its_schema() {
        let job = json!({
            "program": "a", "image": "dir:/x", "layers": ["glob:/a/*", "file:/a=/b"],
            "workspace": "/w", "user": "1:2", "limits": { "memory": "1GiB", "cpus": 2 }
        });
        let (spec, _) = check(&Draft::from_json(&job, "/base"), &Surroundings::default());
        let spec = serde_json::to_value(spec.unwrap()).unwrap();
        assert!(validates(SchemaChoice::Spec, &spec), "{spec}");
        assert!(!validates(SchemaChoice::Spec, &json!({ "program": "a" })));
    }
}
