//! Images that are not here when a job is made: what is fetched when, what the record says meanwhile, and
//! what becomes of the job when a registry does not give them. Trial G3.

use std::time::{Duration, Instant};

use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};
use tidemill_tests::{Background, Done, Mode, PATIENCE, TarEntry, Trial, World, until};

use super::fake::{Fake, Gate, Instead};
use super::made::{Made, base, in_image, layer};

/// An image whose command says `fetched`.
pub(super) fn made() -> Option<Made> {
    let mut made = Made::new(vec![base()?, layer(&[TarEntry::file("own", "fetched")])]);
    made.config = json!({ "Cmd": ["/bin/cat", "/own"] });
    Some(made)
}

fn run<'w>(world: &'w World, fake: &Fake, flags: &[&str]) -> Trial<'w> {
    world.bare_run(in_image(&fake.name())).args(flags)
}

fn job<'w>(world: &'w World, fake: &Fake, command: &[&str]) -> Background<'w> {
    world.program(command).args(in_image(&fake.name())).start()
}

/// What a job in this state of preparing waits for.
fn awaited(world: &World, id: &str, part: &str) -> Value {
    until(&format!("the record has {part:?}"), PATIENCE, || {
        let record = world.show(id);
        let message = record.0["progress"]["message"].as_str()?;
        message.contains(part).then(|| record.0["progress"].clone())
    })
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn layers_are_fetched_when_the_job_is_recorded(#[case] mode: Mode) {
    let (Some(world), Some(made)) = (World::new(mode), made()) else {
        return;
    };
    let gate = Gate::default();
    let opened = gate.clone();
    let base = super::made::packed_digest(&made.layers[0]);
    let fake = Fake::serve(&world, &made, move |path, _| {
        if path.ends_with(&base) {
            opened.pass();
        }
        None
    });
    let job = job(&world, &fake, &["/bin/cat", "/own"]);
    let id = job.id();
    let progress = awaited(&world, &id, "fetching the image");
    assert!(progress["total"].as_u64().unwrap() > 1000, "{progress}");
    assert_eq!(world.show(&id).state(), "starting");
    let listed = world.call(["ps"]).out();
    assert!(listed.contains("[fetching the image "), "{listed}");
    let shown = world.call(["show", &id]).out();
    assert!(shown.contains("fetching the image "), "{shown}");
    gate.open();
    let done = job.wait();
    assert_eq!((done.code, done.out().as_str()), (0, "fetched"), "{done}");
    // The second time nobody is asked.
    let before = fake.asked("/v2/");
    let again = run(&world, &fake, &[]).run();
    assert_eq!(
        (again.code, again.out().as_str()),
        (0, "fetched"),
        "{again}"
    );
    assert_eq!(fake.asked("/v2/"), before);
}

#[test]
fn g3_the_record_says_what_a_registry_is_waited_for() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let base = super::made::packed_digest(&made.layers[0]);
    let fake = Fake::serve(&world, &made, move |path, earlier| {
        (path.ends_with(&base) && earlier == 0)
            .then_some(Instead::Status("429 Too Many Requests", "Retry-After: 3"))
    });
    let job = job(&world, &fake, &["/bin/true"]);
    let id = job.id();
    let what = format!(
        "waiting for registry {}: 429 Too Many Requests, next try at ",
        fake.host()
    );
    awaited(&world, &id, &what);
    job.await_error(&what);
    let done = job.wait();
    assert_eq!(done.code, 0, "{done}");
    let events = world.call(["events", &id]).out();
    assert!(events.contains("unpacking the image"), "{events}");
}

/// A job has an hour to prepare, and may spend it on a registry that asks for minutes.
#[test]
fn g3_a_registry_may_ask_for_a_wait_that_the_job_has_time_for() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let base = super::made::packed_digest(&made.layers[0]);
    let fake = Fake::serve(&world, &made, move |path, _| {
        let busy = Instead::Status("429 Too Many Requests", "Retry-After: 1500");
        path.ends_with(&base).then_some(busy)
    });
    let job = job(&world, &fake, &["/bin/true"]);
    let id = job.id();
    awaited(&world, &id, "429 Too Many Requests, next try at ");
    world.ask(["cancel", &id]);
    let done = job.wait();
    assert_eq!(done.code, 130, "{done}");
    let flags = ["--prepare-timeout", "20m"];
    let done = run(&world, &fake, &flags).run();
    assert_eq!(done.code, 125, "{done}");
    given_up(&done, &["asked again after 1500 s only"]);
}

/// The end of a run that a registry did not let begin.
fn given_up(done: &Done, said: &[&str]) {
    for said in said {
        assert!(done.err().contains(said), "no {said:?}: {done}");
    }
    assert!(done.err().contains("hint: "), "{done}");
}

#[test]
fn g3_a_registry_that_stalls_ends_the_run_in_time() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let fake = Fake::serve(&world, &made, |path, _| {
        path.contains("manifests").then_some(Instead::Stall(0))
    });
    let begun = Instant::now();
    let done = run(&world, &fake, &["--prepare-timeout", "1s"]).run();
    assert_eq!(done.code, 124, "{done}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{done}");
    let name = fake.name();
    let what = format!("was reached before it was known what {name} is");
    let waits = format!("waiting for registry {}", fake.host());
    let hint =
        "raise the limit with --prepare-timeout; an image that was pulled before needs no registry";
    given_up(&done, &[&what, &waits, hint]);
    assert_eq!(world.list(&[]).len(), 0, "there is nothing to record");
}

#[test]
fn g3_a_layer_that_stalls_ends_the_job_in_time_and_is_gone_on_with() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let base = super::made::packed_digest(&made.layers[0]);
    let stalling = base.clone();
    let fake = Fake::serve(&world, &made, move |path, earlier| {
        (path.ends_with(&stalling) && earlier == 0).then_some(Instead::Stall(100_000))
    });
    let done = run(&world, &fake, &["--prepare-timeout", "3s"]).run();
    assert_eq!(done.code, 124, "{done}");
    given_up(
        &done,
        &["fetching the image", "what has come so far is kept"],
    );
    let record = &world.list(&[])[0];
    assert_eq!(
        (record.state(), record.reason()),
        ("timed_out", "prepare_time")
    );
    let again = run(&world, &fake, &[]).run();
    assert_eq!(
        (again.code, again.out().as_str()),
        (0, "fetched"),
        "{again}"
    );
    assert_eq!(fake.asked(&base), 2);
}

#[test]
fn g3_a_refusal_is_told_with_the_image_the_registry_and_the_cause() {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let base = super::made::packed_digest(&made.layers[0]);
    let fake = Fake::serve(&world, &made, move |path, _| {
        path.ends_with(&base).then_some(Instead::Status(
            "429 Too Many Requests",
            "Retry-After: 3600",
        ))
    });
    let done = run(&world, &fake, &[]).run();
    assert_eq!(done.code, 125, "{done}");
    let what = format!(
        "cannot fetch the image {} from {}: ",
        fake.name(),
        fake.host()
    );
    given_up(
        &done,
        &[
            &what,
            "429 Too Many Requests",
            "asked again after 3600 s only",
        ],
    );
    let record = &world.list(&[])[0];
    assert_eq!((record.state(), record.reason()), ("failed", "layer"));
    let reason = record.reason_text();
    assert!(reason.starts_with(&what), "the cause comes first: {reason}");
    // The same before there is a record.
    let fake = Fake::serve(&world, &made_again(), |_, _| {
        Some(Instead::Status(
            "429 Too Many Requests",
            "Retry-After: 3600",
        ))
    });
    let done = run(&world, &fake, &[]).run();
    assert_eq!(done.code, 125, "{done}");
    given_up(
        &done,
        &[
            &fake.name(),
            "429 Too Many Requests",
            "asked again after 3600 s only",
        ],
    );
}

fn made_again() -> Made {
    made().expect("it was made a moment ago")
}

#[rstest]
#[case::ctrl_c(true)]
#[case::cancel(false)]
fn a_fetch_ends_with_its_job(#[case] by_signal: bool) {
    let (Some(world), Some(made)) = (World::new(Mode::Rootless), made()) else {
        return;
    };
    let base = super::made::packed_digest(&made.layers[0]);
    let fake = Fake::serve(&world, &made, move |path, _| {
        path.ends_with(&base).then_some(Instead::Stall(1000))
    });
    let job = job(&world, &fake, &["/bin/true"]);
    let id = job.id();
    awaited(&world, &id, "fetching the image");
    if by_signal {
        job.signal_group(Signal::INT);
    } else {
        job.cancel();
    }
    let done = job.wait();
    assert_eq!(done.code, 130, "{done}");
    assert_eq!(world.show(&id).state(), "cancelled");
}
