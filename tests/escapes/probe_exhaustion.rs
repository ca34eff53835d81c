//! Processes, CPU time, disk and names without end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Done, Mode, PATIENCE, World, skip, until};

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
    assert_taken_away(&done);
    assert_lively(&world);
}

/// Panics if what is not the job's own time took long: starting it, and taking away what it left.
fn assert_taken_away(done: &Done) {
    let making = Duration::from_millis(done.record().number("/usage/wall_ms"));
    assert!(done.elapsed < making + Duration::from_secs(10), "{done}");
}

/// Names without end, and a tree of so many levels that whoever is not careful needs a minute for each.
#[rstest]
#[case::many_names("many_names", "PROBE_FILES", 600_000)]
#[case::deep_tree("deep_tree", "PROBE_LEVELS", 10_000)]
fn slow_deep_tree_and_many_names_without_measure_are_taken_away(
    #[case] case: &'static str,
    #[case] what: &'static str,
    #[case] count: u32,
    #[values(Mode::Root, Mode::Rootless)] mode: Mode,
) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new(case).variable(what, count);
    let done = probe.trial(&world, &bait).run();
    assert_taken_away(&done);
    probe.assert_held(&done);
    assert_lively(&world);
}

/// A private layer on the disk of the state directory, where no file system bounds it: all that a job can
/// do to it takes time, and what it leaves goes with it too.
#[rstest]
#[case::deep_tree("deep_tree", "PROBE_LEVELS", 2_000)]
#[case::many_names("many_names", "PROBE_FILES", 20_000)]
#[case::undeletable("undeletable", "PROBE_FILES", 0)]
#[case::sparse_file("sparse_file", "PROBE_FILES", 0)]
fn sparse_file_and_others_on_a_disk_are_bounded_and_taken_away(
    #[case] case: &'static str,
    #[case] what: &'static str,
    #[case] count: u32,
    #[values(Mode::Root, Mode::Rootless)] mode: Mode,
) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new(case).variable(what, count);
    let more_than_half = memory_of_the_host();
    let done = probe
        .trial(&world, &bait)
        .args(["--disk", &more_than_half.to_string()])
        .run();
    probe.assert_held(&done);
    // A hole of a TiB is there, and nothing was taken for it.
    let used = done.record().number("/usage/disk_bytes");
    assert!(used < 128 << 20, "{used} bytes: {done}");
    assert_lively(&world);
}

/// A file that is open and has no name is met by no walk: the disk itself is looked at.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_file_without_a_name_does_not_fill_the_disk(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can make a small disk");
        return;
    }
    let (state, uid) = (world.state(), world.account().uid);
    let small = format!(
        "mkdir -p {0}; chown {uid} {0}; mount -t tmpfs -o size=1g,mode=700,uid={uid} probe {0}; exec \"$@\"",
        state.display()
    );
    let text = "exec 9> big; rm big; for part in $(seq 400); do head -c 4M /dev/zero >&9; sleep 0.01; done";
    let done = world
        .job(text)
        .args(["--disk", &memory_of_the_host().to_string()])
        .inside(small)
        .run();
    assert_eq!(done.record().reason(), "disk", "{done}");
    let why = done.record().reason_text();
    assert!(why.contains("almost full"), "{why}: {done}");
    assert_lively(&world);
}

/// In bytes.
fn memory_of_the_host() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let digits = line.unwrap().trim().trim_end_matches(" kB");
    digits.parse::<u64>().unwrap() * 1024
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
