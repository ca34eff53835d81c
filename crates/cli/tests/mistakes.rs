//! What people get wrong, and what they are told: on standard error, with an exit code, and nothing
//! left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A start of the binary with a state directory and a home of its own.
struct Trial {
    root: TempDir,
}

impl Trial {
    fn new() -> Self {
        let root = TempDir::new().expect("a temporary directory can be made");
        for name in ["home", "project"] {
            fs::create_dir(root.path().join(name)).expect("it is new");
        }
        Self { root }
    }

    fn path(&self, name: &str) -> String {
        let path = self.root.path().join(name);
        path.to_str()
            .expect("temporary directories have plain names")
            .to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .args(arguments)
            .current_dir(self.path("project"))
            .env("HOME", self.path("home"))
            .env("TIDEMILL_STATE", self.path("state"))
            .env_remove("NO_COLOR")
            .output()
            .expect("the binary starts")
    }

    /// Asserts the exit code and that each text stands on standard error.
    fn refuses(&self, arguments: &[&str], code: i32, said: &[&str]) {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        for text in said {
            assert!(
                stderr.contains(text),
                "{arguments:?}: {text:?} is missing in: {stderr}"
            );
        }
        assert!(
            !stderr.contains('\u{1b}'),
            "{arguments:?}: colours without a terminal"
        );
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("the directory is there");
    }
}

#[test]
fn explain_shows_no_secret_value() {
    let trial = Trial::new();
    for format in ["text", "json"] {
        let output = trial.run(&[
            "explain",
            "--format",
            format,
            "--env",
            "MY_TOKEN=supersecret",
            "--",
            "echo",
            "supersecret",
        ]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(
            said.contains("[redacted]") && said.contains("MY_TOKEN"),
            "{said}"
        );
        assert!(!said.contains("supersecret"), "{said}");
    }
}

#[test]
fn a_forgotten_run_is_proposed() {
    let trial = Trial::new();
    trial.refuses(
        &["sh", "-c", "exit 3"],
        2,
        &["unrecognized subcommand", "tidemill run -- sh -c 'exit 3'"],
    );
}

#[test]
fn flags_of_other_tools_are_answered_with_ours() {
    let trial = Trial::new();
    for (flag, said) in [
        ("--rm", "leave --rm out"),
        ("-it", "--stdin --tty"),
        ("-v", "--layer dir:SRC=DEST"),
        ("-e", "--env NAME=VALUE"),
        ("-w", "--workdir PATH"),
    ] {
        trial.refuses(&["run", flag, "x"], 2, &["unexpected argument", said]);
    }
}

#[test]
fn a_run_without_a_program_shows_an_example() {
    let trial = Trial::new();
    trial.refuses(&["run"], 2, &["PROGRAM", "tidemill run -- cargo test"]);
    trial.refuses(
        &["run", "--"],
        2,
        &["PROGRAM", "tidemill run -- cargo test"],
    );
    assert!(
        !Path::new(&trial.path("state")).exists(),
        "nothing is made for a mistake"
    );
}

#[test]
fn all_flags_are_checked_at_once() {
    let trial = Trial::new();
    trial.refuses(
        &[
            "run",
            "--memory",
            "12 parsecs",
            "--pids",
            "0",
            "--net",
            "hots",
            "--image",
            "debian",
            "--layer",
            "file:x",
            "--env",
            "A",
            "--label",
            "b",
            "--user",
            "ada",
            "--timeout",
            "soon",
            "--workspace",
            "gone",
            "--",
            "true",
        ],
        2,
        &[
            "10 mistakes",
            "--memory: error:",
            "--pids: error:",
            "did you mean `host`?",
            "--image: error:",
            "--layer file:x: error:",
            "write --env A=VALUE",
            "--label b: error:",
            "--user: error:",
            "--timeout: error:",
            "/project/gone` does not exist",
        ],
    );
}

#[test]
fn a_job_file_with_ten_mistakes_has_ten_places() {
    let trial = Trial::new();
    trial.write(
        "project/job.json",
        r#"{
  "programm": "cargo",
  "program": "a\u0000b",
  "args": ["x", 7],
  "image": "debian:12",
  "layers": ["file:a"],
  "env": { "": "x" },
  "network": "hots",
  "workdir": "../x",
  "limits": { "memory": "12 parsecs",
              "pids": 0 }
}"#,
    );
    let output = trial.run(&["run", "--file", "job.json", "--format", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let places: Vec<&str> = stderr
        .lines()
        .filter_map(|line| line.split_once(": error: "))
        .map(|(at, _)| at)
        .collect();
    assert_eq!(
        places,
        [
            "job.json:2:3",
            "job.json:3:3",
            "job.json:4:17",
            "job.json:5:3",
            "job.json:6:14",
            "job.json:7:12",
            "job.json:8:3",
            "job.json:9:3",
            "job.json:10:15",
            "job.json:11:15",
        ]
    );
    let answer: Value = serde_json::from_slice(&output.stdout).expect("the answer is JSON");
    assert_eq!(answer["version"], 1);
    assert_eq!(answer["mistakes"].as_array().map(Vec::len), Some(10));
    assert_eq!(answer["mistakes"][9]["written"]["line"], 11);
}

#[test]
fn a_flag_over_the_file_is_named_as_a_flag() {
    let trial = Trial::new();
    trial.write("job.json", r#"{"program": "true", "layers": ["dir:."]}"#);
    trial.refuses(
        &[
            "run",
            "--file",
            "../job.json",
            "--memory",
            "1",
            "--layer",
            "x",
        ],
        2,
        &[
            "--memory: error:",
            "did you mean 1MiB?",
            "--layer x: error:",
            "2 mistakes",
        ],
    );
}

#[test]
fn the_result_file_is_written_for_a_job_that_was_refused() {
    let trial = Trial::new();
    trial.refuses(
        &["run", "--result-file", "r.json", "--pids", "x", "true"],
        2,
        &["--pids"],
    );
    let result = fs::read(trial.path("project/r.json")).expect("it was written");
    let result: Value = serde_json::from_slice(&result).expect("it is JSON");
    assert_eq!(result["state"], "failed");
    assert_eq!(result["reason"]["code"], "bad_spec");
    trial.refuses(
        &["run", "--result-file", "gone/r.json", "true"],
        2,
        &["gone/r.json"],
    );
}

#[test]
fn a_file_that_is_no_job_says_where_it_ends_to_be_one() {
    let trial = Trial::new();
    trial.refuses(
        &["run", "--file", "gone.json"],
        2,
        &["gone.json", "--file -"],
    );
    for (text, said) in [
        ("", "file.json:1:1: error: the job file is empty"),
        (
            "{\n  \"program\": \"true\",\n  oops\n}",
            "file.json:3:3: error:",
        ),
        ("[]", "file.json:1:1: error: the job file is a list"),
    ] {
        trial.write("project/file.json", text);
        trial.refuses(&["run", "--file", "file.json"], 2, &[said]);
    }
    fs::write(trial.path("project/file.json"), b"{\"name\": \"\xff\"}").expect("it is there");
    trial.refuses(
        &["run", "--file", "file.json"],
        2,
        &["not UTF-8", "byte 10"],
    );
}

#[test]
fn commands_on_the_record_answer_wrong_ids_and_states() {
    let trial = Trial::new();
    trial.refuses(
        &["show", "last"],
        2,
        &["no execution yet", "tidemill run -- true"],
    );
    trial.refuses(&["wait", "abc"], 2, &["no execution `abc`", "tidemill ps"]);
    trial.refuses(
        &["ps", "--state", "runing"],
        2,
        &["did you mean `running`?"],
    );
    trial.refuses(
        &["logs", "--raw", "--format", "json", "last"],
        2,
        &["no JSON"],
    );
    let output = trial.run(&["cancel", "abc", "--format", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).expect("the answer is JSON");
    assert_eq!(answer["error"]["kind"], "usage");
    assert_eq!(answer["error"]["exit_code"], 2);
}

#[test]
fn a_state_directory_that_cannot_be_used_is_told() {
    let trial = Trial::new();
    trial.write("file", "");
    let file = trial.path("file");
    trial.refuses(
        &["ps", "--state-dir", &file],
        125,
        &["state directory", &file, "--state-dir"],
    );
    fs::create_dir(trial.path("bad")).expect("it is new");
    trial.write(
        "bad/tidemill.db",
        "this is no database, but it is long enough to look like one",
    );
    trial.refuses(
        &["ps", "--state-dir", &trial.path("bad")],
        125,
        &["tidemill.db"],
    );
    let kept = fs::read_to_string(trial.path("bad/tidemill.db")).expect("it is still there");
    assert!(kept.starts_with("this is no database"));
}

#[test]
fn an_empty_record_is_an_empty_list() {
    let trial = Trial::new();
    let output = trial.run(&["ps", "--format", "json"]);
    assert!(output.status.success());
    let answer: Value = serde_json::from_slice(&output.stdout).expect("the answer is JSON");
    assert_eq!(answer["executions"], Value::Array(Vec::new()));
    assert_eq!(answer["more"], false);
}
