//! Trial E10: how much is kept is bounded, what is in use stays, a floor stays, and it is shown what for.

use std::fs;

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World};

use super::{archive, assert_nothing_half, cache, run, tree_of};

const MIB: usize = 1 << 20;
/// Jobs that use the layers while the bound is lowered.
const JOBS: usize = 20;

/// A layer of two MiB that no other has.
fn two_mib(world: &World, name: &str) -> String {
    let content = name.as_bytes().iter().copied().cycle().take(2 * MIB);
    let file = TarEntry::file("file", content.collect::<Vec<u8>>());
    archive(world, name, &[file, TarEntry::file("name", name)])
}

/// The cap is lowered below what twenty running jobs use: they end well, and what they use goes when they are over.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn e10_what_twenty_jobs_use_stays_when_the_bound_is_lowered(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layers: Vec<String> = (0..4)
        .map(|n| two_mib(&world, &format!("used-{n}")))
        .collect();
    let idle = two_mib(&world, "idle");
    for _ in 0..5 {
        assert_eq!(run(&world, &idle, "cat /taken/name").out(), "idle");
    }
    let mut jobs: Vec<_> = (0..JOBS)
        .map(|number| {
            world
                .program(["sh", "-c", "echo ready; read line; cat /taken/name"])
                .args(["--layer", &layers[number % layers.len()]])
                .args(["--no-workspace", "--stdin"])
                .start()
        })
        .collect();
    for job in &jobs {
        job.await_output("ready");
    }
    let shown = cache(&world, &["du"]);
    let owners = shown["owners"].as_array().unwrap();
    let of = |end: &str| {
        let found = owners
            .iter()
            .find(|o| o["owner"].as_str().unwrap().ends_with(end));
        found.unwrap_or_else(|| panic!("no {end}: {shown:#}"))
    };
    assert_eq!(
        (&of("used-0.tar")["trees"], &of("used-0.tar")["in_use"]),
        (&1.into(), &1.into())
    );
    assert_eq!(of("idle.tar")["in_use"], 0, "{shown:#}");
    assert!(
        of("idle.tar")["disk_bytes"].as_u64().unwrap() >= 2 * MIB as u64,
        "{shown:#}"
    );
    let pruned = cache(&world, &["prune", "--max", "1MiB"]);
    assert!(tree_of(&pruned, "idle.tar").is_some(), "{pruned:#}");
    let left = cache(&world, &["ls"]);
    for number in 0..layers.len() {
        let tree = tree_of(&left, &format!("used-{number}.tar"));
        assert_eq!(tree.unwrap()["in_use"], true, "{left:#}");
    }
    for (number, mut job) in jobs.drain(..).enumerate() {
        job.write_input(b"go on\n");
        job.close_input();
        let done = job.wait();
        let expected = format!("ready\nused-{}", number % layers.len());
        assert_eq!((done.code, done.out()), (0, expected), "{done}");
    }
    let pruned = cache(&world, &["prune", "--max", "1MiB"]);
    assert_eq!(
        pruned["left_bytes"], 0,
        "nothing holds them any more: {pruned:#}"
    );
    assert_nothing_half(&world);
}

/// The bound is a hard one: whatever is built, what is kept is below it, but for what is in use.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn e10_the_bound_is_kept_after_each_build(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for number in 0..6 {
        let layer = two_mib(&world, &format!("layer-{number}"));
        let done = world
            .job("true")
            .args(["--layer", &layer, "--no-workspace", "--cache-size", "5MiB"])
            .run();
        assert_eq!(done.code, 0, "{done}");
        let du = cache(&world, &["du", "--cache-size", "5MiB"]);
        let kept = du["trees"]["bytes"].as_u64().unwrap();
        assert!(kept <= 5 * MIB as u64, "{kept} after {number}: {du:#}");
        assert_eq!(du["max_bytes"], 5 * MIB as u64, "{du:#}");
        assert!(du["floor_bytes"].as_u64().unwrap() > 0, "{du:#}");
    }
    let text = world.ask(["cache", "du"]);
    let text = String::from_utf8(text).unwrap();
    for part in ["trees are for", "layer-5.tar", "bound for trees"] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    assert!(
        fs::read_dir(world.state().join("trees/ready"))
            .unwrap()
            .count()
            <= 2
    );
}
