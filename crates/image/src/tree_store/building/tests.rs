#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::tree_store::tests::{World, name_of};
use crate::tree_store::{TreeNote, TreeStore, TreeStoreError};

const MTIME: Timespec = Timespec {
    tv_sec: 1_000_000,
    tv_nsec: 5,
};

const PLAIN: FileAttributes<'static> = FileAttributes {
    mode: 0o640,
    owner: None,
    mtime: MTIME,
    xattrs: &[],
};

/// Builds a tree with the API, and gives its root.
fn build(store: &TreeStore, name: &str, fill: impl FnOnce(&Building, BorrowedFd<'_>)) -> PathBuf {
    let built = store.get_or_build_with(&name_of(name), |building| {
        let root = File::open(building.root()).unwrap();
        fill(building, root.as_fd());
        rustix::fs::futimens(&root, &times(MTIME)).unwrap();
        Ok::<_, TreeStoreError>(TreeNote::default())
    });
    built.unwrap()
}

fn add(building: &Building, root: BorrowedFd<'_>, name: &str, content: &[u8]) -> bool {
    let added = building.add_file(root, name.as_ref(), content, &PLAIN);
    added.unwrap().linked
}

fn stream(building: &Building, root: BorrowedFd<'_>, name: &str, content: &[u8]) -> bool {
    let size = content.len() as u64;
    let mut file = building.new_file(root, name.as_ref(), size).unwrap();
    for piece in content.chunks(7001) {
        file.write_all(piece).unwrap();
    }
    file.finish(&PLAIN).unwrap().linked
}

fn inode(root: &Path, name: &str) -> u64 {
    fs::metadata(root.join(name)).unwrap().ino()
}

#[test]
fn the_second_tree_gets_links_whichever_way_its_files_come() {
    let world = World::new();
    let store = world.open();
    let content = vec![7; 100_000];
    let one = build(&store, "one", |building, root| {
        assert!(!add(building, root, "a", b"small"));
        assert!(!stream(building, root, "b", &content));
        assert!(!add(building, root, "empty", b""));
    });
    let other = build(&store, "other", |building, root| {
        assert!(stream(building, root, "small", b"small"));
        assert!(add(building, root, "large", &content));
        assert!(!add(building, root, "none", b""));
    });
    assert_eq!(inode(&one, "a"), inode(&other, "small"));
    assert_eq!(inode(&one, "b"), inode(&other, "large"));
    assert_ne!(inode(&one, "empty"), inode(&other, "none"));
    let metadata = fs::metadata(other.join("large")).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o640);
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_000_000, 5));
    assert_eq!(fs::read(other.join("large")).unwrap(), content);
    // A tree that was built without the API has the same digest.
    let plain = store.get_or_build(&name_of("plain"), |root| {
        for (name, content) in [("a", &b"small"[..]), ("b", &content), ("empty", b"")] {
            let path = root.join(name);
            fs::write(&path, content).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o640)).unwrap();
            rustix::fs::futimens(&file, &times(MTIME)).unwrap();
        }
        rustix::fs::futimens(File::open(root).unwrap(), &times(MTIME)).unwrap();
        Ok::<_, TreeStoreError>(TreeNote::default())
    });
    assert_eq!(plain.unwrap(), one);
    assert_eq!(store.verify(|_, _| ()).unwrap().findings, []);
}

#[test]
fn equal_files_of_one_tree_stay_several_and_what_gives_way_is_forgotten() {
    let world = World::new();
    let store = world.open();
    let root = build(&store, "one", |building, root| {
        for name in ["a", "b", "c"] {
            assert!(!add(building, root, name, b"same"));
        }
        let taken = building.add_file(root, "a".as_ref(), b"same", &PLAIN);
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        let taken = building.new_file(root, "a".as_ref(), 4);
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        add(building, root, "gone", b"of no use");
        rustix::fs::unlinkat(root, "gone", AtFlags::empty()).unwrap();
        // Begun and not finished, or too short.
        drop(building.new_file(root, "draft".as_ref(), 4).unwrap());
        let short = building.new_file(root, "draft".as_ref(), 4).unwrap();
        let error = short.finish(&PLAIN).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    });
    let inodes: HashSet<u64> = ["a", "b", "c"].map(|name| inode(&root, name)).into();
    assert_eq!(inodes.len(), 3);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 3);
    assert_eq!(store.inventory().unwrap().pool_files, 3);
}

#[test]
fn zeros_become_holes_and_are_the_same_file_as_those_that_were_skipped() {
    let world = World::new();
    let store = world.open();
    let mut content = vec![0; 1 << 20];
    content[5000] = 1;
    let one = build(&store, "one", |building, root| {
        add(building, root, "a", &content);
    });
    let metadata = fs::metadata(one.join("a")).unwrap();
    assert_eq!(metadata.len(), 1 << 20);
    assert!(metadata.blocks() * 512 <= 64 << 10, "{}", metadata.blocks());
    assert_eq!(fs::read(one.join("a")).unwrap(), content);
    let other = build(&store, "other", |building, root| {
        let mut file = building.new_file(root, "b".as_ref(), 1 << 20).unwrap();
        file.skip(5000);
        file.write_all(&[1]).unwrap();
        file.skip((1 << 20) - 5001);
        let too_much = file.write_all(&[1]).unwrap_err();
        assert_eq!(too_much.kind(), io::ErrorKind::FileTooLarge);
        assert!(file.finish(&PLAIN).unwrap().linked);
    });
    assert_eq!(inode(&one, "a"), inode(&other, "b"));
}

#[test]
fn attributes_that_are_refused_are_counted_and_the_rest_is_kept() {
    let world = World::new();
    let store = world.open();
    let xattrs = vec![
        (b"user.kept".to_vec(), b"1".to_vec()),
        (b"nonsense.lost".to_vec(), b"2".to_vec()),
    ];
    let attributes = FileAttributes {
        xattrs: &xattrs,
        ..PLAIN
    };
    let mut roots = Vec::new();
    for name in ["one", "two"] {
        roots.push(build(&store, name, |building, root| {
            let added = building.add_file(root, name.as_ref(), b"x", &attributes);
            let added = added.unwrap();
            assert_eq!(added.lost_xattrs, 1);
            assert_eq!(added.linked, name == "two");
            let mut file = building.new_file(root, "b".as_ref(), 1).unwrap();
            file.write_all(b"y").unwrap();
            assert_eq!(file.finish(&attributes).unwrap().lost_xattrs, 1);
        }));
    }
    assert_eq!(inode(&roots[0], "one"), inode(&roots[1], "two"));
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(roots[1].join("two"), "user.kept", &mut value[..]);
    assert_eq!(value[..length.unwrap()], *b"1");
    assert_eq!(store.verify(|_, _| ()).unwrap().findings, []);
}

#[test]
fn files_of_other_trees_are_linked_with_the_links_that_they_have_there() {
    let world = World::new();
    let store = world.open();
    build(&store, "lower", |building, root| {
        add(building, root, "a", b"same");
        let flags = AtFlags::empty();
        rustix::fs::linkat(root, "a", root, "a-again", flags).unwrap();
        add(building, root, "c", b"other");
    });
    build(&store, "upper", |building, root| {
        add(building, root, "b", b"same");
    });
    let open = |name: &str| store.source(&name_of(name)).unwrap().unwrap();
    let (lower, upper) = (open("lower"), open("upper"));
    assert!(lower.has_file(b"a-again") && !lower.has_file(b"b"));
    // The two are one inode in the pool.
    assert_eq!(inode(lower.root(), "a"), inode(upper.root(), "b"));
    let merged = build(&store, "merged", |building, root| {
        let link = |name: &str, source: &SourceTree, path: &str| {
            building.add_link(root, name.as_ref(), source, path.as_bytes())
        };
        assert!(link("a", &lower, "a").unwrap().linked);
        assert!(link("a-again", &lower, "a-again").unwrap().linked);
        link("b", &upper, "b").unwrap();
        // Files of both kinds are told apart in one tree.
        add(building, root, "d", b"same");
        assert!(link("c", &lower, "c").unwrap().linked);
        let taken = link("c", &lower, "a").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        let missing = link("x", &lower, "x").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    });
    assert_eq!(inode(&merged, "a"), inode(lower.root(), "a"));
    assert_eq!(inode(&merged, "a"), inode(&merged, "a-again"));
    let inodes: HashSet<u64> = ["a", "b", "d"].map(|name| inode(&merged, name)).into();
    assert_eq!(inodes.len(), 3);
    assert_eq!(store.verify(|_, _| ()).unwrap().findings, []);
}

#[test]
fn several_threads_and_several_builders_add_at_once() {
    let world = World::new();
    let contents: Vec<Vec<u8>> = (0..200_u32)
        .map(|number| number.to_le_bytes().repeat(1 + number as usize))
        .collect();
    std::thread::scope(|scope| {
        for builder in ["one", "two"] {
            let (world, contents) = (&world, &contents);
            scope.spawn(move || {
                let store = world.open();
                build(&store, builder, |building, root| {
                    std::thread::scope(|scope| {
                        for part in 0..3 {
                            scope.spawn(move || {
                                for (number, content) in contents.iter().enumerate() {
                                    if number % 3 == part {
                                        let name = format!("{builder}-{number}");
                                        add(building, root, &name, content);
                                    }
                                }
                            });
                        }
                    });
                });
            });
        }
    });
    let store = world.open();
    let roots = ["one", "two"].map(|name| store.find(&name_of(name)).unwrap());
    for number in 0..contents.len() {
        let [one, two] = ["one", "two"].map(|name| format!("{name}-{number}"));
        assert_eq!(inode(&roots[0], &one), inode(&roots[1], &two));
    }
    assert_eq!(store.inventory().unwrap().pool_files, 200);
    assert_eq!(store.verify(|_, _| ()).unwrap().findings, []);
}
