//! Memory and CPUs.

use insta::assert_snapshot;

use crate::script::play;

#[test]
fn a_job_fits_if_used_and_asked_stay_within_the_memory() {
    let transcript = play(
        "slots=9 mem=4GiB",
        "
        enqueue 1 mem=3GiB
        enqueue 2 mem=1GiB
        enqueue 3 mem=1MiB
        exited 2
        exited 1
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 mem=3GiB
      tell: 1 is executing
      start 1
    > enqueue 2 mem=1GiB
      tell: 2 is executing
      start 2
    > enqueue 3 mem=1MiB
      tell: 3 is waiting to execute
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn a_job_fits_if_used_and_asked_stay_within_the_cpus() {
    let transcript = play(
        "slots=9 cpus=2",
        "
        enqueue 1 cpus=1.5
        enqueue 2 cpus=0.5
        enqueue 3 cpus=0.01
        exited 2
        exited 1
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 cpus=1.5
      tell: 1 is executing
      start 1
    > enqueue 2 cpus=0.5
      tell: 2 is executing
      start 2
    > enqueue 3 cpus=0.01
      tell: 3 is waiting to execute
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn a_lone_job_may_always_start() {
    let transcript = play(
        "slots=9 mem=1GiB cpus=1",
        "
        enqueue 1 mem=64GiB cpus=8
        exited 1
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 mem=64GiB cpus=8
      tell: 1 is executing
      start 1
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    ");
}

#[test]
fn nobody_passes_a_job_that_does_not_fit_so_it_never_starves() {
    let transcript = play(
        "slots=9 mem=4GiB",
        "
        enqueue 1 mem=1GiB
        enqueue 2 mem=8GiB
        enqueue 3 mem=1GiB
        exited 1
        exited 2
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 mem=1GiB
      tell: 1 is executing
      start 1
    > enqueue 2 mem=8GiB
      tell: 2 is waiting to execute
    > enqueue 3 mem=1GiB
      tell: 3 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 2 is executing
      start 2
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn a_dying_job_keeps_its_part_of_the_budget() {
    let transcript = play(
        "slots=9 mem=1GiB",
        "
        enqueue 1 mem=1GiB
        enqueue 2 mem=1GiB
        cancel 1
        exited 1
        exited 2
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 mem=1GiB
      tell: 1 is executing
      start 1
    > enqueue 2 mem=1GiB
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
fn a_cancelled_large_job_lets_the_next_ones_start() {
    let transcript = play(
        "slots=9 mem=4GiB",
        "
        enqueue 1 mem=3GiB
        enqueue 2 mem=4GiB
        enqueue 3 mem=1GiB
        cancel 2
        exited 1
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 mem=3GiB
      tell: 1 is executing
      start 1
    > enqueue 2 mem=4GiB
      tell: 2 is waiting to execute
    > enqueue 3 mem=1GiB
      tell: 3 is waiting to execute
    > cancel 2
      locally: 2 cancelled
      tell: 3 is executing
      start 3
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn a_job_that_asks_for_nothing_needs_only_a_slot() {
    let transcript = play(
        "slots=2 mem=1GiB",
        "
        enqueue 1 mem=1GiB
        enqueue 2
        enqueue 3
        exited 1
        exited 2
        exited 3
        ",
    );
    assert_snapshot!(transcript, @"
    > enqueue 1 mem=1GiB
      tell: 1 is executing
      start 1
    > enqueue 2
      tell: 2 is executing
      start 2
    > enqueue 3
      tell: 3 is waiting to execute
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 2
      drop sandbox of 2
      tell: 2 completed, exit code 0
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
    ");
}

#[test]
fn room_is_what_executing_and_available_jobs_leave() {
    let transcript = play(
        "slots=3 mem=4GiB cpus=2",
        "
        room
        enqueue 1 mem=1GiB cpus=0.5
        room
        enqueue 2 local:x mem=1GiB
        room
        built local:x
        room
        enqueue 3 mem=64GiB cpus=64
        room
        exited 1
        exited 2
        exited 3
        room
        ",
    );
    assert_snapshot!(transcript, @"
    > room
      3 slots, 4 GiB, 2 cpus
    > enqueue 1 mem=1GiB cpus=0.5
      tell: 1 is executing
      start 1
    > room
      2 slots, 3 GiB, 1.5 cpus
    > enqueue 2 local:x mem=1GiB
      build tree local:x
      tell: 2 is waiting for layers
    > room
      2 slots, 3 GiB, 1.5 cpus
    > built local:x
      tell: 2 is executing
      start 2 on tree/local:x (tree/local:x)
    > room
      1 slots, 2 GiB, 1.5 cpus
    > enqueue 3 mem=64GiB cpus=64
      tell: 3 is waiting to execute
    > room
      0 slots, 0 B, 0 cpus
    > exited 1
      drop sandbox of 1
      tell: 1 completed, exit code 0
    > exited 2
      drop sandbox of 2
      release tree local:x
      tell: 2 completed, exit code 0
      tell: 3 is executing
      start 3
    > exited 3
      drop sandbox of 3
      tell: 3 completed, exit code 0
    > room
      3 slots, 4 GiB, 2 cpus
    ");
}
