//! Several runners and somebody who makes room, on one store.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rstest::rstest;
use tidemill_tests::{Mode, TarEntry, World};

use super::{archive, assert_nothing_half, cache, run};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn jobs_run_while_trees_are_built_used_and_removed_all_the_time(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let shared = || TarEntry::file("shared", vec![b's'; 50_000]);
    let layers: Vec<String> = (0..3)
        .map(|number| {
            let name = format!("archive-{number}");
            let own = TarEntry::file("own", name.clone());
            archive(&world, &name, &[shared(), own])
        })
        .collect();
    run(&world, &layers[0], "true");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let runners: Vec<_> = (0..3)
            .map(|runner| {
                let (world, layers) = (&world, &layers);
                scope.spawn(move || {
                    for turn in 0..6 {
                        let number = (runner + turn) % layers.len();
                        let line = "cat /taken/own; wc -c < /taken/shared";
                        let done = run(world, &layers[number], line);
                        assert_eq!(done.out().trim(), format!("archive-{number}50000"));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                cache(&world, &["prune", "--all"]);
                let verified = cache(&world, &["verify"]);
                assert_eq!(
                    verified["findings"].as_array().unwrap().len(),
                    0,
                    "{verified}"
                );
            }
        });
        let results: Vec<_> = runners
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        for result in results {
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }
    });
    cache(&world, &["prune", "--all"]);
    assert_nothing_half(&world);
    let du = cache(&world, &["du"]);
    assert_eq!(du["trees"]["shared_files"], 0, "{du}");
}
