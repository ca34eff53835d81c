//! Unpacked archives: kept while they are used, and removed when nobody has used them for long, whoever
//! their files belong to.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World, write_tar};

/// Longer than an unused tree is kept.
const LONG: Duration = Duration::from_hours(31 * 24);

/// An archive with a closed directory of somebody else's.
fn archive(world: &World, name: &str) -> String {
    let path = world.write(format!("{name}.tar"), "");
    let closed = TarEntry::dir("closed").mode(0o700).owner(4242, 4343);
    let inner = TarEntry::file("closed/file", name).owner(4242, 4343);
    write_tar(
        File::create(&path).unwrap(),
        &[closed, inner, TarEntry::file("open", name)],
    );
    format!("tar:{}=/taken", path.display())
}

/// The trees that are there, ready or not.
fn trees(world: &World) -> Vec<PathBuf> {
    ["ready", "building"]
        .iter()
        .flat_map(|kind| fs::read_dir(world.state().join("trees").join(kind)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|tree| {
            fs::read_to_string(tree.join("tree.json")).is_ok_and(|note| note.contains(".tar"))
        })
        .collect()
}

/// Lets all trees be unused for long.
fn age(world: &World) {
    for entry in fs::read_dir(world.state().join("trees/locks")).unwrap() {
        let lock = File::options()
            .write(true)
            .open(entry.unwrap().path())
            .unwrap();
        let then = lock.metadata().unwrap().modified().unwrap();
        lock.set_modified(then - LONG).unwrap();
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_archive_that_nobody_used_for_long_goes_when_another_is_unpacked(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layers = ["first", "second", "third"].map(|name| archive(&world, name));
    let run = |layer: &str| {
        let done = world
            .job("cat /taken/open")
            .args(["--layer", layer, "--no-workspace"])
            .run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    assert_eq!(run(&layers[0]), "first");
    let first = trees(&world);
    assert_eq!(first.len(), 1);
    if Mode::suite_is_root() {
        let owner = fs::metadata(first[0].join("root/closed")).unwrap().uid();
        assert_ne!(owner, world.account().uid, "its owner was kept");
    }
    // Used a moment ago: both stay.
    assert_eq!(run(&layers[1]), "second");
    assert_eq!(trees(&world).len(), 2);
    age(&world);
    // It is asked for, and is used again.
    assert_eq!(run(&layers[1]), "second");
    assert_eq!(run(&layers[2]), "third");
    let left = trees(&world);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(!first[0].exists(), "{left:?}");
    let building = fs::read_dir(world.state().join("trees/building")).unwrap();
    assert_eq!(building.count(), 0, "nothing is half removed");
    // What went is unpacked again when it is wanted.
    assert_eq!(run(&layers[0]), "first");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_archive_that_a_job_uses_stays(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layers = ["used", "new"].map(|name| archive(&world, name));
    let mut running = world
        .program(["sh", "-c", "echo ready; read line; cat /taken/open"])
        .args(["--layer", &layers[0], "--no-workspace", "--stdin"])
        .start();
    running.await_output("ready");
    age(&world);
    let done = world
        .job("true")
        .args(["--layer", &layers[1], "--no-workspace"])
        .run();
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(trees(&world).len(), 2);
    running.write_input(b"go on\n");
    running.close_input();
    let done = running.wait();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "ready\nused"),
        "{done}"
    );
}
