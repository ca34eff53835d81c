//! "Retrying", expiry, and jobs that are set apart.

use std::collections::BTreeSet;

use tidemill_core::{Millis, ReasonCode, State};
use tidemill_queue::retry::RetryOn;
use tidemill_queue::{Ending, Stage, Submission, Verdict};

use crate::world::{World, exit, failed, id, in_group, job, retrying};
use tidemill_queue::submission::GroupPolicy;

/// Runs a job to its end, waiting out every back-off, with one ending after the other.
fn endings(submission: Submission, endings: &[Ending]) -> (World, usize) {
    let mut world = World::new();
    world.runner("r");
    world.submit(submission);
    let mut used = 0;
    for ending in endings {
        if world.claim("r", 1).is_empty() {
            break;
        }
        world.start("r", 1);
        assert_eq!(world.end("r", 1, ending.clone()), Verdict::Recorded);
        used += 1;
        world.wait(60);
    }
    (world, used)
}

#[test]
fn nothing_is_tried_again_that_nobody_asked_for() {
    let (world, used) = endings(job("ann"), &[exit(1), exit(0)]);
    assert_eq!((used, world.state(1)), (1, State::Failed));
    assert_eq!(world.snapshot(1).exit_code, Some(1));
}

#[test]
fn each_reason_has_its_count() {
    let memory = failed(ReasonCode::Memory, "out of memory");
    let timeout = Ending::TimedOut {
        reason: tidemill_core::Reason::new(ReasonCode::Time, "its time limit was reached"),
        outcome: None,
    };
    let sandbox = failed(ReasonCode::Sandbox, "no sandbox");
    let cases = [
        (RetryOn::Memory, memory, State::Failed),
        (RetryOn::Timeout, timeout, State::TimedOut),
        (RetryOn::Infrastructure, sandbox, State::Failed),
        (RetryOn::AnyExit, exit(3), State::Failed),
        (
            RetryOn::ExitCodes(BTreeSet::from([3, 4])),
            exit(4),
            State::Failed,
        ),
    ];
    for (on, ending, state) in cases {
        let thrice = vec![ending; 4];
        let (world, used) = endings(retrying(on.clone(), 2), &thrice);
        assert_eq!((used, world.state(1)), (3, state), "{on:?}");
        assert_eq!(world.attempt(1), 3);
        let hint = world.snapshot(1).reason.unwrap().hint.unwrap();
        assert_eq!(hint, "it was tried again 2 times, as its policy allows");
    }
    let other = endings(
        retrying(RetryOn::ExitCodes(BTreeSet::from([3])), 2),
        &[exit(4)],
    );
    assert_eq!(other.0.state(1), State::Failed);
}

#[test]
fn a_good_end_ends_it() {
    let (world, used) = endings(retrying(RetryOn::AnyExit, 5), &[exit(1), exit(0), exit(0)]);
    assert_eq!((used, world.state(1)), (2, State::Succeeded));
    let snapshot = world.snapshot(1);
    assert_eq!((snapshot.attempts, snapshot.failure), (2, None));
}

#[test]
fn what_takes_its_runners_with_it_is_set_apart() {
    let mut world = World::new();
    world.runner("r");
    world.submit(retrying(RetryOn::Infrastructure, 99));
    for _ in 0..3 {
        assert_eq!(world.claim("r", 1), [1]);
        // The machine goes down, and its runner starts again.
        world.runner("r");
        world.report("r");
        world.wait(60);
    }
    assert!(world.claim("r", 1).is_empty());
    assert_eq!(world.state(1), State::Failed);
    let Stage::Done { set_apart, .. } = world.queue.job(id(1)).unwrap().stage else {
        panic!("it is not over");
    };
    assert!(set_apart);
    let hint = world.snapshot(1).reason.unwrap().hint.unwrap();
    assert!(
        hint.starts_with("3 runners were lost while they had it"),
        "{hint}"
    );
    let tries = &world.queue.job(id(1)).unwrap().tries;
    assert_eq!((tries.charged, tries.lost), (3, 3));
}

#[test]
fn what_waits_too_long_expires() {
    let mut world = World::new();
    let expiring = Submission {
        delay: Some(Millis(30_000)),
        expires_after: Some(Millis(60_000)),
        ..job("ann")
    };
    let expiring = world.submit(expiring);
    let other = world.submit(job("ann"));
    world.run_for(89);
    assert_eq!(
        world.state(expiring),
        State::Queued,
        "its delay does not count"
    );
    world.run_for(1);
    assert_eq!(world.state(expiring), State::Failed);
    assert_eq!(
        world.snapshot(expiring).reason.unwrap().code,
        ReasonCode::Expired
    );
    assert_eq!(
        world.reason(expiring),
        "it expired: it waited for 60 s and no runner was free for it"
    );
    assert_eq!(world.state(other), State::Queued);
    world.runner("r");
    assert_eq!(world.claim("r", 9), [other]);
}

#[test]
fn what_is_being_run_does_not_expire() {
    let mut world = World::new();
    world.runner("r");
    world.submit(Submission {
        expires_after: Some(Millis(20_000)),
        ..job("ann")
    });
    world.claim("r", 1);
    world.run_for(25);
    assert_eq!(world.state(1), State::Starting);
}

#[test]
fn a_deadline_that_passes_while_it_waits_fails_it() {
    let mut world = World::new();
    let submission = Submission {
        deadline_after: Some(Millis(60_000)),
        ..in_group(GroupPolicy::QueueAll)
    };
    let first = world.submit(submission);
    let second = world.submit(in_group(GroupPolicy::QueueAll));
    world.run_for(60);
    assert_eq!(world.state(first), State::Failed);
    assert_eq!(world.reason(first), "its deadline passed while it waited");
    world.runner("r");
    assert_eq!(world.claim("r", 9), [second], "it holds nobody up");
}
