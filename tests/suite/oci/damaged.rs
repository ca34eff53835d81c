//! An index of images that is damaged: it is told with its place, costs no blob, and stops nobody who does not
//! need it.

use std::fs;

use rstest::rstest;
use tidemill_tests::{Mode, World};

use super::fetched::made;
use super::made::in_image;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_damaged_index_stops_those_who_need_it(#[case] mode: Mode) {
    let (Some(world), Some(made)) = (World::new(mode), made()) else {
        return;
    };
    let digest = made.import(&world, "app:1");
    let index = world.state().join("images/index.json");
    let blobs = || {
        let blobs = fs::read_dir(world.state().join("images/blobs/sha256")).unwrap();
        blobs.count()
    };
    let (whole, before) = (fs::read_to_string(&index).unwrap(), blobs());
    let damaged = whole.replacen(&digest, "sha256:0", 1);
    let place = "entry 1 of `manifests` (`docker.io/library/app:1`)";
    for (damaged, place) in [
        (damaged.as_str(), place),
        (&whole[..20], "at line 1 column 20"),
    ] {
        fs::write(&index, damaged).unwrap();
        let run = ["run", "--image", "oci:app:1", "--no-workspace"];
        for command in [
            &["image", "ls"][..],
            &["image", "show", "app:1"],
            &["image", "rm", "app:1"],
            &["image", "pull", "127.0.0.1:9/app:1"],
            &run,
        ] {
            let done = world.call(command);
            assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
            for said in [
                place,
                index.to_str().unwrap(),
                "hint: mend it by hand",
                "put a copy back",
            ] {
                assert!(done.err().contains(said), "no {said:?}: {done}");
            }
        }
        let done = world.call(["cache", "prune"]);
        assert!(done.err().contains(place), "{done}");
        let done = world.call(["cache", "du"]);
        assert_eq!(done.code, 0, "{done}");
        assert!(
            done.out().contains("images") && done.err().contains(place),
            "{done}"
        );
        assert_eq!(
            fs::read_to_string(&index).unwrap(),
            damaged,
            "it is as it was"
        );
        assert_eq!(blobs(), before);
        let done = world.job("echo works").run();
        assert_eq!((done.code, done.out().as_str()), (0, "works\n"), "{done}");
        let done = world.bare_run(in_image(&format!("app@{digest}"))).run();
        assert_eq!((done.code, done.out().as_str()), (0, "fetched"), "{done}");
    }
    fs::write(&index, whole).unwrap();
    let done = world.bare_run(in_image("app:1")).run();
    assert_eq!((done.code, done.out().as_str()), (0, "fetched"), "{done}");
}
