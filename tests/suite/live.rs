//! Trial B5: what a job writes is shown while it runs, and without a newline.

use std::time::{Duration, Instant};

use rstest::rstest;
use tidemill_tests::{Mode, World};

/// How long a byte may take from the job to whoever watches.
const LIVE: Duration = Duration::from_millis(500);

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b5_output_is_shown_without_a_newline(#[case] mode: Mode) {
    const DOTS: usize = 20;
    let Some(world) = World::new(mode) else {
        return;
    };
    let text =
        format!("printf .; i=1; while [ $i -lt {DOTS} ]; do read x; printf .; i=$((i+1)); done");
    let mut job = world.job(&text).args(["--stdin"]).start();
    let id = job.await_output(".").id();
    let follower = world.command(["logs", "-f", &id]).start();
    follower.await_output(".");
    let mut took = Vec::new();
    for dots in 2..=DOTS {
        // Each dot is seen before the next one is let go. The key that lets it go is on its way within
        // the time that is measured.
        let pressed = Instant::now();
        job.write_input(b"\n");
        let dots = ".".repeat(dots);
        job.await_output(&dots);
        follower.await_output(&dots);
        took.push(pressed.elapsed());
    }
    took.sort();
    // A machine that does many things at once may be late now and then, and not most of the time.
    assert!(took[took.len() * 3 / 4] <= LIVE, "{took:?}");
    let done = job.wait();
    let all = ".".repeat(DOTS);
    assert_eq!((done.code, &done.out()), (0, &all), "{done}");
    assert_eq!(follower.wait().out(), all);
    // They are one line.
    assert_eq!(world.raw_log(&id), all.as_bytes());
    assert_eq!(world.ask(["logs", "--tail", "1", &id]), all.as_bytes());
}

/// Nobody asks for the next dot here: what comes is what a program with a clock of its own writes.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn b5_dots_come_one_by_one(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "for i in $(seq 20); do printf .; sleep 0.1; done";
    let job = world.job(text).start();
    job.await_output("....................");
    let reads = job.stdout().reads;
    let done = job.wait();
    assert_eq!(done.code, 0, "{done}");
    // All at once, or a few heaps of them, is what a buffer would make of them.
    assert!(reads.len() >= 15, "{} reads: {done}", reads.len());
    let apart = reads[reads.len() - 1].0 - reads[0].0;
    assert!(
        apart >= Duration::from_millis(1900) - LIVE,
        "{apart:?}: {done}"
    );
}
