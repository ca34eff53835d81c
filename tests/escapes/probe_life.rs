//! Jobs that leave somebody behind, do not end, or signal others.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, World, until};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively, verdict};

/// How soon after the end of its job a process must be gone.
const SOON: Duration = Duration::from_secs(2);

/// How long nothing must have been written before it counts as over. A beat takes 50 ms.
const SILENCE: Duration = Duration::from_millis(400);

/// Says whether somebody goes on after the probe.
const JUDGE_BEATS: &str = r#"
"$@" > said; grep -q ^safe: said
first=$(cat beat); sleep 0.5; second=$(cat beat)
if test "$first" = "$second"; then echo safe: silence; else echo broken: it beats; fi"#;

/// Says whether a reader of the probe's output waits for more than the probe.
const JUDGE_READER: &str = r#"
if timeout 2 bash -c '"$@" | cat' bash "$@" > said; then echo safe: closed; else echo broken: open; fi"#;

/// Says whether the probe survives being asked to end.
const JUDGE_DEAFNESS: &str = r#"
"$1" stubborn > said & sleep 0.3; kill -TERM $!; sleep 0.2
if kill -0 $!; then echo broken: it goes on; else echo safe: it ends; fi"#;

/// Core dumps of any size, in a place that goes with the namespace.
const WITH_CORE_DUMPS: &str =
    r#"ulimit -c unlimited; mount -t tmpfs probe /mnt; cd /mnt; exec "$@""#;

cases! {
    signals_to_all;
    signals_out;
    core_dump => |probe| probe.loose(super::WITH_CORE_DUMPS);
}

/// Tried by the tests of this file.
pub(crate) const JUDGED: &[&str] = &["orphan", "held_output", "stays", "stubborn", "session_loop"];

/// Waits until nothing is written to a file any more.
fn assert_silent(file: &Path) {
    let since = Instant::now();
    let mut last = (Vec::new(), Instant::now());
    until("nobody beats any more", SOON + SILENCE, || {
        let text = fs::read(file).unwrap_or_default();
        if text != last.0 {
            last = (text, Instant::now());
        }
        (last.1.elapsed() >= SILENCE).then_some(())
    });
    assert!(
        last.1 - since <= SOON,
        "it went on for {:?}",
        last.1 - since
    );
}

/// The probe leaves somebody behind that writes to the real directory.
#[rstest]
#[case::root(Mode::Root, "orphan")]
#[case::rootless(Mode::Rootless, "orphan")]
#[case::root_session_loop(Mode::Root, "session_loop")]
#[case::rootless_session_loop(Mode::Rootless, "session_loop")]
fn orphan_and_session_loop_end_with_their_job(#[case] mode: Mode, #[case] case: &'static str) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let beat = world.work().join("beat");
    let probe = Probe::new(case).flags(&["--write"]);
    let done = probe.trial(&world, &bait).run();
    probe.assert_held(&done);
    assert!(beat.exists(), "nobody was left behind: {done}");
    assert_silent(&beat);
    assert_lively(&world);
}

#[rstest]
#[case::orphan("orphan", JUDGE_BEATS)]
#[case::session_loop("session_loop", JUDGE_BEATS)]
#[case::held_output("held_output", JUDGE_READER)]
#[case::stubborn("stubborn", JUDGE_DEAFNESS)]
fn unconfined(#[case] case: &'static str, #[case] judge: &'static str) {
    let Some(world) = World::new(Mode::Root) else {
        return;
    };
    let output = Probe::new(case).loose(judge).run_unconfined(&world);
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(verdict(&out).starts_with("broken: "), "{output:?}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn held_output_does_not_hold_the_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new("held_output");
    let done = probe.trial(&world, &bait).run();
    probe.assert_held(&done);
    // Whoever holds it lives for 20 s.
    assert!(done.elapsed < Duration::from_secs(10), "{done}");
    assert_lively(&world);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn stays_no_longer_than_its_runner(#[case] mode: Mode) {
    const JOBS: usize = 5;
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let beats: Vec<_> = (0..JOBS)
        .map(|number| world.work().join(format!("beat-{number}")))
        .collect();
    let jobs: Vec<_> = beats
        .iter()
        .map(|beat| {
            let probe = Probe::new("stays").flags(&["--write"]);
            let probe = probe.variable("PROBE_BEAT", beat.display());
            probe.trial(&world, &bait).start()
        })
        .collect();
    for job in &jobs {
        job.await_output("safe: ");
    }
    for job in jobs {
        job.signal(Signal::KILL);
        job.wait();
    }
    for beat in &beats {
        assert_silent(beat);
    }
    assert_lively(&world);
    let lost = world.list(&[]);
    let lost = lost.iter().filter(|record| record.reason() == "lost");
    assert_eq!(lost.count(), JOBS);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn stubborn_jobs_end_at_their_limit(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let bait = Bait::lay(&world);
    let probe = Probe::new("stubborn").flags(&["--timeout", "1s", "--grace", "300ms"]);
    let done = probe.trial(&world, &bait).run();
    assert_eq!((done.code, done.record().reason()), (124, "time"), "{done}");
    assert!(done.elapsed < Duration::from_secs(10), "{done}");
    assert_lively(&world);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_that_stops_itself_ends_at_its_limit(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world
        .job("sleep 600 & kill -STOP 0; echo went on")
        .args(["--timeout", "1s", "--grace", "300ms"])
        .run();
    assert_eq!((done.code, done.out().as_str()), (124, ""), "{done}");
    assert!(done.elapsed < Duration::from_secs(10), "{done}");
    assert_lively(&world);
}
