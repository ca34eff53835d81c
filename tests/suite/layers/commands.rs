//! Layers that commands make.

use rstest::rstest;
use serde_json::json;
use tidemill_tests::{Mode, World};

use super::trees;

/// A command that leaves something else each time it runs.
const RANDOM: &str = "cat /proc/sys/kernel/random/uuid > id";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn a_command_runs_once_for_equal_inputs(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("input", "one\n");
    let job = |script: &str| {
        let job = json!({
            "program": "cat", "args": ["/made/id", "/made/input"], "no_workspace": true,
            "layers": [
                "file:input=/in/input",
                {
                    "kind": "command", "program": "sh",
                    "args": ["-c", format!("{script}; cat /in/input > input")], "dest": "/made"
                }
            ]
        });
        world.write("job.json", job.to_string());
        let done = world.bare_run(["--file", "job.json"]).run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    let first = job(RANDOM);
    assert!(first.ends_with("\none\n"), "{first}");
    assert_eq!(job(RANDOM), first);
    // Another command, and another input, are another layer.
    let second = job(&format!("{RANDOM}; true"));
    assert_ne!(second, first);
    world.write("input", "changed\n");
    let third = job(RANDOM);
    assert!(third.ends_with("\nchanged\n") && third != first, "{third}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn jobs_that_need_one_layer_at_once_wait_for_one_run(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layer = format!("command:{RANDOM}");
    let jobs: Vec<_> = (0..4)
        .map(|_| {
            let trial = world
                .job("cat /id")
                .args(["--no-workspace", "--layer", &layer]);
            trial.start()
        })
        .collect();
    let mut outputs: Vec<String> = Vec::new();
    for job in jobs {
        let done = job.wait();
        assert_eq!(done.code, 0, "{done}");
        outputs.push(done.out());
    }
    assert_eq!(outputs[0].len(), 37, "{outputs:?}");
    outputs.dedup();
    assert_eq!(outputs.len(), 1, "{outputs:?}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_command_sees_the_layers_before_it_and_nothing_of_the_caller(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("secret", "of the workspace");
    let workspace = world.work().display().to_string();
    let script = format!(
        "pwd > seen; ls {workspace} >> seen 2>&1; cat /first >> seen; test -e /later || echo none >> seen; \
         ls /sys/class/net >> seen 2>/dev/null; wc -l < /proc/net/route >> seen; id -u >> seen; \
         mkdir sub; ln -s seen sub/link; cp /bin/true suid; chmod 4755 suid; echo $A >> seen"
    );
    let job = json!({
        "program": "sh", "args": ["-c", "cat /made/seen; stat -c '%n %a' /made/suid; readlink /made/sub/link"],
        "layers": [
            { "kind": "command", "program": "sh", "args": ["-c", "echo first > first"] },
            {
                "kind": "command", "program": "sh", "args": ["-c", script], "env": { "A": "b" },
                "dest": "/made"
            },
            "stubs:/later"
        ]
    });
    world.write("job.json", job.to_string());
    let done = world.bare_run(["--file", "job.json"]).run();
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    assert!(out.starts_with("/layer\nls: "), "no workspace: {done}");
    assert!(out.contains("\nfirst\nnone\n"), "{done}");
    assert!(!out.contains("\n0\nb"), "it is not user 0: {done}");
    assert!(out.ends_with("\nb\n/made/suid 755\nseen\n"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_command_that_fails_is_told_with_what_it_wrote(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let run = |script: &str| {
        let layer = format!("command:{script}");
        let done = world
            .job("true")
            .args(["--no-workspace", "--layer", &layer])
            .run();
        assert_eq!(done.code, 125, "{done}");
        assert_eq!(done.record().reason(), "layer", "{done}");
        done.err()
    };
    let said = run("echo what went wrong >&2; exit 3");
    for part in ["exit code 3", "what went wrong", "exit 3` failed"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    // What it left is no layer, and the next try runs it again.
    let said = run("test -e half && echo there; touch half; exit 4");
    let again = run("test -e half && echo there; touch half; exit 4");
    assert!(
        !said.contains("it wrote") && !again.contains("it wrote"),
        "{said}{again}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn explaining_runs_nothing_and_shows_what_ran(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let arguments = [
        "--no-workspace",
        "--layer",
        "command,canonical:echo x > made",
        "cat",
        "/made",
    ];
    assert!(trees(&world, &arguments)[0].is_null());
    let text = world.ask([&["explain"], &arguments[..]].concat());
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("it did not run yet"), "{text}");
    let done = world.bare_run(arguments).run();
    assert_eq!((done.code, done.out().as_str()), (0, "x\n"), "{done}");
    let digest = trees(&world, &arguments)[0].clone();
    assert!(digest.as_str().unwrap().starts_with("b3:"), "{digest}");
    // The same files by another way are the same tree.
    world.write("p/made", "x\n");
    assert_eq!(
        trees(&world, &["--layer", "dir,canonical:p", "true"])[0],
        digest
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_command_is_bounded_as_its_job_is(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let script = "n=0; while [ $n -lt 40 ]; do sleep 60 & n=$((n+1)); done; echo $n > started";
    let layer = format!("command:{script}");
    let done = world
        .job("cat /started")
        .args(["--no-workspace", "--pids", "20", "--layer", &layer])
        .run();
    // Either the shell gave up, or it started no more than it may.
    let started: u32 = done.out().trim().parse().unwrap_or(0);
    assert!(started < 20, "{done}");
    let many = world
        .job("cat /started")
        .args(["--no-workspace", "--pids", "200", "--layer", &layer])
        .run();
    assert_eq!((many.code, many.out().trim()), (0, "40"), "{many}");
}

/// What is the caller's on the disk, and what a layer gives to a user of that number, are two trees.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_command_is_given_to_whoever_is_asked_for(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // Sub-id n is the id n + 1 where the tree is built.
    let own = world.account().uid.max(2);
    for owner in [own - 1, own, own + 1, 7] {
        let layer = format!("command,owner={owner}.{owner}:echo made > d");
        for _ in 0..2 {
            let done = world
                .job("stat -c %u:%g /d; cat /d")
                .args(["--no-workspace", "--layer", &layer])
                .run();
            let want = format!("{owner}:{owner}\nmade\n");
            assert_eq!((done.code, done.out()), (0, want), "{done}");
        }
    }
}
