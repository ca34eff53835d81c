//! What the kernel tells of a job in /proc, and the files of users that decide who a job is.

#[path = "../../../crates/sandbox/src/cgroup_text.rs"]
mod cgroup_text;
#[path = "../../../crates/sandbox/src/identity.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "only a part of the file is fuzzed"
)]
mod identity;
#[path = "../../../crates/sandbox/src/in_use.rs"]
#[expect(dead_code, reason = "only a part of the file is fuzzed")]
mod in_use;
#[path = "../../../crates/sandbox/src/masks.rs"]
#[expect(dead_code, reason = "only a part of the file is fuzzed")]
mod masks;
#[path = "../../../crates/sandbox/src/network_text.rs"]
mod network_text;
#[path = "../../../crates/sandbox/src/unreached.rs"]
mod unreached;
#[path = "../../../crates/sandbox/src/victim.rs"]
#[expect(dead_code, reason = "only a part of the file is fuzzed")]
mod victim;

use std::hint::black_box;
use std::path::{Component, Path};

/// The limit of a job's memory, in KiB.
const MEMORY: u64 = 4096;

/// Any text is read, wrong numbers as none; what a job sees of the host's figures is never more than
/// its limits.
pub fn kernel_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (first, second) = text.split_once('\0').unwrap_or((&text, ""));
    black_box(unreached::attempts(first, second));
    black_box(in_use::parse_statm(first));
    black_box(in_use::parse_share(first));
    if let Some(victim) = victim::parse(first, second) {
        assert!(first.contains(&victim));
    }
    black_box(identity::parse_sub_ids(first, second, 1000));
    for count in [0, 1, 3] {
        assert_further_cpus_hidden(first, count);
    }
    assert_memory_bounded(first);
    assert_groups_are_below(first, second);
    let kept = network_text::of_this_namespace(first);
    // What is left out once is left out for good.
    assert_eq!(network_text::of_this_namespace(&kept), kept);
}

/// A group of this process lies below the mount point that it was found at, whatever it is called.
fn assert_groups_are_below(mounts: &str, groups: &str) {
    black_box(cgroup_text::number(mounts));
    black_box(cgroup_text::field(mounts, groups));
    let found = cgroup_text::mounts(mounts);
    for (controller, group) in cgroup_text::own_groups(groups) {
        let Some(mount) = found.get(&controller) else {
            continue;
        };
        let directory = cgroup_text::below(mount, &group);
        assert!(directory.starts_with(mount), "{directory:?}");
        let ways_up = |path: &Path| {
            let parts = path.components();
            parts.filter(|part| *part == Component::ParentDir).count()
        };
        assert_eq!(ways_up(&directory), ways_up(mount), "{directory:?}");
    }
}

fn assert_further_cpus_hidden(text: &str, count: usize) {
    let blocks = |text: &str| {
        let blocks = text.split("\n\n");
        blocks.filter(|block| !block.trim().is_empty()).count()
    };
    assert!(blocks(&masks::first_cpus(text, count)) <= count);
    for line in masks::first_cpu_times(text, count).split('\n') {
        let number = line.strip_prefix("cpu").and_then(|rest| {
            let digits = rest.split(' ').next()?;
            digits.parse::<usize>().ok()
        });
        assert!(number.is_none_or(|number| number < count), "{line:?}");
    }
}

fn assert_memory_bounded(text: &str) {
    for line in masks::bounded_memory(text, MEMORY).split('\n') {
        let number = line.split_once(':').map(|(_, rest)| {
            let digits = rest.trim().trim_end_matches("kB").trim();
            digits.parse::<u64>()
        });
        // A name may have a colon in it, but what follows the last one is ours.
        if let Some(Ok(number)) = number {
            assert!(number <= MEMORY, "{line:?}");
        }
    }
}
