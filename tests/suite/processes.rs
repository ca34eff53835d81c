//! Trials A1 to A10 and A14: how processes end, and what of them is left.

use std::time::Duration;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;
use tidemill_tests::{Background, Done, Mode, PATIENCE, World, has_program, skip, until};

/// A session of its own, deaf to every polite signal, that holds no stream of the job.
const DEAF_SESSION: &str = r#"(setsid bash -c "trap \"\" TERM HUP INT; exec </dev/null >/dev/null 2>&1; while :; do sleep 1; done" &)"#;

/// Two processes that replace themselves by a child every few milliseconds, deaf as well.
const FORKING: &str = r"(setsid perl -e '$SIG{TERM} = $SIG{HUP} = $SIG{INT} = q(IGNORE); open my $up, q(>), q(/tmp/forking); fork; while (1) { my $pid = fork; exit if $pid; select undef, undef, undef, 0.005 }' </dev/null >/dev/null 2>&1 &); until [ -e /tmp/forking ]; do sleep 0.01; done";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a1_cancel_leaves_no_descendants(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = format!("{DEAF_SESSION}; echo ready; sleep 600");
    let job = world.bash(&text).args(["--grace", "1s"]).start();
    let (done, outcome) = cancelled_with_all_of_it(&world, job);
    // The deaf shell, and the sleep that it may have been waiting for.
    let killed = outcome["killed_processes"].as_u64();
    assert!(matches!(killed, Some(1..=2)), "{outcome:#}\n{done}");
    assert_eq!(
        Some(done.record().number("/killed_processes")),
        killed,
        "{done}"
    );
    // They outlived nothing: they were ended with the job.
    assert!(!done.record().warnings().contains(&"left_overs"), "{done}");
}

/// Cancels a job that is ready. When that is done, nothing of it may run any more.
fn cancelled_with_all_of_it(world: &World, job: Background<'_>) -> (Done, Value) {
    let id = job.await_output("ready").id();
    assert!(!world.job_processes().is_empty(), "nothing has the mark");
    let waiting = world.command(["wait", &id]).start();
    job.cancel();
    let waited = waiting.wait();
    let left = world.job_processes();
    assert!(left.is_empty(), "cancelled, and still there: {left:#?}");
    assert_eq!(waited.code, 130, "{waited}");
    let done = job.wait();
    assert_eq!(done.record().state(), "cancelled", "{done}");
    assert!(done.elapsed < Duration::from_secs(30), "{done}");
    let outcome = world.outcome(&id);
    (done, outcome)
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a1_cancel_catches_processes_that_fork_all_the_time(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = format!("{FORKING}; echo ready; sleep 600");
    let job = world.bash(&text).args(["--grace", "1s"]).start();
    let (done, outcome) = cancelled_with_all_of_it(&world, job);
    let killed = outcome["killed_processes"].as_u64();
    assert!(killed >= Some(1), "{outcome:#}\n{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a2_a_child_that_holds_the_output_does_not_keep_the_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // The second one is silent: it holds the streams only by being there.
    for text in [
        "sleep 300 & echo done; exit 5",
        "(exec >/dev/null 2>&1; exec sleep 300) & echo done; exit 5",
    ] {
        let done = world.job(text).run();
        assert_eq!((done.code, done.out().as_str()), (5, "done\n"), "{done}");
        assert!(done.elapsed < Duration::from_secs(20), "{done}");
        let record = done.record();
        assert_eq!(
            (record.state(), record.reason(), record.exit_code()),
            ("failed", "exit", Some(5)),
            "{done}"
        );
        assert_eq!(record.number("/killed_processes"), 1, "{done}");
        assert_eq!(world.outcome(record.id())["killed_processes"], 1);
        // It is said once, in words.
        assert!(record.warnings().contains(&"left_overs"), "{done}");
        let lines = done.err();
        let said = lines.lines().filter(|line| line.contains("was killed"));
        assert_eq!(said.count(), 1, "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a2_a_child_that_keeps_writing_does_not_keep_the_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.job("(while :; do echo more; done) & echo done").run();
    assert_eq!(done.code, 0, "{done}");
    assert!(done.out().contains("done\n"), "{done}");
    assert!(done.elapsed < Duration::from_secs(20), "{done}");
    assert!(done.record().number("/killed_processes") >= 1, "{done}");
    // What was seen of it is what is kept of it.
    assert_eq!(world.raw_log(done.record().id()), done.stdout);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a2_children_are_waited_for_where_that_is_asked(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = r#"{ "program": "sh", "args": ["-c", "(sleep 1; echo late) & echo done"], "wait_children": true }"#;
    let done = world.bare_run(["--file", "-"]).input(job).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "done\nlate\n"),
        "{done}"
    );
}

/// Cleans up for a second when it is asked to end.
const TIDY: &str = r#"trap "echo cleanup; sleep 1; echo clean-done; exit 7" TERM; echo ready; while :; do sleep 0.1; done"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_a_job_has_its_grace(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world.job(TIDY).args(["--grace", "30s"]).start();
    job.await_output("ready").cancel();
    let done = job.wait();
    let record = done.record();
    assert_eq!(done.out(), "ready\ncleanup\nclean-done\n", "{done}");
    assert_eq!(
        (record.state(), record.exit_code()),
        ("cancelled", Some(7)),
        "{done}"
    );
    assert_eq!(record.signal(), None, "{done}");
    let said = record.reason_text();
    assert!(said.contains("by itself"), "{done}");
    assert!(!said.contains("killed"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_grace_ends(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = r#"trap "echo cleanup; sleep 60; echo clean-done; exit 7" TERM; echo ready; while :; do sleep 0.1; done"#;
    let job = world.job(text).args(["--grace", "1s"]).start();
    job.await_output("ready").cancel();
    let done = job.wait();
    let record = done.record();
    assert_eq!(done.out(), "ready\ncleanup\n", "{done}");
    assert_eq!(
        (record.state(), record.exit_code()),
        ("cancelled", None),
        "{done}"
    );
    assert!(record.reason_text().contains("kill"), "{done}");
    assert!(done.elapsed < Duration::from_secs(25), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_a_grandchild_is_asked_too(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // The outer shell has no trap: without `exec`, the signal must reach the inner one as well, and
    // the inner one's clean-up must still be heard.
    let text = format!(
        "trap : TERM; sh -c '{}'; echo inner=$?",
        TIDY.replace('\'', "'\\''")
    );
    let job = world.job(&text).args(["--grace", "30s"]).start();
    job.await_output("ready").cancel();
    let done = job.wait();
    assert_eq!(
        done.out(),
        "ready\ncleanup\nclean-done\ninner=7\n",
        "{done}"
    );
    assert_eq!(done.record().state(), "cancelled", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a3_a_grandchild_has_the_grace_too(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // The signal ends the outer shell at once; what cleans up is the inner one.
    let text = format!("sh -c '{}'; echo inner=$?", TIDY.replace('\'', "'\\''"));
    let job = world.job(&text).args(["--grace", "30s"]).start();
    job.await_output("ready").cancel();
    let done = job.wait();
    assert_eq!(done.out(), "ready\ncleanup\nclean-done\n", "{done}");
    assert_eq!(done.record().state(), "cancelled", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a5_exit_code_and_signal_are_told_apart(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let segv = world.job("kill -SEGV $$").run();
    assert_eq!(segv.code, 139, "{segv}");
    let record = segv.record();
    assert_eq!(
        (record.exit_code(), record.signal()),
        (None, Some(11)),
        "{segv}"
    );
    assert_eq!(
        (record.state(), record.reason()),
        ("failed", "signal"),
        "{segv}"
    );
    assert_eq!(record.0["core_dumped"], false, "{segv}");
    assert!(segv.err().contains("failed by SIGSEGV after"), "{segv}");
    let term = world.job("kill -TERM $$").run();
    assert_eq!((term.code, term.err().as_str()), (143, ""), "{term}");

    let inner = world
        .job(r#"bash -c "kill -KILL \$\$"; echo inner=$?"#)
        .run();
    assert_eq!(
        (inner.code, inner.out().as_str()),
        (0, "inner=137\n"),
        "{inner}"
    );
    let record = inner.record();
    assert_eq!(
        (record.state(), record.exit_code()),
        ("succeeded", Some(0)),
        "{inner}"
    );

    // What a shell makes of these is the shell's own business, and is passed on as it is.
    for (text, code) in [
        ("exit 256", 0),
        ("exit 255", 255),
        ("false\ntrue", 0),
        ("false | true", 0),
    ] {
        let done = world.bash(text).run();
        assert_eq!(done.code, code, "{done}");
        assert_eq!(done.record().exit_code(), Some(code.into()), "{done}");
    }
    // And the mode of the shell is explicit in the job, and shown.
    let strict = world.program([
        "bash",
        "-e",
        "-o",
        "pipefail",
        "-c",
        "false | true\necho no",
    ]);
    let done = strict.run();
    assert_eq!((done.code, done.out().as_str()), (1, ""), "{done}");
    let command = &done.record().0["command"];
    assert_eq!(command[2], "-o", "{done}");
    assert_eq!(command[3], "pipefail", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a9_a_program_without_a_handler_ends_at_the_first_signal(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for command in [&["sleep", "600"][..], &["sh", "-c", "exec sleep 600"]] {
        let job = world.program(command).args(["--grace", "60s"]).start();
        let id = job.id();
        job.await_state(&id, "running");
        world.ask(["cancel", &id]);
        let done = job.wait();
        let record = done.record();
        assert_eq!(
            (record.state(), record.signal()),
            ("cancelled", Some(15)),
            "{done}"
        );
        assert!(done.elapsed < Duration::from_secs(30), "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a9_the_job_is_never_process_1(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "echo $$; ps() { cat /proc/1/comm; }; ps; kill -KILL 1; kill -TERM 1; \
                head -c 1 /proc/1/environ; echo alive";
    let done = world.job(text).run();
    let out = done.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_ne!(lines[0], "1", "{done}");
    assert_eq!(lines.last(), Some(&"alive"), "{done}");
    assert!(!out.contains("PATH"), "{done}");
    assert_eq!(done.code, 0, "{done}");
}

/// A file system whose server takes every question for a name and answers none: who asks is stuck in
/// the kernel, deaf to every signal, until the server ends. Its argument is where it is mounted. The
/// numbers are those of linux/fuse.h and, for mount(2), of asm/unistd_64.h.
const STUCK_SERVER: &str = r#"
my $place = shift;
open my $device, "+<", "/dev/fuse" or die "/dev/fuse: $!";
my $options = "fd=" . fileno($device) . ",rootmode=40000,user_id=0,group_id=0,allow_other";
my ($source, $type) = ("stuck", "fuse");
syscall(165, $source, $place, $type, 0, $options) == 0 or die "mount: $!";
open STDOUT, ">", "/dev/null";
while (sysread $device, my $request, 1 << 20) {
    my (undef, $operation, $unique) = unpack "LLQ", $request;
    my $answer = $operation == 26 ? pack("LLLLSSLLSSLL7", 7, 31, 0, 0, 16, 12, 4096, 1, 1, 0, 0, (0) x 7)
        : $operation == 3 ? pack("QLLQQQQQQLLLLLLLLLL", 60, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0040755, 2, 0, 0, 0, 4096, 0)
        : $operation == 1 ? undef : "";
    next unless defined $answer;
    syswrite $device, pack("LlQ", 16 + length $answer, 0, $unique) . $answer;
}
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn slow_a9_a_stuck_process_has_a_bounded_wait(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() || !has_program("perl") {
        skip("only root, with perl, can make a file system that hangs");
        return;
    }
    if std::fs::File::open("/dev/fuse").is_err() {
        skip("/dev/fuse cannot be opened");
        return;
    }
    let server = world.write("server.pl", STUCK_SERVER);
    // /opt is a part of the host that each job sees.
    let script = format!(
        "mount -t tmpfs none /opt; mkdir /opt/stuck; \
         perl {} /opt/stuck >/dev/null 2>&1 </dev/null & \
         until grep -q /opt/stuck /proc/self/mounts; do sleep 0.05; done; exec \"$@\"",
        server.display()
    );
    let text = "echo ready; cat /opt/stuck/file; echo never";
    let mut job = world
        .job(text)
        .inside(script)
        .args(["--timeout", "2s"])
        .start();
    job.await_output("ready");
    until("the job is given up", Duration::from_secs(60), || {
        (!job.is_running()).then_some(())
    });
    until("whoever reads its output is let go", PATIENCE, || {
        (job.stdout().closed && job.stderr().closed).then_some(())
    });
    // Only now the server ends, and with it what waited for it.
    let place = server.display().to_string();
    for process in tidemill_tests::processes() {
        let command = String::from_utf8_lossy(&process.command).into_owned();
        if command.contains(&place)
            && let Some(pid) = rustix::process::Pid::from_raw(process.pid)
        {
            rustix::process::kill_process(pid, Signal::KILL).ok();
        }
    }
    let done = job.wait();
    assert!([124, 125].contains(&done.code), "{done}");
    assert!(!done.out().contains("never"), "{done}");
    let record = world.show("last");
    assert!(
        ["failed", "timed_out"].contains(&record.state()),
        "{record}"
    );
    let said = format!("{} {}", done.err(), record);
    assert!(said.contains("kernel") || said.contains("stuck"), "{said}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a10_standard_input_is_empty(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // The binary's own standard input is a pipe that stays open and silent.
    for (program, text, code) in [
        ("sh", "cat; echo end", Some(0)),
        ("python3", "python3; echo end", Some(0)),
        (
            "git",
            "git clone https://127.0.0.1:1/x; test $? -ne 0 && echo end",
            Some(0),
        ),
        ("ssh-keygen", "ssh-keygen; echo end", None),
        (
            "sh",
            "(exec </dev/tty) 2>/dev/null; test $? -ne 0 && echo end",
            Some(0),
        ),
    ] {
        if !has_program(program) {
            skip(&format!("{program} is missing"));
            continue;
        }
        let done = world.job(text).run();
        assert!(done.out().ends_with("end\n"), "{done}");
        assert!(done.elapsed < Duration::from_secs(30), "{done}");
        if let Some(code) = code {
            assert_eq!(done.code, code, "{done}");
        }
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a10_standard_input_is_passed_on_where_that_is_asked(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .job("cat; echo end")
        .args(["--stdin"])
        .input("one\ntwo")
        .run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "one\ntwoend\n"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a14_the_first_interrupt_asks_and_the_second_kills(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = r#"trap "echo asked" TERM; echo ready; while :; do sleep 0.1; done"#;
    let mut job = world.job(text).args(["--grace", "60s"]).start();
    job.await_output("ready").signal_group(Signal::INT);
    job.await_output("asked");
    // It says what happens, and how long it may take.
    job.await_error("1 min 0 s");
    job.await_error("second Ctrl-C");
    assert!(job.is_running());
    job.signal_group(Signal::INT);
    let done = job.wait();
    assert_eq!(done.code, 130, "{done}");
    assert_eq!(done.record().state(), "cancelled", "{done}");
    assert!(done.elapsed < Duration::from_secs(40), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a14_one_interrupt_is_enough_for_a_job_that_obeys(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world.job(TIDY).args(["--grace", "60s"]).start();
    job.await_output("ready").signal_group(Signal::INT);
    let done = job.wait();
    assert_eq!(done.code, 130, "{done}");
    assert_eq!(done.out(), "ready\ncleanup\nclean-done\n", "{done}");
    let record = done.record();
    assert_eq!(
        (record.state(), record.exit_code()),
        ("cancelled", Some(7)),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a14_after_a_kill_the_job_is_gone_and_the_next_command_cleans_up(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // A service that would like to live for ever.
    let text =
        format!("{DEAF_SESSION}; mkdir -p a/b; chmod 0 a/b; trap '' TERM; echo ready; sleep 600");
    let job = world.bash(&text).start();
    job.await_output("ready");
    let id = job.id();
    job.signal(Signal::KILL);
    let done = job.wait();
    assert_eq!(done.code, -9, "{done}");
    // Nobody has to do anything for the job to die.
    until("the job has died with its owner", PATIENCE, || {
        world.job_processes().is_empty().then_some(())
    });
    let record = world.show(&id);
    assert_eq!(
        (record.state(), record.reason()),
        ("failed", "lost"),
        "{record}"
    );
    // What it wrote is still there.
    assert_eq!(world.raw_log(&id), b"ready\n");
    // The next run is not disturbed.
    let next = world.job("echo fine").run();
    assert_eq!((next.code, next.out().as_str()), (0, "fine\n"), "{next}");
}
