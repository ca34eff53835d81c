//! Trials A3 and B8: with which signal a job is asked to end, and what of its output is kept when nobody
//! asks it.

use std::fs;

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, World};

/// Cleans up when it gets SIGINT, and dies of every other signal.
const TIDY: &str = r#"trap "echo cleanup; exit 7" INT; echo ready; while :; do sleep 0.1; done"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_a_job_is_asked_with_the_signal_that_it_names(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let flags = ["--stop-signal", "int", "--grace", "60s"];
    let job = world.job(TIDY).args(flags).start();
    job.await_output("ready").cancel();
    let done = job.wait();
    assert_eq!(done.out(), "ready\ncleanup\n", "{done}");
    let record = done.record();
    assert_eq!(
        (record.state(), record.exit_code()),
        ("cancelled", Some(7)),
        "{done}"
    );
    let said = record.reason_text();
    assert!(said.contains("SIGINT sent, ended by itself"), "{done}");
    let page = String::from_utf8(world.ask(["show", record.id()])).unwrap();
    assert!(
        page.contains("SIGINT, and the kill after 1 min 0 s"),
        "{page}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_without_a_name_it_is_sigterm(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world.job(TIDY).args(["--grace", "60s"]).start();
    job.await_output("ready").cancel();
    let done = job.wait();
    assert_eq!(done.out(), "ready\n", "{done}");
    let record = done.record();
    assert_eq!(
        (record.state(), record.signal()),
        ("cancelled", Some(15)),
        "{done}"
    );
    assert!(record.reason_text().contains("SIGTERM sent"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_all_processes_are_asked_with_it_on_ctrl_c_too(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // The signal comes from a job file, and the process that cleans up is not the main one.
    let inner = TIDY.replace("INT", "USR1");
    let script = format!(
        "trap : USR1; sh -c '{}'; echo inner=$?",
        inner.replace('\'', "'\\''")
    );
    let file = serde_json::json!({
        "program": "sh", "args": ["-c", script], "stop_signal": 10, "limits": { "grace": "60s" }
    });
    let job = world
        .bare_run(["--file", "-"])
        .input(file.to_string())
        .start();
    job.await_output("ready").signal(Signal::INT);
    let done = job.wait();
    assert_eq!(done.out(), "ready\ncleanup\ninner=7\n", "{done}");
    assert!(done.err().contains("the job gets SIGUSR1"), "{done}");
    assert_eq!(done.code, 130, "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_what_cannot_be_a_stop_signal_is_refused(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (written, said) in [
        ("KILL", "`KILL` is SIGKILL, which no program can catch"),
        ("SIGHPU", "did you mean `SIGHUP`?"),
        ("64", "`64` is not the number of a standard signal"),
    ] {
        let done = world.job("true").args(["--stop-signal", written]).run();
        assert_eq!(done.code, 2, "{done}");
        let place = "--stop-signal: error:";
        assert!(
            done.err().contains(place) && done.err().contains(said),
            "{done}"
        );
    }
}

/// Cleans up for a second when it gets SIGTERM.
const SLOWLY_TIDY: &str = r#"trap "echo cleanup; sleep 1; echo clean-done; exit 7" TERM; echo ready; while :; do sleep 0.1; done"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_timeout_1_signals_twice_and_means_it_once(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // It signals its child, and then its process group.
    let done = world
        .job(SLOWLY_TIDY)
        .args(["--grace", "60s"])
        .through("exec timeout 4 \"$@\"")
        .run();
    assert_eq!(done.out(), "ready\ncleanup\nclean-done\n", "{done}");
    let record = done.record();
    assert_eq!(
        (record.state(), record.exit_code()),
        ("cancelled", Some(7)),
        "{done}"
    );
    assert!(!done.err().contains("killing the job"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_a_second_ctrl_c_kills_at_once(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "trap : INT TERM; echo ready; while :; do sleep 0.1; done";
    let job = world.job(text).args(["--grace", "60s"]).start();
    job.await_output("ready").signal(Signal::INT);
    job.await_error("cancelling").signal(Signal::INT);
    let done = job.wait();
    assert_eq!(done.code, 130, "{done}");
    assert_eq!(done.record().signal(), Some(9), "{done}");
    assert!(done.record().reason_text().contains("killed"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b8_what_a_time_limit_killed_is_no_left_over(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .job("sleep 300 & sleep 300")
        .args(["--timeout", "1s"])
        .run();
    assert_eq!(done.code, 124, "{done}");
    assert!(!done.record().warnings().contains(&"left_overs"), "{done}");
    assert!(!done.err().contains("still there"), "{done}");
    assert!(done.record().number("/killed_processes") >= 1, "{done}");
}

/// Writes each line to its output first and then into a file, as fast as it can, and handles no signal.
const COUNTER: &str =
    r#"n=0; while :; do echo "line $n"; echo "line $n" >> copy; n=$((n+1)); done"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b8_every_line_before_the_kill_of_a_time_limit_is_kept(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let flags = ["--write", "--timeout", "1s"];
    let done = world.job(COUNTER).args(flags).run();
    assert_eq!(done.code, 124, "{done}");
    assert_eq!(done.record().signal(), Some(9), "{done}");
    let copy = fs::read_to_string(world.work().join("copy")).unwrap();
    assert!(copy.lines().count() > 100, "{done}");
    let log = String::from_utf8(world.raw_log(done.record().id())).unwrap();
    assert_eq!(log, done.out(), "{done}");
    // It may have been killed between the two writes of one line, and not within one.
    let rest = log
        .strip_prefix(&copy)
        .unwrap_or_else(|| panic!("the log lacks what the file has: {done}"));
    assert!(
        rest.is_empty() || (rest.ends_with('\n') && rest.lines().count() == 1),
        "{rest:?}"
    );
}
