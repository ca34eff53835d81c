//! Each key is held once per job and released exactly once, on every way out.

use insta::assert_snapshot;

use crate::script::play;

#[test]
fn success_releases_each_key_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b
        fetched a
        fetched b
        built a
        built b
        built a+b
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > fetched b
      build tree b from blob/b
    > built a
    > built b
      build stack a+b from tree/a tree/b
    > built a+b
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
fn a_bad_exit_releases_each_key_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        fetched a
        built a
        exited 1 7
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
    > exited 1 7
      drop sandbox of 1
      release tree a
      release blob a
      tell: 1 completed, exit code 7
    ");
}

#[test]
fn a_failed_start_releases_each_key_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        fetched a
        built a
        execution-error 1 no such program
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
    > execution-error 1 no such program
      drop sandbox of 1
      release tree a
      release blob a
      tell: 1 execution error: program_not_found: no such program
    ");
}

#[test]
fn a_failed_layer_releases_what_the_job_had() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b
        fetched a
        built a
        fetched b error gone
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
    > fetched b error gone
      release tree a
      release blob a
      tell: 1 system error: layer: gone (failed to fetch blob b)
    ");
}

#[test]
fn a_timeout_releases_when_the_process_is_gone() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a timeout=1s
        fetched a
        built a
        time-up 1
        exited 1 143
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a timeout=1s
      fetch a
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
      tell: 1 is executing
      start 1 on tree/a (tree/a)
      start timer of 1: 1s
    > time-up 1
      drop timer of 1
      drop sandbox of 1
    > exited 1 143
      release tree a
      release blob a
      tell: 1 timed out (Run), then exit code 143
    ");
}

#[test]
fn cancel_while_waiting_for_layers_releases_at_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b
        fetched a
        built a
        cancel 1
        fetched b
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
    > cancel 1
      release tree a
      release blob a
      locally: 1 cancelled
    > fetched b
      release blob b
    ");
}

#[test]
fn cancel_in_the_queue_releases_at_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 9
        enqueue 1 a
        fetched a
        built a
        cancel 1
        exited 9
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 9
      tell: 9 is executing
      start 9
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > built a
      tell: 1 is waiting to execute
    > cancel 1
      release tree a
      release blob a
      locally: 1 cancelled
    > exited 9
      drop sandbox of 9
      tell: 9 completed, exit code 0
    ");
}

#[test]
fn a_cancelled_executing_job_keeps_its_references_until_its_process_is_gone() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        fetched a
        built a
        cancel 1
        exited 1 143
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
    > cancel 1
      drop sandbox of 1
    > exited 1 143
      release tree a
      release blob a
      locally: 1 cancelled, then exit code 143
    ");
}

#[test]
fn a_fetch_that_arrives_after_the_job_is_gone_is_released_at_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        cancel 1
        fetched a
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > cancel 1
      locally: 1 cancelled
    > fetched a
      release blob a
    ");
}

#[test]
fn a_build_that_arrives_after_the_job_is_gone_is_released_at_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 local:x
        cancel 1
        built local:x
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 local:x
      build tree local:x
      tell: 1 is waiting for layers
    > cancel 1
      locally: 1 cancelled
    > built local:x
      release tree local:x
    ");
}

#[test]
fn a_manifest_that_was_read_after_the_job_is_gone_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m
        fetched m
        cancel 1
        read m 1 x y
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m
      fetch m
      tell: 1 is waiting for layers
    > fetched m
      read blob/m for 1
    > cancel 1
      release blob m
      locally: 1 cancelled
    > read m 1 x y
    ");
}

#[test]
fn the_job_that_still_wants_a_late_fetch_keeps_it() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        enqueue 2 a
        cancel 1
        fetched a
        built a
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > enqueue 2 a
      tell: 2 is waiting for layers
    > cancel 1
      locally: 1 cancelled
    > fetched a
      release blob a
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
fn shut_down_releases_what_waits_at_once_and_what_executes_at_its_end() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        fetched a
        built a
        enqueue 2 a
        enqueue 3 a b
        shut-down bye
        exited 1 137
        fetched b
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
    > enqueue 2 a
      tell: 2 is waiting to execute
    > enqueue 3 a b
      fetch b
      tell: 3 is waiting for layers
    > shut-down bye
      drop sandbox of 1
      release tree a
      release blob a
      locally: 2 dropped
      release tree a
      release blob a
      locally: 3 dropped
    > exited 1 137
      release tree a
      release blob a
      locally: 1 dropped, then exit code 137
      done: bye
    > fetched b
      release blob b
    ");
}

#[test]
fn an_arrival_for_an_earlier_job_of_the_same_id_is_released_at_once() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        cancel 1
        enqueue 1 b
        fetched a
        fetched b
        built b
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > cancel 1
      locally: 1 cancelled
    > enqueue 1 b
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      release blob a
    > fetched b
      build tree b from blob/b
    > built b
      tell: 1 is executing
      start 1 on tree/b (tree/b)
    > exited 1
      drop sandbox of 1
      release tree b
      release blob b
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_failure_for_an_earlier_job_of_the_same_id_is_silent() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a
        cancel 1
        enqueue 1 b
        fetched a error gone
        fetched b
        built b
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a
      fetch a
      tell: 1 is waiting for layers
    > cancel 1
      locally: 1 cancelled
    > enqueue 1 b
      fetch b
      tell: 1 is waiting for layers
    > fetched a error gone
    > fetched b
      build tree b from blob/b
    > built b
      tell: 1 is executing
      start 1 on tree/b (tree/b)
    > exited 1
      drop sandbox of 1
      release tree b
      release blob b
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn a_manifest_that_was_read_for_an_earlier_job_of_the_same_id_is_ignored() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m
        fetched m
        cancel 1
        enqueue 1 b
        read m 1 error gone
        fetched b
        built b
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m
      fetch m
      tell: 1 is waiting for layers
    > fetched m
      read blob/m for 1
    > cancel 1
      release blob m
      locally: 1 cancelled
    > enqueue 1 b
      fetch b
      tell: 1 is waiting for layers
    > read m 1 error gone
    > fetched b
      build tree b from blob/b
    > built b
      tell: 1 is executing
      start 1 on tree/b (tree/b)
    > exited 1
      drop sandbox of 1
      release tree b
      release blob b
      tell: 1 completed, exit code 0
    ");
}

/// Found by the simulator: a cache could remove the trees from which a stack was being built for a
/// job that had been cancelled, and the next job would have started on what became of it.
#[test]
fn r4_what_a_build_reads_is_released_when_the_build_has_ended() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 a b
        fetched a
        fetched b
        built a
        built b
        cancel 1
        enqueue 2 a b
        built a+b
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 a b
      fetch a
      fetch b
      tell: 1 is waiting for layers
    > fetched a
      build tree a from blob/a
    > fetched b
      build tree b from blob/b
    > built a
    > built b
      build stack a+b from tree/a tree/b
    > cancel 1
      release blob a
      release blob b
      locally: 1 cancelled
    > enqueue 2 a b
      tell: 2 is waiting for layers
    > built a+b
      release tree b
      release tree a
      release stack a+b
      tell: 2 is executing
      start 2 on stack/a+b (tree/a tree/b)
    > exited 2
      drop sandbox of 2
      release stack a+b
      release tree a
      release tree b
      release blob a
      release blob b
      tell: 2 completed, exit code 0
    ");
}

#[test]
fn r4_a_blob_of_two_builds_is_released_when_both_have_ended() {
    let transcript = play(
        "slots=1",
        "
        enqueue 1 manifest:m b
        fetched m
        fetched b
        read m 1 b
        drain bye
        built b error no space
        built manifest:m
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 manifest:m b
      fetch m
      fetch b
      tell: 1 is waiting for layers
    > fetched m
      read blob/m for 1
    > fetched b
      build tree b from blob/b
    > read m 1 b
      build tree manifest:m from blob/m blob/b
    > drain bye
      tell: 1 handed back
      done: bye
    > built b error no space
    > built manifest:m
      release blob b
      release blob m
      release tree manifest:m
    ");
}
