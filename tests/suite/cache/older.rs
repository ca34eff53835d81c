//! A state directory of an older version.

use std::fs;

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World, skip};

use super::{archive, cache, root_of, run, tree_of};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn its_trees_are_used_as_they_are_until_they_go(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can put a file among somebody's sub-ids");
        return;
    }
    let layer = archive(&world, "archive", &[TarEntry::file("file", "new")]);
    run(&world, &layer, "true");
    // As it was: named by what was asked for, no list, no pool.
    let trees = world.state().join("trees");
    let root = root_of(&world, "archive.tar");
    let list = cache(&world, &["ls"]);
    let name = tree_of(&list, "archive.tar").unwrap()["names"][0].clone();
    let name = name.as_str().unwrap().replace("b3:", "");
    let place = trees.join("ready").join(&name);
    fs::rename(root.parent().unwrap(), &place).unwrap();
    for file in ["list", "fresh"] {
        fs::remove_file(place.join(file)).unwrap();
    }
    for directory in ["names", "files", "damaged"] {
        fs::remove_dir_all(trees.join(directory)).unwrap();
    }
    fs::remove_file(trees.join("usage")).ok();
    let note = r#"{"from":"archive.tar","entries":1,"bytes":3,"lacks":[]}"#;
    fs::write(place.join("tree.json"), note).unwrap();
    fs::write(place.join("root/file"), "old").unwrap();
    assert_eq!(run(&world, &layer, "cat /taken/file").out(), "old");
    let list = cache(&world, &["ls"]);
    let tree = tree_of(&list, "archive.tar").unwrap();
    assert_eq!(tree["state"], "unlisted", "{list}");
    let verified = cache(&world, &["verify"]);
    assert_eq!(
        verified["unlisted"].as_array().unwrap().len(),
        1,
        "{verified}"
    );
    // It goes as any other, and what comes in its place is of this version.
    cache(&world, &["prune", "--all"]);
    assert!(!place.exists());
    assert_eq!(run(&world, &layer, "cat /taken/file").out(), "new");
    let list = cache(&world, &["ls"]);
    assert_eq!(tree_of(&list, "archive.tar").unwrap()["state"], "ready");
}
