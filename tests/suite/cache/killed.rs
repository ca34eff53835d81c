//! Killed at any moment: no torn tree.

use std::fs;
use std::path::Path;

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, PATIENCE, TarEntry, World, until};

use super::{archive, assert_nothing_half, cache, run};

/// Files of the archive: enough to be killed between them.
const FILES: usize = 600;

/// Entries below a directory, up to so many: as far as this user sees.
fn count(directory: &Path, max: usize) -> usize {
    let mut found = 0;
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            found += 1;
            if found >= max {
                return found;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
    found
}

/// A moment: so many entries are there, in one of the store's directories.
fn is_reached(world: &World, moment: usize) -> bool {
    let trees = world.state().join("trees");
    match moment % 10 {
        0 => count(&trees.join("building"), 1) >= 1,
        1..=6 => {
            let wanted = 1 + moment * FILES / 30;
            count(&trees.join("files"), wanted) >= wanted
        }
        7 => fs::read_dir(trees.join("building"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.path().join("list").exists()),
        8 => count(&trees.join("ready"), 1) >= 1,
        _ => count(&trees.join("names"), 1) >= 1,
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_build_that_is_killed_at_any_moment_leaves_a_whole_store(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let files: Vec<TarEntry> = (0..FILES)
        .map(|number| {
            let content = number.to_le_bytes().repeat(1 + number % 200);
            TarEntry::file(&format!("d{}/file-{number}", number % 7), content)
        })
        .collect();
    let layer = archive(&world, "archive", &files);
    let expected = {
        let sum = "cd /taken; find . -type f | sort | xargs cat | cksum";
        run(&world, &layer, sum).out()
    };
    for moment in 0..30 {
        cache(&world, &["prune", "--all"]);
        let mut building = world
            .command(["explain", "--no-workspace", "--layer", &layer, "--", "true"])
            .start();
        until("the moment has come", PATIENCE, || {
            (is_reached(&world, moment) || !building.is_running()).then_some(())
        });
        if building.is_running() {
            building.signal(Signal::KILL);
        }
        building.wait();
        let verified = cache(&world, &["verify"]);
        assert_eq!(
            verified["findings"].as_array().unwrap().len(),
            0,
            "{verified}"
        );
        assert_eq!(
            verified["failures"].as_array().unwrap().len(),
            0,
            "{verified}"
        );
        if moment % 5 == 0 {
            let sum = "cd /taken; find . -type f | sort | xargs cat | cksum";
            assert_eq!(run(&world, &layer, sum).out(), expected, "moment {moment}");
        }
    }
    cache(&world, &["prune", "--all"]);
    assert_nothing_half(&world);
    let du = cache(&world, &["du"]);
    assert_eq!(du["trees"]["shared_files"], 0, "{du}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_removal_that_is_killed_is_taken_up_by_the_next(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let files: Vec<TarEntry> = (0..FILES)
        .map(|number| TarEntry::file(&format!("file-{number}"), number.to_string()))
        .collect();
    let layer = archive(&world, "archive", &files);
    for moment in 0..8 {
        run(&world, &layer, "true");
        let mut removing = world.command(["cache", "prune", "--all"]).start();
        let trees = world.state().join("trees");
        until("the moment has come", PATIENCE, || {
            let left = count(&trees.join("files"), FILES);
            let is_far = left < FILES - moment * FILES / 8;
            (is_far || !removing.is_running()).then_some(())
        });
        if removing.is_running() {
            removing.signal(Signal::KILL);
        }
        removing.wait();
        let verified = cache(&world, &["verify"]);
        assert_eq!(
            verified["findings"].as_array().unwrap().len(),
            0,
            "{verified}"
        );
    }
    assert_eq!(run(&world, &layer, "cat /taken/file-77").out(), "77");
    cache(&world, &["prune", "--all"]);
    assert_nothing_half(&world);
    assert_eq!(cache(&world, &["du"])["trees"]["shared_files"], 0);
}

/// An archive of many files that no other archive has.
fn many(world: &World, name: &str) -> String {
    let files: Vec<TarEntry> = (0..FILES)
        .map(|number| TarEntry::file(&format!("d/file-{number}"), format!("{name} {number}")))
        .collect();
    archive(world, name, &files)
}

/// Each build has another tree make room for it, and is killed while that happens.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_build_that_is_killed_while_it_makes_room_leaves_a_whole_store(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layers = ["one", "two"].map(|name| many(&world, name));
    run(&world, &layers[1], "true");
    let trees = world.state().join("trees");
    let entries = |name: &str| fs::read_dir(trees.join(name)).into_iter().flatten().count();
    for moment in 0..12 {
        let layer = &layers[moment % 2];
        let mut building = world
            .command(["explain", "--no-workspace", "--cache-size", "3MiB"])
            .args(["--layer", layer, "--", "true"])
            .start();
        until("the moment has come", PATIENCE, || {
            let is_reached = match moment % 6 {
                0 => entries("ready") >= 2,
                1 => entries("names") >= 2,
                // One was published and has its name, and the other goes.
                2 => entries("names") >= 2 && entries("building") >= 1,
                part => {
                    let left = count(&trees.join("files"), 2 * FILES);
                    entries("names") >= 2 && left < 2 * FILES - (part - 3) * FILES / 4
                }
            };
            (is_reached || !building.is_running()).then_some(())
        });
        if building.is_running() {
            building.signal(Signal::KILL);
        }
        building.wait();
        let verified = cache(&world, &["verify"]);
        assert_eq!(verified["whole"], true, "moment {moment}: {verified}");
        let line = "cat /taken/d/file-599";
        let name = ["one", "two"][moment % 2];
        assert_eq!(
            run(&world, layer, line).out(),
            format!("{name} 599"),
            "moment {moment}"
        );
        cache(&world, &["prune", "--max", "3MiB"]);
    }
    cache(&world, &["prune", "--all"]);
    assert_nothing_half(&world);
    let du = cache(&world, &["du"]);
    assert_eq!(
        (&du["trees"]["shared_files"], &du["trees"]["bytes"]),
        (&0.into(), &0.into()),
        "{du}"
    );
}
