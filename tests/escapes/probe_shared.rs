//! What jobs and the host share beside files.

use rstest::rstest;
use tidemill_tests::{Mode, World};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively, verdict};

/// A neighbour in the same place, which is not the real host's.
const SIDE_BY_SIDE: &str = r#"
mount -t tmpfs probe /var/tmp
"$1" neighbour_leaves > /dev/shm/said &
until grep -q ^safe: /dev/shm/said; do sleep 0.01; done
rm /tmp/tidemill-neighbours
exec "$@""#;

cases! {
    system_v;
}

/// Tried by the tests of this file.
pub(crate) const JUDGED: &[&str] = &["neighbour_leaves", "neighbour_looks"];

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn neighbour_leaves_nothing_that_a_neighbour_finds(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let first = Probe::new("neighbour_leaves").trial(&world, &bait).start();
    first.await_output("safe: ");
    // Beside it, and after it.
    let probe = Probe::new("neighbour_looks");
    probe.assert_held(&probe.trial(&world, &bait).run());
    first.cancel();
    first.wait();
    probe.assert_held(&probe.trial(&world, &bait).run());
    assert_lively(&world);
}

#[test]
fn neighbour_looks_unconfined() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    let probe = Probe::new("neighbour_looks").loose(SIDE_BY_SIDE);
    let output = probe.run_unconfined(&world);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(verdict(&out).starts_with("broken: "), "{output:?}");
}
