//! Time limits.

use insta::assert_snapshot;

use crate::script::play;

#[test]
fn the_timer_starts_when_the_sandbox_starts() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1
        enqueue 2 timeout=30s local:x
        built local:x
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1
      tell: 1 is executing
      start 1
    > enqueue 2 timeout=30s local:x
      build tree local:x
      tell: 2 is waiting for layers
    > built local:x
      tell: 2 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 2 is executing
      start 2 on tree/local:x (tree/local:x)
      start timer of 2: 30s
    > exited 2
      drop timer of 2
      drop sandbox of 2
      release tree local:x
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn the_job_is_killed_and_reported_when_it_has_ended() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=30s
        time-up 1
        exited 1 143
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=30s
      tell: 1 is executing
      start 1
      start timer of 1: 30s
    > time-up 1
      drop timer of 1
      drop sandbox of 1
    > exited 1 143
      tell: 1 timed out (Run), then exit code 143
    ");
}

#[test]
fn a_timed_out_job_keeps_its_slot_until_it_has_ended() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=30s
        enqueue 2
        time-up 1
        exited 1 143
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=30s
      tell: 1 is executing
      start 1
      start timer of 1: 30s
    > enqueue 2
      tell: 2 is waiting to execute
    > time-up 1
      drop timer of 1
      drop sandbox of 1
    > exited 1 143
      tell: 1 timed out (Run), then exit code 143
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn a_timer_that_fires_after_the_cancel_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=30s
        cancel 1
        time-up 1
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=30s
      tell: 1 is executing
      start 1
      start timer of 1: 30s
    > cancel 1
      drop timer of 1
      drop sandbox of 1
    > time-up 1
    > exited 1
      locally: 1 cancelled, then exit code 0
    ");
}

#[test]
fn a_timer_that_fires_after_the_completion_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=30s
        exited 1
        time-up 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=30s
      tell: 1 is executing
      start 1
      start timer of 1: 30s
    > exited 1
      drop timer of 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    > time-up 1
    ");
}

#[test]
fn a_timer_that_fires_twice_is_ignored_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=30s
        time-up 1
        time-up 1
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=30s
      tell: 1 is executing
      start 1
      start timer of 1: 30s
    > time-up 1
      drop timer of 1
      drop sandbox of 1
    > time-up 1
    > exited 1
      tell: 1 timed out (Run), then exit code 0
    ");
}

#[test]
fn a_timed_out_job_that_could_not_be_set_up_says_so() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 timeout=30s
        time-up 1
        system-error 1 no cgroup
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 timeout=30s
      tell: 1 is executing
      start 1
      start timer of 1: 30s
    > time-up 1
      drop timer of 1
      drop sandbox of 1
    > system-error 1 no cgroup
      tell: 1 timed out (Run), then system error: sandbox: no cgroup
    ");
}

#[test]
fn the_time_to_prepare_ends_a_job_that_waits_for_layers() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b prepare=1m
        fetched a
        prepare-time-up 1
        built a
        fetched b
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b prepare=1m
      fetch a
      fetch b
      tell: 1 is waiting for layers
      start prepare timer of 1: 60s
    > fetched a
      build tree a from blob/a
    > prepare-time-up 1
      drop prepare timer of 1
      tell: 1 timed out (Prepare)
    > built a
      release blob a
      release tree a
    > fetched b
      release blob b
    ");
}

#[test]
fn the_time_to_prepare_ends_with_the_layers() {
    let transcript = play(
        "slots=1",
        "
        enqueue 9
        enqueue 1 local:x prepare=1m
        built local:x
        prepare-time-up 1
        exited 9
        prepare-time-up 1
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9
      tell: 9 is executing
      start 9
    > enqueue 1 local:x prepare=1m
      build tree local:x
      tell: 1 is waiting for layers
      start prepare timer of 1: 60s
    > built local:x
      drop prepare timer of 1
      tell: 1 is waiting to execute
    > prepare-time-up 1
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
      tell: 1 is executing
      start 1 on tree/local:x (tree/local:x)
    > prepare-time-up 1
    > exited 1
      drop sandbox of 1
      release tree local:x
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_job_whose_layers_are_here_needs_no_time_to_prepare() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 prepare=1m
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 prepare=1m
      tell: 1 is executing
      start 1
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    ");
}
