//! Failures: whose fault, and each told once.

use insta::assert_snapshot;

use crate::script::{play, play_reporting_defects};

#[test]
fn a_failed_fetch_fails_every_job_that_waits_for_it_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        enqueue 2 b a
        enqueue 3 b
        fetched b
        fetched a error connection refused
        built b
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > enqueue 2 b a
      fetch b
      tell: 2 is waiting for layers
    > enqueue 3 b
      tell: 3 is waiting for layers
    > fetched b
      build tree b from blob/b
    > fetched a error connection refused
      tell: 1 system error: layer: connection refused (failed to fetch blob a)
      tell: 2 system error: layer: connection refused (failed to fetch blob a)
    > built b
      release blob b
      release tree b
      tell: 3 is executing
      start 3 on tree/b (tree/b)
    > exited 3
      drop sandbox of 3
      release tree b
      release blob b
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn a_failed_build_fails_every_job_that_waits_for_it_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 local:x
        enqueue 2 local:x
        built local:x error bad tar
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 local:x
      build tree local:x
      tell: 1 is waiting for layers
    > enqueue 2 local:x
      tell: 2 is waiting for layers
    > built local:x error bad tar
      tell: 1 system error: layer: bad tar (failed to build tree of x)
      tell: 2 system error: layer: bad tar (failed to build tree of x)
    ");
}

#[test]
fn a_failed_stack_fails_every_job_that_waits_for_it_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 local:a local:b
        enqueue 2 local:a local:b
        built local:a
        built local:b
        built local:a+local:b error no space
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 local:a local:b
      build tree local:a
      build tree local:b
      tell: 1 is waiting for layers
    > enqueue 2 local:a local:b
      tell: 2 is waiting for layers
    > built local:a
    > built local:b
      build stack local:a+local:b from tree/local:a tree/local:b
    > built local:a+local:b error no space
      release tree local:b
      release tree local:a
      tell: 1 system error: layer: no space (failed to build stack of 2 layers local:a+local:b)
      release tree local:b
      release tree local:a
      tell: 2 system error: layer: no space (failed to build stack of 2 layers local:a+local:b)
    ");
}

#[test]
fn a_manifest_that_cannot_be_read_fails_its_job() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m b
        fetched m
        read m 1 error not a manifest
        fetched b
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m b
      fetch m
      fetch b
      tell: 1 is waiting for layers
    > fetched m
      read blob/m for 1
    > read m 1 error not a manifest
      release blob m
      tell: 1 system error: layer: not a manifest (failed to read manifest m)
    > fetched b
      release blob b
    ");
}

#[test]
fn a_second_failure_of_a_failed_job_is_silent() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b
        fetched a error first
        fetched b error second
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a error first
      tell: 1 system error: layer: first (failed to fetch blob a)
    > fetched b error second
    ");
}

#[test]
fn what_failed_is_tried_again_for_the_next_job() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        fetched a error gone
        enqueue 2 a
        fetched a
        built a
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > fetched a error gone
      tell: 1 system error: layer: gone (failed to fetch blob a)
    > enqueue 2 a
      fetch a
      tell: 2 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
      tell: 2 is executing
      start 2 on tree/a (tree/a)
    > exited 2
      drop sandbox of 2
      release tree a
      release blob a
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn a_job_that_waits_for_something_else_is_not_failed() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        enqueue 2 b
        fetched a error gone
        fetched b
        built b
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > enqueue 2 b
      fetch b
      tell: 2 is waiting for layers
    > fetched a error gone
      tell: 1 system error: layer: gone (failed to fetch blob a)
    > fetched b
      build tree b from blob/b
    > built b
      tell: 2 is executing
      start 2 on tree/b (tree/b)
    > exited 2
      drop sandbox of 2
      release tree b
      release blob b
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn an_execution_error_is_the_jobs_own_fault() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        execution-error 1 no such program
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > execution-error 1 no such program
      drop sandbox of 1
      tell: 1 execution error: program_not_found: no such program
    ");
}

#[test]
fn a_system_error_is_the_runners_fault() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        system-error 1 no cgroup
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > system-error 1 no cgroup
      drop sandbox of 1
      tell: 1 system error: sandbox: no cgroup
    ");
}

#[test]
fn an_id_that_is_enqueued_twice_is_a_defect_and_fails_the_waiting_job() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        enqueue 1 a
        enqueue 1 b
        fetched a
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > enqueue 1 b
      defect: 1 was enqueued twice
      tell: 1 system error: internal: job 00000000-0000-0000-0000-000000000001/1 was enqueued twice (hint: this is a defect in Tidemill; please report it with the runner's log)
    > fetched a
      release blob a
    ");
}

#[test]
fn an_id_that_is_enqueued_twice_is_a_defect_and_fails_the_queued_job() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        enqueue 9
        enqueue 1
        enqueue 1
        exited 9
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9
      tell: 9 is executing
      start 9
    > enqueue 1
      tell: 1 is waiting to execute
    > enqueue 1
      defect: 1 was enqueued twice
      tell: 1 system error: internal: job 00000000-0000-0000-0000-000000000001/1 was enqueued twice (hint: this is a defect in Tidemill; please report it with the runner's log)
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
    ");
}

#[test]
fn an_id_that_is_enqueued_twice_is_a_defect_and_fails_the_executing_job() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        enqueue 1
        enqueue 1
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 1
      defect: 1 was enqueued twice
      drop sandbox of 1
    > exited 1
      tell: 1 system error: internal: job 00000000-0000-0000-0000-000000000001/1 was enqueued twice (hint: this is a defect in Tidemill; please report it with the runner's log)
    ");
}

#[test]
fn an_id_that_is_enqueued_twice_leaves_a_cancelled_job_cancelled() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        enqueue 1
        cancel 1
        enqueue 1
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > cancel 1
      drop sandbox of 1
    > enqueue 1
      defect: 1 was enqueued twice
    > exited 1
      locally: 1 cancelled, then exit code 0
    ");
}

#[test]
fn a_completion_of_a_waiting_job_is_a_defect_and_fails_it() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        enqueue 1 a
        exited 1
        fetched a
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > exited 1
      defect: 1 does not execute
      tell: 1 system error: internal: job 00000000-0000-0000-0000-000000000001/1 completed without executing (hint: this is a defect in Tidemill; please report it with the runner's log)
    > fetched a
      release blob a
    ");
}

#[test]
fn a_completion_of_a_queued_job_is_a_defect_and_fails_it() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        enqueue 9
        enqueue 1
        exited 1
        exited 9
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9
      tell: 9 is executing
      start 9
    > enqueue 1
      tell: 1 is waiting to execute
    > exited 1
      defect: 1 does not execute
      tell: 1 system error: internal: job 00000000-0000-0000-0000-000000000001/1 completed without executing (hint: this is a defect in Tidemill; please report it with the runner's log)
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
    ");
}

#[test]
fn a_completion_of_an_unknown_job_is_a_defect() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        exited 1
        enqueue 2
        exited 2
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > exited 1
      defect: 1 does not execute
    > enqueue 2
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    > exited 2
      defect: 2 does not execute
    ");
}

#[test]
fn an_answer_that_nobody_awaits_is_a_defect() {
    let transcript = play_reporting_defects(
        "slots=1",
        "
        fetched a
        enqueue 1 local:x
        built local:x
        built local:x
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > fetched a
      defect: nobody awaits blob a
    > enqueue 1 local:x
      build tree local:x
      tell: 1 is waiting for layers
    > built local:x
      tell: 1 is executing
      start 1 on tree/local:x (tree/local:x)
    > built local:x
      defect: nobody awaits tree local:x
    > exited 1
      drop sandbox of 1
      release tree local:x
      tell: 1 completed, exit code 0
    ");
}

#[test]
#[should_panic(expected = "was enqueued twice")]
#[cfg(debug_assertions)]
fn an_id_that_is_enqueued_twice_panics_in_tests() {
    play("slots=1", "enqueue 1 \n enqueue 1");
}

#[test]
#[should_panic(expected = "completed without executing")]
#[cfg(debug_assertions)]
fn a_completion_of_a_job_that_does_not_execute_panics_in_tests() {
    play("slots=1", "exited 1");
}
