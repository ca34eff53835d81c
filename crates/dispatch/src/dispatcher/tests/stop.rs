//! Shut down and drain.

use insta::assert_snapshot;

use crate::script::play;

#[test]
fn shut_down_drops_the_waiting_kills_the_executing_and_is_done_with_the_last() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1 timeout=9s
        enqueue 2
        enqueue 3
        enqueue 4 a
        shut-down bye
        exited 2 137
        exited 1 137
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=9s
      tell: 1 is executing
      start 1
      start timer of 1: 9s
    > enqueue 2
      tell: 2 is executing
      start 2
    > enqueue 3
      tell: 3 is waiting to execute
    > enqueue 4 a
      fetch a
      tell: 4 is waiting for layers
    > shut-down bye
      drop timer of 1
      drop sandbox of 1
      drop sandbox of 2
      locally: 3 dropped
      locally: 4 dropped
    > exited 2 137
      locally: 2 dropped, then exit code 137
    > exited 1 137
      locally: 1 dropped, then exit code 137
      done: bye
    ");
}

#[test]
fn shut_down_without_jobs_is_done_at_once() {
    let transcript = play(
        "slots=1",
        "
        shut-down bye
        ",
    );
    assert_snapshot!(transcript, @"
    > shut-down bye
      done: bye
    ");
}

#[test]
fn an_enqueue_after_shut_down_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        shut-down bye
        enqueue 2
        exited 1
        enqueue 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > shut-down bye
      drop sandbox of 1
    > enqueue 2
      locally: 2 dropped
    > exited 1
      locally: 1 dropped, then exit code 0
      done: bye
    > enqueue 3
      locally: 3 dropped
    ");
}

#[test]
fn shut_down_is_done_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        shut-down first
        shut-down second
        exited 1
        shut-down third
        drain fourth
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > shut-down first
      drop sandbox of 1
    > shut-down second
    > exited 1
      locally: 1 dropped, then exit code 0
      done: first
    > shut-down third
    > drain fourth
    ");
}

#[test]
fn shut_down_leaves_dying_jobs_to_their_fate() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1
        enqueue 2 timeout=1s
        cancel 1
        time-up 2
        shut-down bye
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 timeout=1s
      tell: 2 is executing
      start 2
      start timer of 2: 1s
    > cancel 1
      drop sandbox of 1
    > time-up 2
      drop timer of 2
      drop sandbox of 2
    > shut-down bye
    > exited 1
      locally: 1 cancelled, then exit code 0
    > exited 2
      tell: 2 timed out (Run), then exit code 0
      done: bye
    ");
}

#[test]
fn drain_lets_the_running_finish_and_hands_the_waiting_back() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        fetched a
        built a
        enqueue 2
        enqueue 3 b a
        drain moving
        fetched b
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
      tell: 1 is executing
      start 1 on tree/a (tree/a)
    > enqueue 2
      tell: 2 is waiting to execute
    > enqueue 3 b a
      fetch b
      tell: 3 is waiting for layers
    > drain moving
      tell: 2 handed back
      release tree a
      release blob a
      tell: 3 handed back
    > fetched b
      release blob b
    > exited 1
      drop sandbox of 1
      release tree a
      release blob a
      tell: 1 completed, exit code 0
      done: moving
    ");
}

#[test]
fn drain_without_jobs_is_done_at_once() {
    let transcript = play(
        "slots=1",
        "
        drain moving
        ",
    );
    assert_snapshot!(transcript, @"
    > drain moving
      done: moving
    ");
}

#[test]
fn an_enqueue_while_draining_is_handed_back() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        drain moving
        enqueue 2
        exited 1
        enqueue 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > drain moving
    > enqueue 2
      tell: 2 handed back
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      done: moving
    > enqueue 3
      tell: 3 handed back
    ");
}

#[test]
fn a_drained_job_can_be_cancelled_and_time_out() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1
        enqueue 2 timeout=1s
        drain moving
        cancel 1
        time-up 2
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 timeout=1s
      tell: 2 is executing
      start 2
      start timer of 2: 1s
    > drain moving
    > cancel 1
      drop sandbox of 1
    > time-up 2
      drop timer of 2
      drop sandbox of 2
    > exited 1
      locally: 1 cancelled, then exit code 0
    > exited 2
      tell: 2 timed out (Run), then exit code 0
      done: moving
    ");
}

#[test]
fn shut_down_overtakes_a_drain() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        drain moving
        shut-down now
        drain again
        exited 1 137
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > drain moving
    > shut-down now
      drop sandbox of 1
    > drain again
    > exited 1 137
      locally: 1 dropped, then exit code 137
      done: now
    ");
}

#[test]
fn fetches_that_come_after_the_end_are_released() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        shut-down bye
        fetched a
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > shut-down bye
      locally: 1 dropped
      done: bye
    > fetched a
      release blob a
    ");
}

#[test]
fn nothing_has_room_after_a_drain() {
    let transcript = play(
        "slots=4 mem=1GiB cpus=2",
        "
        room
        drain moving
        room
        ",
    );
    assert_snapshot!(transcript, @"
    > room
      4 slots, 1 GiB, 2 cpus
    > drain moving
      done: moving
    > room
      0 slots, 0 B, 0 cpus
    ");
}
