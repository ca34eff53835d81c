//! More names for one file than the file system has.

use std::fs;

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World};

use super::{archive, assert_nothing_half, cache, run};

/// More than ext4 allows, which has 65,000.
const NAMES: u32 = 70_000;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_file_with_too_many_names_is_told_by_the_entry_and_leaves_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let other = archive(&world, "other", &[TarEntry::file("file", "content")]);
    run(&world, &other, "true");
    let mut entries = vec![TarEntry::dir("d"), TarEntry::file("d/first", "content")];
    entries.extend((0..NAMES).map(|number| {
        let mut link = TarEntry::symlink(&format!("d/link-{number:05}"), "d/first");
        link.kind = tar::EntryType::Link;
        link
    }));
    let layer = archive(&world, "many", &entries);
    let before = cache(&world, &["ls"]);
    let done = world
        .job("ls /taken/d | wc -l")
        .args(["--layer", &layer, "--no-workspace"])
        .run();
    if done.code == 0 {
        // A file system that has as many as one likes.
        assert_eq!(done.out().trim(), (NAMES + 1).to_string(), "{done}");
        return;
    }
    assert_eq!(done.code, 125, "{done}");
    for said in [
        "`d/link-6499",
        "Too many links",
        "65,000",
        "hint: one file has more names",
    ] {
        assert!(done.err().contains(said), "no {said}: {done}");
    }
    assert_eq!(cache(&world, &["ls"])["trees"], before["trees"]);
    assert_nothing_half(&world);
    let pool = world.state().join("trees/files");
    let shards = fs::read_dir(pool).unwrap().flatten();
    let files: usize = shards
        .map(|shard| fs::read_dir(shard.path()).unwrap().count())
        .sum();
    assert_eq!(files, 1, "the pool has the other archive's file alone");
}
