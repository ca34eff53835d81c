//! What the hub is told.

use std::num::NonZeroU32;
use std::sync::Arc;

use insta::assert_snapshot;
use tidemill_core::{JobSpec, Timestamp};

use crate::dispatcher::Dispatcher;
use crate::job::{JobRequest, Phase};
use crate::key::LayerRef;
use crate::message::Message;
use crate::script::{World, job, play};
use crate::slots::Capacity;

#[test]
fn each_status_is_told_once_and_in_order_then_the_result() {
    let transcript = play(
        "slots=1",
        "
        enqueue 9
        enqueue 1 a b
        fetched a
        built a
        fetched b
        built b
        built a+b
        exited 9
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9
      tell: 9 is executing
      start 9
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
    > fetched b
      build tree b from blob/b
    > built b
      build stack a+b from tree/a tree/b
    > built a+b
      tell: 1 is waiting to execute
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
      tell: 1 is executing
      start 1 on stack/a+b (tree/a tree/b)
    > exited 1
      drop sandbox of 1
      release stack a+b
      release tree a
      release tree b
      release blob a
      release blob b
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn steps_that_did_not_happen_are_left_out_with_a_free_slot() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn waiting_to_execute_is_left_out_when_a_slot_is_free() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 local:x
        built local:x
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 local:x
      build tree local:x
      tell: 1 is waiting for layers
    > built local:x
      tell: 1 is executing
      start 1 on tree/local:x (tree/local:x)
    > exited 1
      drop sandbox of 1
      release tree local:x
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn waiting_for_layers_is_left_out_when_there_are_none() {
    let transcript = play(
        "slots=1",
        "
        enqueue 9
        enqueue 1
        exited 9
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9
      tell: 9 is executing
      start 9
    > enqueue 1
      tell: 1 is waiting to execute
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
      tell: 1 is executing
      start 1
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn of_two_jobs_that_become_available_at_once_only_the_one_that_waits_is_told_so() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 local:x
        enqueue 2 local:x priority=1
        built local:x
        exited 2
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 local:x
      build tree local:x
      tell: 1 is waiting for layers
    > enqueue 2 local:x priority=1
      tell: 2 is waiting for layers
    > built local:x
      tell: 2 is executing
      start 2 on tree/local:x (tree/local:x)
      tell: 1 is waiting to execute
    > exited 2
      drop sandbox of 2
      release tree local:x
      tell: 2 completed, exit code 0
      tell: 1 is executing
      start 1 on tree/local:x (tree/local:x)
    > exited 1
      drop sandbox of 1
      release tree local:x
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn anyone_may_look_where_the_jobs_stand_and_since_when() {
    let mut dispatcher = Dispatcher::new(Capacity::slots(NonZeroU32::MIN), World::default());
    let mut enqueue = |at: i64, number: u32, layers: Vec<LayerRef>| {
        let request = JobRequest {
            layers,
            ..JobRequest::new(Arc::new(JobSpec::new("true", [])))
        };
        let job = job(number);
        dispatcher.receive(Timestamp(at), Message::Enqueue { job, request });
    };
    enqueue(10, 1, Vec::new());
    enqueue(20, 2, Vec::new());
    enqueue(30, 3, vec![LayerRef::local("x")]);
    dispatcher.receive(Timestamp(40), Message::Cancel { job: job(1) });
    let seen: Vec<_> = dispatcher.jobs().collect();
    let expected = [
        (job(1), Phase::Cancelled, Timestamp(40)),
        (job(2), Phase::Available, Timestamp(20)),
        (job(3), Phase::AwaitingLayers, Timestamp(30)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(dispatcher.phase(job(4)), None);
}
