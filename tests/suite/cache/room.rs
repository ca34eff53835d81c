//! How much is kept, and making room.

use std::fs::{self, File};
use std::time::Duration;

use rstest::rstest;
use serde_json::Value;
use tidemill_tests::{Mode, TarEntry, World};

use super::{archive, assert_nothing_half, cache, run, tree_of};

const MIB: usize = 1 << 20;

/// An archive of so many bytes that no other has.
fn large(world: &World, name: &str, bytes: usize) -> String {
    let content = name.as_bytes().iter().copied().cycle().take(bytes);
    let closed = TarEntry::dir("closed").mode(0o700).owner(77, 78);
    let file = TarEntry::file("closed/file", content.collect::<Vec<u8>>()).owner(77, 78);
    archive(world, name, &[closed, file, TarEntry::file("name", name)])
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_was_used_least_recently_goes_and_what_a_job_uses_stays(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layers = ["first", "second", "third", "fourth"].map(|name| large(&world, name, 2 * MIB));
    let mut running = world
        .program(["sh", "-c", "echo ready; read line; cat /taken/name"])
        .args(["--layer", &layers[0], "--no-workspace", "--stdin"])
        .start();
    running.await_output("ready");
    for layer in &layers[1..] {
        // Room for two and a half.
        let done = world
            .job("cat /taken/name")
            .args(["--layer", layer, "--no-workspace", "--cache-size", "5MiB"])
            .run();
        assert_eq!(done.code, 0, "{done}");
    }
    let list = cache(&world, &["ls"]);
    let there = ["first", "second", "third", "fourth"]
        .map(|name| tree_of(&list, &format!("{name}.tar")).is_some());
    assert_eq!(there, [true, false, false, true], "{list}");
    assert_eq!(tree_of(&list, "first.tar").unwrap()["in_use"], true);
    let all = cache(&world, &["prune", "--all"]);
    assert!(tree_of(&all, "first.tar").is_none(), "{all}");
    running.write_input(b"go on\n");
    running.close_input();
    let done = running.wait();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "ready\nfirst"),
        "{done}"
    );
    let all = cache(&world, &["prune", "--all"]);
    assert!(tree_of(&all, "first.tar").is_some(), "{all}");
    assert_eq!(all["left_bytes"], 0, "{all}");
    assert_nothing_half(&world);
    // What went is unpacked again when it is wanted.
    assert_eq!(run(&world, &layers[1], "cat /taken/name").out(), "second");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn pruning_does_what_its_flags_say(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layers = ["first", "second"].map(|name| large(&world, name, 2 * MIB));
    for layer in &layers {
        run(&world, layer, "true");
    }
    let trees = |answer: &Value| answer["trees"].as_array().unwrap().len();
    let before = cache(&world, &["du"])["total_bytes"].as_u64().unwrap();
    let nothing = cache(&world, &["prune"]);
    assert_eq!(
        (
            trees(&nothing),
            nothing["failures"].as_array().unwrap().len()
        ),
        (0, 0)
    );
    assert_eq!(trees(&cache(&world, &["prune", "--unused-for", "1h"])), 0);
    let would = cache(&world, &["prune", "--max", "3MiB", "--dry-run"]);
    assert_eq!(would["dry_run"], true);
    assert!(tree_of(&would, "first.tar").is_some() && tree_of(&would, "second.tar").is_none());
    assert_eq!(cache(&world, &["du"])["total_bytes"], before);
    let done = cache(&world, &["prune", "--max", "3MiB"]);
    assert_eq!(done["trees"], would["trees"]);
    let after = cache(&world, &["du"])["total_bytes"].as_u64().unwrap();
    let freed = done["freed_bytes"].as_u64().unwrap();
    assert!(
        freed >= 2 * MIB as u64 && before - after >= freed,
        "{before}, {after}, {done}"
    );
    assert!(tree_of(&cache(&world, &["ls"]), "second.tar").is_some());
    for lock in fs::read_dir(world.state().join("trees/locks")).unwrap() {
        let lock = File::options()
            .write(true)
            .open(lock.unwrap().path())
            .unwrap();
        let then = lock.metadata().unwrap().modified().unwrap() - Duration::from_hours(2);
        lock.set_modified(then).unwrap();
    }
    let old = cache(&world, &["prune", "--unused-for", "1h"]);
    assert!(tree_of(&old, "second.tar").is_some(), "{old}");
    let left = cache(&world, &["ls"]);
    assert_eq!(trees(&left), 0, "{left}");
    run(&world, &layers[0], "true");
    let all = cache(&world, &["prune", "--cache-size", "1MiB"]);
    let floor = cache(&world, &["du", "--cache-size", "1MiB"])["floor_bytes"].clone();
    assert!(
        all["left_bytes"].as_u64().unwrap() >= floor.as_u64().unwrap(),
        "the bound alone leaves the floor: {all}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
fn slips_are_answered_and_nothing_is_made_where_nothing_is(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let missing = world.call(["cache", "du"]);
    assert_eq!(missing.code, 2, "{missing}");
    assert!(!world.state().exists());
    let done = world.job("true").run();
    assert_eq!(done.code, 0, "{done}");
    for (words, said) in [
        (&["prune", "--max", "much"][..], "--max"),
        (&["prune", "--unused-for", "ever"], "--unused-for"),
        (&["du", "--cache-size", "huge"], "--cache-size"),
        (&["prune", "--all", "--max", "1GiB"], "--max"),
    ] {
        let done = world.call([&["cache"], words].concat());
        assert_eq!(done.code, 2, "{done}");
        assert!(done.err().contains(said), "{done}");
    }
    let variable = world
        .command(["cache", "du", "--format", "json"])
        .variable("TIDEMILL_CACHE_SIZE", "7GiB")
        .run();
    let answer: Value = serde_json::from_slice(&variable.stdout).unwrap();
    assert_eq!(answer["max_bytes"], 7_u64 << 30);
    let text = world.call(["cache", "du"]);
    assert!(text.out().contains("bound for trees"), "{text}");
    let text = world.call(["cache", "ls"]);
    assert!(text.out().starts_with("TREE"), "{text}");
    let text = world.call(["cache", "verify"]);
    assert!(
        text.out().trim_end().ends_with("all is as it was built"),
        "{text}"
    );
}
