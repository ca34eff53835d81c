//! The table of exit codes: the job's own; 128+n; 124, 125, 126, 127, 130; 2.

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, World};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_jobs_own_code_is_passed_on(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for code in [0, 1, 2, 3, 77, 124, 125, 126, 127, 128, 130, 254, 255] {
        let done = world.job(&format!("exit {code}")).run();
        assert_eq!(done.code, code, "{done}");
        let record = done.record();
        assert_eq!(record.exit_code(), Some(code.into()), "{done}");
        let expected = if code == 0 {
            ("succeeded", "")
        } else {
            ("failed", "exit")
        };
        assert_eq!((record.state(), record.reason()), expected, "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_signal_is_128_and_its_number(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (name, number) in [
        ("TERM", 15),
        ("KILL", 9),
        ("ABRT", 6),
        ("USR1", 10),
        ("HUP", 1),
    ] {
        let done = world.job(&format!("kill -{name} $$; sleep 60")).run();
        assert_eq!(done.code, 128 + number, "{done}");
        let record = done.record();
        assert_eq!(record.signal(), Some(number.into()), "{done}");
        assert_eq!(
            (record.state(), record.reason()),
            ("failed", "signal"),
            "{done}"
        );
        assert!(record.reason_text().contains(name), "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_time_limit_is_124(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .program(["sleep", "600"])
        .args(["--timeout", "300ms"])
        .run();
    assert_eq!(
        (done.code, done.record().state()),
        (124, "timed_out"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_tidemill_cannot_run_is_125(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // A layer that is there and is no archive.
    let broken = world.write("broken.tar", [0x1f, 0x8b, 8, 0, 1, 2, 3]);
    let layer = format!("tar:{}", broken.display());
    let done = world.job("true").args(["--layer", &layer]).run();
    assert_eq!(done.code, 125, "{done}");
    let record = done.record();
    assert_eq!(
        (record.state(), record.reason()),
        ("failed", "layer"),
        "{done}"
    );
    // It is not the program's fault, and nothing looks as if the program had ended like this.
    assert_eq!(
        (record.exit_code(), record.signal()),
        (None, None),
        "{done}"
    );
    assert!(done.err().contains("broken.tar"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_is_not_executable_is_126(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let script = world.write("script", "#!/bin/sh\n");
    world.write("no-loader", "#!/no/such/interpreter\n");
    world.write("garbage", [0x7f, b'E', b'L', b'F', 0, 0]);
    for name in ["no-loader", "garbage"] {
        use std::os::unix::fs::PermissionsExt;
        let path = world.work().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for program in [
        script.to_str().unwrap(),
        "./script",
        "./no-loader",
        "./garbage",
        "/usr",
    ] {
        let done = world.program([program]).run();
        assert_eq!(done.code, 126, "{done}");
        let record = done.record();
        assert_eq!(
            (record.state(), record.reason()),
            ("failed", "program_not_executable"),
            "{done}"
        );
        assert!(done.err().contains(program), "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_is_not_there_is_127(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for program in ["no-such-program", "./no-such-program", "/no/such/program"] {
        let done = world.program([program]).run();
        assert_eq!(done.code, 127, "{done}");
        let record = done.record();
        assert_eq!(
            (record.state(), record.reason()),
            ("failed", "program_not_found"),
            "{done}"
        );
        assert!(done.err().contains(program), "{done}");
        assert_eq!(record.number("/log/bytes"), 0, "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn ctrl_c_is_130_and_other_requests_are_their_own(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let job = world.job("echo ready; exec sleep 600").start();
        job.await_output("ready").signal_group(signal);
        let done = job.wait();
        assert_eq!(
            (done.code, done.record().state()),
            (code, "cancelled"),
            "{done}"
        );
    }
    // Cancelled from elsewhere counts as Ctrl-C.
    let job = world.job("echo ready; exec sleep 600").start();
    job.await_output("ready").cancel();
    let done = job.wait();
    assert_eq!(
        (done.code, done.record().state()),
        (130, "cancelled"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn wrong_usage_is_2_and_leaves_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["run"],
        &["run", "--no-such-flag", "--", "true"],
        &["run", "--memory", "12 parsecs", "--", "true"],
        &["run", "--timeout", "soon", "--", "true"],
        &["show"],
        &["show", "no-such-id"],
        &["logs", "no-such-id"],
        &["cancel", "no-such-id"],
        &["wait", "no-such-id"],
        &["events", "no-such-id"],
        &["ps", "--state", "runing"],
        &["show", "last"],
    ] {
        let done = world.call(arguments);
        assert_eq!(done.code, 2, "{arguments:?}: {done}");
        assert_eq!(done.out(), "", "{arguments:?}: {done}");
        assert!(!done.err().trim().is_empty(), "{arguments:?}: {done}");
    }
    let near = world.call(["ps", "--state", "runing"]);
    assert!(near.err().contains("running"), "{near}");
    assert_eq!(world.list(&[]).len(), 0);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_reader_that_goes_away_ends_the_job_quietly(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = r#""$@" | head -n 1"#;
    let done = world
        .job("yes")
        .through(format!("{{ {text}; }} ; exit 0"))
        .run();
    assert_eq!((done.code, done.out().as_str()), (0, "y\n"), "{done}");
    assert_eq!(done.record().state(), "cancelled", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn wait_exits_as_run_would(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (text, flags, code) in [
        ("exit 0", &[][..], 0),
        ("exit 9", &[], 9),
        ("kill -TERM $$; sleep 60", &[], 143),
        ("sleep 600", &["--timeout", "300ms"], 124),
    ] {
        let done = world.job(text).args(flags).run();
        assert_eq!(done.code, code, "{done}");
        let waited = world.call(["wait", done.record().id()]);
        assert_eq!(waited.code, code, "{waited}");
    }
    let mut job = world
        .job("echo ready; read line; exit 6")
        .args(["--stdin"])
        .start();
    let id = job.await_output("ready").id();
    let waiting = world.command(["wait", &id]).start();
    job.write_input(b"\n");
    assert_eq!(waiting.wait().code, 6);
    assert_eq!(job.wait().code, 6);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_that_failed_without_a_network_is_told_how_to_get_one(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // An address that is set aside for documentation: nobody is asked, whatever the host's network is.
    let text = "exec 3<>/dev/tcp/192.0.2.1/80";
    let failed = world.bash(text).run();
    assert_ne!(failed.code, 0, "{failed}");
    assert!(failed.err().contains("--net host"), "{failed}");
    let record = failed.record();
    assert_eq!(record.reason(), "exit", "{failed}");
    let hint = record.0["reason"]["hint"].as_str().unwrap_or_default();
    assert!(hint.contains("--net host"), "{failed}");
    // It may look for one as it likes while all is well, and fail for other reasons.
    for text in [&format!("({text}) || true"), "exit 3"] {
        let other = world.bash(text).run();
        assert!(!other.err().contains("--net host"), "{other}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_directory_of_path_that_is_closed_hides_no_program(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let closed = world.make_dir("closed");
    let path = format!("PATH={}:/usr/bin:/bin", closed.display());
    let job = |program: &str| world.program([program]).args(["--env", &path]);
    let set_mode = |mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&closed, permissions).unwrap();
    };
    set_mode(0o000);
    let (missing, found) = (job("no-such-program").run(), job("true").run());
    set_mode(0o755);
    assert_eq!(missing.code, 127, "{missing}");
    assert_eq!(missing.record().reason(), "program_not_found", "{missing}");
    assert_eq!(found.code, 0, "{found}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_that_failed_below_its_repository_is_told_how_to_see_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let below = world.make_dir("project/crates/core");
    world.make_dir("project/.git");
    let failed = world.job("test -e ../../.git").directory(&below).run();
    assert_eq!(failed.code, 1, "{failed}");
    assert!(failed.err().contains("--workdir crates/core"), "{failed}");
    let whole = world
        .job("test -e ../../.git && pwd")
        .directory(&below)
        .args(["--workspace", "../..", "--workdir", "crates/core"])
        .run();
    assert_eq!((whole.code, whole.err().as_str()), (0, ""), "{whole}");
    assert!(
        whole.out().trim_end().ends_with("project/crates/core"),
        "{whole}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_output_that_cannot_be_written_cancels_the_job_and_says_why(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let trial = world.job("echo hi; sleep 60").through("\"$@\" >/dev/full");
    let done = trial.run();
    assert_eq!(done.code, 141, "{done}");
    assert!(done.err().contains("No space left on device"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn cargo_that_may_not_download_says_what_to_grant(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let index = "echo \"As a reminder, you're using offline mode (--offline)\" >&2";
    // Said in two pieces, as a program that writes without buffers does.
    let package = "printf 'attempting to make an HTTP request, but --offline was ' >&2; sleep 0.2; \
                   echo specified >&2";
    for words in [index, package] {
        let job = format!("{words}; exit 101");
        let alone = world.job(&job).run();
        assert_eq!(alone.code, 101, "{alone}");
        assert!(alone.err().contains("--net host"), "{alone}");
        let connected = world.job(&job).args(["--net", "host"]).run();
        assert!(!connected.err().contains("hint"), "{connected}");
    }
}
