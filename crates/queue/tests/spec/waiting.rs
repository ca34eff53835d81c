//! Every waiting job has an honest reason, and nobody learns of another tenant by it.

use std::time::Duration;

use tidemill_core::{Millis, ReasonCode, State};
use tidemill_queue::{Return, Serves, Submission, Tenant, Waits};

use crate::world::{World, exit, id, job, profile, with_label, with_memory, with_priority};

#[test]
fn a_job_that_nobody_can_run_says_which_condition_and_the_nearest_miss() {
    let mut world = World::new();
    assert_eq!(
        why(&mut world, job("ann")),
        "no runner takes jobs of queue `main`"
    );
    let mut ubuntu = profile("r1");
    ubuntu.labels.insert("ubuntu".to_owned());
    world.runner_with("r1", ubuntu);
    let mut small = profile("r2");
    small.labels.insert("gpu".to_owned());
    small.memory = tidemill_core::ByteSize::gib(2);
    world.runner_with("r2", small);
    assert_eq!(
        why(&mut world, with_label("ubunto")),
        "no runner has label `ubunto`; nearest: `r1` has label `ubuntu`"
    );
    assert_eq!(
        why(&mut world, with_memory(64)),
        "no runner has 64 GiB of memory; nearest: `r1` has 8 GiB of memory"
    );
    let mut both = with_memory(4);
    both.requirements.labels.insert("gpu".to_owned());
    assert_eq!(
        why(&mut world, both),
        "no runner meets all conditions at once; nearest: `r1` lacks label `gpu`"
    );
    let mut much = with_label("quantum");
    much.requirements.cpus.thousandths = 9_500;
    much.requirements.architecture = Some("riscv64".to_owned());
    assert_eq!(
        why(&mut world, much),
        "no runner has architecture `riscv64`, label `quantum`, 9.5 CPUs; nearest: `r1` has \
         architecture `x86_64`, 4 CPUs"
    );
}

fn why(world: &mut World, submission: Submission) -> String {
    let number = world.submit(submission);
    world.why(number)
}

#[test]
fn nothing_of_other_tenants_is_told() {
    let mut world = World::new();
    let mut secret = profile("zeus-of-rival");
    secret.serves = Serves::Only([Tenant("rival".to_owned())].into());
    secret.labels.insert("gpu".to_owned());
    world.runner_with("zeus-of-rival", secret);
    let mut rivals = with_label("gpu");
    rivals.queue.tenant = Tenant("rival".to_owned());
    rivals.submitter = "rita".to_owned();
    let rivals = world.submit(rivals);
    assert_eq!(
        world.why(rivals),
        "the runner that could run it is busy; position 1"
    );
    let own = world.submit(with_label("gpu"));
    assert_eq!(world.why(own), "no runner takes jobs of queue `main`");
    world.run_for(80);
    world.runner("r");
    let told = world.why(own);
    assert_eq!(told, "no runner has label `gpu`; nearest: `r`");
    world.run_for(3600);
    assert_eq!(world.state(own), State::Failed);
    for text in [told, world.reason(own)] {
        assert!(!text.contains("zeus") && !text.contains("rita"), "{text}");
    }
    // A name is no secret within a tenant, and no key is shared between them.
    let mut same = job("ann");
    same.key = Some("k".to_owned());
    let mut theirs = same.clone();
    theirs.queue.tenant = Tenant("rival".to_owned());
    assert_ne!(world.submit(same), world.submit(theirs));
}

#[test]
fn after_a_settable_time_it_fails_with_that_reason() {
    let mut world = World::new();
    world.runner("r");
    let patient = world.submit(with_label("gpu"));
    let hasty = Submission {
        unsatisfiable_after: Some(Millis(60_000)),
        ..with_label("gpu")
    };
    let hasty = world.submit(hasty);
    let keep = |world: &mut World, seconds| {
        for _ in 0..seconds / 10 {
            world.run_for(10);
            world.report("r");
        }
    };
    keep(&mut world, 50);
    assert_eq!(world.state(hasty), State::Queued);
    keep(&mut world, 20);
    assert_eq!(world.state(hasty), State::Failed);
    assert_eq!(
        world.snapshot(hasty).reason.unwrap().code,
        ReasonCode::Unplaceable
    );
    assert_eq!(
        world.reason(hasty),
        "no runner has label `gpu`; nearest: `r`"
    );
    assert_eq!(world.state(patient), State::Queued);
    // A runner that could run it begins the time anew.
    let mut able = profile("s");
    able.labels.insert("gpu".to_owned());
    world.runner_with("s", able);
    world.run_for(1);
    assert!(matches!(
        world.queue.why_waiting(world.now, id(patient)),
        Some(Waits::Busy { .. })
    ));
    world.run_for(3000);
    assert_eq!(world.state(patient), State::Queued);
}

#[test]
fn a_time_without_runners_counts_from_its_beginning() {
    let mut world = World::new();
    let mut hasty = with_label("gpu");
    hasty.unsatisfiable_after = Some(Millis(60_000));
    let hasty = world.submit(hasty);
    world.run_for(30);
    // Changes of other rows, and of its own, do not begin it anew.
    world
        .queue
        .start_hub(world.now, tidemill_queue::HubId("b".to_owned()));
    world.hub = tidemill_queue::HubId("b".to_owned());
    world.run_for(30);
    assert_eq!(world.queue.job(id(hasty)).unwrap().hub, world.hub);
    world.run_for(2);
    assert_eq!(world.state(hasty), State::Failed);
}

#[test]
fn a_job_that_everybody_declined_says_so_and_fails() {
    let mut world = World::new();
    world.runner("r");
    world.runner("s");
    let submission = Submission {
        unsatisfiable_after: Some(Millis(60_000)),
        ..job("ann")
    };
    world.submit(submission);
    for name in ["r", "s"] {
        world.claim(name, 1);
        world.give_back(name, 1, Return::Declined);
    }
    assert_eq!(
        world.why(1),
        "every runner that could run it declined; the last: runner `s` declined it: no room"
    );
    for _ in 0..6 {
        world.run_for(10);
        world.report("r");
        world.report("s");
    }
    world.pass();
    assert_eq!(world.state(1), State::Failed);
    assert_eq!(
        world.reason(1),
        "every runner that could run it declined; the last: runner `s` declined it: no room"
    );
}

#[test]
fn busy_draining_and_next_are_told_apart() {
    let mut world = World::new();
    world.runner("r");
    let first = world.submit(job("ann"));
    world.claim("r", 1);
    let second = world.submit(job("bob"));
    let third = world.submit(with_priority("ann", 3));
    assert_eq!(
        world.why(second),
        "the runner that could run it is busy; position 2"
    );
    assert_eq!(
        world.why(third),
        "the runner that could run it is busy; position 1"
    );
    assert_eq!(world.why(first), "");
    let mut report = world.report_of("r", vec![]);
    report.draining = true;
    world.send("r", report);
    assert_eq!(
        world.why(second),
        "the runner that could run it takes nothing more"
    );
    world.runner("s");
    assert_eq!(
        world.why(second),
        "the runner that could run it is busy; position 2"
    );
    world.runner("t");
    assert_eq!(
        world.why(second),
        "the 2 runners that could run it are busy; position 2"
    );
    assert!(world.claim("t", 0).is_empty());
    world.end("r", first, exit(0));
}

#[test]
fn positions_are_the_order_in_which_jobs_are_given_out() {
    let mut world = World::new();
    world.runner("r");
    let mut jobs = Vec::new();
    for (number, submitter) in ["ann", "bob", "ann", "cy", "ann", "bob", "dan"]
        .iter()
        .enumerate()
    {
        let mut submission = with_priority(submitter, i32::try_from(number % 3).unwrap());
        submission.requirements.memory = tidemill_core::ByteSize::mib(number as u64 % 2);
        jobs.push(world.submit(submission));
    }
    world.wait(700);
    world.report("r");
    let mut by_position: Vec<_> = jobs
        .iter()
        .map(|job| {
            let Some(Waits::Busy { position, .. }) = world.queue.why_waiting(world.now, id(*job))
            else {
                panic!("{job} does not wait for a runner");
            };
            (position.number(), *job)
        })
        .collect();
    by_position.sort_unstable();
    assert!(
        by_position
            .iter()
            .zip(1..)
            .all(|((position, _), expected)| *position == expected)
    );
    let order: Vec<_> = by_position.into_iter().map(|(_, job)| job).collect();
    assert_eq!(world.claim("r", 99), order);
}

#[test]
fn rescue_and_all_the_rest_pass_over_kinds_that_they_do_not_know() {
    let mut world = World::new();
    world.runner("r");
    let newer = {
        let mut settings = world.queue.settings().clone();
        settings.kinds.insert("dream".to_owned());
        settings
    };
    let older = world.queue.settings().clone();
    let dream = || Submission {
        kind: "dream".to_owned(),
        expires_after: Some(Millis(1_000)),
        ..job("ann")
    };
    world.queue.set_settings(newer.clone()).unwrap();
    let leased = world.submit(Submission {
        expires_after: None,
        ..dream()
    });
    assert_eq!(world.claim("r", 1), [leased]);
    let waiting: Vec<_> = (0..20).map(|_| world.submit(dream())).collect();
    let known = world.submit(job("bob"));
    let expiring = world.submit(Submission {
        kind: "job".to_owned(),
        ..dream()
    });
    world.queue.set_settings(older).unwrap();
    assert_eq!(world.claim("r", 1), [known]);
    // Both leases end, and many rows that it does not know stand before the one that it does.
    for _ in 0..120 {
        world.wait(1);
        world.queue.pass(world.now, &world.hub.clone(), 1);
        world.queue.check_invariants();
    }
    assert_eq!(
        world.state(known),
        State::Failed,
        "rescue went past the one it cannot rescue"
    );
    assert_eq!(world.state(expiring), State::Failed);
    assert_eq!(world.state(leased), State::Starting);
    assert!(waiting.iter().all(|job| world.state(*job) == State::Queued));
    assert_eq!(
        world.why(waiting[0]),
        "no hub that knows jobs of kind `dream` has looked at it"
    );
    // The newer hub goes on with them.
    world.queue.set_settings(newer).unwrap();
    world.run_for(2);
    assert_eq!(world.state(leased), State::Failed);
    assert!(waiting.iter().all(|job| world.state(*job) == State::Failed));
    assert!(world.queue.settings().lease < Duration::from_secs(120));
}
