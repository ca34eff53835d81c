//! Images and layers that are not what a root file system is made of: the error names the place in the
//! image, and not this host.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rstest::rstest;
use tidemill_tests::{Mode, World};

/// Puts something into an image.
type Make<'a> = &'a dyn Fn(&Path);

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_odd_place_in_an_image_is_told_as_the_images(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let image = world.make_dir("image");
    let odd = |path: &str, make: &dyn Fn(&Path)| {
        let path = image.join(path);
        world.make_dir(path.parent().unwrap());
        make(&path);
        world.give(&path);
    };
    let file = |path: &Path| fs::write(path, "x").unwrap();
    let dir = |path: &Path| fs::create_dir(path).unwrap();
    let round = |path: &Path| symlink(path.file_name().unwrap(), path).unwrap();
    let out = |path: &Path| symlink("../../../../../../no/such", path).unwrap();
    let cases: [(&str, Make); 10] = [
        ("tmp", &file),
        ("tmp", &round),
        ("tmp", &out),
        ("var/tmp", &file),
        ("dev", &file),
        ("proc", &out),
        ("etc", &file),
        ("etc/passwd", &dir),
        ("etc/passwd", &round),
        ("etc/hosts", &dir),
    ];
    for (path, make) in cases {
        odd(path, make);
        let name = format!("dir:{}", image.display());
        let done = world
            .program(["/bin/true"])
            .args(["--image", &name, "--no-workspace"])
            .run();
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        assert_eq!(done.record().reason(), "layer", "{done}");
        let said = done.err();
        let place = format!("`/{path}` in `{}`", image.display());
        assert!(said.contains(&place), "no {place}: {done}");
        assert!(!said.contains("doctor"), "{done}");
        fs::remove_dir_all(&image).unwrap();
        world.make_dir("image");
    }
}

#[test]
fn a_file_of_a_glob_that_may_not_be_read_is_named() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    for number in 0..100 {
        world.write(format!("{number}.txt"), "x");
    }
    let locked = world.work().join("42.txt");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    let done = world
        .job("true")
        .args(["--layer", "glob:*.txt=/texts", "--no-workspace"])
        .run();
    assert_eq!(done.code, 125, "{done}");
    assert_eq!(done.record().reason(), "layer", "{done}");
    let uid = format!("user {}", world.account().uid);
    for part in [locked.to_str().unwrap(), &uid, "mode 000", "readable"] {
        assert!(done.err().contains(part), "no {part}: {done}");
    }
}
