//! The commands that read the record, from another terminal and afterwards.

use rstest::rstest;
use tidemill_tests::{Mode, World};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_running_job_is_seen_and_reached_from_elsewhere(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world
        .job("echo ready; exec sleep 600")
        .args(["--name", "long", "--label", "a=b"]);
    let job = job.start();
    let id = job.await_output("ready").id();
    let running = world.list(&["--state", "running"]);
    assert_eq!(
        running.iter().map(|record| record.id()).collect::<Vec<_>>(),
        [&id]
    );
    for flags in [["--name", "long"], ["--label", "a=b"]] {
        assert_eq!(world.list(&flags).len(), 1, "{flags:?}");
    }
    for flags in [
        ["--name", "short"],
        ["--label", "a=c"],
        ["--state", "failed"],
    ] {
        assert_eq!(world.list(&flags).len(), 0, "{flags:?}");
    }
    let text = String::from_utf8(world.ask(["ps"])).unwrap();
    assert!(text.contains("long") && text.contains("running"), "{text}");
    // The beginning of an id, its end and the word for the newest all name it.
    for name in [&id[..id.len() - 1], &id[24..], "last"] {
        assert_eq!(world.show(name).id(), id);
    }
    let events = world.events(&id);
    let has_started = events
        .iter()
        .any(|event| event["event"]["kind"] == "started");
    assert!(has_started, "{events:?}");
    let follower = world
        .command(["events", "-f", &id, "--format", "json"])
        .start();
    follower.await_output("started");
    let cancelled = world.ask(["cancel", &id, "--format", "json"]);
    assert!(String::from_utf8_lossy(&cancelled).contains("requested"));
    let done = job.wait();
    assert_eq!(
        (done.code, done.record().state()),
        (130, "cancelled"),
        "{done}"
    );
    let followed = follower.wait();
    let last = followed.out().lines().last().unwrap().to_owned();
    assert!(last.contains(r#""kind":"cancelled""#), "{followed}");
    // Again: it has ended, and that is not an error.
    let again = world.call(["cancel", &id]);
    assert_eq!(again.code, 0, "{again}");
    assert!(again.out().contains("already"), "{again}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn events_are_dense_and_tell_the_life(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.job("echo one; exit 2").run();
    let record = done.record();
    let events = world.events(record.id());
    let sequences: Vec<u64> = events
        .iter()
        .map(|event| event["sequence"].as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = (1..=events.len() as u64).collect();
    assert_eq!(sequences, expected);
    assert_eq!(record.number("/last_sequence"), events.len() as u64);
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event"]["kind"].as_str().unwrap())
        .collect();
    let place = |kind: &str| {
        let found = kinds.iter().position(|found| *found == kind);
        found.unwrap_or_else(|| panic!("{kind} is not in {kinds:?}"))
    };
    let life = ["created", "queued", "assigned", "started", "failed"].map(place);
    assert!(life.is_sorted(), "{kinds:?}");
    assert_eq!(place("failed"), kinds.len() - 1, "{kinds:?}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn explain_shows_what_would_be_granted_and_runs_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let flags = [
        "explain", "--net", "host", "--format", "json", "--", "touch", "made",
    ];
    let answer = world.ask(flags);
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["version"], 1, "{answer:#}");
    let grants = answer["grants"].as_array().unwrap();
    let path = |sandbox: &str| grants.iter().find(|grant| grant["sandbox"] == sandbox);
    let work = world.work();
    let workspace = path(work.to_str().unwrap()).unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(workspace["access"], "copy_on_write");
    assert_eq!(path("/usr").unwrap()["access"], "read_only");
    assert!(
        grants.iter().any(|grant| grant["kind"] == "host_network"),
        "{answer:#}"
    );
    for grant in grants {
        if grant["kind"] == "path" {
            assert!(
                grant["why"].as_str().is_some_and(|why| !why.is_empty()),
                "{grant:#}"
            );
        }
    }
    assert!(!work.join("made").exists());
    assert!(world.list(&[]).is_empty());
    let text = String::from_utf8(world.ask(["explain", "--", "true"])).unwrap();
    assert!(text.contains("/usr"), "{text}");
    // What a job really gets is what was explained.
    let done = world.program(["true"]).args(["--net", "host"]).run();
    let given = done.record().0["grants"].clone();
    let paths = |list: &serde_json::Value| -> Vec<String> {
        let paths = list
            .as_array()
            .unwrap()
            .iter()
            .filter(|grant| grant["kind"] == "path");
        paths
            .map(|grant| format!("{} {}", grant["sandbox"], grant["access"]))
            .collect()
    };
    assert_eq!(paths(&given), paths(&answer["grants"]));
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn streams_can_be_read_apart(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.job("echo out; echo err >&2; echo out2").run();
    assert_eq!(done.out(), "out\nout2\n", "{done}");
    assert!(done.err().starts_with("err\n"), "{done}");
    let id = done.record().id();
    assert_eq!(
        world.ask(["logs", "--stream", "stdout", id]),
        b"out\nout2\n"
    );
    assert_eq!(world.ask(["logs", "--stream", "stderr", id]), b"err\n");
    assert_eq!(world.ask(["logs", id]), b"out\nerr\nout2\n");
}

#[rstest]
#[case::root(Mode::Root)]
fn completions_manual_and_help_are_there(#[case] mode: Mode) {
    // They touch neither state nor sandbox, so one user is enough.
    let Some(world) = World::new(mode) else {
        return;
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = String::from_utf8(world.ask(["completions", shell])).unwrap();
        assert!(script.contains("tidemill"), "{shell}");
    }
    let page = String::from_utf8(world.ask(["man"])).unwrap();
    assert!(page.contains(".TH"), "{page}");
    let help = String::from_utf8(world.ask(["run", "--help"])).unwrap();
    for flag in [
        "--image",
        "--layer",
        "--memory",
        "--timeout",
        "--result-file",
        "--tty",
        "124",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
    assert!(!world.state().exists(), "these commands need no state");
}
