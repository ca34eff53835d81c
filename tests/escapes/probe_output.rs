//! Output without end: what a job writes is nothing to what the host keeps of it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Done, Mode, PATIENCE, World, until};

use crate::bait::Bait;
use crate::probe::{Probe, assert_lively, verdict};

/// Tried by the tests of this file.
pub(crate) const JUDGED: &[&str] = &[
    "output_flood",
    "output_drops",
    "output_noise",
    "output_after_close",
];

/// The bound of the log in these tests, as a flag and in bytes.
const LOG_LIMIT: [&str; 2] = ["--log-limit", "1MiB"];
const LOG_BYTES: u64 = 1 << 20;

/// What the state directory may have beside the log: the database and its journal.
const RECORD_BYTES: u64 = 8 << 20;

/// Nobody reads what the job writes, and nobody is kept waiting by that.
const UNREAD: &str = r#"exec "$@" > /dev/null"#;

/// Bytes of all files below a directory, as they are now.
fn bytes_in(directory: &Path) -> u64 {
    let mut bytes = 0;
    let mut waiting = vec![directory.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        // What goes meanwhile is counted as nothing.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => waiting.push(entry.path()),
                Ok(found) => bytes += found.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

/// Runs a probe with its output unread. Gives how it ended, and the most that was in the state directory
/// meanwhile.
fn run_watched(world: &World, bait: &Bait, probe: &Probe) -> (Done, u64) {
    let mut job = probe.trial(world, bait).through(UNREAD).start();
    let mut most = 0;
    until("the job is over", PATIENCE * 4, || {
        most = most.max(bytes_in(&world.state()));
        (!job.is_running()).then_some(())
    });
    (job.wait(), most)
}

/// How much of the output the record says was not kept.
fn left_out(done: &Done) -> u64 {
    done.record().number("/log/dropped_bytes")
}

/// Whatever is written, the host keeps the log's limit of it, the beginning and the end, and says so.
#[rstest]
#[case::output_flood("output_flood", 1024)]
#[case::output_noise("output_noise", 64)]
fn output_flood_and_noise_are_kept_within_the_limit(
    #[case] case: &'static str,
    #[case] mebibytes: u32,
    #[values(Mode::Root, Mode::Rootless)] mode: Mode,
) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new(case)
        .flags(&LOG_LIMIT)
        .variable("PROBE_MIB", mebibytes);
    let (done, most) = run_watched(&world, &bait, &probe);
    assert_eq!(done.code, 0, "{done}");
    assert!(most <= LOG_BYTES + RECORD_BYTES, "{most} bytes: {done}");
    assert!(left_out(&done) > 0, "{done}");
    let log = world.raw_log(done.record().id());
    assert!(log.len() as u64 <= LOG_BYTES, "{} bytes", log.len());
    // The end is there, with the verdict.
    let end = String::from_utf8_lossy(&log[log.len() - 200..]).into_owned();
    assert!(verdict(&end).starts_with("safe: "), "{end:?}: {done}");
    assert_lively(&world);
}

/// Proves that more would have been seen: the same flood, and a limit that it does not reach.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn output_flood_without_that_limit_is_kept(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new("output_flood")
        .flags(&["--log-limit", "64MiB"])
        .variable("PROBE_MIB", 32);
    let (done, most) = run_watched(&world, &bait, &probe);
    assert_eq!(done.code, 0, "{done}");
    assert!(most > LOG_BYTES + RECORD_BYTES, "only {most} bytes: {done}");
    assert_eq!(left_out(&done), 0, "{done}");
    assert_lively(&world);
}

/// A writer that never stops ends by its time limit, and what is kept of it is bounded all the same.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn output_flood_ends_at_the_time_limit(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new("output_flood")
        .flags(&LOG_LIMIT)
        .flags(&["--timeout", "2s"])
        .variable("PROBE_MIB", u32::MAX);
    let (done, most) = run_watched(&world, &bait, &probe);
    assert_eq!((done.code, done.record().reason()), (124, "time"), "{done}");
    assert!(done.elapsed < Duration::from_secs(20), "{done}");
    assert!(most <= LOG_BYTES + RECORD_BYTES, "{most} bytes: {done}");
    assert!(left_out(&done) > 0, "{done}");
    assert_lively(&world);
}

/// Writes of one byte, in turn to both streams: all of them are kept, each in its stream, in little room.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn output_drops_are_kept_whole_and_small(#[case] mode: Mode) {
    const BYTES: usize = 200_000;
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new("output_drops").variable("PROBE_BOUND", BYTES);
    let (done, most) = run_watched(&world, &bait, &probe);
    assert_eq!(done.code, 0, "{done}");
    // What is noted of a piece may not be many times the piece.
    assert!(most <= RECORD_BYTES * 2, "{most} bytes: {done}");
    let id = done.record().id().to_owned();
    let log = world.raw_log(&id);
    let dots = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'.').count();
    assert_eq!(dots(&log), BYTES, "{done}");
    let second = world.ask(["logs", "--raw", "--stream", "stderr", &id]);
    assert_eq!((dots(&second), second.len()), (BYTES / 2, BYTES / 2));
    assert_lively(&world);
}

/// A job whose output is closed ends as any other, and whoever still writes to a copy of it ends with it.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn output_after_close_is_the_jobs_alone(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new("output_after_close").flags(&LOG_LIMIT);
    let done = probe.trial(&world, &bait).run();
    assert_eq!(done.code, 0, "{done}");
    assert!(verdict(&done.out()).starts_with("safe: "), "{done}");
    assert!(done.elapsed < Duration::from_secs(20), "{done}");
    assert!(world.job_processes().is_empty(), "{done}");
    let log = world.raw_log(done.record().id());
    assert!(log.len() as u64 <= LOG_BYTES, "{} bytes", log.len());
    assert_lively(&world);
}

/// Without a sandbox, whoever was left behind goes on to write.
#[test]
fn output_after_close_unconfined() {
    const JUDGE: &str = r#"
("$1" output_after_close | { sleep 0.5; head -c 1048576 | tail -c 64; echo; }) > said
if grep -q "after the close" said; then echo broken: it goes on; else echo safe: silence; fi"#;
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    let output = Probe::new("output_after_close")
        .loose(JUDGE)
        .run_unconfined(&world);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(verdict(&out).starts_with("broken: "), "{output:?}");
}
