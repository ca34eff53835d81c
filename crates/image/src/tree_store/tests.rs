#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tidemill_core::ByteSize;

use super::fault::fail_at;
use super::layout::FRESH;
use super::removal::UNUSED_KEPT_SECONDS;
use super::*;

mod model;
mod wholeness;

pub(super) struct World {
    base: tempfile::TempDir,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            base: tempfile::tempdir().unwrap(),
        }
    }

    /// The store as another process has it.
    pub(super) fn open(&self) -> TreeStore {
        TreeStore::open(self.base.path().join("trees")).unwrap()
    }
}

pub(super) fn name_of(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

/// Gives everything below a directory a time that does not depend on when the test runs.
pub(super) fn set_times(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            set_times(&entry.path());
        } else if entry.file_type().unwrap().is_file() {
            set_time(&entry.path());
        }
    }
    set_time(directory);
}

fn set_time(path: &Path) {
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// A builder of these files.
pub(super) fn files<'a>(
    files: &'a [(&'a str, &'a str)],
) -> impl Fn(&Path) -> Result<TreeNote, TreeStoreError> + 'a {
    move |root| {
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        set_times(root);
        Ok(TreeNote {
            from: "a test".to_owned(),
            entries: files.len() as u64,
            bytes: files.iter().map(|(_, content)| content.len() as u64).sum(),
            lacks: Vec::new(),
        })
    }
}

fn fill(root: &Path) -> Result<TreeNote, TreeStoreError> {
    files(&[("file", "content")])(root)
}

fn inode(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn count(directory: PathBuf) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn many_who_ask_at_once_build_once() {
    let world = World::new();
    let name = name_of("tree");
    let (barrier, built) = (Barrier::new(8), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let store = world.open();
                barrier.wait();
                let root = store.get_or_build(&name, |root| {
                    built.fetch_add(1, Ordering::Relaxed);
                    fill(root)
                });
                assert_eq!(fs::read(root.unwrap().join("file")).unwrap(), b"content");
            });
        }
    });
    assert_eq!(built.into_inner(), 1);
    assert_eq!(world.open().note(&name).unwrap().from, "a test");
}

#[test]
fn a_failed_build_leaves_nothing_and_is_tried_again() {
    let world = World::new();
    let store = world.open();
    let name = name_of("tree");
    let failing = store.get_or_build(&name, |root| {
        fill(root)?;
        Err(failed("write", root)(io::ErrorKind::StorageFull.into()))
    });
    let error = failing.unwrap_err();
    assert!(error.to_string().starts_with("failed to write"), "{error}");
    assert_eq!(store.find(&name), None);
    assert_eq!(count(store.layout.building()), 0);
    let root = store.get_or_build(&name, fill).unwrap();
    assert!(root.join("file").exists());
}

#[test]
fn a_tree_is_named_by_all_that_is_in_it() {
    let world = World::new();
    let store = world.open();
    let build = |name: &str, list: &[(&str, &str)]| {
        store.get_or_build(&name_of(name), files(list)).unwrap()
    };
    let one = build("one", &[("a", "x"), ("d/b", "y")]);
    let same = build("same", &[("a", "x"), ("d/b", "y")]);
    let other = build("other", &[("a", "x"), ("d/b", "z")]);
    assert_eq!(one, same);
    assert_ne!(one, other);
    assert_eq!(count(store.layout.ready()), 2);
    let digest = store.tree_digest(&name_of("one")).unwrap();
    assert!(one.parent().unwrap().ends_with(digest.to_hex()));
    assert_eq!(store.tree_digest(&name_of("none")), None);
    // What both have is there once, and only once in each.
    assert_eq!(inode(one.join("a")), inode(other.join("a")));
    assert_ne!(inode(one.join("d/b")), inode(other.join("d/b")));
    let twice = build("twice", &[("a", "x"), ("b", "x")]);
    assert_ne!(inode(twice.join("a")), inode(twice.join("b")));
    assert_eq!(inode(twice.join("a")), inode(one.join("a")));
    let again = build("again", &[("c", "x"), ("e", "x"), ("f", "1")]);
    assert_eq!(inode(twice.join("a")), inode(again.join("c")));
    assert_eq!(inode(twice.join("b")), inode(again.join("e")));
}

#[test]
fn links_modes_and_times_are_part_of_it() {
    let world = World::new();
    let store = world.open();
    let mut digests = Vec::new();
    for change in 0..7 {
        let name = name_of(&change.to_string());
        let root = store.get_or_build(&name, |root| {
            let note = files(&[("a", "x"), ("b", "x"), ("d/c", "y")])(root)?;
            match change {
                1 => fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o755)),
                2 => fs::remove_file(root.join("b"))
                    .and_then(|()| fs::hard_link(root.join("a"), root.join("b"))),
                3 => symlink("a", root.join("l")),
                4 => symlink("b", root.join("l")),
                5 => fs::set_permissions(root.join("d"), fs::Permissions::from_mode(0o700)),
                6 => File::open(root.join("a"))
                    .and_then(|file| file.set_modified(std::time::UNIX_EPOCH)),
                _ => Ok(()),
            }
            .unwrap();
            set_time(root);
            Ok::<_, TreeStoreError>(note)
        });
        let root = root.unwrap();
        assert_eq!(inode(root.join("a")) == inode(root.join("b")), change == 2);
        digests.push(store.tree_digest(&name).unwrap());
    }
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), 7);
}

#[test]
fn what_a_killed_builder_left_is_no_tree() {
    let world = World::new();
    let store = world.open();
    let name = name_of("tree");
    let left = store.layout.under_way(&name).join(ROOT);
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("half"), "x").unwrap();
    assert_eq!(store.find(&name), None);
    let root = store.get_or_build(&name, fill).unwrap();
    assert!(!root.join("half").exists());
}

#[test]
fn a_tree_that_is_used_is_not_removed() {
    let world = World::new();
    let name = name_of("tree");
    let store = world.open();
    store.get_or_build(&name, fill).unwrap();
    // Another process uses it too, and goes on when the builder has gone.
    let user = world.open();
    let root = user.find(&name).unwrap();
    assert!(!user.remove(&name).unwrap());
    drop(store);
    let other = world.open();
    assert!(!other.remove(&name).unwrap());
    let all = PruneWish {
        floor: ByteSize(0),
        max: Some(ByteSize(0)),
        used_before: Some(i64::MAX),
        is_trial: false,
    };
    assert_eq!(other.prune(&all).unwrap().trees, []);
    assert!(root.join("file").exists());
    assert!(other.inventory().unwrap().trees[0].in_use);
    drop(user);
    assert!(other.remove(&name).unwrap());
    assert_eq!(other.find(&name), None);
    assert!(!root.exists());
    for directory in [
        other.layout.names(),
        other.layout.locks(),
        other.layout.building(),
    ] {
        assert_eq!(count(directory), 0);
    }
    assert_eq!(
        other.inventory().unwrap(),
        Inventory {
            total_bytes: other.inventory().unwrap().total_bytes,
            ..Inventory::default()
        }
    );
    // That it is gone is no error.
    assert!(world.open().remove(&name).unwrap());
}

fn age(store: &TreeStore, name: &Digest, seconds: i64) {
    let lock = File::options()
        .write(true)
        .open(store.layout.lock(&store.resolve(name)))
        .unwrap();
    let then = lock.metadata().unwrap().modified().unwrap();
    let then = then - Duration::from_secs(seconds.unsigned_abs());
    lock.set_modified(then).unwrap();
}

#[test]
fn what_nobody_used_for_long_goes_when_another_tree_is_built() {
    let world = World::new();
    let names = ["old", "young", "used", "new"].map(name_of);
    let [old, young, used, new] = &names;
    let build = |store: &TreeStore, name: &Digest| {
        let content = name.to_hex();
        store
            .get_or_build(name, files(&[("file", &content)]))
            .unwrap();
    };
    let there =
        |store: &TreeStore| names.map(|name| store.published(&store.resolve(&name)).is_some());
    let builder = world.open();
    for name in [old, young, used] {
        build(&builder, name);
    }
    let long = UNUSED_KEPT_SECONDS;
    let user = world.open();
    assert!(user.find(used).is_some());
    for (name, seconds) in [(old, long + 60), (young, long - 60), (used, long + 60)] {
        age(&builder, name, seconds);
    }
    drop(builder);
    let builder = world.open();
    build(&builder, new);
    assert_eq!(there(&builder), [false, true, true, true]);
    // Being asked for is being used.
    for name in [young, used, new] {
        age(&builder, name, long + 60);
    }
    let asking = world.open();
    assert!(asking.find(young).is_some());
    drop((asking, user, builder));
    let builder = world.open();
    build(&builder, old);
    assert_eq!(there(&builder), [true, true, false, false]);
}

#[test]
fn what_dead_builders_left_goes_when_the_store_is_opened() {
    let world = World::new();
    let store = world.open();
    let (dead, alive) = (name_of("dead"), name_of("alive"));
    for name in [&dead, &alive] {
        let left = store.layout.under_way(name).join("root/deep");
        fs::create_dir_all(&left).unwrap();
        fs::write(left.join("half"), "x").unwrap();
        // It had come as far as the pool.
        let pool = Pool::open(&store.layout.files()).unwrap();
        let left = File::open(left).unwrap();
        use std::os::fd::AsFd;
        assert!(pool.add(name, left.as_fd(), "half".as_ref()).unwrap());
    }
    let held = tree_use::lock(&store.layout.lock(&alive), Wanted::Alone).unwrap();
    let opened = world.open();
    let left: Vec<_> = fs::read_dir(opened.layout.building())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, [alive.to_hex()]);
    assert_eq!(opened.inventory().unwrap().pool_files, 1);
    drop(held);
}

#[test]
fn the_bound_keeps_what_was_used_last() {
    let world = World::new();
    let big = "x".repeat(200_000);
    let names: Vec<Digest> = (0..6).map(|number| name_of(&number.to_string())).collect();
    let bounded = || {
        world.open().with_bounds(CacheBounds {
            max: Some(ByteSize(1_200_000)),
            floor: ByteSize(0),
        })
    };
    for (number, name) in names.iter().enumerate() {
        let store = bounded();
        // A part that all have, and a part of its own.
        let own = format!("{number}{big}");
        store
            .get_or_build(name, files(&[("shared", &big), ("own", &own)]))
            .unwrap();
        age(&store, name, 100 - i64::try_from(number).unwrap());
    }
    let there = |store: &TreeStore| -> Vec<bool> {
        let is_there = |name: &Digest| store.published(&store.resolve(name)).is_some();
        names.iter().map(is_there).collect()
    };
    // One shared file and five of their own would be too much; up to the slack four are not.
    assert_eq!(there(&bounded()), [false, false, true, true, true, true]);
    let sum = bounded().usage().unwrap();
    let inventory = bounded().inventory().unwrap();
    assert!(sum <= 1_200_000, "{sum}");
    assert!(
        sum.abs_diff(inventory.total_bytes) < 100_000,
        "{sum} {inventory:#?}"
    );
    assert_eq!(inventory.trees[0].names, [names[5]]);
    assert!(inventory.trees[0].disk_bytes >= 400_000);
    assert!(inventory.trees[0].own_bytes < 300_000);
    // The floor wins over the bound.
    let floored = world.open().with_bounds(CacheBounds {
        max: Some(ByteSize(1)),
        floor: ByteSize(650_000),
    });
    floored.get_or_build(&name_of("last"), fill).unwrap();
    assert_eq!(there(&floored), [false, false, false, true, true, true]);
}

#[test]
fn pruning_removes_what_is_of_no_use_and_what_is_asked_for() {
    let world = World::new();
    let [one, two] = ["one", "two"].map(name_of);
    let builder = world.open();
    builder
        .get_or_build(&one, files(&[("a", "1"), ("s", "x")]))
        .unwrap();
    builder
        .get_or_build(&two, files(&[("a", "2"), ("s", "x")]))
        .unwrap();
    age(&builder, &one, 1000);
    let used_at = tree_use::used_at(&builder.layout.lock(&builder.resolve(&two))).unwrap();
    drop(builder);
    let store = world.open();
    // A lock, half a name and a file in the pool that belong to nothing, and a damaged tree.
    fs::write(store.layout.lock(&name_of("nothing")), "").unwrap();
    symlink(
        "nowhere",
        store
            .layout
            .names()
            .join(format!("new-{}", name_of("half").to_hex())),
    )
    .unwrap();
    fs::create_dir_all(store.layout.files().join("ab")).unwrap();
    fs::write(store.layout.files().join("ab").join("0".repeat(62)), "x").unwrap();
    fs::create_dir_all(store.layout.damaged().join("tree/root")).unwrap();
    let nothing = store.prune(&PruneWish::default()).unwrap();
    assert_eq!(nothing.trees, []);
    assert_eq!(nothing.failures, [""; 0]);
    assert!(nothing.freed_bytes > 0);
    assert_eq!(count(store.layout.damaged()), 0);
    assert_eq!(count(store.layout.names()), 2);
    let inventory = store.inventory().unwrap();
    assert_eq!((inventory.pool_files, inventory.unused_bytes), (3, 0));
    let old = store
        .prune(&PruneWish {
            floor: ByteSize(0),
            used_before: Some(used_at),
            max: None,
            is_trial: false,
        })
        .unwrap();
    assert_eq!(old.trees.len(), 1);
    assert_eq!(old.trees[0].from, "a test");
    assert!(store.find(&one).is_none());
    let left = store.inventory().unwrap();
    assert_eq!((left.trees.len(), left.pool_files), (1, 2));
    let all = PruneWish {
        floor: ByteSize(0),
        max: Some(ByteSize(0)),
        used_before: None,
        is_trial: false,
    };
    assert_eq!(store.prune(&all).unwrap().trees.len(), 1);
    assert_eq!(store.inventory().unwrap().pool_files, 0);
    assert_eq!(count(store.layout.locks()) + count(store.layout.names()), 0);
}

#[test]
fn a_state_directory_of_an_older_version_is_used_as_it_is() {
    let world = World::new();
    let name = name_of("old");
    let base = world.base.path().join("trees");
    let place = base.join("ready").join(name.to_hex());
    fs::create_dir_all(place.join("root")).unwrap();
    fs::write(place.join("root/file"), "old content").unwrap();
    let note = r#"{"from":"old","entries":1,"bytes":11,"lacks":["its youth"]}"#;
    fs::write(place.join("tree.json"), note).unwrap();
    let store = world.open();
    let build = |_: &Path| -> Result<TreeNote, TreeStoreError> { panic!("it is there") };
    let root = store.get_or_build(&name, build).unwrap();
    assert_eq!(root, place.canonicalize().unwrap().join("root"));
    assert_eq!(store.note(&name).unwrap().lacks, ["its youth"]);
    assert_eq!(store.tree_digest(&name), None);
    assert!(store.source(&name).unwrap().is_none());
    let entry = store.inventory().unwrap().trees.remove(0);
    assert_eq!((entry.state, &*entry.from), (TreeState::Unlisted, "old"));
    assert!(entry.in_use && entry.own_bytes > 0);
    let verified = world.open().verify(|_, _| ()).unwrap();
    assert_eq!((verified.unlisted, verified.trees), (vec![name], 0));
    assert!(!world.open().remove(&name).unwrap());
    drop(store);
    assert!(world.open().remove(&name).unwrap());
    assert!(!root.exists());
    let root = world.open().get_or_build(&name, fill).unwrap();
    assert!(root.join("file").exists());
}

/// What can be seen of a tree from outside.
fn content_of(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        found.insert(path.clone(), fs::read(&path).unwrap());
    }
    found
}

#[test]
fn whatever_step_fails_no_torn_tree_is_found_and_the_next_build_works() {
    let mut steps = 0;
    loop {
        let world = World::new();
        let name = name_of("tree");
        let store = world.open();
        store
            .get_or_build(&name_of("other"), files(&[("file", "content"), ("x", "y")]))
            .unwrap();
        let (built, is_failed) = fail_at(steps, || store.get_or_build(&name, fill));
        assert_eq!(built.is_err(), is_failed, "step {steps}");
        if !is_failed {
            break;
        }
        for store in [store, world.open()] {
            if let Some(root) = store.find(&name) {
                assert_eq!(content_of(&root).len(), 1, "step {steps}");
            }
            assert_eq!(count(store.layout.building()), 0, "step {steps}");
            let verified = store.verify(|_, _| ()).unwrap();
            assert_eq!(verified.findings, [], "step {steps}");
        }
        let root = world.open().get_or_build(&name, fill).unwrap();
        assert_eq!(fs::read(root.join("file")).unwrap(), b"content");
        world.open().prune(&PruneWish::default()).unwrap();
        let inventory = world.open().inventory().unwrap();
        assert_eq!((inventory.trees.len(), inventory.unused_bytes), (2, 0));
        steps += 1;
    }
    assert!(steps >= 7, "{steps}");
}

#[test]
fn whatever_step_of_a_removal_fails_it_can_be_done_again() {
    let mut steps = 0;
    loop {
        let world = World::new();
        let name = name_of("tree");
        world.open().get_or_build(&name, fill).unwrap();
        let (removed, is_failed) = fail_at(steps, || world.open().remove(&name));
        assert_eq!(removed.is_err(), is_failed, "step {steps}");
        if !is_failed {
            break;
        }
        if let Some(root) = world.open().find(&name) {
            assert_eq!(content_of(&root).len(), 1, "step {steps}");
        }
        assert!(world.open().remove(&name).unwrap());
        assert_eq!(count(world.open().layout.building()), 0);
        assert_eq!(world.open().inventory().unwrap().trees, []);
        steps += 1;
    }
    assert!(steps >= 2, "{steps}");
}
