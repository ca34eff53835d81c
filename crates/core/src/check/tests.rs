use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::draft::{LayerDraft, Located};
use crate::job::{Entrypoint, Image, Layer, User, Workspace};
use crate::limits::{ARGUMENT_BYTES_MAX, ByteSize};
use crate::time::Millis;

const WORKSPACE: &str = "/home/ada/project";

fn surroundings() -> Surroundings<'static> {
    Surroundings {
        caller_variable: &|name| match name {
            "TOKEN" => CallerVariable::Set { bytes: 20 },
            "HUGE" => CallerVariable::Set { bytes: 200_000 },
            "LATIN" => CallerVariable::NotUtf8,
            _ => CallerVariable::Unset,
        },
        pattern_error: &|pattern| {
            pattern
                .contains("[[")
                .then(|| "unclosed character class".into())
        },
        host_path: &|path, kind| match path {
            "/gone" | "/home/ada/jobs/gone" => Err(PathProblem::Missing),
            "/file" if kind == PathKind::Directory => Err(PathProblem::NotDirectory),
            "/dir" if kind == PathKind::File => Err(PathProblem::NotFile),
            "/secret" => Err(PathProblem::Unreadable("permission denied".into())),
            _ => Ok(()),
        },
        workspace: Some(WORKSPACE),
    }
}

fn check_json(value: &Value) -> (Option<JobSpec>, Vec<Diagnostic>) {
    check(&Draft::from_json(value, "/home/ada/jobs"), &surroundings())
}

/// Each diagnostic as `place code`, in the order of places.
fn codes(diagnostics: &[Diagnostic]) -> Vec<String> {
    let mut codes: Vec<String> = diagnostics
        .iter()
        .map(|found| format!("{} {}", found.place, found.code))
        .collect();
    codes.sort();
    codes
}

/// Asserts that `field` with `value` in an otherwise good job gives exactly this one diagnostic.
fn refuses(field: &str, value: Value, expected: &str) {
    let mut job = json!({ "program": "true" });
    job[field] = value.clone();
    let (spec, diagnostics) = check_json(&job);
    assert_eq!(codes(&diagnostics), [expected], "{field}: {value}");
    assert!(spec.is_none(), "{field}: {value} must not be accepted");
    assert!(
        diagnostics[0].hint.is_some(),
        "{field}: {value} needs advice"
    );
}

fn accepts(job: &Value) -> JobSpec {
    let (spec, diagnostics) = check_json(job);
    assert!(diagnostics.is_empty(), "{job}: {diagnostics:#?}");
    spec.expect("no diagnostic")
}

#[test]
fn the_smallest_job_has_every_default() {
    let mut expected = JobSpec::new("true", []);
    expected.workspace = Some(Workspace {
        path: WORKSPACE.into(),
        write: false,
    });
    assert_eq!(accepts(&json!({ "program": "true" })), expected);
}

#[test]
fn a_full_job_comes_through_as_written() {
    let (spec, diagnostics) = check_json(&json!({
        "version": 1,
        "name": "nightly build",
        "labels": { "team/area": "storage" },
        "program": "cargo",
        "args": ["test", ""],
        "image": "dir:debian/./root/",
        "layers": [
            "dir:/opt/a=b=/opt/tool",
            "file:./config.toml=/etc/config.toml",
            "glob:src/**/*.rs",
            "glob:/data/in/*.csv=/in",
            "tar:deps.tar.zst=/usr/local"
        ],
        "workspace": "../project",
        "write": true,
        "workdir": "crates/core",
        "env": { "RUST_LOG": "debug", "EMPTY": "", "LINES": "a\nb=c\"'" },
        "pass_env": ["TOKEN", "TOKEN"],
        "network": "host",
        "limits": {
            "memory": "512MiB", "cpus": 1.5, "pids": 512, "disk": "1GiB", "shm": "384MiB", "timeout": 30,
            "grace": "0s", "log": "1MB", "open_files": "1024"
        },
        "stop_signal": "int",
        "user": 1000,
        "stdin": "inherit",
        "wait_children": true,
        "priority": -3,
        "estimate": "1m30s"
    }));
    // The workspace is written for real, where no limit of disk holds.
    let places: Vec<&str> = diagnostics
        .iter()
        .map(|found| found.place.as_str())
        .collect();
    assert_eq!(places, ["/limits/disk"], "{diagnostics:?}");
    let spec = spec.expect("a warning is no error");
    assert_eq!(
        spec.image,
        Image::Dir {
            path: "/home/ada/jobs/debian/root".into()
        }
    );
    let layers: Vec<String> = spec
        .layers
        .iter()
        .map(|layer| match layer {
            Layer::Dir { source, dest, .. } => format!("dir {source} {dest}"),
            Layer::File { source, dest, .. } => format!("file {source} {dest}"),
            Layer::Glob {
                base,
                include,
                dest,
                ..
            } => format!("glob {base} {} {dest}", include.join(" ")),
            Layer::Tar { source, dest, .. } => format!("tar {source} {dest}"),
            other => panic!("not written here: {other:?}"),
        })
        .collect();
    assert_eq!(
        layers,
        [
            "dir /opt/a=b /opt/tool",
            "file /home/ada/jobs/config.toml /etc/config.toml",
            "glob /home/ada/jobs src/**/*.rs /",
            "glob /data/in *.csv /in",
            "tar /home/ada/jobs/deps.tar.zst /usr/local",
        ]
    );
    assert_eq!(
        spec.workspace.map(|w| w.path).as_deref(),
        Some("/home/ada/jobs/../project")
    );
    assert_eq!(
        spec.workdir.as_deref(),
        Some("/home/ada/jobs/../project/crates/core")
    );
    assert_eq!(spec.pass_env, ["TOKEN"]);
    assert_eq!(spec.limits.memory, Some(ByteSize::mib(512)));
    assert_eq!(spec.limits.shm, Some(ByteSize::mib(384)));
    assert_eq!(spec.limits.timeout, Some(Millis(30_000)));
    assert_eq!(spec.limits.grace, Millis(0));
    assert_eq!(spec.stop_signal.to_string(), "SIGINT");
    assert_eq!(
        spec.user,
        Some(User {
            uid: 1000,
            gid: 1000
        })
    );
    assert_eq!((spec.priority, spec.estimate), (-3, Some(Millis(90_000))));
}

fn oci(reference: &str, platform: Option<&str>) -> Image {
    Image::Oci {
        reference: reference.into(),
        digest: None,
        platform: platform.map(str::to_owned),
    }
}

#[test]
fn an_oci_image_may_bring_its_own_command() {
    let spec = accepts(&json!({ "image": "oci:debian:12" }));
    assert_eq!(spec.image, oci("debian:12", None));
    assert_eq!(
        (spec.program.as_str(), spec.entrypoint),
        ("", Entrypoint::Image)
    );
    assert!(spec.command().is_empty());
    let again: JobSpec = serde_json::from_slice(&spec.to_canonical()).unwrap();
    assert_eq!(again, spec);
    // Arguments are its entry point's, with a program and without.
    let spec = accepts(&json!({
        "image": "oci:a", "platform": "linux/arm64", "args": ["--help"], "user": "web:www"
    }));
    assert_eq!(spec.image, oci("a", Some("linux/arm64")));
    assert_eq!(
        (spec.program.as_str(), &spec.args[..]),
        ("", &["--help".to_owned()][..])
    );
    assert_eq!(
        (spec.user, spec.user_name.as_deref()),
        (None, Some("web:www"))
    );
    for (platform, whole) in [("arm64", "linux/arm64"), ("linux/arm/v7", "linux/arm/v7")] {
        let spec = accepts(&json!({ "image": "oci:a", "platform": platform }));
        assert_eq!(spec.image, oci("a", Some(whole)));
    }
    let spec = accepts(&json!({ "image": "oci:a", "program": "sh", "user": 1 }));
    assert_eq!(
        (spec.program.as_str(), spec.entrypoint),
        ("sh", Entrypoint::Image)
    );
    assert_eq!(spec.user_name, None);
}

#[test]
fn an_entry_point_goes_before_the_program() {
    let command = |job: Value| {
        let spec = accepts(&job);
        assert_eq!(spec.entrypoint, Entrypoint::None);
        spec.command().join(" ")
    };
    let image = "oci:a";
    let entry = json!(["env", "-i"]);
    assert_eq!(
        command(json!({ "image": image, "entrypoint": entry })),
        "env -i"
    );
    assert_eq!(
        command(json!({ "image": image, "entrypoint": entry, "program": "a", "args": ["b"] })),
        "env -i a b"
    );
    assert_eq!(
        command(json!({ "image": image, "entrypoint": [], "program": "a" })),
        "a"
    );
    assert_eq!(
        command(json!({ "entrypoint": ["time"], "program": "a" })),
        "time a"
    );
    for (entrypoint, expected) in [
        (json!([]), "/program missing_field"),
        (json!([""]), "/entrypoint empty"),
        (json!(["a\u{0}b"]), "/entrypoint/0 nul_byte"),
    ] {
        let job = json!({ "image": image, "entrypoint": entrypoint });
        let (spec, found) = check_json(&job);
        assert_eq!((spec, codes(&found)), (None, vec![expected.to_owned()]));
    }
}

#[test]
fn what_looks_like_an_image_of_a_registry_is_told_its_form() {
    for (written, advice) in [
        ("debian:12", "write oci:debian:12 for that image"),
        ("ghcr.io/a/b@sha256:0", "write host, none"),
        ("localhost:5000/a", "write oci:localhost:5000/a for"),
        ("docker://debian", "write oci:debian"),
        ("oic:debian", "did you mean `oci`?"),
        ("oci:./layout", "tidemill image import ./layout"),
        ("oci:Debian", "oci:debian:12"),
        ("ubuntu", "write oci:ubuntu for that image"),
        ("Host!", "did you mean `host`?"),
    ] {
        let (spec, found) = check_json(&json!({ "program": "a", "image": written }));
        assert!(spec.is_none());
        let hint = found[0].hint.clone().unwrap();
        assert!(hint.contains(advice), "{written}: {hint}");
    }
}

#[test]
fn the_stop_signal_has_many_ways_to_be_written_and_one_name() {
    let spec = accepts(&json!({ "program": "a", "stop_signal": 10 }));
    let canonical: Value = serde_json::from_slice(&spec.to_canonical()).unwrap();
    assert_eq!(canonical["stop_signal"], "SIGUSR1");
    assert_eq!(serde_json::from_value::<JobSpec>(canonical).unwrap(), spec);
    // The one that every job has otherwise leaves the form, and so the digest, as it is without.
    let spelt = accepts(&json!({ "program": "a", "stop_signal": "term" }));
    assert_eq!(spelt.digest(), accepts(&json!({ "program": "a" })).digest());
    for (written, near) in [("quti", "`QUIT`"), ("SIGHPU", "`SIGHUP`")] {
        let job = json!({ "program": "a", "stop_signal": written });
        let hint = check_json(&job).1[0].hint.clone().unwrap();
        assert_eq!(hint, format!("did you mean {near}?"));
    }
}

#[test]
fn shared_memory_is_bounded_by_a_memory_limit_that_there_is() {
    let shm = |limits: Value| {
        accepts(&json!({ "program": "a", "limits": limits }))
            .limits
            .shm
    };
    assert_eq!(shm(json!({ "memory": "64MiB" })), None);
    assert_eq!(
        shm(json!({ "memory": "64MiB", "shm": "64MiB" })),
        Some(ByteSize::mib(64))
    );
    assert_eq!(shm(json!({ "shm": "65MiB" })), Some(ByteSize::mib(65)));
}

#[test]
fn ten_mistakes_are_ten_diagnostics() {
    let (spec, diagnostics) = check_json(&json!({
        "programm": "cargo",
        "program": "a\u{0}b",
        "args": ["x", 7],
        "image": "debian:12",
        "layers": ["file:a"],
        "env": { "": "x" },
        "network": "hots",
        "workdir": "../x",
        "limits": { "memory": "12 parsecs", "pids": 0 }
    }));
    assert!(spec.is_none());
    assert_eq!(
        codes(&diagnostics),
        [
            "/args/1 wrong_type",
            "/env/ variable_name",
            "/image image_form",
            "/layers/0 layer_form",
            "/limits/memory quantity",
            "/limits/pids out_of_range",
            "/network unknown_value",
            "/program nul_byte",
            "/programm unknown_field",
            "/workdir parent_component",
        ]
    );
    assert!(
        diagnostics.iter().all(|found| found.hint.is_some()),
        "{diagnostics:#?}"
    );
}

#[test]
fn every_field_refuses_what_it_cannot_be() {
    let long = "x".repeat(5000);
    for (field, value, expected) in [
        ("version", json!(2), "/version unknown_version"),
        ("version", json!("1"), "/version wrong_type"),
        ("name", json!(" "), "/name empty"),
        ("name", json!("a\u{1b}[31m"), "/name control_character"),
        ("name", json!(long), "/name too_long"),
        ("name", json!(["a"]), "/name wrong_type"),
        ("labels", json!({ "a b": "x" }), "/labels/a b label_form"),
        (
            "labels",
            json!({ "a": "x\ny" }),
            "/labels/a control_character",
        ),
        ("labels", json!({ "a": 1 }), "/labels/a wrong_type"),
        ("labels", json!([]), "/labels wrong_type"),
        ("program", json!(""), "/program empty"),
        ("program", json!(long), "/program too_long"),
        ("args", json!("test"), "/args wrong_type"),
        ("args", json!(["\u{0}"]), "/args/0 nul_byte"),
        ("image", json!("dir:"), "/image empty"),
        ("image", json!("dir"), "/image image_form"),
        ("image", json!("oci:"), "/image image_form"),
        ("image", json!("oci:a b"), "/image image_form"),
        ("platform", json!("linux/amd64"), "/platform conflict"),
        ("entrypoint", json!("a"), "/entrypoint wrong_type"),
        ("image", json!("hots"), "/image image_form"),
        ("image", json!("/srv/root"), "/image image_form"),
        ("image", json!("tar:a\u{0}"), "/image nul_byte"),
        ("layers", json!(["a"]), "/layers/0 layer_form"),
        ("layers", json!(["dri:a"]), "/layers/0 layer_form"),
        ("layers", json!(["dir:"]), "/layers/0 empty"),
        ("layers", json!(["dir:a=b"]), "/layers/0 relative_path"),
        ("layers", json!(["dir:a="]), "/layers/0 relative_path"),
        (
            "layers",
            json!(["dir:a=/b/../c"]),
            "/layers/0 parent_component",
        ),
        (
            "layers",
            json!(["dir:a=/proc/x"]),
            "/layers/0 reserved_path",
        ),
        (
            "layers",
            json!(["dir:a=//dev/."]),
            "/layers/0 reserved_path",
        ),
        ("layers", json!(["file:a=/b/"]), "/layers/0 layer_form"),
        ("layers", json!(["glob:"]), "/layers/0 pattern"),
        ("layers", json!(["glob:[[a"]), "/layers/0 pattern"),
        ("layers", json!(["glob:../*"]), "/layers/0 pattern"),
        ("layers", json!([1]), "/layers/0 wrong_type"),
        ("image", json!("dir:/gone"), "/image host_path"),
        ("image", json!("tar:/dir"), "/image host_path"),
        ("layers", json!(["dir:/file=/x"]), "/layers/0 host_path"),
        ("layers", json!(["tar:/secret"]), "/layers/0 host_path"),
        ("layers", json!(["file:/dir=/x"]), "/layers/0 host_path"),
        ("layers", json!(["glob:/gone/*.rs"]), "/layers/0 host_path"),
        ("workspace", json!("gone"), "/workspace host_path"),
        ("workspace", json!(""), "/workspace empty"),
        ("workspace", json!("/"), "/workspace reserved_path"),
        ("workspace", json!("/proc/self"), "/workspace reserved_path"),
        ("workdir", json!(""), "/workdir empty"),
        ("workdir", json!("/a/.."), "/workdir parent_component"),
        ("env", json!({ "A=B": "x" }), "/env/A=B variable_name"),
        ("env", json!({ "A": "\u{0}" }), "/env/A nul_byte"),
        ("env", json!({ "A\u{0}": "" }), "/env/A\u{0} nul_byte"),
        ("env", json!({ "A": 1 }), "/env/A wrong_type"),
        ("pass_env", json!([""]), "/pass_env/0 variable_name"),
        ("pass_env", json!(["HUGE"]), "/pass_env/0 variable_too_long"),
        ("pass_env", json!(["LATIN"]), "/pass_env/0 not_utf8"),
        ("network", json!("Host"), "/network unknown_value"),
        ("user", json!("ada"), "/user user_form"),
        ("user", json!("1:"), "/user user_form"),
        ("user", json!("-1"), "/user user_form"),
        ("user", json!(65_536), "/user out_of_range"),
        ("user", json!("4294967296"), "/user out_of_range"),
        ("stdin", json!("file"), "/stdin unknown_value"),
        ("tty", json!("yes"), "/tty wrong_type"),
        ("priority", json!(1e10), "/priority wrong_type"),
        (
            "priority",
            json!(10_000_000_000_u64),
            "/priority out_of_range",
        ),
        ("estimate", json!("soon"), "/estimate quantity"),
        (
            "limits",
            json!({ "memory": "12 parsecs" }),
            "/limits/memory quantity",
        ),
        (
            "limits",
            json!({ "memory": 512 }),
            "/limits/memory out_of_range",
        ),
        (
            "limits",
            json!({ "memory": "99999TiB" }),
            "/limits/memory out_of_range",
        ),
        ("limits", json!({ "memory": -1 }), "/limits/memory quantity"),
        (
            "limits",
            json!({ "memory": {} }),
            "/limits/memory wrong_type",
        ),
        ("limits", json!({ "cpus": 0 }), "/limits/cpus quantity"),
        ("limits", json!({ "cpus": "many" }), "/limits/cpus quantity"),
        ("limits", json!({ "pids": 0 }), "/limits/pids out_of_range"),
        (
            "limits",
            json!({ "pids": 4_194_305 }),
            "/limits/pids out_of_range",
        ),
        (
            "limits",
            json!({ "pids": 1.5 }),
            "/limits/pids out_of_range",
        ),
        ("limits", json!({ "pids": "all" }), "/limits/pids quantity"),
        (
            "limits",
            json!({ "disk": "1B" }),
            "/limits/disk out_of_range",
        ),
        (
            "limits",
            json!({ "timeout": "0s" }),
            "/limits/timeout quantity",
        ),
        (
            "limits",
            json!({ "grace": "2d" }),
            "/limits/grace out_of_range",
        ),
        ("stop_signal", json!("INTT"), "/stop_signal unknown_value"),
        ("stop_signal", json!("é"), "/stop_signal unknown_value"),
        ("stop_signal", json!("SIGKILL"), "/stop_signal out_of_range"),
        ("stop_signal", json!(64), "/stop_signal out_of_range"),
        ("stop_signal", json!(["INT"]), "/stop_signal wrong_type"),
        ("limits", json!({ "shm": "lots" }), "/limits/shm quantity"),
        (
            "limits",
            json!({ "shm": "4kB" }),
            "/limits/shm out_of_range",
        ),
        (
            "limits",
            json!({ "shm": "65MiB", "memory": "64MiB" }),
            "/limits/shm out_of_range",
        ),
        ("limits", json!({ "log": 0 }), "/limits/log out_of_range"),
        (
            "limits",
            json!({ "open_files": 1 }),
            "/limits/open_files out_of_range",
        ),
        (
            "limits",
            json!({ "memroy": "1GiB" }),
            "/limits/memroy unknown_field",
        ),
        ("limits", json!("1GiB"), "/limits wrong_type"),
    ] {
        refuses(field, value, expected);
    }
}

#[test]
fn no_number_of_mistakes_fills_the_memory() {
    let env: BTreeMap<String, String> = (0..3000)
        .map(|number| (format!("A={number}"), String::new()))
        .collect();
    let (spec, diagnostics) = check_json(&json!({
        "program": "a", "args": vec![1; 3000], "env": env, "pass_env": vec!["UNSET"; 3000]
    }));
    assert!(spec.is_none());
    assert_eq!(diagnostics.len(), 3 * DIAGNOSTICS_MAX);
}

#[test]
fn settings_that_exclude_each_other_are_refused() {
    for (job, expected) in [
        (
            json!({ "program": "a", "tty": true, "stdin": "empty" }),
            vec!["/tty conflict"],
        ),
        (
            json!({ "program": "a", "no_workspace": true, "write": true }),
            vec!["/write conflict"],
        ),
        (
            json!({ "program": "a", "no_workspace": true, "workspace": "." }),
            vec!["/no_workspace conflict"],
        ),
        (
            json!({ "program": "a", "no_workspace": true, "workdir": "src" }),
            vec!["/workdir relative_path"],
        ),
        (json!({ "args": ["x"] }), vec!["/program missing_field"]),
        (json!({ "program": 1 }), vec!["/program wrong_type"]),
        (json!([1, 2]), vec![" wrong_type"]),
    ] {
        let (spec, diagnostics) = check_json(&job);
        assert_eq!(codes(&diagnostics), expected, "{job}");
        assert!(spec.is_none());
    }
}

#[test]
fn a_terminal_takes_the_callers_input() {
    assert_eq!(
        accepts(&json!({ "program": "a", "tty": true })).stdin,
        Stdin::Inherit
    );
    assert_eq!(accepts(&json!({ "program": "a" })).stdin, Stdin::Empty);
}

#[test]
fn warnings_do_not_stop_a_job() {
    let (spec, diagnostics) = check_json(&json!({
        "program": "a", "env": { "A": "1" }, "pass_env": ["A", "NOT_SET"]
    }));
    let spec = spec.expect("only warnings");
    assert_eq!(
        codes(&diagnostics),
        ["/pass_env/0 redundant", "/pass_env/1 variable_not_set"]
    );
    assert_eq!(spec.pass_env, ["NOT_SET"]);
}

#[test]
fn f12_one_big_variable_or_argument() {
    let job = |env: usize, arg: usize| json!({ "program": "a", "env": { "BIG": "x".repeat(env) }, "args": ["y".repeat(arg)] });
    // `BIG=` is four bytes of the 131,071.
    accepts(&job(ARGUMENT_BYTES_MAX - 4, ARGUMENT_BYTES_MAX));
    let (_, diagnostics) = check_json(&job(ARGUMENT_BYTES_MAX - 3, ARGUMENT_BYTES_MAX + 1));
    assert_eq!(
        codes(&diagnostics),
        ["/args/0 argument_too_long", "/env/BIG variable_too_long"]
    );
    for diagnostic in &diagnostics {
        assert!(
            diagnostic.message.contains("131072"),
            "{}",
            diagnostic.message
        );
        assert!(
            diagnostic.message.contains("131071"),
            "{}",
            diagnostic.message
        );
        assert!(
            diagnostic
                .hint
                .as_deref()
                .is_some_and(|hint| hint.contains("file:SRC=DEST"))
        );
    }
    assert!(
        diagnostics
            .iter()
            .any(|found| found.message.contains("`BIG`"))
    );
    let (_, diagnostics) = check_json(&job(1 << 20, 0));
    assert_eq!(
        codes(&diagnostics),
        ["/env/BIG variable_too_long"],
        "counted once, not in the total"
    );
}

#[test]
fn f12_many_variables_and_their_total() {
    let job = |count: usize, bytes: usize| {
        let env: BTreeMap<String, String> = (0..count)
            .map(|number| (format!("V{number:05}"), "x".repeat(bytes)))
            .collect();
        json!({ "program": "a", "env": env })
    };
    accepts(&job(3000, 100));
    // Each variable costs its name, `=`, its value, a NUL and a pointer.
    let fits = (ARGUMENTS_TOTAL_MAX - 10) / (6 + 1 + 1000 + 1 + 8);
    accepts(&job(fits, 1000));
    let (spec, diagnostics) = check_json(&job(fits + 1, 1000));
    assert_eq!(codes(&diagnostics), ["/env arguments_too_large"]);
    assert!(spec.is_none());
}

#[test]
fn a_spec_is_never_larger_than_its_limit() {
    let layers: Vec<String> = (0..LAYERS_MAX)
        .map(|_| format!("dir:{}", "\u{1}".repeat(4000)))
        .collect();
    let (spec, diagnostics) = check_json(&json!({ "program": "a", "layers": layers }));
    assert!(spec.is_none());
    assert_eq!(codes(&diagnostics), [" too_long"]);
}

#[test]
fn what_belongs_elsewhere_is_said() {
    for (field, expected) in [
        ("memory", "belongs into `limits`"),
        ("command", "`program` and `args`"),
        ("imgae", "did you mean `image`?"),
        ("zzzzzz", "the fields are version, name"),
    ] {
        let mut job = json!({ "program": "a" });
        job[field] = json!("x");
        let (_, diagnostics) = check_json(&job);
        let hint = diagnostics[0].hint.as_deref().unwrap_or_default();
        assert!(hint.contains(expected), "{field}: {hint}");
    }
}

#[test]
fn messages_cannot_move_the_cursor() {
    let (_, diagnostics) = check_json(&json!({
        "program": "a", "image": "\u{1b}[2J", "\u{1b}[1m": 1, "user": "\u{7}".repeat(500)
    }));
    assert_eq!(diagnostics.len(), 3);
    for diagnostic in diagnostics {
        let text = format!(
            "{} {}",
            diagnostic.message,
            diagnostic.hint.unwrap_or_default()
        );
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(text.len() < 600, "{text}");
    }
}

/// Any JSON, with the names of real fields more often than chance would give them.
fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "(dir|file|glob|tar|host|none):?[a-z/.=*\\[\\]{}\0]{0,12}",
        "[0-9.:-]{0,12}[a-zA-Z ]{0,4}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let key = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "version",
            "name",
            "labels",
            "program",
            "args",
            "image",
            "layers",
            "workspace",
            "no_workspace",
            "write",
            "workdir",
            "env",
            "pass_env",
            "network",
            "limits",
            "user",
            "stdin",
            "tty",
            "wait_children",
            "priority",
            "estimate",
            "memory",
            "cpus",
            "pids",
            "disk",
            "timeout",
            "grace",
            "log",
            "open_files",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_gives_a_spec_or_an_error(value in any_json()) {
        let (spec, diagnostics) = check_json(&value);
        prop_assert_eq!(spec.is_some(), !diagnostics.iter().any(Diagnostic::is_error));
        if let Some(spec) = spec {
            prop_assert!(!spec.to_canonical().contains(&0));
            prop_assert!(spec.workdir.is_none_or(|path| path.starts_with('/')));
            let again: JobSpec = serde_json::from_slice(&accepted(&value).to_canonical()).unwrap();
            prop_assert_eq!(again, accepted(&value));
        }
    }

    #[test]
    fn every_image_and_layer_text_is_taken_or_explained(text in ".{0,40}") {
        let draft = Draft {
            program: Some("true".into()),
            image: Some(Located::new(text.clone(), "/base")),
            layers: vec![LayerDraft::new(text, "/base")],
            ..Draft::default()
        };
        let (spec, diagnostics) = check(&draft, &Surroundings::default());
        prop_assert_eq!(spec.is_none(), !diagnostics.is_empty());
        prop_assert!(diagnostics.iter().all(|found| found.hint.is_some()));
    }
}

fn accepted(value: &Value) -> JobSpec {
    check_json(value).0.expect("it was accepted a moment ago")
}
