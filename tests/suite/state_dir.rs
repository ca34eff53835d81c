//! The state directory: read-only, full, newer, shared by several processes, and swept after a kill.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, World, has_program, skip};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn it_is_made_for_its_owner_only(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    assert!(!world.state().exists());
    assert_eq!(world.job("true").run().code, 0);
    let metadata = fs::metadata(world.state()).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o700);
    assert_eq!(metadata.uid(), world.account().uid);
    // The flag goes over the variable, and the variable over the usual place.
    let elsewhere = world.path().join("home/elsewhere");
    let flag = ["--state-dir", elsewhere.to_str().unwrap()];
    let done = world.bare_run(flag).args(["--", "true"]).run();
    assert_eq!(done.code, 0, "{done}");
    assert!(elsewhere.join("tidemill.db").exists());
    let usual = world
        .bare_run(["--", "true"])
        .variable("TIDEMILL_STATE", "")
        .run();
    assert_eq!(usual.code, 0, "{usual}");
    assert!(
        world
            .home()
            .join(".local/state/tidemill/tidemill.db")
            .exists()
    );
    assert_eq!(world.list(&[]).len(), 1);
}

/// Makes the state directory a file system of its own, for the binary alone.
fn mounted(world: &World, options: &str) -> String {
    let (state, account) = (world.state(), world.account());
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    world.give(&state);
    format!(
        "mount -t tmpfs -o mode=700,uid={},gid={},{options} none {}; exec \"$@\"",
        account.uid,
        account.gid,
        state.display()
    )
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_read_only_one_is_said_with_the_path(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount a read-only file system for another process");
        return;
    }
    let script = mounted(&world, "ro");
    let done = world.job("echo ran").inside(script).run();
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
    let state = world.state();
    assert!(done.err().contains(state.to_str().unwrap()), "{done}");
    assert!(done.err().to_lowercase().contains("read-only"), "{done}");
    assert!(done.err().contains("--state-dir"), "{done}");
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[rstest]
#[case::rootless(Mode::Rootless)]
fn one_that_may_not_be_written_is_said_with_the_path(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let closed = world.make_dir(world.path().join("closed"));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let state = closed.join("state");
    let done = world
        .job("echo ran")
        .variable("TIDEMILL_STATE", &state)
        .run();
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
    assert!(done.err().contains(state.to_str().unwrap()), "{done}");
    let done = world
        .job("echo ran")
        .variable("TIDEMILL_STATE", &closed)
        .run();
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
    assert!(done.err().contains(closed.to_str().unwrap()), "{done}");
    let somebodys = world
        .job("echo ran")
        .variable("TIDEMILL_STATE", "/etc")
        .run();
    assert_eq!(
        (somebodys.code, somebodys.out().as_str()),
        (125, ""),
        "{somebodys}"
    );
}

/// Whoever owns a state directory may put links into it; and what root wrote there its owner could not change.
#[test]
fn root_does_not_work_in_the_state_of_another_user() {
    let (Some(theirs), Some(roots)) = (World::new(Mode::Rootless), World::new(Mode::Root)) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can try it");
        return;
    }
    assert_eq!(theirs.job("true").run().code, 0);
    for command in [&["run", "--", "true"][..], &["cache", "prune"], &["ps"]] {
        let done = roots
            .command(command)
            .variable("TIDEMILL_STATE", theirs.state())
            .run();
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        assert!(done.err().contains("belongs to user"), "{done}");
    }
    assert_eq!(theirs.job("true").run().code, 0);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_full_one_is_said_and_nothing_is_half_done(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount a small file system for another process");
        return;
    }
    for size in ["4k", "16k", "64k"] {
        let script = mounted(&world, &format!("size={size}"));
        let done = world.job("echo ran").inside(script).run();
        assert_eq!(
            (done.code, done.out().as_str()),
            (125, ""),
            "{size}: {done}"
        );
        assert!(done.err().contains("full"), "{size}: {done}");
        assert!(done.err().contains("make room"), "{size}: {done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn one_that_becomes_full_does_not_change_the_result(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount a small file system for another process");
        return;
    }
    // Room for the record, and not for what the job writes.
    let script = mounted(&world, "size=4m");
    let text = "head -c 12M /dev/urandom; echo; echo LAST; exit 3";
    let done = world.job(text).inside(script).run();
    assert!(done.stdout.ends_with(b"\nLAST\n"), "{done}");
    let record = done.record();
    assert_eq!((done.code, record.exit_code()), (3, Some(3)), "{done}");
    assert_eq!(record.number("/log/bytes"), (12 << 20) + 6, "{done}");
    assert!(record.number("/log/dropped_bytes") > 0, "{done}");
    assert!(record.warnings().contains(&"log"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn one_of_a_newer_version_is_left_alone(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("python3") {
        skip("python3 is missing: nothing else here can write the version of a database");
        return;
    }
    assert_eq!(world.job("true").run().code, 0);
    let database = world.state().join("tidemill.db");
    set_version(&world, &database, 9999);
    let before = fs::read(&database).unwrap();
    for arguments in [
        &["run", "--", "echo", "ran"][..],
        &["ps"],
        &["show", "last"],
    ] {
        let done = world.call(arguments);
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        assert!(
            done.err().contains("newer") && done.err().contains("9999"),
            "{done}"
        );
    }
    assert!(fs::read(&database).unwrap() == before, "it was changed");
    // Back to what it was, so that the world can be looked at.
    set_version(&world, &database, 1);
    assert_eq!(world.list(&[]).len(), 1);
}

/// Gives a database the version of another Tidemill.
fn set_version(world: &World, database: &Path, version: u32) {
    let script = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
                  db.execute('pragma user_version = ' + sys.argv[2]); db.commit(); db.close()";
    let mut python = Command::new("python3");
    if Mode::suite_is_root() {
        python.uid(world.account().uid).gid(world.account().gid);
    }
    let status = python
        .args(["-c", script])
        .arg(database)
        .arg(version.to_string())
        .current_dir("/")
        .status();
    assert!(status.unwrap().success());
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn one_that_is_something_else_is_left_alone(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let place = world.make_dir(world.path().join("other"));
    world.write(
        place.join("tidemill.db"),
        "this is a letter, not a database; it is long enough",
    );
    let done = world
        .job("echo ran")
        .variable("TIDEMILL_STATE", &place)
        .run();
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
    assert!(done.err().contains("tidemill.db"), "{done}");
    let letter = fs::read_to_string(place.join("tidemill.db")).unwrap();
    assert!(letter.starts_with("this is a letter"));
    let file = world.write("a-file", "x");
    let done = world
        .job("echo ran")
        .variable("TIDEMILL_STATE", &file)
        .run();
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn several_runs_share_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    const RUNS: usize = 12;
    // All at once, into a directory that does not exist yet.
    let jobs: Vec<_> = (0..RUNS)
        .map(|number| {
            world
                .job(&format!("echo {number}; sleep 0.2; echo again {number}"))
                .start()
        })
        .collect();
    let mut ids = BTreeSet::new();
    for (number, job) in jobs.into_iter().enumerate() {
        let done = job.wait();
        let expected = format!("{number}\nagain {number}\n");
        assert_eq!((done.code, done.out()), (0, expected.clone()), "{done}");
        let id = done.record().id();
        assert_eq!(world.raw_log(id), expected.as_bytes());
        let events = world.events(id);
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event["sequence"], index + 1, "{events:?}");
            assert_eq!(event["execution"], id, "{events:?}");
        }
        ids.insert(id.to_owned());
    }
    assert_eq!(ids.len(), RUNS);
    let listed: BTreeSet<String> = world
        .list(&["--state", "succeeded"])
        .iter()
        .map(|record| record.id().to_owned())
        .collect();
    assert_eq!(listed, ids);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn only_the_executions_of_a_dead_process_are_swept(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let dying = world.job("echo ready; sleep 600").start();
    let living = world.job("echo ready; sleep 600").start();
    dying.await_output("ready");
    living.await_output("ready");
    let (dead, alive) = (dying.id(), living.id());
    dying.signal(Signal::KILL);
    assert_eq!(dying.wait().code, -9);
    let record = world.show(&dead);
    assert_eq!(
        (record.state(), record.reason()),
        ("failed", "lost"),
        "{record}"
    );
    assert_eq!(world.call(["wait", &dead]).code, 125);
    assert_eq!(world.show(&alive).state(), "running");
    living.cancel();
    let done = living.wait();
    assert_eq!(done.record().state(), "cancelled", "{done}");
}

/// Nobody else has to come by and sweep.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn whoever_follows_an_execution_learns_that_its_process_died(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = world.job("echo ready; sleep 600").start();
    let id = job.await_output("ready").id();
    let logs = world.command(["logs", "-f", &id]).start();
    let events = world.command(["events", "-f", &id]).start();
    let wait = world.command(["wait", &id]).start();
    logs.await_output("ready\n");
    events.await_output("started");
    job.signal(Signal::KILL);
    assert_eq!(job.wait().code, -9);
    let (logs, events, wait) = (logs.wait(), events.wait(), wait.wait());
    assert_eq!((logs.code, logs.out().as_str()), (0, "ready\n"), "{logs}");
    assert!(
        logs.err().contains("the process that ran it is gone"),
        "{logs}"
    );
    assert_eq!(events.code, 0, "{events}");
    let last = events.out().lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("lost"), "{events}");
    assert_eq!(wait.code, 125, "{wait}");
}
