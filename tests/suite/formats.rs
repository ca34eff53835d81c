//! What programs read: the result file, JSON lines, and the schemas that describe them.

use rstest::rstest;
use serde_json::Value;
use tidemill_tests::{Mode, Record, World};

fn schema(world: &World, which: &str) -> jsonschema::Validator {
    let schema = serde_json::from_slice(&world.ask(["schema", which])).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn assert_valid(schema: &jsonschema::Validator, value: &Value) {
    let errors: Vec<String> = schema
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn json_lines_are_events_and_then_the_record(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let (event_schema, record_schema) = (schema(&world, "event"), schema(&world, "record"));
    for (text, flags) in [
        ("echo hello; echo there >&2", &[][..]),
        ("printf 'a\\377\\n'; exit 4", &[]),
        ("kill -KILL $$", &[]),
        ("sleep 600", &["--timeout", "300ms"]),
        ("exec /no/such/thing", &[]),
    ] {
        let done = world.job(text).args(["--format", "json"]).args(flags).run();
        let lines: Vec<Value> = done
            .out()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (last, events) = lines.split_last().unwrap();
        assert_valid(&record_schema, last);
        assert_eq!(
            last,
            &done.record().0,
            "the last line is the record: {done}"
        );
        for (index, event) in events.iter().enumerate() {
            assert_valid(&event_schema, event);
            assert_eq!(event["version"], 1);
            assert_eq!(event["sequence"], index + 1, "{done}");
        }
        let id = done.record().id();
        assert_eq!(world.events(id), events, "`events` tells the same: {done}");
        assert_eq!(
            world.show(id),
            *done.record(),
            "`show` tells the same: {done}"
        );
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn output_is_among_the_json_lines(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .job("echo hello; echo there >&2")
        .args(["--format", "json"])
        .run();
    let said: Vec<(String, String)> = done
        .out()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["event"]["kind"] == "log")
        .map(|line| {
            let event = &line["event"];
            let text = event["text"].as_str().unwrap().to_owned();
            (event["piece"]["stream"].as_str().unwrap().to_owned(), text)
        })
        .collect();
    let joined = |stream: &str| -> String {
        said.iter()
            .filter(|(of, _)| of == stream)
            .map(|(_, text)| text.as_str())
            .collect()
    };
    assert_eq!(joined("stdout").trim_end(), "hello", "{done}");
    assert_eq!(joined("stderr").trim_end(), "there", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_result_file_carries_what_was_used(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // Work that every figure can be read from.
    let text = "perl -e 'my $x = \"x\" x (40 << 20); my $i = 0; $i++ while (times)[0] < 0.2;' ; \
                head -c 3M /dev/zero > file; echo out; echo err >&2";
    let done = world
        .job(text)
        .args(["--name", "worker", "--label", "kind=test"])
        .run();
    let record: &Record = done.record();
    assert_eq!(record.state(), "succeeded", "{done}");
    assert_valid(&schema(&world, "record"), &record.0);
    assert_eq!(record.0["version"], 1);
    assert_eq!(
        (&record.0["name"], &record.0["labels"]["kind"]),
        (&"worker".into(), &"test".into())
    );
    assert!(
        record.0["spec"].as_str().unwrap().starts_with("b3:"),
        "{done}"
    );
    assert_eq!(
        (record.number("/attempts"), record.number("/exit_code")),
        (1, 0),
        "{done}"
    );
    assert!(
        record.number("/started_at") >= record.number("/created_at"),
        "{done}"
    );
    assert!(
        record.number("/finished_at") >= record.number("/started_at"),
        "{done}"
    );
    assert!(record.number("/duration_ms") >= 200, "{done}");
    assert!(record.number("/usage/wall_ms") >= 200, "{done}");
    assert!(record.number("/usage/user_ms") >= 150, "{done}");
    assert!(
        record.number("/usage/peak_memory_bytes") >= 40 << 20,
        "{done}"
    );
    assert!(record.number("/usage/disk_bytes") >= 3 << 20, "{done}");
    if world.doctor().has("cgroup-pids") {
        assert!(
            (2..20).contains(&record.number("/usage/peak_pids")),
            "{done}"
        );
    }
    let log = |name: &str| record.number(&format!("/log/{name}"));
    assert_eq!(
        (log("bytes"), log("stdout_bytes"), log("stderr_bytes")),
        (8, 4, 4),
        "{done}"
    );
    assert_eq!(log("dropped_bytes"), 0, "{done}");
    assert!(!record.0["grants"].as_array().unwrap().is_empty(), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_result_file_that_cannot_be_written_is_said_before_anything_runs(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let target = world.path().join("no/such/directory/result.json");
    let flags = ["--write", "--result-file", target.to_str().unwrap()];
    let done = world.bare_run(flags).args(["--", "touch", "ran"]).run();
    assert_eq!(done.code, 2, "{done}");
    assert!(
        done.err().contains("result.json") || done.err().contains("directory"),
        "{done}"
    );
    assert!(!world.work().join("ran").exists(), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_file_and_flags_make_one_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = r#"{ "version": 1, "program": "sh", "args": ["-c", "echo $A $B; pwd; exit 3"],
                   "env": { "A": "file", "B": "file" }, "name": "of-file", "workdir": "/" }"#;
    let file = world.write("job.json", job);
    let schema: Value = serde_json::from_slice(&world.ask(["schema"])).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    assert_valid(&schema, &serde_json::from_str(job).unwrap());
    let flags = ["--file", file.to_str().unwrap(), "--env", "B=flag"];
    let done = world.bare_run(flags).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (3, "file flag\n/\n"),
        "{done}"
    );
    assert_eq!(world.show("last").0["name"], "of-file");
    // The same job has the same digest.
    let again = world.bare_run(flags).run();
    assert_eq!(again.code, 3, "{again}");
    let digests: Vec<Value> = world
        .list(&[])
        .iter()
        .map(|record| record.0["spec"].clone())
        .collect();
    assert_eq!(digests[0], digests[1]);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_that_could_not_be_run_is_told_in_a_form_of_its_own(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .job("true")
        .args(["--memory", "12 parsecs", "--format", "json"])
        .run();
    assert_eq!(done.code, 2, "{done}");
    let told: Value = serde_json::from_str(done.out().trim()).unwrap();
    assert_valid(&schema(&world, "refusal"), &told);
    assert_eq!(told["mistakes"].as_array().unwrap().len(), 1, "{done}");
    assert_eq!(told, done.record().0, "the result file has the same");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_pipe_that_nobody_reads_does_not_keep_the_run(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let pipe = world.work().join("pipe");
    let made = std::process::Command::new("mkfifo")
        .args(["-m", "666"])
        .arg(&pipe)
        .status();
    assert!(made.unwrap().success());
    let path = pipe.to_str().unwrap();
    let done = world
        .command(["run", "--result-file", path, "--", "true"])
        .run();
    assert_eq!(done.code, 125, "{done}");
    assert!(done.err().contains("nobody reads"), "{done}");
}
