//! Bad input: every mistake at once, each at its place; the right exit code; nothing lost and
//! nothing left behind.

use std::os::unix::fs::symlink;

use rstest::rstest;
use tidemill_tests::{Mode, World};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn ten_mistakes_are_ten_diagnostics(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = r#"{
  "program": "",
  "args": ["a\u0000b"],
  "image": "hots",
  "layers": ["dir:/no/such/place", "fiel:x=/y"],
  "network": "wifi",
  "env": { "A=B": "x" },
  "limits": { "memory": "12 parsecs", "pids": "-4", "timeout": "soon" }
}
"#;
    let file = world.write("job.json", job);
    let done = world.bare_run(["--file", file.to_str().unwrap()]).run();
    assert_eq!((done.code, done.out().as_str()), (2, ""), "{done}");
    let said = done.err();
    let errors: Vec<&str> = said
        .lines()
        .filter(|line| line.contains(": error: "))
        .collect();
    assert_eq!(errors.len(), 10, "{said}");
    // Each names the line that the mistake is on.
    for (line, part) in [
        (2, "program"),
        (3, "NUL"),
        (4, "hots"),
        (5, "/no/such/place"),
        (5, "fiel"),
        (6, "wifi"),
        (7, "A=B"),
        (8, "12 parsecs"),
        (8, "-4"),
        (8, "soon"),
    ] {
        let place = format!("job.json:{line}:");
        let found = errors
            .iter()
            .any(|error| error.contains(&place) && error.contains(part));
        assert!(found, "no error with {part} on line {line}:\n{said}");
    }
    // And what to write instead.
    assert!(
        said.contains("did you mean `host`") && said.contains("512MiB"),
        "{said}"
    );
    assert!(world.list(&[]).is_empty());
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn ten_mistakes_in_flags_are_ten_diagnostics(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let flags = [
        "--image",
        "docker:x",
        "--layer",
        "file:a",
        "--layer",
        "dir:/no/such",
        "--env",
        "NOVALUE",
        "--net",
        "some",
        "--memory",
        "12 parsecs",
        "--cpus",
        "many",
        "--pids",
        "0",
        "--user",
        "me",
        "--timeout",
        "soon",
        "--",
        "true",
    ];
    let done = world.bare_run(flags).run();
    assert_eq!(done.code, 2, "{done}");
    let said = done.err();
    let count = said
        .lines()
        .filter(|line| line.contains(": error: "))
        .count();
    assert_eq!(count, 10, "{said}");
    for flag in [
        "--image", "--layer", "--env", "--net", "--memory", "--cpus", "--pids", "--user",
    ] {
        assert!(
            said.lines().any(|line| line.starts_with(flag)),
            "{flag}: {said}"
        );
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_is_not_json_is_said_with_its_place(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (job, place) in [
        ("", "1:1"),
        ("{ \"program\": \"true\"\n  \"args\": [] }", "1:20"),
        ("[]", "1:1"),
        ("{ \"program\": \"true\", \"programm\": \"x\" }", "1:"),
        ("{ \"program\": \"a\", \"program\": \"b\" }", "1:"),
        ("{ \"version\": 99, \"program\": \"true\" }", "1:"),
        ("\u{feff}not json", "1:"),
    ] {
        let done = world.bare_run(["--file", "-"]).input(job).run();
        assert_eq!((done.code, done.out().as_str()), (2, ""), "{job:?}: {done}");
        assert!(done.err().contains(place), "{job:?}: {done}");
    }
    let missing = world.bare_run(["--file", "no-such.json"]).run();
    assert!([2, 125].contains(&missing.code), "{missing}");
    assert!(missing.err().contains("no-such.json"), "{missing}");
    assert!(world.list(&[]).is_empty());
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn paths_that_are_not_there_are_named(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let file = world.write("a-file", "x");
    let file = file.to_str().unwrap();
    for (flags, part) in [
        (["--image", "dir:/no/such/root"], "/no/such/root"),
        (["--image", "tar:/no/such.tar"], "/no/such.tar"),
        (["--image", &format!("dir:{file}")], file),
        (["--workspace", "/no/such/workspace"], "/no/such/workspace"),
        (["--workspace", file], file),
        (["--layer", "file:/no/such/file=/x"], "/no/such/file"),
        (["--layer", "tar:/no/such.tar"], "/no/such.tar"),
    ] {
        let done = world.bare_run(flags).args(["--", "true"]).run();
        assert_eq!(done.code, 2, "{done}");
        assert!(done.err().contains(part), "{part}: {done}");
    }
    assert!(world.list(&[]).is_empty());
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_workdir_that_is_none_is_the_jobs_own_fault(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("a-file", "x");
    symlink("/proc/1/root", world.work().join("out")).unwrap();
    symlink("loop", world.work().join("loop")).unwrap();
    symlink("/no/such", world.work().join("dangling")).unwrap();
    for workdir in [
        "a-file",
        "no-such",
        "out",
        "loop",
        "dangling",
        "/etc/passwd",
        "/proc/1/cwd",
    ] {
        let done = world.job("echo ran").args(["--workdir", workdir]).run();
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        let record = done.record();
        assert_eq!(
            (record.state(), record.reason()),
            ("failed", "bad_workdir"),
            "{done}"
        );
        assert!(done.err().contains(workdir), "{done}");
    }
    // A link that stays inside is as good as a directory.
    world.make_dir("real/deep");
    symlink("real/deep", world.work().join("in")).unwrap();
    let done = world.job("pwd -P").args(["--workdir", "in"]).run();
    assert!(
        done.code == 0 && done.out().ends_with("/work/real/deep\n"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_directory_that_is_no_project_is_not_taken(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write(world.home().join("letter"), "dear\n");
    let home = world.home().display().to_string();
    let text = format!("pwd; cat {home}/letter 2>/dev/null; ls /root 2>/dev/null; true");
    for directory in ["/", "/tmp", "/etc", "/usr", &home] {
        let done = world.job(&text).directory(directory).run();
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, "/\n"),
            "{directory}: {done}"
        );
        // It says so, and what to do.
        assert!(done.err().contains(directory), "{directory}: {done}");
        assert!(done.err().contains("--workspace"), "{directory}: {done}");
        let without = world
            .job(&text)
            .args(["--no-workspace"])
            .directory(directory)
            .run();
        assert_eq!(
            (without.code, without.out().as_str()),
            (0, "/\n"),
            "{directory}: {without}"
        );
        assert!(
            !without.err().contains("--workspace"),
            "{directory}: {without}"
        );
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn texts_from_outside_cannot_move_the_cursor(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let evil = "\u{1b}[2Jgone\u{202e}";
    let done = world
        .program([evil])
        .args(["--label", &format!("k={evil}")])
        .run();
    assert!([2, 127].contains(&done.code), "{done}");
    for bytes in [&done.stderr, &world.ask(["ps"]), &done.stdout] {
        assert!(!bytes.contains(&0x1b), "{done}");
        assert!(
            !String::from_utf8_lossy(bytes).contains('\u{202e}'),
            "{done}"
        );
    }
}
