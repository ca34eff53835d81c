//! Files, secrets and names of the host, and files of a job that somebody could trust.

use std::process::Command;

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip, tree};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively};

/// A host that can be written in a few places, which are not the real ones.
const FEW_PLACES: &str = r#"
for place in /mnt /media /srv /opt; do mount -t tmpfs probe "$place"; done
temporary="${TMPDIR:-/tmp}"
mount --bind "$temporary" "$temporary"
mount -o remount,ro,bind /
exec "$@""#;

cases! {
    host_file;
    control_sockets;
    host_writes => |probe| probe.loose(super::FEW_PLACES);
    host_identity;
    environment_secrets;
    argument_secrets;
    resolver;
}

/// Tried by the tests of this file.
pub(crate) const JUDGED: &[&str] = &["plant_traps", "plant_attributes"];

/// A forged attribute changes what a later job sees of its own workspace at most, never where it ends.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn plant_attributes_that_lead_nowhere(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new("plant_attributes").flags(&["--write"]);
    let done = probe.trial(&world, &bait).run();
    if done.out().starts_with("absent: ") {
        skip(&done.out());
        return;
    }
    probe.assert_held(&done);
    let before = tree(&world.work());
    // Everything is read, and everything is changed: above the real directory.
    let text = "find . -type f -exec cat {} +; find . -ls; echo x > directory/new; \
                echo x >> file; mv directory elsewhere; rm -r other; echo end";
    let done = world.job(text).run();
    let out = done.out();
    assert!(out.ends_with("end\n"), "{done}");
    for of_host in ["secret", "bait", "tidemill.db", "passwd"] {
        assert!(!out.contains(of_host), "{of_host}: {done}");
    }
    assert!(tree(&world.work()) == before, "the real directory changed");
    assert_lively(&world);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn plant_traps_that_nobody_springs(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let marker = world.home().join("sprung");
    let probe = Probe::new("plant_traps")
        .flags(&["--write"])
        .variable("PROBE_MARKER", marker.display());
    let done = probe.trial(&world, &bait).run();
    probe.assert_held(&done);
    let wrapper = format!("{}-wrapper", marker.display());
    let was_sprung = || marker.exists() || std::path::Path::new(&wrapper).exists();
    let id = done.record().id().to_owned();
    for arguments in [
        &["ps"][..],
        &["show", &id],
        &["logs", &id],
        &["events", &id],
        &["explain", "--", "/bin/true"],
        &["doctor"],
        &["run", "--", "/bin/true"],
        &["run", "--write", "--", "/bin/true"],
        &["version"],
    ] {
        let done = world.call(arguments);
        assert!([0, 1].contains(&done.code), "{done}");
        assert!(!was_sprung(), "sprung by {arguments:?}: {done}");
    }
    // The traps are real ones: a program that trusts them falls into them.
    if has_program("git") {
        let status = Command::new("git")
            .args(["-c", "safe.directory=*", "status"])
            .current_dir(world.work())
            .output();
        let status = status.unwrap();
        assert!(was_sprung(), "{status:?}");
    } else {
        skip("git is missing: nothing proves that the traps would work");
    }
    assert_lively(&world);
}
