//! Images that are wrong: the error names the layer and the entry, and nothing of them stays.

use std::fs;

use rstest::rstest;
use serde_json::json;
use tar::{Builder, EntryType, Header};
use tidemill_tests::{Mode, TarEntry, World, skip};

use super::made::{Made, digest, hard, in_image, layer};

/// An entry whose name the library would refuse.
fn raw(name: &str, kind: EntryType) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    builder.append(&header, &[][..]).unwrap();
    builder.into_inner().unwrap()
}

/// Everything that the store of trees has.
fn store(world: &World) -> Vec<String> {
    let trees = world.state().join("trees");
    let mut found = Vec::new();
    for directory in ["ready", "names", "building"] {
        let entries = fs::read_dir(trees.join(directory)).into_iter().flatten();
        found.extend(entries.map(|entry| entry.unwrap().path().display().to_string()));
    }
    found.sort();
    found
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn e4_bad_layers_are_named_and_leave_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let good = layer(&[TarEntry::dir("d"), TarEntry::file("d/f", "x")]);
    let noise: Vec<u8> = (0..4096_u32).map(|n| (n * 31 % 251) as u8).collect();
    let cases: [(&str, Vec<u8>, &str); 8] = [
        (
            "up",
            raw("../../escape", EntryType::Regular),
            "the entry `../../escape`",
        ),
        (
            "link",
            layer(&[hard("h", "../../etc/passwd")]),
            "hard link to `../../etc/passwd`",
        ),
        (
            "nothing",
            layer(&[hard("h", "missing")]),
            "is not in the archive before it",
        ),
        (
            "marked",
            raw("d/.wh.x/y", EntryType::Regular),
            "lies in what is marked as removed",
        ),
        (
            "through",
            raw("d/f/below", EntryType::Regular),
            "lies below `f`",
        ),
        (
            "kind",
            raw("odd", EntryType::new(b'Z')),
            "is of an unknown kind",
        ),
        ("noise", noise, "is not a tar archive"),
        ("cut", good[..700].to_vec(), "is damaged"),
    ];
    for (name, upper, said) in cases {
        let name = format!("{name}:1");
        let mut made = Made::new(vec![good.clone(), upper]);
        made.config = json!({ "Cmd": ["/bin/true"] });
        made.import(&world, &name);
        let done = world.bare_run(in_image(&name)).run();
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        for part in [said, &name] {
            assert!(done.err().contains(part), "{name}: no {part}: {done}");
        }
    }
    // Layers that are whole by themselves may be there, with a name and a tree each, and no image.
    let left = store(&world);
    assert!(left.len() <= 6, "{left:#?}");
    assert!(
        !left.iter().any(|path| path.contains("/building/")),
        "{left:#?}"
    );
    assert!(!world.path().join("escape").exists());
}

#[test]
fn a_layer_that_is_not_what_the_config_says_is_refused() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    let mut made = Made::new(vec![layer(&[TarEntry::file("f", "x")])]);
    made.config = json!({ "Cmd": ["/bin/true"] });
    made.diff_ids = Some(vec![digest(b"something else")]);
    made.import(&world, "liar:1");
    let done = world.bare_run(in_image("liar:1")).run();
    assert_eq!(done.code, 125, "{done}");
    for part in [&digest(&made.layers[0]), &digest(b"something else")] {
        assert!(done.err().contains(part.as_str()), "no {part}: {done}");
    }
    assert_eq!(store(&world), Vec::<String>::new());
}

#[test]
fn an_image_that_is_not_there_is_asked_for_where_it_would_be() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    // Nobody listens there.
    let done = world
        .bare_run(in_image("localhost:1/no/such:1"))
        .args(["--", "x"])
        .run();
    assert_ne!(done.code, 0, "{done}");
    assert!(
        done.err().contains("cannot pull localhost:1/no/such:1"),
        "{done}"
    );
    assert_eq!(world.list(&[]).len(), 0, "nothing was recorded");
    let done = world
        .bare_run(["--image", "oci:NOT/A?name", "--", "x"])
        .run();
    assert_eq!(done.code, 2, "{done}");
}

#[test]
fn an_image_that_this_machine_cannot_execute_is_not_fetched() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    if fs::exists("/proc/sys/fs/binfmt_misc/qemu-s390x").unwrap() {
        return skip("this machine executes programs for s390x");
    }
    let done = world
        .bare_run(in_image("127.0.0.1:9/app:1"))
        .args(["--platform", "linux/s390x"])
        .run();
    assert_eq!((done.code, done.out().as_str()), (2, ""), "{done}");
    for said in [
        "this machine cannot execute programs for linux/s390x",
        "`tidemill image pull --platform linux/s390x 127.0.0.1:9/app:1`",
    ] {
        assert!(done.err().contains(said), "no {said:?}: {done}");
    }
}

#[test]
fn the_rest_of_a_layout_is_not_imported_as_a_root() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    let (layout, _) = Made::new(vec![layer(&[TarEntry::file("x", "x")])]).write(&world, "rest");
    for file in ["index.json", "oci-layout"] {
        fs::remove_file(layout.join(file)).unwrap();
    }
    let done = world.call(["image", "import", layout.to_str().unwrap(), "--name", "a:1"]);
    assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
    let said = "it has the blobs of an image layout and no `oci-layout`";
    assert!(done.err().contains(said), "{done}");
}
