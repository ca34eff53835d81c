//! Trial F6: the size of /dev/shm where a job names one.

use rstest::rstest;
use tidemill_tests::{Mode, World};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f6_shared_memory_has_the_size_that_is_asked_for(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "df -m /dev/shm | awk 'NR == 2 {print $2}'; \
                dd if=/dev/zero of=/dev/shm/x bs=1M count=20 2>/dev/null && echo written";
    for (flags, expected) in [
        (&["--shm", "32MiB"][..], "32\nwritten\n"),
        (&["--shm", "16MiB"], "16\n"),
        (&["--shm", "96MiB", "--memory", "128MiB"], "96\nwritten\n"),
    ] {
        let done = world.job(text).args(flags).run();
        assert_eq!(done.out(), expected, "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f6_shared_memory_is_no_larger_than_the_memory(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let flags = ["--shm", "65MiB", "--memory", "64MiB"];
    let done = world.job("true").args(flags).run();
    assert_eq!(done.code, 2, "{done}");
    assert!(
        done.err()
            .contains("--shm: error: a /dev/shm of 65 MiB is larger than the job's memory"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f6_a_full_shared_memory_is_named(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let flood = [
        "dd",
        "if=/dev/zero",
        "of=/dev/shm/big",
        "bs=64k",
        "count=100",
    ];
    let done = world.program(flood).args(["--shm", "1MiB"]).run();
    assert_eq!(done.code, 1, "{done}");
    assert_eq!(done.record().reason(), "shm", "{done}");
    let said = done.err();
    assert!(
        said.contains("/dev/shm was full: its limit of 1 MiB was reached"),
        "{done}"
    );
    assert!(said.contains("--shm 2MiB"), "{done}");
}
