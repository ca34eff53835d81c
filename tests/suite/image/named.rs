//! Names: listed, shown, given and taken.

use serde_json::json;
use tidemill_tests::{Mode, World};

use super::made::{image, refused, state};

/// A world with an image called `one:1` of a root with one file.
fn world_with_image() -> Option<World> {
    let world = World::new(Mode::Rootless)?;
    world.write("root/file", "x");
    let root = world.work().join("root");
    image(
        &world,
        &["import", root.to_str().unwrap(), "--name", "one:1"],
    );
    Some(world)
}

#[test]
fn names_come_and_go_and_blobs_with_the_last_of_them() {
    let Some(world) = world_with_image() else {
        return;
    };
    let tagged = image(&world, &["tag", "one:1", "x.y/two"]);
    assert_eq!(tagged["image"]["name"], "x.y/two:latest");
    let listed = image(&world, &["ls"]);
    let names: Vec<_> = listed["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| &i["name"])
        .collect();
    assert_eq!(names, ["docker.io/library/one:1", "x.y/two:latest"]);
    let table = world.call(["image", "ls"]).out();
    assert!(
        table.starts_with("NAME            DIGEST        PLATFORM"),
        "{table}"
    );
    let removed = image(&world, &["rm", "one:1"]);
    assert_eq!(removed["freed"], 0, "the other name needs it");
    let digest = tagged["image"]["digest"].as_str().unwrap();
    let shown = image(&world, &["show", &digest[..20]]);
    assert_eq!(shown["image"]["digest"], digest);
    let removed = image(&world, &["rm", digest]);
    assert_eq!(removed["removed"][0]["name"], "x.y/two:latest");
    assert!(removed["freed"].as_u64().unwrap() > 1000);
    assert_eq!(
        state(&world).len(),
        1,
        "only the index is left: {:?}",
        state(&world)
    );
    assert_eq!(image(&world, &["ls"])["images"], json!([]));
}

#[test]
fn slips_are_answered_with_what_is_meant() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    let done = world.call(["image", "show", "one"]);
    assert_eq!(done.code, 2, "{done}");
    assert!(
        done.err()
            .contains("there is none yet: tidemill image pull"),
        "{done}"
    );
    assert!(!world.state().exists(), "whoever looks makes nothing");
    let done = world.call(["image", "ls"]);
    assert_eq!(done.code, 0, "{done}");
    drop(world);
    let Some(world) = world_with_image() else {
        return;
    };
    let done = refused(
        &world,
        &["rm", "one:1", "two:1"],
        2,
        "there is no image `two:1` here",
    );
    assert!(!done.err().contains("because"), "{done}");
    refused(&world, &["show", "one:2"], 2, "did you mean `one:1`?");
    refused(&world, &["tag", "one:1", "One"], 2, "has capital letters");
    let digest = image(&world, &["show", "one:1"])["image"]["digest"].take();
    let held = format!("two@{}", digest.as_str().unwrap());
    refused(
        &world,
        &["tag", "one:1", &held],
        2,
        "which is not for choosing",
    );
}

#[test]
fn images_can_be_removed_from_a_full_disk() {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    world.write("root/file", vec![7; 100_000]);
    // What is on the disk is seen by this script alone, so all of it happens in one.
    let script = r#"
        mkdir -p "$TIDEMILL_STATE"
        mount -t tmpfs -o size=1m tmpfs "$TIDEMILL_STATE"
        "$1" image import root --name one:1 >/dev/null
        dd if=/dev/zero of="$TIDEMILL_STATE/fill" bs=4096 2>/dev/null || true
        if "$1" image tag one:1 two:1; then echo 'the disk is not full'; exit 7; fi
        "$1" image rm one:1
        exec "$1" image ls --format json
    "#;
    let done = world.command(["unused"]).inside(script).run();
    assert_eq!(done.code, 0, "{done}");
    assert!(done.err().contains("the disk is full"), "{done}");
    assert!(done.out().starts_with("one:1  sha256:"), "{done}");
    assert!(done.out().contains("\"images\": []"), "{done}");
}

#[test]
fn a_name_that_was_given_here_is_never_fetched() {
    let Some(world) = world_with_image() else {
        return;
    };
    let shown = image(&world, &["show", "one:1"]);
    assert_eq!(shown["image"]["is_local"], true);
    let layer = shown["layers"][0]["digest"].as_str().unwrap().to_owned();
    let hex = layer.replace("sha256:", "");
    std::fs::remove_file(world.state().join("images/blobs/sha256").join(hex)).unwrap();
    let done = world
        .program(["/bin/true"])
        .args(["--image", "oci:one:1", "--no-workspace"])
        .run();
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
    assert!(
        done.err().contains(&format!("its blob {layer} is gone")),
        "{done}"
    );
    assert!(done.err().contains("hint: import it again"), "{done}");
    assert!(
        !done.err().contains("docker.io"),
        "nobody else is asked: {done}"
    );
}
