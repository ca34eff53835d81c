//! Concurrency groups and their four policies.

use tidemill_core::{Digest, Millis, State};
use tidemill_queue::retry::RetryOn;
use tidemill_queue::submission::GroupPolicy::{CancelRunning, Coalesce, KeepNewest, QueueAll};
use tidemill_queue::{Answer, Standing, Submission};

use crate::world::{World, exit, id, in_group, job, queue_named, retrying};

#[test]
fn queue_all_runs_all_in_order_and_never_two_at_once() {
    let mut world = World::new();
    world.runner("r");
    let jobs: Vec<_> = (0..5).map(|_| world.submit(in_group(QueueAll))).collect();
    // A higher priority does not overtake within the group.
    let mut urgent = in_group(QueueAll);
    urgent.priority = 9;
    let urgent = world.submit(urgent);
    let beside = world.submit(job("ann"));
    assert_eq!(world.claim("r", 9), [jobs[0], beside]);
    assert_eq!(
        world.why(jobs[2]),
        format!(
            "waits for group `g`, position 2; {} is running",
            id(jobs[0])
        )
    );
    world.end("r", jobs[0], exit(1));
    assert_eq!(world.work_off("r"), [&jobs[1..], &[urgent]].concat());
}

#[test]
fn keep_newest_supersedes_what_waits_and_says_by_which() {
    let mut world = World::new();
    world.runner("r");
    let first = world.submit(in_group(KeepNewest));
    world.claim("r", 1);
    let second = world.submit(in_group(KeepNewest));
    let third = world.try_submit(in_group(KeepNewest)).unwrap();
    let Answer::Accepted {
        id: third,
        superseded,
        ..
    } = third
    else {
        panic!("{third:?}");
    };
    assert_eq!(superseded, [id(second)]);
    assert_eq!(world.state(second), State::Cancelled);
    assert_eq!(
        world.reason(second),
        format!("superseded by {third}, which took its place in group `g`")
    );
    assert_eq!(world.state(first), State::Starting);
    world.end("r", first, exit(0));
    assert_eq!(world.work_off("r"), [3]);
}

#[test]
fn keep_newest_takes_the_place_of_one_at_the_limit() {
    let mut world = World::new();
    world.queue.set_waiting_max(&queue_named("main"), Some(1));
    world.submit(in_group(KeepNewest));
    let second = world.submit(in_group(KeepNewest));
    assert!(world.try_submit(job("ann")).is_err());
    assert_eq!(world.state(second), State::Queued);
}

#[test]
fn cancel_running_asks_it_to_end_and_starts_only_then() {
    let mut world = World::new();
    world.runner("r");
    world.runner("s");
    let first = world.submit(in_group(CancelRunning));
    world.claim("r", 1);
    world.start("r", first);
    let second = world.submit(in_group(CancelRunning));
    assert_eq!(world.state(first), State::Cancelling);
    assert!(world.claim("s", 1).is_empty());
    assert_eq!(
        world.snapshot(first).cancel.unwrap().by,
        format!("{}, which took its place in group `g`", id(second))
    );
    let verdicts = world.report("r");
    assert!(matches!(
        verdicts[..],
        [(_, tidemill_queue::Verdict::End(_))]
    ));
    let ending = tidemill_queue::Ending::Cancelled {
        reason: None,
        outcome: None,
    };
    world.end("r", first, ending);
    assert_eq!(world.state(first), State::Cancelled);
    assert_eq!(world.claim("s", 1), [second]);
}

#[test]
fn coalesce_takes_in_what_is_equal_and_queues_what_is_not() {
    let mut world = World::new();
    world.runner("r");
    let first = world.submit(in_group(Coalesce));
    assert_eq!(world.submit(in_group(Coalesce)), first);
    let mut other = in_group(Coalesce);
    other.job.spec = Digest::of(b"other");
    let other = world.submit(other);
    assert_ne!(other, first);
    assert_eq!(world.claim("r", 9), [first]);
    let third = world.submit(in_group(Coalesce));
    assert_ne!(third, first, "a running one absorbs nothing");
    world.end("r", first, exit(0));
    assert_eq!(world.work_off("r"), [other, third]);
}

#[test]
fn one_that_is_tried_again_keeps_its_place() {
    let mut world = World::new();
    world.runner("r");
    let first = world.submit(Submission {
        group: in_group(QueueAll).group,
        ..retrying(RetryOn::AnyExit, 1)
    });
    let second = world.submit(in_group(QueueAll));
    world.claim("r", 1);
    world.end("r", first, exit(1));
    assert!(
        world.claim("r", 9).is_empty(),
        "the first one waits before it is tried again"
    );
    assert_eq!(world.why(second), "waits for group `g`, position 2");
    world.wait(10);
    assert_eq!(world.work_off("r"), [first, second]);
}

#[test]
fn a_delayed_one_gets_in_line_when_its_delay_is_over() {
    let mut world = World::new();
    world.runner("r");
    let delayed = Submission {
        delay: Some(Millis(60_000)),
        ..in_group(QueueAll)
    };
    let delayed = world.submit(delayed);
    let answer = world.try_submit(in_group(QueueAll)).unwrap();
    assert!(matches!(
        answer,
        Answer::Accepted {
            standing: Standing::InLine { .. },
            ..
        }
    ));
    assert_eq!(world.claim("r", 9), [2]);
    world.wait(60);
    assert!(world.claim("r", 9).is_empty());
    let third = world.submit(in_group(QueueAll));
    world.end("r", 2, exit(0));
    assert_eq!(world.work_off("r"), [delayed, third]);
}

#[test]
fn a_superseded_one_that_is_being_claimed_is_not_run() {
    let mut world = World::new();
    world.runner("r");
    world.submit(in_group(KeepNewest));
    let offer = world.offer("r", 1);
    let planned = world.queue.plan_claim(world.now, &offer);
    let second = world.submit(in_group(KeepNewest));
    let hub = world.hub.clone();
    let got = world.queue.commit_claim(world.now, &hub, &offer, &planned);
    assert!(got.is_empty());
    assert_eq!(world.claim("r", 9), [second]);
}
