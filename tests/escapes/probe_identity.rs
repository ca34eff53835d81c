//! Who a job is, and what it could become.

use std::os::unix::fs::MetadataExt;

use rstest::rstest;
use tidemill_tests::{Mode, World, tree};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively};

cases! {
    state;
    host_root;
    set_id_programs;
    privileged_attributes;
    user_namespace;
    other_namespaces;
    setns;
    unshare_tool => |probe| probe.canary_needs("the tool unshare");
    set_user_files;
    // In a real directory they would be the caller's.
    set_id_files => |probe| probe.flags(&["--write"]);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn set_id_files_are_nowhere_on_the_host(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let done = Probe::new("set_id_files")
        .flags(&["--write"])
        .trial(&world, &bait)
        .run();
    assert_eq!(done.code, 0, "{done}");
    let entries = tree(&world.work());
    assert!(entries.len() > 5, "the probe made no files: {done}");
    for entry in entries {
        assert_eq!(entry.mode & 0o6000, 0, "{}", entry.path.display());
        assert_eq!(entry.owner.0, world.work().metadata().unwrap().uid());
    }
    assert_lively(&world);
}

/// In the sandbox, root is nobody either.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_that_is_root_inside_gets_no_further(#[case] mode: Mode) {
    const CASES: &[&str] = &[
        "state",
        "host_root",
        "set_id_programs",
        "set_id_files",
        "privileged_attributes",
        "user_namespace",
        "other_namespaces",
        "setns",
        "terminal_injection",
        "scheduling",
        "file_handles",
        "other_root",
        "mount",
        "make_device",
        "device_nodes",
        "proc_read",
        "proc_write",
        "keeper_files",
        "host_file",
        "host_identity",
        "hard_limits",
        "signals_out",
        "signals_to_all",
    ];
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    for case in CASES {
        let probe = Probe::new(case).flags(&["--user", "0", "--write"]);
        probe.assert_held(&probe.trial(&world, &bait).run());
    }
    assert_lively(&world);
}
