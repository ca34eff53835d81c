//! Images that are removed: what was unpacked for them goes with their last name.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};
use tidemill_tests::{Mode, TarEntry, World};

use super::made::{Made, base, in_image, layer};

fn trees(world: &World) -> usize {
    fs::read_dir(world.state().join("trees/ready"))
        .unwrap()
        .count()
}

fn rm(world: &World, name: &str) -> Value {
    let answer = world.ask(["image", "rm", name, "--format", "json"]);
    serde_json::from_slice(&answer).unwrap()
}

/// An image with a base that others have too.
fn import(world: &World, base: &[u8], name: &str) {
    let own = layer(&[TarEntry::file("own", name)]);
    let mut made = Made::new(vec![base.to_vec(), own]);
    made.config = json!({ "Cmd": ["/bin/cat", "/own"] });
    made.import(world, name);
}

fn says_its_name(world: &World, name: &str) {
    let done = world.bare_run(in_image(name)).run();
    assert_eq!((done.code, done.out().as_str()), (0, name), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn trees_go_with_the_last_name_of_those_that_need_them(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    for name in ["one:1", "two:1"] {
        import(&world, &base, name);
        says_its_name(&world, name);
    }
    world.ask(["image", "tag", "one:1", "again:1"]);
    assert_eq!(trees(&world), 5, "two images, their own layers, one base");
    let removed = rm(&world, "one:1");
    assert_eq!(
        (removed["freed"].as_u64(), removed["trees"].as_u64()),
        (Some(0), Some(0))
    );
    assert_eq!(trees(&world), 5, "the other name leads to it");
    let removed = rm(&world, "again:1");
    assert_eq!(removed["trees"], 2, "{removed}");
    assert!(removed["freed_trees"].as_u64().unwrap() > 0, "{removed}");
    assert_eq!(trees(&world), 3, "the base belongs to both");
    says_its_name(&world, "two:1");
    assert_eq!(rm(&world, "two:1")["trees"], 3);
    assert_eq!(trees(&world), 0);
    let files = world.state().join("trees/files");
    let left = fs::read_dir(files).into_iter().flatten().flatten();
    let left = left.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
    assert_eq!(left.count(), 0, "files that they shared");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_a_job_uses_stays(#[case] mode: Mode) {
    let (Some(world), Some(base)) = (World::new(mode), base()) else {
        return;
    };
    import(&world, &base, "used:1");
    let mut job = world
        .program(["/bin/sh", "-c", "echo here; read line; cat /own"])
        .args(in_image("used:1"))
        .args(["--stdin"])
        .start();
    job.await_output("here");
    let done = world.call(["image", "rm", "used:1"]);
    assert_eq!(done.code, 0, "{done}");
    assert!(done.err().contains("is used at this time"), "{done}");
    job.write_input(b"go on\n");
    let done = job.wait();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "here\nused:1"),
        "{done}"
    );
}
