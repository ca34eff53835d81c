//! A record of executions that is not what Tidemill wrote: told, and never written over.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use tidemill_tests::{Mode, World};

/// Every file below a directory with its bytes, but those that SQLite makes to look at a database.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let is_shared_memory = path.extension().is_some_and(|name| name == "db-shm");
            if path.is_dir() {
                todo.push(path);
            } else if !is_shared_memory {
                let bytes = fs::read(&path).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_short_file_in_its_place_is_told_and_kept(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let kept = world.job("echo kept").run();
    assert_eq!(kept.code, 0, "{kept}");
    let id = kept.record().id().to_owned();
    let database = world.state().join("tidemill.db");
    let whole = fs::read(&database).unwrap();
    let garbage = ["x", "\n", "one short line of garbage\n"].map(str::as_bytes);
    let cut = [&whole[..16], &whole[..300]];
    for content in garbage.into_iter().chain(cut) {
        fs::write(&database, content).unwrap();
        let before = files(&world.state());
        let done = world.bare_run(["--", "echo", "ran"]).run();
        assert_eq!((done.code, done.out().as_str()), (125, ""), "{done}");
        assert!(done.err().contains(database.to_str().unwrap()), "{done}");
        for command in [&["ps"][..], &["show", &id], &["logs", &id]] {
            let asked = world.call(command);
            assert_eq!((asked.code, asked.out().as_str()), (125, ""), "{asked}");
            assert!(asked.err().contains("tidemill.db"), "{asked}");
        }
        assert!(files(&world.state()) == before, "something changed");
    }
    // Whoever has a copy of the record has everything back.
    fs::write(&database, &whole).unwrap();
    assert_eq!(world.raw_log(&id), b"kept\n");
    assert_eq!(world.list(&[]).len(), 1);
}
