//! Owners, modes and times that a layer is given, and that equal content makes equal trees with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use rstest::rstest;
use tidemill_tests::{Mode, World, skip};

use super::trees;

/// The same files as those of every other machine, but for their modes and times.
fn project(world: &World, name: &str, mode: u32, age: u64) {
    for (path, executable) in [("bin/run", true), ("data/a", false), ("data/b", false)] {
        let path = world.write(format!("{name}/{path}"), format!("content of {path}\n"));
        let mode = if executable { mode | 0o100 } else { mode };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let file = fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000 + age))
            .unwrap();
    }
    let dir = world.work().join(name).join("data");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700 | mode & 0o077)).unwrap();
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_canonical_layer_shows_one_owner_mode_and_time(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    project(&world, "p", 0o640, 7);
    let script = "cd /p; stat -c '%n %u:%g %a %Y' bin bin/run data data/a";
    let show = |options: &str| {
        let layer = format!("dir{options}:p=/p");
        let done = world
            .job(script)
            .args(["--no-workspace", "--user", "0", "--layer", &layer])
            .run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    let has_owners = mode == Mode::Root || world.doctor().has("sub-ids");
    let owner = |uid: u32| if has_owners { uid } else { 0 };
    let (root, other) = (owner(0), owner(1234));
    assert_eq!(
        show(",canonical"),
        format!(
            "bin {root}:{root} 755 1\nbin/run {root}:{root} 755 1\ndata {root}:{root} 755 1\n\
             data/a {root}:{root} 644 1\n"
        )
    );
    assert_eq!(
        show(",owner=1234,mode=0604,mtime=99"),
        format!(
            "bin {other}:{other} 705 99\nbin/run {other}:{other} 604 99\n\
             data {other}:{other} 705 99\ndata/a {other}:{other} 604 99\n"
        )
    );
    // What is not said stays as it was.
    let kept = show(",mtime=5");
    assert!(
        kept.contains("bin/run 0:0 740 5\n") && kept.contains("data/a 0:0 640 5\n"),
        "{kept}"
    );
}

/// The digest of the tree that was copied from a directory.
fn copied(world: &World, from: &Path) -> Option<String> {
    let ready = fs::read_dir(world.state().join("trees/ready")).unwrap();
    ready
        .map(|entry| entry.unwrap())
        .find(|entry| {
            let note = fs::read_to_string(entry.path().join("tree.json")).unwrap_or_default();
            note.contains(&format!("\"dir {}\"", from.display()))
        })
        .map(|entry| entry.file_name().into_string().unwrap())
}

#[test]
fn equal_content_makes_the_same_tree_whoever_has_it() {
    let mut seen = Vec::new();
    for (mode, permissions, age) in [(Mode::Root, 0o644, 1), (Mode::Rootless, 0o600, 20)] {
        let Some(world) = World::new(mode) else {
            continue;
        };
        if mode == Mode::Rootless && !world.doctor().has("sub-ids") {
            skip("without sub-ids files have no owners");
            continue;
        }
        project(&world, "p", permissions, age);
        let done = world
            .job("true")
            .args(["--no-workspace", "--layer", "dir,canonical:p=/p"])
            .run();
        assert_eq!(done.code, 0, "{done}");
        let digest = copied(&world, &world.work().join("p"));
        seen.push(digest.expect("it was copied"));
    }
    seen.dedup();
    assert!(seen.len() <= 1, "{seen:?}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
#[case::nobody(Mode::Nobody)]
fn equal_content_makes_the_same_tree_whatever_brings_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    project(&world, "p", 0o644, 1);
    project(&world, "q", 0o660, 2);
    let flags = [
        "--layer",
        "dir,canonical:p=/p",
        "--layer",
        "glob,strip=q,canonical:q/**=/elsewhere",
        "--layer",
        "dir:p=/p",
        "true",
    ];
    let digests = trees(&world, &flags);
    assert!(
        digests[0].as_str().unwrap().starts_with("b3:"),
        "{digests:?}"
    );
    assert_eq!(digests[0], digests[1], "a glob of all is the directory");
    assert!(digests[2].is_null(), "what is used where it is has no tree");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_changed_file_changes_the_tree(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    world.write("p/a", "one\n");
    let flags = ["--no-workspace", "--layer", "dir,canonical:p=/p"];
    let show = || {
        let done = world.job("cat /p/a").args(flags).run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    assert_eq!(show(), "one\n");
    world.write("p/a", "two\n");
    assert_eq!(show(), "two\n");
}
