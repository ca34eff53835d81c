//! Damage is seen, told and mended.

use super::*;

const LIST: &[(&str, &str)] = &[("a", "one"), ("d/b", "two"), ("d/c", "three")];

type Damage = (&'static str, &'static str, fn(&Path));

/// Where damage is done, what is said of it, and how it is done.
const DAMAGES: &[Damage] = &[
    ("a", "its content is another one", |path| {
        let before = fs::metadata(path).unwrap().modified().unwrap();
        fs::write(path, "ono").unwrap();
        File::open(path).unwrap().set_modified(before).unwrap();
    }),
    ("a", "it has 7 bytes instead of 3", |path| {
        fs::write(path, "another").unwrap();
    }),
    ("d/b", "it is missing", |path| {
        let above = path.parent().unwrap();
        let before = fs::metadata(above).unwrap().modified().unwrap();
        fs::remove_file(path).unwrap();
        File::open(above).unwrap().set_modified(before).unwrap();
    }),
    ("d/b", "its mode is 0600 instead of 0644", |path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }),
    ("d", "its time of modification is another one", |path| {
        File::open(path)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
    }),
    ("d/new", "it does not belong to the tree", |path| {
        let above = path.parent().unwrap();
        let before = fs::metadata(above).unwrap().modified().unwrap();
        fs::write(path, "new").unwrap();
        File::open(above).unwrap().set_modified(before).unwrap();
    }),
];

fn build(store: &TreeStore, name: &Digest) -> PathBuf {
    store
        .get_or_build(name, |root| {
            let note = files(LIST)(root)?;
            for path in ["a", "d/b", "d/c"] {
                let mode = fs::Permissions::from_mode(0o644);
                fs::set_permissions(root.join(path), mode).unwrap();
            }
            Ok::<_, TreeStoreError>(note)
        })
        .unwrap()
}

#[test]
fn damage_is_found_put_aside_and_the_tree_is_built_anew() {
    for (path, what, damage) in DAMAGES {
        let world = World::new();
        let name = name_of("tree");
        let store = world.open();
        let root = build(&store, &name);
        let clean = store.verify(|_, _| ()).unwrap();
        assert_eq!(clean.findings, []);
        assert_eq!((clean.trees, clean.files, clean.bytes), (1, 3, 11));
        damage(&root.join(path));
        let verified = store.verify(|_, _| ()).unwrap();
        let found: Vec<_> = verified
            .findings
            .iter()
            .map(|finding| (finding.path.as_deref().unwrap(), &*finding.what))
            .collect();
        assert_eq!(found, [(*path, *what)]);
        assert_eq!(verified.findings[0].from, "a test");
        // The process that uses it finds it no more either.
        assert_eq!(store.find(&name), None);
        let again = build(&store, &name);
        assert_eq!(again, root);
        assert_eq!(fs::read(again.join("a")).unwrap(), b"one", "{what}");
        assert_eq!(store.verify(|_, _| ()).unwrap().findings, []);
        assert!(store.inventory().unwrap().damaged_bytes > 0);
        store.prune(&PruneWish::default()).unwrap();
        assert_eq!(count(store.layout.damaged()), 0);
    }
}

#[test]
fn a_damaged_file_is_told_of_every_tree_that_has_it() {
    let world = World::new();
    let store = world.open();
    let one = store.get_or_build(&name_of("1"), files(&[("a", "one"), ("x", "1")]));
    store
        .get_or_build(&name_of("2"), files(&[("b", "one"), ("x", "2")]))
        .unwrap();
    store
        .get_or_build(&name_of("3"), files(&[("c", "other")]))
        .unwrap();
    fs::write(one.unwrap().join("a"), "ONE").unwrap();
    let verified = store.verify(|_, _| ()).unwrap();
    let mut paths: Vec<_> = verified
        .findings
        .iter()
        .flat_map(|f| f.path.clone())
        .collect();
    paths.sort();
    assert_eq!(paths, ["a", "b"]);
    assert_eq!(store.inventory().unwrap().trees.len(), 1);
    // Nobody gets it any more.
    let root = store
        .get_or_build(&name_of("4"), files(&[("d", "one")]))
        .unwrap();
    assert_eq!(fs::read(root.join("d")).unwrap(), b"one");
}

#[test]
fn a_damaged_list_is_damage_of_its_tree() {
    let world = World::new();
    let store = world.open();
    let root = build(&store, &name_of("tree"));
    let list = root.parent().unwrap().join(LIST_FILE);
    let text = fs::read_to_string(&list).unwrap();
    fs::write(&list, text.replace("0644", "0645")).unwrap();
    let verified = store.verify(|_, _| ()).unwrap();
    assert_eq!(verified.findings[0].path, None);
    assert_eq!(store.find(&name_of("tree")), None);
}

const LIST_FILE: &str = super::LIST;

#[test]
fn a_wrong_size_or_time_is_seen_when_a_process_begins_to_use_the_tree() {
    for (path, _, damage) in DAMAGES.iter().filter(|(path, what, _)| {
        // What only reading shows is not seen at a glance, and neither is what is not in the list.
        !what.contains("content") && *path != "d/new"
    }) {
        let world = World::new();
        let name = name_of("tree");
        let root = build(&world.open(), &name);
        damage(&root.join(path));
        // A glance at a short list begins anywhere in it.
        let seen = (0..200).any(|try_number: u32| {
            let store = world.open();
            let id = store.resolve(&name);
            if store.published(&id).is_none() {
                return true;
            }
            let lock = File::options()
                .write(true)
                .open(store.layout.lock(&id))
                .unwrap();
            let time = Duration::new(1_000_000, try_number * 13_000);
            lock.set_modified(std::time::UNIX_EPOCH + time).unwrap();
            store.find(&name).is_none()
        });
        assert!(seen, "{path}");
        let again = build(&world.open(), &name);
        assert_eq!(fs::read(again.join("a")).unwrap(), b"one");
    }
}

#[test]
fn after_a_crash_of_the_machine_a_tree_is_read_before_it_is_used() {
    for is_damaged in [false, true] {
        let world = World::new();
        let name = name_of("tree");
        let root = build(&world.open(), &name);
        let mark = root.parent().unwrap().join(FRESH);
        assert!(mark.exists());
        fs::write(&mark, "another boot").unwrap();
        if is_damaged {
            // As a file system does that has the name and not the bytes.
            let file = File::options().write(true).open(root.join("d/c")).unwrap();
            let before = file.metadata().unwrap().modified().unwrap();
            file.set_len(0).unwrap();
            file.set_modified(before).unwrap();
        }
        assert_eq!(
            world.open().inventory().unwrap().trees[0].state,
            TreeState::Unchecked
        );
        // Another tree does not get its files before they were read.
        let other = world
            .open()
            .get_or_build(&name_of("other"), files(&[("c", "three")]));
        assert_eq!(fs::read(other.unwrap().join("c")).unwrap(), b"three");
        let found = world.open().find(&name);
        assert_eq!(found.is_none(), is_damaged);
        assert!(!mark.exists());
        let again = build(&world.open(), &name);
        assert_eq!(fs::read(again.join("d/c")).unwrap(), b"three");
    }
}

#[test]
fn a_sync_takes_the_marks_off() {
    let world = World::new();
    let store = world.open();
    let root = build(&store, &name_of("tree"));
    store.prune(&PruneWish::default()).unwrap();
    assert!(!root.parent().unwrap().join(FRESH).exists());
    assert_eq!(store.inventory().unwrap().trees[0].state, TreeState::Ready);
}

#[test]
fn a_tree_that_goes_while_it_is_read_is_not_damaged() {
    let world = World::new();
    let name = name_of("tree");
    let contents: Vec<(String, String)> = (0..200)
        .map(|number| (format!("d{}/f{number}", number % 9), number.to_string()))
        .collect();
    let list: Vec<(&str, &str)> = contents
        .iter()
        .map(|(path, content)| (&**path, &**content))
        .collect();
    thread::scope(|scope| {
        let coming_and_going = scope.spawn(|| {
            for _ in 0..30 {
                let store = world.open();
                store.get_or_build(&name, files(&list)).unwrap();
                drop(store);
                // It stays if it is just being read.
                world.open().remove(&name).unwrap();
            }
        });
        while !coming_and_going.is_finished() {
            let verified = world.open().verify(|_, _| ()).unwrap();
            assert_eq!(verified.findings, []);
            assert_eq!(verified.failures, [""; 0]);
        }
    });
}

#[test]
fn a_list_that_was_cut_to_nothing_is_seen_when_the_tree_is_used() {
    let world = World::new();
    let name = name_of("tree");
    let root = build(&world.open(), &name);
    fs::write(root.parent().unwrap().join(LIST_FILE), "").unwrap();
    assert_eq!(world.open().find(&name), None);
    let again = build(&world.open(), &name);
    assert_eq!(fs::read(again.join("a")).unwrap(), b"one");
}

#[test]
fn owners_are_not_compared_where_they_were_seen_from_elsewhere() {
    let world = World::new();
    let name = name_of("tree");
    // Built outside the user namespace, and checked inside, where the same file has other ids.
    build(&world.open().with_owners(ArchiveOwners::Lost), &name);
    let inside = world.open().with_owners(ArchiveOwners::SubIds);
    assert!(!inside.sees_owners(ArchiveOwners::Lost));
    assert!(!inside.sees_owners(ArchiveOwners::SubIds));
    assert_eq!(inside.verify(|_, _| ()).unwrap().findings, []);
}
