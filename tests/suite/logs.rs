//! Trials B1 to B9: what a job wrote is kept, to the byte and in order, and can be read meanwhile.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, PATIENCE, World, has_program, peak_memory, skip, until};

const MIB: u64 = 1 << 20;
/// What a process of the binary may need, whatever a job writes.
const MEMORY_MAX: u64 = 64 * MIB;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b1_earlier_lines_of_a_running_job_are_seen(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world.job("seq 1000; sleep 600").start();
    job.await_output("\n1000\n");
    let id = job.id();
    let expected: String = (1..=1000).map(|number| format!("{number}\n")).collect();
    for _ in 0..2 {
        let logs = world.ask(["logs", &id]);
        assert_eq!(String::from_utf8_lossy(&logs), expected);
    }
    let tail = world.ask(["logs", "--tail", "3", &id]);
    assert_eq!(String::from_utf8_lossy(&tail), "998\n999\n1000\n");
    let follower = world.command(["logs", "-f", &id]).start();
    follower.await_output("\n1000\n");
    job.cancel();
    assert_eq!(job.wait().record().state(), "cancelled");
    let followed = follower.wait();
    assert_eq!((followed.code, followed.out()), (0, expected), "{followed}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b1_a_follower_sees_new_lines_as_they_come(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let mut job = world.job("echo one; read line; echo $line; read line; echo $line");
    job = job.args(["--stdin"]);
    let mut job = job.start();
    let id = job.await_output("one\n").id();
    let follower = world.command(["logs", "--follow", &id]).start();
    follower.await_output("one\n");
    job.write_input(b"two\n");
    follower.await_output("one\ntwo\n");
    job.write_input(b"three\n");
    job.close_input();
    let done = job.wait();
    assert_eq!(done.code, 0, "{done}");
    let followed = follower.wait();
    assert_eq!(
        (followed.code, followed.out().as_str()),
        (0, "one\ntwo\nthree\n"),
        "{followed}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b3_a_log_limit_cuts_and_changes_nothing_else(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "yes | head -c 5M; echo LAST; exit 3";
    let done = world.job(text).args(["--log-limit", "1MiB"]).run();
    let record = done.record();
    assert_eq!(
        (done.code, record.state(), record.reason()),
        (3, "failed", "exit"),
        "{done}"
    );
    // Who watches sees all of it.
    assert_eq!(done.stdout.len(), 5 * (1 << 20) + 5);
    assert_eq!(record.number("/log/bytes"), 5 * MIB + 5, "{done}");
    let dropped = record.number("/log/dropped_bytes");
    assert!(
        (4 * MIB - 256 * 1024..=4 * MIB + 256 * 1024).contains(&dropped),
        "{done}"
    );
    let id = record.id();
    let raw = world.raw_log(id);
    assert_eq!(raw.len() as u64, 5 * MIB + 5 - dropped);
    assert!(raw.starts_with(b"y\ny\n") && raw.ends_with(b"y\nLAST\n"));
    let text = String::from_utf8(world.ask(["logs", id])).unwrap();
    let gaps: Vec<&str> = text.lines().filter(|line| *line != "y").collect();
    assert_eq!(gaps, ["[4.0 MiB left out here]", "", "LAST"]);
    assert!(text.ends_with("LAST\n"));
    let events = world.events(id);
    let outcome = &events.last().unwrap()["event"]["outcome"];
    assert_eq!(outcome["log"]["dropped_bytes"], dropped, "{outcome:#}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b4_the_last_line_is_kept_without_a_newline(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (text, stdout, stderr, code) in [
        ("printf foo", "foo", "", 0),
        ("printf bar >&2; exit 1", "", "bar", 1),
        ("printf part; kill -9 $$", "part", "", 137),
    ] {
        let done = world.job(text).run();
        assert_eq!((done.code, done.out().as_str()), (code, stdout), "{done}");
        assert!(done.err().starts_with(stderr), "{done}");
        let id = done.record().id();
        assert_eq!(world.raw_log(id), [stdout, stderr].concat().into_bytes());
        let part = |stream: &str| world.ask(["logs", "--raw", "--stream", stream, id]);
        assert_eq!(
            (part("stdout"), part("stderr")),
            (stdout.into(), stderr.into())
        );
    }
    let job = world.job("printf part; sleep 100").start();
    job.await_output("part").cancel();
    let done = job.wait();
    assert_eq!(done.out(), "part", "{done}");
    assert_eq!(world.raw_log(done.record().id()), b"part");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b6_a_very_long_line_stops_nobody(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = r#"head -c 50M /dev/zero | tr "\0" x; echo; echo after"#;
    let (done, peak) = watched(world.job(text).start());
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(done.stdout.len(), 50 * (1 << 20) + 7);
    assert!(done.stdout.ends_with(b"x\nafter\n"));
    assert!(peak < MEMORY_MAX, "{} MiB", peak / MIB);
    let id = done.record().id();
    let raw = world.raw_log(id);
    assert_eq!(raw.iter().filter(|byte| **byte == b'x').count(), 50 << 20);
    assert!(raw.ends_with(b"x\nafter\n"));
    let (shown, peak) = watched(world.command(["logs", id]).start());
    assert!(peak < MEMORY_MAX, "{} MiB", peak / MIB);
    assert!(shown.out().lines().all(|line| line.len() < 10_000));
    assert!(shown.stdout.ends_with(b"\nafter\n"));
    assert_eq!(world.ask(["logs", "--tail", "1", id]), b"after\n");
}

/// Waits for a process and tells how much memory it needed.
fn watched(job: tidemill_tests::Background<'_>) -> (tidemill_tests::Done, u64) {
    let pid = job.pid();
    let watcher = thread::spawn(move || {
        let mut peak = 0;
        while let Some(now) = peak_memory(pid) {
            peak = peak.max(now);
            thread::sleep(Duration::from_millis(5));
        }
        peak
    });
    let done = job.wait();
    (done, watcher.join().unwrap())
}

/// Counts, says 200 more lines when it is asked to end, and writes all of it into a file as well.
const COUNTER: &str = r#"
exec 2>/dev/null
say() { echo "$1"; echo "$1" >> copy; }
# A shell may look at its traps between the two halves of a line, so this one only takes a note.
asked=
trap asked=1 TERM
n=0
while [ -z "$asked" ]; do say "line $n"; n=$((n+1)); [ $n -eq 50 ] && say ready; sleep 0.01; done
i=0
while [ $i -lt 200 ]; do say "last $i"; i=$((i+1)); done
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b8_the_tail_is_kept_at_cancel(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world
        .job(COUNTER)
        .args(["--write", "--grace", "60s"])
        .start();
    job.await_output("ready\n").cancel();
    let done = job.wait();
    assert_eq!(done.record().state(), "cancelled", "{done}");
    let copy = fs::read_to_string(world.work().join("copy")).unwrap();
    assert!(copy.ends_with("last 199\n"), "{done}");
    assert_eq!(done.out(), copy, "{done}");
    assert_eq!(
        String::from_utf8_lossy(&world.raw_log(done.record().id())),
        copy
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b8_the_tail_is_kept_at_the_time_limit(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // A time limit gives no grace: what counts is that nothing of what was written gets lost.
    let flags = ["--write", "--timeout", "2s"];
    let done = world.job(COUNTER).args(flags).run();
    assert_eq!(done.code, 124, "{done}");
    let copy = fs::read_to_string(world.work().join("copy")).unwrap();
    assert!(copy.lines().count() > 10, "{done}");
    let out = done.out();
    // The job writes each line to its output first, so it may have been ended between the two.
    let rest = out
        .strip_prefix(&copy)
        .unwrap_or_else(|| panic!("{copy:?}\n{done}"));
    assert!(rest.lines().count() <= 1, "{rest:?}");
    assert_eq!(
        String::from_utf8_lossy(&world.raw_log(done.record().id())),
        out
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b8_the_tail_is_kept_at_ctrl_c(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world
        .job(COUNTER)
        .args(["--write", "--grace", "60s"])
        .start();
    job.await_output("ready\n").signal_group(Signal::INT);
    let done = job.wait();
    assert_eq!(done.code, 130, "{done}");
    let copy = fs::read_to_string(world.work().join("copy")).unwrap();
    assert!(copy.ends_with("last 199\n"), "{done}");
    assert_eq!(done.out(), copy, "{done}");
    assert_eq!(
        String::from_utf8_lossy(&world.raw_log(done.record().id())),
        copy
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b8_nothing_is_lost_while_nobody_reads(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // More than the pipes between can hold, so that the job has to wait as well.
    let text = "echo ready; until [ -e go ]; do sleep 0.02; done; i=0; while [ $i -lt 20000 ]; do \
                echo \"line $i\"; echo \"line $i\" >&3; i=$((i+1)); done 3>copy; echo end";
    let job = world.job(text).args(["--write"]).start();
    let id = job.await_output("ready\n").id();
    job.signal(Signal::STOP);
    world.write("go", "");
    let copy = world.work().join("copy");
    let written = || fs::metadata(&copy).map_or(0, |found| found.len());
    // It has stopped growing, far from its end.
    let mut last = (0, 0);
    until("the job waits for its reader", PATIENCE, || {
        last = match written() {
            now if now == last.0 && now > 0 => (now, last.1 + 1),
            now => (now, 0),
        };
        (last.1 > 50).then_some(())
    });
    job.signal(Signal::CONT);
    let done = job.wait();
    assert_eq!(done.code, 0, "{done}");
    let copy = fs::read_to_string(&copy).unwrap();
    assert_eq!(copy.lines().count(), 20_000);
    assert!(last.0 < copy.len() as u64, "it did not have to wait");
    assert!(done.out() == format!("ready\n{copy}end\n"), "what was seen");
    assert!(world.raw_log(&id) == done.stdout, "what was kept");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b9_a_character_in_two_halves_is_one_for_a_follower(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = r#"printf "a\377\n\342\202"; echo half >&2; read go; printf "\254\n""#;
    let mut job = world.job(text).args(["--stdin"]).start();
    let id = job.await_error("half").id();
    let stdout = ["--stream", "stdout", &id];
    let plain = world.command(["logs", "-f"]).args(stdout).start();
    let json = ["logs", "-f", "--format", "json"];
    let json = world.command(json).args(stdout).start();
    // Both have read the first half before the second one is written.
    plain.await_output("a\u{fffd}\n");
    json.await_output("a\u{fffd}\\n");
    job.write_input(b"\n");
    let done = job.wait();
    assert_eq!(done.stdout, b"a\xff\n\xe2\x82\xac\n", "{done}");
    let followed = plain.wait();
    let expected = "a\u{fffd}\n€\n";
    assert_eq!(followed.stdout, expected.as_bytes(), "{followed}");
    let lines = json.wait();
    let texts: String = String::from_utf8(lines.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(texts, expected);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b9_bytes_are_kept_and_text_is_always_text(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = r#"printf "a\377\376\n"; printf "\342\202"; sleep 1; printf "\254\n""#;
    let done = world.job(text).run();
    let bytes = b"a\xff\xfe\n\xe2\x82\xac\n";
    assert_eq!(done.stdout, bytes, "{done}");
    let id = done.record().id();
    assert_eq!(world.raw_log(id), bytes);
    let shown = String::from_utf8(world.ask(["logs", id])).unwrap();
    assert_eq!(shown, "a\u{fffd}\u{fffd}\n€\n");
    let lines = String::from_utf8(world.ask(["logs", "--format", "json", id])).unwrap();
    let joined: String = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| line["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(joined, "a\u{fffd}\u{fffd}\n€\n");
    // Events are JSON too, each on a line of its own.
    assert!(world.events(id).len() > 3);
}

/// Five hundred lines on either stream, one after the other.
const ALTERNATING: &str = "i=0; while [ $i -lt 500 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done";

/// Trials A2 and F10: what Tidemill itself notes is read with the log, and is no part of it.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_tidemill_noted_stands_after_the_log(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("perl") {
        skip("perl is missing");
        return;
    }
    let text =
        "read go; sleep 600 & echo out; echo err >&2; perl -e 'syscall(165, -1, -1, -1, -1, -1)'";
    let mut job = world.job(text).args(["--stdin"]).start();
    let id = job.id();
    let follower = world.command(["logs", "-f", &id]).start();
    job.write_input(b"\n");
    let done = job.wait();
    assert_eq!(done.code, 0, "{done}");
    let mut codes = done.record().warnings();
    codes.retain(|code| *code != "weakened");
    codes.sort_unstable();
    assert_eq!(codes, ["left_overs", "refused"], "{done}");
    let written = "out\nerr\n";
    for shown in [follower.wait(), world.call(["logs", &id])] {
        assert_eq!((shown.code, shown.out().as_str()), (0, written), "{shown}");
        let said = shown.err();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{shown}");
        for part in ["was still there", "mount"] {
            let found = lines.iter().filter(|line| line.contains(part)).count();
            assert_eq!(found, 1, "{part}: {shown}");
        }
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("tidemill: warning: "))
        );
        // As `run` says it.
        assert!(
            lines.iter().all(|line| done.err().contains(line)),
            "{shown}\n{done}"
        );
    }
    for flags in [
        &["--raw"][..],
        &["--format", "json"],
        &["--stream", "stdout"],
    ] {
        let shown = world.call([&["logs"], flags, &[&id]].concat());
        assert_eq!((shown.code, shown.err().as_str()), (0, ""), "{shown}");
    }
    assert_eq!(world.raw_log(&id), written.as_bytes());
    // What ended it, where that is no exit of its own.
    let late = world
        .job("echo out; exec sleep 600")
        .args(["--timeout", "1s"])
        .run();
    let shown = world.call(["logs", late.record().id()]);
    assert_eq!(shown.out(), "out\n", "{shown}");
    assert!(
        shown.err().starts_with("tidemill: timed out after"),
        "{shown}"
    );
    let failed = world.job("echo out; exit 3").run();
    let shown = world.call(["logs", failed.record().id()]);
    assert_eq!(
        (shown.out().as_str(), shown.err().as_str()),
        ("out\n", ""),
        "{shown}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_thousand_alternating_lines_keep_their_order(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let expected: String = (0..500)
        .map(|number| format!("o{number}\ne{number}\n"))
        .collect();
    let done = world.job(ALTERNATING).merged().run();
    assert_eq!(done.code, 0, "{done}");
    assert!(done.out().starts_with(&expected), "{done}");
    let id = done.record().id();
    assert_eq!(String::from_utf8_lossy(&world.raw_log(id)), expected);
    assert_eq!(String::from_utf8_lossy(&world.ask(["logs", id])), expected);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn slow_a_gigabyte_of_random_bytes_arrives_whole(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("sha256sum") {
        skip("sha256sum is missing");
        return;
    }
    // The job notes the digest of what it writes, outside of the log.
    let text = "mkfifo /tmp/p; sha256sum < /tmp/p > digest & \
                head -c 1073741824 /dev/urandom | tee /tmp/p; wait";
    let result = world.path().join("results/big.json");
    let mut run = Command::new(world.binary());
    as_user(&world, &mut run);
    run.args(["run", "--write", "--log-limit", "2GiB", "--result-file"])
        .arg(&result);
    run.args(["--env", &format!("TIDEMILL_TRIAL={}", world.id())]);
    run.args(["--", "sh", "-c", text]);
    let (arrived, peak) = digest_of(run);
    let digest = fs::read_to_string(world.work().join("digest")).unwrap();
    assert_eq!(arrived, digest, "what the watcher saw");
    assert!(peak < MEMORY_MAX, "`run` needed {} MiB", peak / MIB);
    let record: serde_json::Value = serde_json::from_slice(&fs::read(&result).unwrap()).unwrap();
    assert_eq!(record["log"]["stdout_bytes"], 1_u64 << 30);
    assert_eq!(record["log"]["dropped_bytes"], 0);
    let mut logs = Command::new(world.binary());
    as_user(&world, &mut logs);
    logs.args(["logs", "--raw", record["id"].as_str().unwrap()]);
    let (kept, peak) = digest_of(logs);
    assert_eq!(kept, digest, "what `logs --raw` gives");
    assert!(peak < MEMORY_MAX, "`logs` needed {} MiB", peak / MIB);
}

fn as_user(world: &World, command: &mut Command) {
    use std::os::unix::process::CommandExt;
    if Mode::suite_is_root() && world.account().uid != 0 {
        command.uid(world.account().uid).gid(world.account().gid);
    }
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", world.home())
        .env("TIDEMILL_STATE", world.state())
        .current_dir(world.work())
        .stdin(Stdio::null());
}

/// The digest of what a command writes to standard output, and the most memory that it needed.
fn digest_of(mut command: Command) -> (String, u64) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut sum = Command::new("sha256sum")
        .stdin(child.stdout.take().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let watcher = thread::spawn(move || {
        let mut peak = 0;
        while let Some(now) = peak_memory(pid) {
            peak = peak.max(now);
            thread::sleep(Duration::from_millis(20));
        }
        peak
    });
    let mut digest = String::new();
    sum.stdout
        .take()
        .unwrap()
        .read_to_string(&mut digest)
        .unwrap();
    assert!(sum.wait().unwrap().success());
    assert!(child.wait().unwrap().success());
    (digest, watcher.join().unwrap())
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_empty_log_of_a_job_that_never_started_says_so(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.program(["no-such-program"]).run();
    assert_eq!(done.code, 127, "{done}");
    let logs = world.call(["logs", "last"]);
    assert_eq!(logs.out(), "", "{logs}");
    assert!(logs.err().contains("it never started"), "{logs}");
    // One that was silent did start.
    world.job("true").run();
    let logs = world.call(["logs", "last"]);
    assert_eq!((logs.out(), logs.err()), (String::new(), String::new()));
}
