//! Nothing is left: not of many runs, not of cancelled ones, not of killed ones.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, World};

/// How many at once.
const LANES: usize = 4;

/// How many runs, unless the environment says otherwise.
const RUNS: usize = 500;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn slow_nothing_is_left_after_many_runs(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let runs = std::env::var("TIDEMILL_TEST_RUNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(RUNS);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs {
                        return;
                    }
                    one(&world, number);
                }
            });
        }
    });
    // The first command after a kill sweeps.
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for record in world.list(&[]) {
        *states
            .entry(format!("{} {}", record.state(), record.reason()))
            .or_default() += 1;
    }
    let killed = (0..runs)
        .filter(|number| kind(*number) == Kind::Killed)
        .count();
    let cancelled = (0..runs)
        .filter(|number| kind(*number) == Kind::Cancelled)
        .count();
    let expected = BTreeMap::from([
        ("succeeded ".to_owned(), runs - killed - cancelled),
        ("cancelled cancelled".to_owned(), cancelled),
        ("failed lost".to_owned(), killed),
    ]);
    assert_eq!(states, expected);
    // Dropping the world looks at the host.
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Cancelled,
    Killed,
}

/// A tenth is cancelled, and one in twenty-five is killed.
const fn kind(number: usize) -> Kind {
    if number % 10 == 3 {
        Kind::Cancelled
    } else if number % 25 == 7 {
        Kind::Killed
    } else {
        Kind::Plain
    }
}

fn one(world: &World, number: usize) {
    match kind(number) {
        Kind::Plain => {
            let done = world.program(["true"]).run();
            assert_eq!(done.code, 0, "{done}");
        }
        Kind::Cancelled => {
            let job = world
                .job("mkdir -p a/b; echo ready; exec sleep 600")
                .start();
            job.await_output("ready").cancel();
            let done = job.wait();
            assert_eq!(done.code, 130, "{done}");
        }
        Kind::Killed => {
            let job = world
                .job("mkdir -p a/b; chmod 0 a; echo ready; exec sleep 600")
                .start();
            job.await_output("ready").signal(Signal::KILL);
            let done = job.wait();
            assert_eq!(done.code, -9, "{done}");
        }
    }
}
