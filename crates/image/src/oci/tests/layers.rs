//! What layers say that a reference does not, and what is refused.

use super::portrait::{Look, portrait};
use super::*;

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_order_of_whiteouts_in_a_layer_says_nothing() {
    let lower = vec![
        dir("d").mode(0o711).at(5),
        file("d/old", "old"),
        dir("d/s").mode(0o711).at(6),
        file("d/s/old", "old"),
        file("f", "f"),
    ];
    let upper = [
        file("d/s/new", "new"),
        file(".wh.d", ""),
        file(".wh.f", ""),
        file("d/.wh..wh..opq", ""),
    ];
    let look = Look { owners: true };
    let mut seen = Vec::new();
    for turn in 0..upper.len() {
        let mut layer = upper.to_vec();
        layer.rotate_left(turn);
        let world = World::new();
        let root = world.build(&[lower.clone(), layer]).unwrap();
        let lines = portrait(&root, look).into_iter();
        seen.push(lines.map(|(path, seen)| (path, seen.to_string())).collect());
    }
    let seen: Vec<std::collections::BTreeMap<PathBuf, String>> = seen;
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:#?}");
    let names: Vec<_> = seen[0]
        .keys()
        .map(|path| path.display().to_string())
        .collect();
    assert_eq!(names, ["", "d", "d/s", "d/s/new"]);
    assert!(seen[0][Path::new("d/s")].starts_with("0755 "), "{seen:#?}");
}

#[test]
fn whiteouts_are_known_by_name_whatever_they_are() {
    let world = World::new();
    let lower = vec![
        dir("d"),
        file("d/a", "a"),
        file("d/b", "b"),
        file("d/c", "c"),
    ];
    let upper = vec![
        file("d/.wh.a", ""),
        hard("d/.wh.b", "d/.wh.a"),
        symlink("d/.wh.c", "nowhere"),
    ];
    let root = world.build(&[lower, upper]).unwrap();
    assert_eq!(fs::read_dir(root.join("d")).unwrap().count(), 0);
}

#[test]
fn files_that_aufs_keeps_aside_are_there_for_links_only() {
    let world = World::new();
    let layer = vec![
        dir(".wh..wh.plnk"),
        file(".wh..wh.plnk/12.34", "linked"),
        dir(".wh..wh.orph"),
        file(".wh..wh.aufs", ""),
        hard("one", ".wh..wh.plnk/12.34"),
        hard("two", ".wh..wh.plnk/12.34"),
    ];
    let root = world.build(&[layer]).unwrap();
    assert_eq!(read(&root, "two"), "linked");
    let names = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["one", "two"]);
}

#[test]
fn a_change_of_one_name_leaves_the_other_names_alone() {
    let world = World::new();
    let root = world
        .build(&[
            vec![file("a", "old"), hard("b", "a")],
            vec![file("b", "new")],
        ])
        .unwrap();
    assert_eq!(
        (read(&root, "a"), read(&root, "b")),
        ("old".into(), "new".into())
    );
}

#[test]
fn what_overlays_would_interpret_is_left_out_and_told() {
    let world = World::new();
    let layers = [vec![
        dir("d").xattr("trusted.overlay.opaque", b"y"),
        file("f", "x")
            .xattr("user.overlay.redirect", b"/etc")
            .xattr("user.kept", b"1"),
        item("hole", EntryType::Char),
    ]];
    let root = world.build(&layers).unwrap();
    let mut names = [0; 1024];
    let length = rustix::fs::llistxattr(root.join("f"), &mut names).unwrap();
    assert_eq!(&names[..length], b"user.kept\0");
    assert_eq!(
        rustix::fs::llistxattr(root.join("d"), &mut names).unwrap(),
        0
    );
    // A character device 0/0 is a whiteout of overlayfs.
    assert!(!root.join("hole").exists());
    assert_eq!(
        world.lacks(&layers),
        [
            "1 device nodes were left out: the sandbox has its own /dev",
            "2 extended attributes of overlayfs were left out: they would be interpreted",
        ]
    );
}

#[test]
fn attributes_of_links_and_pipes_are_kept_as_far_as_the_kernel_takes_them() {
    let world = World::new();
    let layers = [vec![
        symlink("link", "nowhere")
            .xattr("trusted.note", b"1")
            .xattr("user.note", b"2"),
        item("pipe", EntryType::Fifo).xattr("trusted.note", b"3"),
        hard("again", "link"),
    ]];
    let root = world.build(&layers).unwrap();
    let told = |count| vec![format!("{count} extended attributes could not be kept")];
    if world.trees.owners() == ArchiveOwners::Lost {
        assert!(world.lacks(&layers).contains(&told(3)[0]));
        return;
    }
    for (path, expected) in [("link", "1"), ("again", "1"), ("pipe", "3")] {
        let mut value = [0; 8];
        let length = rustix::fs::lgetxattr(root.join(path), "trusted.note", &mut value).unwrap();
        assert_eq!(&value[..length], expected.as_bytes(), "{path}");
    }
    assert_eq!(world.lacks(&layers), told(1));
    // They are part of what the tree is.
    let others = [vec![
        symlink("link", "nowhere").xattr("trusted.note", b"4"),
        item("pipe", EntryType::Fifo).xattr("trusted.note", b"3"),
        hard("again", "link"),
    ]];
    let other = world.build(&others).unwrap();
    assert_ne!(root, other);
    assert_eq!(world.trees.verify(|_, _| ()).unwrap().findings, []);
}

#[test]
fn no_image_is_made_of_a_layer_that_was_cut_on_disk() {
    let world = World::new();
    let mut lower: Vec<Item> = (0..200)
        .map(|n| file(&format!("f{n}"), "content"))
        .collect();
    lower.push(file("cut", "whole"));
    let root = world.build(&[lower.clone()]).unwrap();
    // The layer's tree has the same file.
    fs::write(root.join("cut"), "").unwrap();
    let upper = vec![file("other", "x")];
    let root = world.build(&[lower, upper]).unwrap();
    assert_eq!(
        (read(&root, "cut"), read(&root, "other")),
        ("whole".into(), "x".into())
    );
}

#[test]
fn without_rights_what_cannot_be_kept_is_told() {
    let world = World::with_owners(ArchiveOwners::Lost);
    let layers = [
        vec![
            file("f", "x").owner(1000, 1000),
            file("gone", "").owner(5, 5),
        ],
        vec![
            file("ping", "x")
                .xattr("security.capability", b"bits")
                .owner(1, 1),
            file(".wh.gone", ""),
        ],
    ];
    world.build(&layers).unwrap();
    assert_eq!(
        world.lacks(&layers),
        [
            "2 entries belong to the caller instead of their owners: to give files away takes root or sub-ids \
             (`tidemill doctor` says how to get them)",
            "1 extended attributes could not be kept",
        ]
    );
}

#[test]
fn every_refusal_names_layer_and_entry() {
    let cases: Vec<(Vec<Item>, &str)> = vec![
        (vec![file("../x", "")], "the entry `../x`"),
        (
            vec![file("a/.wh.b/c", "")],
            "lies in what is marked as removed",
        ),
        (vec![file("d/.wh.", "")], "marks no name as removed"),
        (vec![file("d/.wh...", "")], "marks no name as removed"),
        (vec![hard("h", "missing")], "is a hard link to `missing`"),
        (vec![hard("h", "../../etc/passwd")], "has `..` in its name"),
        (
            vec![file("f/below", "")],
            "lies below `f`, which is no directory",
        ),
        (
            vec![symlink("x", "y"), symlink("y", "x"), file("x/z", "")],
            "leads through too many symbolic links",
        ),
        (
            vec![file(&format!("d/{}", "n".repeat(256)), "")],
            "more than 255 bytes",
        ),
        (vec![file(&"d/".repeat(2500), "")], "more than 4,095 bytes"),
    ];
    for (upper, why) in cases {
        let world = World::new();
        let error = world
            .build(&[vec![file("f", "")], upper.clone()])
            .unwrap_err();
        let said = chain(&error);
        let digest = world.image(&[upper]).layers[0].digest.to_string();
        for part in ["example:1", &digest, why] {
            assert!(said.contains(part), "no `{part}` in: {said}");
        }
        assert!(!error.hint().is_empty());
    }
}

#[test]
fn a_layer_that_is_not_what_the_image_says_is_refused_and_leaves_nothing() {
    let world = World::new();
    let mut image = world.image(&[vec![file("a", "1")], vec![file("b", "2")]]);
    let right = image.layers[1].diff_id;
    image.layers[1].diff_id = sha256(b"something else");
    let error = build(&image, &world.trees).unwrap_err();
    assert!(
        matches!(error, ImageTreeError::DiffId { number: 2, .. }),
        "{error}"
    );
    assert!(error.to_string().contains(&right.to_string()), "{error}");
    // What is behind the end of the archive counts too.
    let archive = layer_of(&[file("c", "3")]);
    let plain = [archive.clone(), b"trailing bytes".to_vec()].concat();
    let mut image = image_of(vec![world.add_layer(&plain, gzip)]);
    build(&image, &world.trees).unwrap();
    image.layers[0].diff_id = sha256(&archive);
    image.manifest = sha256(b"another manifest");
    assert!(build(&image, &world.trees).is_err());
}

#[test]
fn every_compression_gives_the_same_tree() {
    let world = World::new();
    let plain = layer_of(&[dir("d"), file("d/f", &"content ".repeat(10_000))]);
    let xz = |bytes: &[u8]| {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let layers = [
        world.add_layer(&plain, gzip),
        world.add_layer(&plain, zstd),
        world.add_layer(&plain, xz),
        world.add_layer(&plain, <[u8]>::to_vec),
    ];
    let digests = layers.map(|layer| {
        let image = image_of(vec![layer]);
        // In a store of its own, so that it is unpacked each time.
        let other = World::new();
        let root = build(&image, &other.trees).unwrap();
        assert_eq!(read(&root, "d/f").len(), 80_000);
        let name = image_tree_name(&image.manifest, other.trees.owners());
        other.trees.tree_digest(&name).unwrap()
    });
    assert!(
        digests.iter().all(|digest| *digest == digests[0]),
        "{digests:?}"
    );
}

#[test]
fn links_that_lead_to_and_fro_for_ever_are_given_up() {
    let world = World::new();
    // Each entry goes forty times through a thousand names.
    let there_and_back = format!("{}l", "d/../".repeat(700));
    let mut items = vec![dir("d")];
    items.push(symlink("l", "d"));
    for number in 0..39 {
        let target = there_and_back.replace("l", &format!("l{number}"));
        let next = format!("l{}", number + 1);
        let target = if number == 0 {
            there_and_back.clone()
        } else {
            target
        };
        items.push(symlink(&next, &target));
    }
    items.extend((0..4000).map(|number| file(&format!("l39/{number}"), "")));
    let said = chain(&world.build(&[items]).unwrap_err());
    assert!(said.contains("too many names lie on the ways"), "{said}");
    let long = vec![symlink("long", &"x".repeat(4096))];
    let said = chain(&world.build(&[long]).unwrap_err());
    assert!(
        said.contains("a link to a path of more than 4,095 bytes"),
        "{said}"
    );
}

#[test]
fn the_mark_at_the_end_of_a_layer_may_be_missing() {
    let world = World::new();
    let whole = layer_of(&[file("a", "1"), file("b", "2")]);
    let marked = whole.len() - 1024;
    let image = image_of(vec![world.add_layer(&whole[..marked], gzip)]);
    let root = build(&image, &world.trees).unwrap();
    assert_eq!(read(&root, "b"), "2");
    let cut = image_of(vec![world.add_layer(&whole[..marked - 100], gzip)]);
    let said = chain(&build(&cut, &world.trees).unwrap_err());
    assert!(said.contains("is damaged"), "{said}");
}

#[test]
fn a_blob_that_is_missing_is_named() {
    let world = World::new();
    let image = world.image(&[vec![file("a", "1")]]);
    fs::remove_file(&image.layers[0].blob).unwrap();
    let said = chain(&build(&image, &world.trees).unwrap_err());
    assert!(said.contains(&image.layers[0].digest.to_string()), "{said}");
}

#[test]
fn an_image_without_layers_is_an_empty_root() {
    let world = World::new();
    let root = world.build(&[]).unwrap();
    assert_eq!(fs::read_dir(root).unwrap().count(), 0);
}
