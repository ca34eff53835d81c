//! Layers that were not meant so.

use rstest::rstest;
use tidemill_tests::{Mode, World};

#[test]
fn a_mistake_is_shown_with_its_place_and_what_to_write() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    world.write(
        "job.json",
        r#"{
  "program": "true",
  "layers": [
    "dri:a=/b",
    { "kind": "glob", "include": ["*.rs"], "exlude": ["x"] },
    { "kind": "tar", "source": "gone.tar", "paths": ["/x"] },
    { "kind": "stubs", "paths": ["/ok", "/etc/{a"] },
    { "kind": "symlinks" }
  ]
}"#,
    );
    let done = world.bare_run(["--file", "job.json"]).run();
    assert_eq!(done.code, 2, "{done}");
    let said = done.err();
    for part in [
        "job.json:4:5",
        "did you mean `dir`?",
        "job.json:5:44",
        "did you mean `exclude`?",
        "job.json:6:",
        "gone.tar` does not exist",
        "a `tar` layer has no `paths`",
        "it has source, strip, dest",
        "job.json:7:41",
        "a `{` is not closed",
        "job.json:8:5",
        "a `symlinks` layer needs `links`",
    ] {
        assert!(said.contains(part), "no {part}: {done}");
    }
}

#[test]
fn a_mistake_in_a_flag_is_shown_with_the_flag() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    world.write("src/a", "");
    world.write("b", "");
    for (layer, parts) in [
        (
            "dir,exclude=x:src",
            ["--layer dir,exclude=x:src", "the options are canonical"],
        ),
        (
            "file:b",
            [
                "does not say where it appears",
                "file:b=/path/in/the/sandbox",
            ],
        ),
        (
            "glob,strip=/src:src/*",
            ["not a directory to take off", "relative path"],
        ),
        (
            "stubs:relative",
            ["not an absolute path", "write /relative"],
        ),
        (
            "symlinks:target",
            ["does not say where the link is", "symlinks:target=/path"],
        ),
        ("file,mode=rwx:b=/b", ["`rwx` is not a mode", "0755"]),
        ("command:", ["needs `program`", "command:SCRIPT"]),
        (
            "dir,owner=5:6:src",
            ["so `owner=5` has no group", "write owner=5.6 for group 6"],
        ),
        (
            "dir:no\nsuch\tdir",
            [
                "work/no\\nsuch\\tdir` does not exist",
                "--layer dir:no\\nsuch\\tdir:",
            ],
        ),
    ] {
        let done = world.bare_run(["--layer", layer, "true"]).run();
        assert_eq!(done.code, 2, "{done}");
        for part in parts {
            assert!(done.err().contains(part), "no {part}: {done}");
        }
    }
}

#[test]
fn a_file_outside_of_what_is_taken_off_is_named() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    world.write("src/a.rs", "");
    world.write("build.rs", "");
    let done = world
        .job("true")
        .args(["--no-workspace", "--layer", "glob,strip=src:**/*.rs=/x"])
        .run();
    assert_eq!(done.code, 125, "{done}");
    for part in ["`build.rs`", "does not lie in `src`", "leave `strip` out"] {
        assert!(done.err().contains(part), "no {part}: {done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn nothing_is_made_in_the_jobs_own_directories(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for layer in [
        "stubs:/tmp/here/",
        "stubs:/tmp/a/b",
        "symlinks:x=/var/tmp/here",
    ] {
        let trial = world.job("true");
        let done = trial.args(["--no-workspace", "--layer", layer]).run();
        assert_eq!(done.code, 125, "{done}");
        for part in [
            "cannot be made by a layer",
            "the job's own",
            "tmp/",
            "let the job make it",
        ] {
            assert!(done.err().contains(part), "no {part}: {done}");
        }
    }
}

#[test]
fn an_image_of_a_registry_is_written_with_its_kind() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    let done = world.bare_run(["--image", "debian:12", "true"]).run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("write oci:debian:12"), "{done}");
    let done = world.bare_run(["--image", "oci:Debian", "true"]).run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("no upper-case letters"), "{done}");
}
