//! Cancelling, at every point of a life.

use insta::assert_snapshot;

use crate::script::play;

#[test]
fn awaiting_layers_it_is_forgotten() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        cancel 1
        cancel 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > cancel 1
      locally: 1 cancelled
    > cancel 1
    ");
}

#[test]
fn in_the_queue_it_is_taken_out_and_the_others_keep_their_order() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2
        enqueue 3
        enqueue 4
        cancel 3
        exited 1
        exited 2
        exited 4
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2
      tell: 2 is waiting to execute
    > enqueue 3
      tell: 3 is waiting to execute
    > enqueue 4
      tell: 4 is waiting to execute
    > cancel 3
      locally: 3 cancelled
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
      tell: 4 is executing
      start 4
    > exited 4
      drop sandbox of 4
      tell: 4 completed, exit code 0
    ");
}

#[test]
fn executing_it_is_killed_and_nothing_is_told_when_it_ends() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=9s
        cancel 1
        exited 1 143
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=9s
      tell: 1 is executing
      start 1
      start timer of 1: 9s
    > cancel 1
      drop timer of 1
      drop sandbox of 1
    > exited 1 143
      locally: 1 cancelled, then exit code 143
    ");
}

#[test]
fn a_dying_job_keeps_its_slot() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2
        cancel 1
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2
      tell: 2 is waiting to execute
    > cancel 1
      drop sandbox of 1
    > exited 1
      locally: 1 cancelled, then exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn an_unknown_job_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        cancel 1
        ",
    );
    assert_snapshot!(transcript, @"> cancel 1");
}

#[test]
fn a_finished_job_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        exited 1
        cancel 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    > cancel 1
    ");
}

#[test]
fn a_cancelled_job_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        cancel 1
        cancel 1
        exited 1
        cancel 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > cancel 1
      drop sandbox of 1
    > cancel 1
    > exited 1
      locally: 1 cancelled, then exit code 0
    > cancel 1
    ");
}

#[test]
fn a_timed_out_job_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=1s
        time-up 1
        cancel 1
        exited 1 143
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=1s
      tell: 1 is executing
      start 1
      start timer of 1: 1s
    > time-up 1
      drop timer of 1
      drop sandbox of 1
    > cancel 1
    > exited 1 143
      tell: 1 timed out (Run), then exit code 143
    ");
}

#[test]
fn a_start_that_failed_after_the_cancel_is_not_told() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        cancel 1
        system-error 1 no cgroup
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > cancel 1
      drop sandbox of 1
    > system-error 1 no cgroup
      locally: 1 cancelled, then system error: sandbox: no cgroup
    ");
}
