//! Processes, CPU time, disk and names without end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Mode, PATIENCE, World, skip, until};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively, verdict};

/// What a job may start, and what must be impossible.
fn few_processes(probe: Probe) -> Probe {
    probe
        .flags(&["--pids", "64"])
        .variable("PROBE_BOUND", 200)
        .or_ended_by("pids")
}

/// What a job may write, and what must be impossible.
fn small_disk(probe: Probe) -> Probe {
    probe
        .flags(&["--disk", "32MiB", "--memory", "128MiB"])
        .variable("PROBE_MIB", 96)
        .variable("PROBE_FILES", 40_000)
        .or_ended_by("disk")
        .or_ended_by("memory")
}

/// Disks that go with the namespace, where the files are many or big.
const OWN_DISKS: &str = r#"
for place in /mnt /var/tmp /dev/shm; do mount -t tmpfs -o size=128m,nr_inodes=60k probe "$place"; done
cd /mnt; exec "$@""#;

cases! {
    fork_bomb => super::few_processes;
    thread_bomb => super::few_processes;
    disk_bomb => |probe| super::small_disk(probe).loose(super::OWN_DISKS);
    inode_bomb => |probe| super::small_disk(probe).loose(super::OWN_DISKS);
}

/// Tried by the tests of this file.
pub(crate) const JUDGED: &[&str] = &[
    "cpu_share",
    "deep_tree",
    "many_names",
    "undeletable",
    "sparse_file",
];

/// What a job left is taken away before its run ends, however odd it is. There is nothing to try
/// without a sandbox: that the trees can be made is what the probe says.
#[rstest]
#[case::root_deep_tree(Mode::Root, "deep_tree")]
#[case::rootless_deep_tree(Mode::Rootless, "deep_tree")]
#[case::root_many_names(Mode::Root, "many_names")]
#[case::rootless_many_names(Mode::Rootless, "many_names")]
#[case::root_undeletable(Mode::Root, "undeletable")]
#[case::rootless_undeletable(Mode::Rootless, "undeletable")]
#[case::root_sparse_file(Mode::Root, "sparse_file")]
#[case::rootless_sparse_file(Mode::Rootless, "sparse_file")]
fn deep_tree_and_others_are_taken_away(#[case] mode: Mode, #[case] case: &'static str) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new(case);
    let done = probe.trial(&world, &bait).run();
    probe.assert_held(&done);
    assert!(done.elapsed < Duration::from_secs(10), "{done}");
    assert_lively(&world);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn cpu_share_is_kept(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !world.doctor().has("cgroup-cpu") {
        skip("no cpu cgroup here: `--cpus` is refused instead of kept");
        return;
    }
    let bait = Bait::lay(&world);
    let probe = Probe::new("cpu_share")
        .flags(&["--cpus", "0.1"])
        .variable("PROBE_CPU_PERCENT", 10);
    let done = probe.trial(&world, &bait).run();
    probe.assert_held(&done);
    assert_lively(&world);
}

/// Memory that is swapped out would be more memory.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_has_no_swap_beside_its_memory(#[case] mode: Mode) {
    const LIMIT: &str = "67108864";
    let Some(world) = World::new(mode) else {
        return;
    };
    if !world.doctor().has("cgroup-memory") {
        skip("no memory cgroup here: nothing bounds swap");
        return;
    }
    let bait = Bait::lay(&world);
    let probe = Probe::new("open_port").flags(&["--memory", "64MiB"]);
    let job = probe.trial(&world, &bait).start();
    job.await_output("safe: ");
    let id = job.id();
    let groups = groups_named(Path::new("/sys/fs/cgroup"), &id);
    let read = |name: &str| {
        let mut texts = groups
            .iter()
            .filter_map(|group| fs::read_to_string(group.join(name)).ok());
        texts.next().map(|text| text.trim().to_owned())
    };
    // Version 2 counts swap apart from memory, version 1 both together.
    match (read("memory.swap.max"), read("memory.memsw.limit_in_bytes")) {
        (Some(swap), _) => assert_eq!(swap, "0"),
        (None, Some(both)) => assert_eq!(both, LIMIT),
        (None, None) => skip("this kernel does not count swap"),
    }
    job.cancel();
    job.wait();
    assert_lively(&world);
}

/// The control groups whose name has this in it.
fn groups_named(root: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().contains(part) {
                found.push(entry.path());
            }
            waiting.push(entry.path());
        }
    }
    found
}

#[test]
fn cpu_share_unconfined() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    let probe = Probe::new("cpu_share").variable("PROBE_CPU_PERCENT", 10);
    // On a busy machine it may get no more than its share although nobody keeps it to that.
    until("it gets more than a tenth of a CPU", PATIENCE, || {
        let output = probe.run_unconfined(&world);
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        verdict(&out).starts_with("broken: ").then_some(())
    });
}
