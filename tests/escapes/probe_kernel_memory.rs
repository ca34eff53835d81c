//! Ways to let the kernel use memory for what is no page of anybody, each against a small limit.

use std::fs;

use rstest::rstest;
use tidemill_tests::{Mode, World, kept, skip};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively, verdict};

/// The limit, and three times as much as what must be impossible.
fn bounded(probe: Probe) -> Probe {
    probe
        .flags(&["--memory", "64MiB", "--timeout", "60s"])
        .variable("PROBE_MIB", 192)
        .or_ended_by("memory")
        // What belongs to no process is only seen by a control group.
        .needs("cgroup-memory")
}

/// Sixteen times the limit, and more than a process needs for itself.
fn streams(probe: Probe) -> Probe {
    probe
        .flags(&["--memory", "16MiB", "--timeout", "60s"])
        .variable("PROBE_MIB", 256)
        .or_ended_by("memory")
        .needs("cgroup-memory")
}

/// More than a job's share, and little for a host.
fn counted(probe: Probe, bound: u32) -> Probe {
    probe
        .flags(&["--timeout", "60s"])
        .variable("PROBE_BOUND", bound)
}

cases! {
    epoll_trees => super::bounded;
    semaphores => super::bounded;
    page_tables => super::bounded;
    // In a real directory: pages of a private layer are that layer's files themselves.
    page_cache => |probe| super::bounded(probe)
        .flags(&["--write"])
        .canary_needs("a directory that is on a disk");
    datagram_buffers => super::bounded;
    // The kernel gives each connection a little, whatever the limit is; what it costs beside that counts.
    // So there is a multiple of the limit, and an end.
    stream_buffers => super::streams;
    descriptors_in_flight => |probe| super::counted(probe, 70_000);
    queued_signals => |probe| super::counted(probe, 8_192);
}

/// Tried by the tests of this file.
pub(crate) const JUDGED: &[&str] = &["huge_pages", "missing_names", "watch_instances"];

/// The kernel tells only how many it remembers in all, so they are tried one after the other.
#[rstest]
#[case::unconfined(None)]
#[case::root(Some(Mode::Root))]
#[case::rootless(Some(Mode::Rootless))]
fn missing_names_are_forgotten(#[case] mode: Option<Mode>) {
    let (_, _alone) = kept("missing-names");
    // Half as much as of other memory is enough, and takes half as long.
    let probe = bounded(Probe::new("missing_names")).variable("PROBE_MIB", 96);
    match mode {
        None => probe.unconfined(),
        Some(mode) => probe.confined(mode),
    }
}

/// How many programs of a user may watch files at one time.
const INSTANCES_MAX: &str = "/proc/sys/fs/inotify/max_user_instances";

/// Says whether somebody else of the same user still gets one, while the probe has what it gets.
const JUDGE_WATCHERS: &str = r#"
as_nobody() { exec setpriv --reuid 61998 --regid 61998 --clear-groups timeout -s KILL "$@"; }
(as_nobody 3 "$1" watch_instances) > said &
until grep -q : said; do sleep 0.01; done
(PROBE_BOUND=1; export PROBE_BOUND; as_nobody 1 "$1" watch_instances) > other || true
if grep -q ^broken: other; then echo safe: one is left; else echo broken: none is left; fi"#;

#[test]
fn watch_instances_unconfined() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    let bound = fs::read_to_string(INSTANCES_MAX).unwrap();
    let output = Probe::new("watch_instances")
        .variable("PROBE_BOUND", bound.trim())
        .loose(JUDGE_WATCHERS)
        .run_unconfined(&world);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(verdict(&out).starts_with("broken: "), "{output:?}");
}

/// One job gets a share of what its caller has, so that others and the caller get some too.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn watch_instances_are_shared(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let bound = fs::read_to_string(INSTANCES_MAX).unwrap();
    let probe = Probe::new("watch_instances").variable("PROBE_BOUND", bound.trim());
    let job = probe.trial(&world, &bait).start();
    job.await_output("safe: refused after ");
    let neighbour = probe.trial(&world, &bait).start();
    neighbour.await_output("safe: refused after ");
    for job in [&job, &neighbour] {
        let said = String::from_utf8_lossy(&job.stdout().bytes).into_owned();
        // What programs such as a test runner's watcher need.
        assert!(!said.contains("after 0:"), "{said}");
    }
    for job in [job, neighbour] {
        job.cancel();
        job.wait();
    }
    assert_lively(&world);
}

/// How many huge pages the host has reserved.
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages that are reserved as long as this is there.
struct HugePages {
    before: String,
    _alone: fs::File,
}

impl HugePages {
    /// Reserves a few. `None` if that cannot be, which was said.
    fn reserve() -> Option<Self> {
        const FEW: &str = "4";
        let (_, alone) = kept("huge-pages");
        let Ok(before) = fs::read_to_string(RESERVED) else {
            skip("this kernel has no huge pages");
            return None;
        };
        let reserved = Self {
            before: before.trim().to_owned(),
            _alone: alone,
        };
        if fs::write(RESERVED, FEW).is_err() || fs::read_to_string(RESERVED).unwrap() == "0\n" {
            skip("no huge pages can be reserved here");
            return None;
        }
        Some(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // Where none could be reserved there is nothing to give back.
        fs::write(RESERVED, &self.before).ok();
    }
}

/// No limit counts them, so a job gets none, however many the host has.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn huge_pages_are_the_hosts(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(_reserved) = HugePages::reserve() else {
        return;
    };
    let probe = Probe::new("huge_pages");
    let output = probe.run_unconfined(&world);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(verdict(&out).starts_with("broken: "), "{output:?}");
    let bait = Bait::lay(&world);
    probe.assert_held(&probe.trial(&world, &bait).run());
    assert_lively(&world);
}
