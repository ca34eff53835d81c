//! Who goes first.

use insta::assert_snapshot;

use crate::script::play;

#[test]
fn as_many_jobs_execute_as_there_are_slots() {
    let transcript = play(
        "slots=2",
        "
        enqueue 1
        enqueue 2
        enqueue 3
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2
      tell: 2 is executing
      start 2
    > enqueue 3
      tell: 3 is waiting to execute
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
      tell: 3 is executing
      start 3
    ");
}

#[test]
fn the_highest_priority_goes_first() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2 priority=-1
        enqueue 3 priority=5
        enqueue 4 priority=7
        exited 1
        exited 4
        exited 3
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 priority=-1
      tell: 2 is waiting to execute
    > enqueue 3 priority=5
      tell: 3 is waiting to execute
    > enqueue 4 priority=7
      tell: 4 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 4 is executing
      start 4
    > exited 4
      drop sandbox of 4
      tell: 4 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn within_one_priority_the_longest_estimate_goes_first() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2 estimate=10s
        enqueue 3 estimate=30s
        enqueue 4 estimate=20s
        exited 1
        exited 3
        exited 4
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 estimate=10s
      tell: 2 is waiting to execute
    > enqueue 3 estimate=30s
      tell: 3 is waiting to execute
    > enqueue 4 estimate=20s
      tell: 4 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
      tell: 4 is executing
      start 4
    > exited 4
      drop sandbox of 4
      tell: 4 completed, exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn a_job_without_an_estimate_goes_before_any_with_one() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2 estimate=10h
        enqueue 3
        exited 1
        exited 3
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 estimate=10h
      tell: 2 is waiting to execute
    > enqueue 3
      tell: 3 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn priority_goes_before_estimate() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2 estimate=10h
        enqueue 3 priority=1 estimate=1s
        exited 1
        exited 3
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 estimate=10h
      tell: 2 is waiting to execute
    > enqueue 3 priority=1 estimate=1s
      tell: 3 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn equal_jobs_go_in_the_order_they_arrived() {
    let transcript = play(
        "slots=1",
        "
        enqueue 9 estimate=5s
        enqueue 3 estimate=5s
        enqueue 2 estimate=5s
        enqueue 1 estimate=5s
        exited 9
        exited 3
        exited 2
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9 estimate=5s
      tell: 9 is executing
      start 9
    > enqueue 3 estimate=5s
      tell: 3 is waiting to execute
    > enqueue 2 estimate=5s
      tell: 2 is waiting to execute
    > enqueue 1 estimate=5s
      tell: 1 is waiting to execute
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
      tell: 1 is executing
      start 1
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_job_whose_layers_came_late_keeps_its_place_of_arrival() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2 local:x
        enqueue 3
        built local:x
        exited 1
        exited 2
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 local:x
      build tree local:x
      tell: 2 is waiting for layers
    > enqueue 3
      tell: 3 is waiting to execute
    > built local:x
      tell: 2 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 2 is executing
      start 2 on tree/local:x (tree/local:x)
    > exited 2
      drop sandbox of 2
      release tree local:x
      tell: 2 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn a_job_that_waits_for_layers_holds_no_slot_and_blocks_nobody() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a priority=9
        enqueue 2
        exited 2
        fetched a
        built a
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a priority=9
      fetch a
      tell: 1 is waiting for layers
    > enqueue 2
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    > fetched a
      build tree a from blob/a
    > built a
      tell: 1 is executing
      start 1 on tree/a (tree/a)
    > exited 1
      drop sandbox of 1
      release tree a
      release blob a
      tell: 1 completed, exit code 0
    ");
}
