//! Deadlines and cancels: every job comes to one end.

use tidemill_core::{Millis, ReasonCode, State};
use tidemill_queue::retry::RetryOn;
use tidemill_queue::{CancelAnswer, Ending, Return, Submission, Verdict};

use crate::leases::{lease, running};
use crate::world::{World, exit, failed, id, job, retrying};

#[test]
fn the_deadline_holds_even_if_the_runner_keeps_reporting() {
    let submission = Submission {
        deadline_after: Some(Millis(100_000)),
        ..job("ann")
    };
    let mut world = running(submission);
    for _ in 0..20 {
        world.run_for(5);
        world.report("r");
    }
    world.pass();
    let asked = world.report("r");
    assert!(matches!(
        asked[..],
        [(1, Verdict::End(tidemill_queue::lease::Ask::Deadline))]
    ));
    assert_eq!(
        world.state(1),
        State::Running,
        "its runner is to say how it ended"
    );
    for _ in 0..12 {
        world.run_for(5);
        world.report("r");
    }
    assert_eq!(world.state(1), State::TimedOut);
    assert_eq!(world.reason(1), "its deadline passed while it ran");
    assert_eq!(
        world.report("r"),
        [],
        "it heard that the attempt is gone, and killed it"
    );
}

#[test]
fn a_deadline_that_the_runner_obeys_ends_as_timed_out() {
    let submission = Submission {
        deadline_after: Some(Millis(1_000)),
        ..job("ann")
    };
    let mut world = running(submission);
    world.run_for(1);
    let ending = Ending::Cancelled {
        reason: None,
        outcome: None,
    };
    assert_eq!(world.end("r", 1, ending), Verdict::Recorded);
    assert_eq!(world.state(1), State::TimedOut);
}

#[test]
fn a_runner_that_reports_and_never_starts_its_job_loses_it() {
    let mut world = World::new();
    world.runner("r");
    world.submit(job("ann"));
    assert_eq!(world.claim("r", 1), [1]);
    let start_within = world.queue.settings().start_within.as_secs();
    for _ in 0..start_within / 20 {
        world.wait(20);
        world.pass();
        world.report("r");
    }
    assert_eq!(world.state(1), State::Queued);
    assert_eq!(
        world.reason(1),
        "runner `r` declined it: it was not started within 3600 s"
    );
    assert!(world.claim("r", 1).is_empty());
    world.runner("s");
    assert_eq!(world.claim("s", 1), [1]);
}

#[test]
fn cancel_reaches_a_final_state_from_every_state() {
    // Waiting.
    let mut world = World::new();
    world.runner("r");
    world.submit(job("ann"));
    let (now, by) = (world.now, "ann");
    assert_eq!(world.queue.cancel(now, id(1), by), CancelAnswer::Requested);
    assert_eq!(world.state(1), State::Cancelled);
    let finished = CancelAnswer::AlreadyFinished {
        state: State::Cancelled,
    };
    assert_eq!(world.queue.cancel(now, id(1), by), finished);
    assert_eq!(world.queue.cancel(now, id(9), by), CancelAnswer::Unknown);
    assert!(world.claim("r", 1).is_empty());

    // With a runner that obeys.
    let mut world = running(job("ann"));
    assert_eq!(world.queue.cancel(now, id(1), by), CancelAnswer::Requested);
    assert_eq!(
        world.queue.cancel(now, id(1), by),
        CancelAnswer::AlreadyRequested
    );
    assert_eq!(world.state(1), State::Cancelling);
    let ending = Ending::Cancelled {
        reason: None,
        outcome: None,
    };
    world.end("r", 1, ending);
    assert_eq!(world.state(1), State::Cancelled);

    // With one that is lost, with one that only keeps reporting, and with one that gives it back.
    let mut world = running(retrying(RetryOn::Infrastructure, 9));
    world.queue.cancel(now, id(1), by);
    world.run_for(lease());
    assert_eq!(world.state(1), State::Cancelled);
    let mut world = running(job("ann"));
    world.queue.cancel(now, id(1), by);
    for _ in 0..12 {
        world.report("r");
        world.run_for(5);
    }
    assert_eq!(world.state(1), State::Cancelled);
    assert_eq!(
        world.reason(1),
        "cancelled by ann; runner `r` did not end it within 60 s"
    );
    let mut world = running(job("ann"));
    world.queue.cancel(now, id(1), by);
    world.give_back("r", 1, Return::HandedBack);
    assert_eq!(world.state(1), State::Cancelled);
}

#[test]
fn cancel_that_races_an_end_or_a_retry_gives_one_final_state() {
    let endings = [
        (exit(0), State::Succeeded),
        (exit(1), State::Failed),
        (failed(ReasonCode::Sandbox, "no sandbox"), State::Failed),
    ];
    for (ending, state) in endings {
        // The request is first: what really happened is recorded, and it is not tried again.
        let mut world = running(retrying(RetryOn::AnyExit, 9));
        world.queue.cancel(world.now, id(1), "ann");
        world.end("r", 1, ending.clone());
        assert_eq!(world.state(1), state);
        // Each is decided before the other is made: one of them conflicts.
        let mut world = running(retrying(RetryOn::AnyExit, 9));
        let job = world.queue.job(id(1)).unwrap();
        let settings = world.queue.settings().clone();
        let finish = tidemill_queue::attempt::finish(job, ending, world.now, &settings).unwrap();
        let (_, cancel) = tidemill_queue::cancel::request(Some(job), "ann", world.now);
        let now = world.now;
        let mut other = world.queue.clone();
        assert!(world.queue.commit(now, cancel.clone().unwrap()).is_ok());
        assert!(world.queue.commit(now, finish.clone()).is_err());
        assert!(other.commit(now, finish).is_ok());
        assert!(other.commit(now, cancel.unwrap()).is_err());
    }
}
