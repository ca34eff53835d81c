//! Many processes that want one image at once: one fetch, one failure, and one who goes on where another was
//! killed.

use std::thread;

use rustix::process::Signal;
use tidemill_tests::{Background, Done, Mode, PATIENCE, World, until};

use super::fake::{Fake, Gate, Instead};
use super::fetched::made;
use super::made::{in_image, packed_digest};

/// How many; those beyond the first few only wait.
const WHO: usize = 100;

/// Starts them, and opens the gate when all but one say that they wait for that one.
fn all_at_once<'w>(world: &'w World, arguments: &[&str], gate: &Gate) -> Vec<Done> {
    let all: Vec<Background<'w>> = (0..WHO).map(|_| world.command(arguments).start()).collect();
    let waiting = |process: &&Background<'_>| {
        String::from_utf8_lossy(&process.stderr().bytes).contains("another process fetches it")
    };
    until("all others wait", 2 * PATIENCE, || {
        (all.iter().filter(waiting).count() == WHO - 1).then_some(())
    });
    gate.open();
    thread::scope(|scope| {
        let waits: Vec<_> = (all.into_iter())
            .map(|process| scope.spawn(|| process.wait()))
            .collect();
        waits.into_iter().map(|wait| wait.join().unwrap()).collect()
    })
}

#[test]
fn a_hundred_runs_ask_once_and_fetch_once() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let gate = Gate::default();
    let opened = gate.clone();
    let fake = Fake::serve(&world, &made, move |path, _| {
        if path.contains("manifests") {
            opened.pass();
        }
        None
    });
    let flags = in_image(&fake.name());
    let line: Vec<&str> = std::iter::once("run")
        .chain(flags.iter().map(String::as_str))
        .collect();
    for done in all_at_once(&world, &line, &gate) {
        assert_eq!((done.code, done.out().as_str()), (0, "fetched"), "{done}");
    }
    assert_eq!(fake.asked("manifests"), 1);
    assert_eq!(fake.asked("blobs"), 3, "a configuration and two layers");
}

#[test]
fn a_hundred_pulls_fail_together_and_who_comes_later_tries_anew() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let gate = Gate::default();
    let opened = gate.clone();
    let fake = Fake::serve(&world, &made, move |path, earlier| {
        if path.contains("manifests") && earlier == 0 {
            opened.pass();
            return Some(Instead::Status("403 Forbidden", "X: y"));
        }
        None
    });
    let name = fake.name();
    for done in all_at_once(&world, &["image", "pull", &name], &gate) {
        assert_eq!(done.code, 125, "{done}");
        assert!(done.err().contains("does not give app:1"), "{done}");
        assert!(done.err().contains("sign in"), "{done}");
    }
    assert_eq!(fake.asked("/v2/"), 1);
    world.ask(["image", "pull", &name]);
    assert_eq!(fake.asked("manifests"), 2);
}

/// They come to the layers one after the other, when the first has failed long ago.
#[test]
fn a_hundred_runs_fail_together_for_a_layer() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let base = packed_digest(&made.layers[0]);
    let (gate, missing) = (Gate::default(), base.clone());
    let opened = gate.clone();
    let fake = Fake::serve(&world, &made, move |path, _| {
        if path.contains("manifests") {
            opened.pass();
        }
        let is_missing = path.ends_with(&missing);
        is_missing.then_some(Instead::Status("404 Not Found", "X: y"))
    });
    let flags = in_image(&fake.name());
    let line: Vec<&str> = std::iter::once("run")
        .chain(flags.iter().map(String::as_str))
        .collect();
    for done in all_at_once(&world, &line, &gate) {
        assert_eq!(done.code, 125, "{done}");
        let what = format!("cannot fetch the image {}", fake.name());
        assert!(done.err().contains(&what), "{done}");
    }
    assert_eq!(fake.asked("manifests"), 1);
    assert_eq!(fake.asked(&base), 1);
    assert_eq!(world.list(&[]).len(), WHO, "each has its record");
}

#[test]
fn whoever_waits_goes_on_where_a_killed_one_was() {
    const HERE: usize = 100_000;
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let base = packed_digest(&made.layers[0]);
    let stalling = base.clone();
    let fake = Fake::serve(&world, &made, move |path, earlier| {
        (path.ends_with(&stalling) && earlier == 0).then_some(Instead::Stall(HERE))
    });
    let name = fake.name();
    let first = world.command(["image", "pull", &name]).start();
    let part = world
        .state()
        .join("images/partial")
        .join(base.trim_start_matches("sha256:"));
    until("a part of the layer has come", PATIENCE, || {
        let length = std::fs::metadata(&part).ok()?.len();
        (length == HERE as u64).then_some(())
    });
    let others: Vec<_> = (0..3)
        .map(|_| world.command(["image", "pull", &name]).start())
        .collect();
    for other in &others {
        other.await_error("another process fetches it");
    }
    first.signal(Signal::KILL);
    first.wait();
    for other in others {
        let done = other.wait();
        assert_eq!(done.code, 0, "{done}");
    }
    assert_eq!(fake.asked(&base), 2);
    assert_eq!(fake.went_on_from(&base), Some(HERE));
    assert_eq!(fake.asked("manifests"), 1, "what the name means was known");
}
