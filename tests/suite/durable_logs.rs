//! What reaches the disk, and in which order: a record never says that a job has ended whose log a crash
//! of the machine could still take.

use std::fs;
use std::path::Path;

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip};

/// The paths that were written through to the disk, in order.
fn synced(trace: &Path) -> Vec<String> {
    let text = fs::read_to_string(trace).unwrap();
    text.lines()
        .filter(|line| line.contains("sync("))
        .filter_map(|line| Some(line.split_once('<')?.1.split_once('>')?.0.to_owned()))
        .collect()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_log_is_on_the_disk_before_the_record_says_that_its_job_has_ended(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("strace") {
        skip("strace is missing: nothing else here tells what is written through");
        return;
    }
    let trace = world.work().join("trace");
    let script = format!(
        "exec strace -f -y -e trace=fsync,fdatasync -o {} \"$@\"",
        trace.display()
    );
    let done = world
        .job("echo out; echo err >&2")
        .args(["--no-workspace"])
        .through(script)
        .run();
    assert_eq!((done.code, done.out().as_str()), (0, "out\n"), "{done}");
    let synced = synced(&trace);
    let all = synced.join("\n");
    let last = |part: &str| {
        let found = synced.iter().rposition(|path| path.contains(part));
        found.unwrap_or_else(|| panic!("{part} was not written through:\n{all}"))
    };
    let id = done.record().id();
    let spool = format!("/logs/{id}/1");
    // The next commit after them is the one that says how it ended.
    let spool_files = [".data", ".index", "/end", spool.as_str()].map(last);
    let commits: Vec<usize> = (0..synced.len())
        .filter(|place| synced[*place].contains("tidemill.db"))
        .collect();
    let spooled = *spool_files.iter().max().unwrap();
    assert!(commits.iter().any(|commit| *commit > spooled), "{all}");
    // It is sealed after that, and the object is there before the index says so.
    let object = last("/blobs/");
    assert!(object > spooled, "{all}");
    assert!(commits.iter().any(|commit| *commit > object), "{all}");
    let between = commits
        .iter()
        .filter(|commit| (spooled..object).contains(*commit));
    // One says how it ended; on a slow machine what was noted last may have one of its own.
    assert!(between.count() >= 1, "the end of the job:\n{all}");
}
