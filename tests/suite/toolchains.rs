//! Programs that people bring do a real piece of work in a job, with no network and no grant, and meet
//! no refusal: each of these does what such programs do beside computing (threads, children, local
//! sockets, shared memory, locks, tracing). A program that is not installed is a counted skip.

mod browser;
mod compiled;
mod database;
mod debuggers;
mod interpreted;
mod places;
mod repository;

use tidemill_tests::{Done, Mode, Trial, World, has_program, skip};

/// A world for a test of these programs. `None` if it cannot run here, which was said then.
fn world_with(mode: Mode, programs: &[&str]) -> Option<World> {
    if let Some(missing) = programs.iter().find(|name| !has_program(name)) {
        skip(&format!("{missing} is missing"));
        return None;
    }
    World::new(mode)
}

/// Runs a job without a network that must succeed, write exactly this, and be refused nothing.
#[track_caller]
fn assert_works(trial: Trial<'_>, expected: &str) {
    let done = trial.args(["--net", "none"]).run();
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    assert_eq!(warnings(&done), [""; 0], "{done}");
}

/// The codes of the record's warnings, but for what the host cannot do for its user's jobs.
fn warnings(done: &Done) -> Vec<&str> {
    let codes = done.record().warnings().into_iter();
    codes.filter(|code| *code != "weakened").collect()
}
