//! A pull that is killed again and again.

use std::fs;

use rustix::process::Signal;
use tidemill_tests::{Mode, PATIENCE, World, until};

use super::line::Line;
use super::made::{Layout, image, noise, state};
use super::registry::{Registry, has_tools};

/// Bytes of the layer that is fetched in parts.
const SIZE: u32 = 8_000_000;
const KILLS: u32 = 20;
/// What manifests, configuration, the small layer and all heads of answers take of one pull, at most.
const AROUND: u32 = 2_000_000;

#[test]
fn g3_a_pull_that_is_killed_twenty_times_ends_well() {
    let Some(world) = World::new(Mode::Root).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, &noise(SIZE as usize)) else {
        return;
    };
    let registry = Registry::start(&world);
    layout.copy_to(&format!("docker://{}/box:1", registry.host), &[]);
    let line = Line::to(&registry.host);
    let name = format!("{}/box:1", line.host);
    let part = || -> u64 {
        let partial = fs::read_dir(world.state().join("images/partial"));
        let sizes = partial.into_iter().flatten().map(|entry| {
            // It may have become a blob meanwhile.
            entry.unwrap().metadata().map_or(0, |found| found.len())
        });
        sizes.max().unwrap_or(0)
    };
    for kill in 1..=KILLS {
        let before = part();
        let pull = world.command(["image", "pull", &name]).start();
        until("a part of the layer has come", PATIENCE, || {
            if line.is_used_up() {
                line.allow(64 << 10);
            }
            (part() >= before + u64::from(SIZE / KILLS / 2)).then_some(())
        });
        pull.signal(Signal::KILL);
        let done = pull.wait();
        assert_eq!(done.code, -9, "{done}");
        assert!(
            state(&world).iter().all(|name| !name.contains("box")),
            "no name before the end"
        );
        assert!(part() < u64::from(SIZE), "{kill}: it is not over yet");
    }
    line.allow(u64::MAX / 2);
    let pulled = image(&world, &["pull", &name]);
    assert_eq!(pulled["image"]["digest"], layout.digest());
    let shown = image(&world, &["show", &name]);
    assert_eq!(shown["missing"], serde_json::json!([]));
    assert_eq!(part(), 0, "no part is left");
    // Every kill loses no more than what was on the way.
    let passed = line.passed();
    let most = u64::from(SIZE + AROUND + KILLS * (256 << 10));
    assert!(passed < most, "{passed} bytes came for {SIZE}");
}
