//! What overlayfs would take for an order, in directories that are used where they are.

use rstest::rstest;
use rustix::fs::{CWD, FileType, Mode as Bits, XattrFlags, lsetxattr, mknodat};
use tidemill_tests::{Mode, World, busybox_root, skip};

/// Everybody may make this one device: overlayfs takes it for the absence of what is below it.
fn whiteout(world: &World, path: &str) {
    world.write(path, "");
    let path = world.work().join(path);
    std::fs::remove_file(&path).unwrap();
    mknodat(CWD, &path, FileType::CharacterDevice, Bits::RUSR, 0).unwrap();
}

/// An image with a file in a directory of its own.
fn image(world: &World) -> Option<String> {
    let image = world.work().join("root");
    if let Err(why) = busybox_root(&image, world.account()) {
        skip(&why);
        return None;
    }
    world.write("root/place/below", "of the image\n");
    Some(format!("dir:{}", image.display()))
}

fn mark(world: &World, path: &str, name: &str) {
    let path = world.work().join(path);
    lsetxattr(&path, name, b"y", XattrFlags::empty()).unwrap();
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn no_directory_hides_what_is_below_it_by_a_mark(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(image) = image(&world) else {
        return;
    };
    whiteout(&world, "device/place/below");
    world.write("opaque/place/other", "");
    mark(&world, "opaque/place", "user.overlay.opaque");
    world.write("empty/place/below", "");
    mark(&world, "empty/place/below", "user.overlay.whiteout");
    world.write("moved/place/below", "x");
    mark(&world, "moved/place/below", "user.overlay.metacopy");
    let job = |layer: &str, script: &str| {
        let trial = world.job(script);
        let trial = trial.args(["--no-workspace", "--image", &image, "--layer", layer]);
        trial.run()
    };
    for (layer, entry) in [
        ("device", "device/place/below` is a character device 0:0"),
        (
            "opaque",
            "opaque/place` has the attribute user.overlay.opaque",
        ),
        (
            "empty",
            "empty/place/below` has the attribute user.overlay.whiteout",
        ),
        (
            "moved",
            "moved/place/below` has the attribute user.overlay.metacopy",
        ),
    ] {
        for layer in [format!("dir:{layer}"), format!("dir:{layer}/place=/place")] {
            if layer == "dir:opaque/place=/place" {
                // A mark of the top itself is not obeyed.
                let done = job(&layer, "ls /place");
                assert_eq!(
                    (done.code, done.out().as_str()),
                    (0, "below\nother\n"),
                    "{done}"
                );
                continue;
            }
            let done = job(&layer, "true");
            assert_eq!(done.code, 125, "{done}");
            assert_eq!(done.record().reason(), "layer", "{done}");
            for part in [
                entry,
                "hides or replaces what lies below",
                "owner, mode and mtime",
            ] {
                assert!(done.err().contains(part), "no {part}: {done}");
            }
        }
        // A copy has no marks, and at a place of its own there is nothing to hide.
        let seen = "cat /place/below; test ! -c /place/below";
        let done = job(&format!("dir,mtime=1:{layer}"), seen);
        let expected = match layer {
            "empty" => "",
            "moved" => "x",
            _ => "of the image\n",
        };
        assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
        let done = job(&format!("dir:{layer}=/own"), "cat /place/below");
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, "of the image\n"),
            "{done}"
        );
    }
    // Patterns match no device, and what they match is no directory.
    let done = job(
        "glob,strip=opaque:opaque/**=/",
        "cat /place/below; ls /place",
    );
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "of the image\nbelow\nother\n"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn marks_of_what_is_lowest_hide_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(image) = image(&world) else {
        return;
    };
    mark(&world, "root/place", "user.overlay.opaque");
    mark(&world, "root", "user.overlay.opaque");
    world.write("layer/place/above", "of the layer\n");
    let job = |script: &str| {
        let trial = world.job(script);
        let trial = trial.args(["--no-workspace", "--user", "0", "--image", &image]);
        let done = trial.args(["--layer", "dir:layer"]).run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    assert_eq!(job("cat /place/*"), "of the layer\nof the image\n");
    // Without root the image's directory belongs to nobody whom the job could be.
    if mode == Mode::Root {
        let script = "echo new > /place/below; rm /place/above; ls /place; cat /place/below";
        assert_eq!(job(script), "below\nnew\n");
    }
}
