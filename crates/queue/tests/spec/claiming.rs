//! "Claiming": who gets what.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::{ByteSize, CpuCount, Millis, State};
use tidemill_queue::offer::ClaimNumber;
use tidemill_queue::submission::GroupPolicy;
use tidemill_queue::{
    AttemptKey, ClaimAnswer, Profile, Return, Serves, Settings, Submission, Tenant, Tier, Verdict,
};

use crate::world::{World, exit, in_group, job, profile, queue_named, with_label, with_memory};

#[test]
fn a_claim_gets_up_to_n_within_what_is_free() {
    let mut world = World::new();
    world.runner("r");
    let big = [world.submit(with_memory(5)), world.submit(with_memory(5))];
    let small: Vec<_> = (0..3).map(|_| world.submit(with_memory(1))).collect();
    assert_eq!(world.claim("r", 3), [big[0], small[0], small[1]]);
    let mut rest = world.offer("r", 3);
    rest.memory_free = ByteSize::gib(1);
    assert_eq!(world.claim_with("r", &rest), [small[2]]);
    rest.cpus_free = CpuCount { thousandths: 0 };
    rest.claim = ClaimNumber(3);
    rest.settled = ClaimNumber(2);
    rest.held = world.runners["r"].held.clone();
    assert!(world.claim_with("r", &rest).is_empty());
    for done in [&big[..1], &small].concat() {
        world.end("r", done, exit(0));
    }
    assert_eq!(world.claim("r", 3), [big[1]]);
}

#[test]
fn a_lone_job_may_have_all_of_a_runner_that_lost_memory_to_its_host() {
    let mut world = World::new();
    world.runner("r");
    let all = world.submit(with_memory(8));
    let mut offer = world.offer("r", 2);
    offer.memory_free = ByteSize::gib(7);
    assert_eq!(world.claim_with("r", &offer), [all]);
}

#[test]
fn a_large_job_does_not_starve_behind_small_ones() {
    let settings = Settings::default();
    let hold_after = settings.hold_after.as_secs();
    let mut world = World::with(settings);
    world.runner("r");
    world.runner("s");
    let begun = [world.submit(with_memory(2)), world.submit(with_memory(2))];
    assert_eq!(world.claim("r", 1), begun[..1]);
    assert_eq!(world.claim("s", 1), begun[1..]);
    let large = world.submit(with_memory(7));
    let busy = |world: &mut World, name| {
        let small = world.submit(with_memory(1));
        let mut offer = world.offer(name, 2);
        offer.memory_free = ByteSize::gib(6);
        (small, world.claim_with(name, &offer))
    };
    let (small, got) = busy(&mut world, "r");
    assert_eq!(got, [small], "a small one goes past it at first");
    world.end("r", small, exit(0));
    world.wait(hold_after);
    world.report("r");
    world.report("s");
    let (left, got) = busy(&mut world, "r");
    assert!(got.is_empty(), "the runner is held for the large one");
    let (small, got) = busy(&mut world, "s");
    assert_eq!(got, [left, small], "one runner is held, not all");
    world.end("r", begun[0], exit(0));
    assert_eq!(world.claim("r", 1), [large]);
}

#[test]
fn only_what_a_runner_can_run_is_given_to_it() {
    type Case = (fn(&mut Submission), fn(&mut Profile));
    let cases: [Case; 6] = [
        (
            |s| s.requirements.tier = Tier::Microvm,
            |p| {
                p.tiers.insert(Tier::Microvm);
            },
        ),
        (
            |s| s.requirements.architecture = Some("aarch64".to_owned()),
            |p| p.architecture = "aarch64".to_owned(),
        ),
        (
            |s| {
                s.requirements.labels.insert("gpu".to_owned());
            },
            |p| {
                p.labels.insert("gpu".to_owned());
            },
        ),
        (
            |s| s.requirements.memory = ByteSize::gib(9),
            |p| p.memory = ByteSize::gib(16),
        ),
        (
            |s| s.requirements.cpus.thousandths = 5_000,
            |p| p.cpus.thousandths = 8_000,
        ),
        (
            |s| s.requirements.image = Some("debian".to_owned()),
            |p| {
                p.images.insert("debian".to_owned());
            },
        ),
    ];
    for (number, (need, have)) in cases.into_iter().enumerate() {
        let mut world = World::new();
        world.runner("plain");
        let mut able = profile("able");
        have(&mut able);
        world.runner_with("able", able);
        let mut submission = job("ann");
        need(&mut submission);
        world.submit(submission);
        assert!(world.claim("plain", 1).is_empty(), "case {number}");
        assert_eq!(world.claim("able", 1), [1], "case {number}");
    }
}

#[test]
fn a_runner_takes_only_from_queues_and_tenants_that_it_serves() {
    let mut world = World::new();
    let mut of_other = profile("r");
    of_other.serves = Serves::Only([Tenant("other".to_owned())].into());
    world.runner_with("r", of_other);
    let mut of_queue = profile("s");
    of_queue.queues = Some(["nightly".to_owned()].into());
    world.runner_with("s", of_queue);
    world.submit(job("ann"));
    let mut nightly = job("ann");
    nightly.queue = queue_named("nightly");
    let nightly = world.submit(nightly);
    assert!(world.claim("r", 9).is_empty());
    assert_eq!(world.claim("s", 9), [nightly]);
}

#[test]
fn of_a_hundred_claimers_exactly_one_gets_each_job() {
    let mut world = World::new();
    let names: Vec<&'static str> = (0..100).map(|n| &*format!("r{n}").leak()).collect();
    for name in &names {
        world.runner(name);
    }
    for round in 0..20 {
        let jobs = [
            world.submit(job("ann")),
            world.submit(in_group(GroupPolicy::QueueAll)),
        ];
        let plans: Vec<_> = names
            .iter()
            .map(|name| {
                let offer = world.offer(name, 2);
                let planned = world.queue.plan_claim(world.now, &offer);
                (offer, planned)
            })
            .collect();
        let mut got: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let hub = world.hub.clone();
        // The first one is slow: it loses one job and still gets the other.
        let winner = plans[round + 1].clone();
        let mut one = winner.clone();
        one.1.plan.picks.truncate(1);
        for (offer, planned) in std::iter::once(&one).chain(&plans) {
            for each in world.queue.commit_claim(world.now, &hub, offer, planned) {
                let holders = got
                    .entry(each.attempt.execution.as_uuid().as_u128())
                    .or_default();
                holders.push(offer.profile.name.clone());
                let name = names
                    .iter()
                    .find(|name| **name == offer.profile.name.0)
                    .unwrap();
                world.runners.get_mut(name).unwrap().held.push(each.attempt);
            }
        }
        assert_eq!(got.keys().copied().collect::<Vec<_>>(), jobs);
        assert!(got.values().all(|holders| holders.len() == 1), "{got:?}");
        assert_eq!(
            got[&jobs[1]][0].0, names[0],
            "one conflict keeps nobody from the rest"
        );
        for (job, holders) in got {
            let name = names.iter().find(|name| **name == holders[0].0).unwrap();
            world.runners.get_mut(name).unwrap().claims += 1;
            world.end(name, job, exit(0));
        }
    }
}

#[test]
fn a_claim_whose_answer_was_lost_gets_the_same_answer() {
    let mut world = World::new();
    world.runner("r");
    world.submit(job("ann"));
    world.submit(job("ann"));
    let offer = world.offer("r", 1);
    let hub = world.hub.clone();
    let first = world.queue.claim(world.now, &hub, &offer);
    world.wait(20);
    let again = world.queue.claim(world.now, &hub, &offer);
    assert_eq!(first, again);
    let lease = world
        .queue
        .job(crate::world::id(1))
        .unwrap()
        .lease()
        .unwrap();
    let length = world.queue.settings().lease;
    assert_eq!(
        lease.until,
        world.now.plus(length),
        "as the runner counts it"
    );
    assert!(matches!(&first, ClaimAnswer::Jobs { assignments, .. } if assignments.len() == 1));
    assert_eq!(world.state(2), State::Queued);
}

#[test]
fn a_claim_that_was_given_up_gets_nothing_however_late_it_comes() {
    let mut world = World::new();
    world.runner("r");
    world.submit(job("ann"));
    let late = world.offer("r", 1);
    let planned = world.queue.plan_claim(world.now, &late);
    world.runners.get_mut("r").unwrap().claims = 1;
    world.report("r");
    let hub = world.hub.clone();
    assert!(
        world
            .queue
            .commit_claim(world.now, &hub, &late, &planned)
            .is_empty()
    );
    assert_eq!(
        world.queue.claim(world.now, &hub, &late),
        ClaimAnswer::Settled
    );
    assert_eq!(world.claim("r", 1), [1]);
}

#[test]
fn who_declines_is_not_asked_again_and_others_are_at_once() {
    let mut world = World::new();
    world.runner("r");
    world.runner("s");
    let first = world.submit(job("ann"));
    let second = world.submit(job("ann"));
    assert_eq!(world.claim("r", 1), [first]);
    assert_eq!(
        world.give_back("r", first, Return::Declined),
        Verdict::Recorded
    );
    assert_eq!(world.state(first), State::Queued);
    assert_eq!(world.reason(first), "runner `r` declined it: no room");
    assert_eq!(
        world.claim("r", 9),
        [second],
        "the declined one hides nothing"
    );
    assert_eq!(world.claim("s", 1), [first]);
    let job = world.queue.job(crate::world::id(first)).unwrap();
    assert_eq!((job.tries.last.0, job.tries.charged), (2, 0));
    // In its next life it is asked again.
    world.give_back("s", first, Return::Declined);
    world.runner("r");
    assert_eq!(world.claim("r", 9), [first]);
}

#[test]
fn what_is_handed_back_while_draining_is_not_charged() {
    let mut world = World::new();
    world.runner("r");
    let first = world.submit(job("ann"));
    world.claim("r", 1);
    world.start("r", first);
    let mut report = world.report_of("r", vec![]);
    report.draining = true;
    assert_eq!(
        world.send("r", report),
        [(first, Verdict::Keep)],
        "heartbeats go on"
    );
    assert_eq!(
        world.give_back("r", first, Return::HandedBack),
        Verdict::Recorded
    );
    assert_eq!(world.reason(first), "runner `r` handed it back: no room");
    assert_eq!(
        world
            .queue
            .job(crate::world::id(first))
            .unwrap()
            .tries
            .charged,
        0
    );
    world.runner("r");
    assert_eq!(world.claim("r", 1), [first], "it did not decline");
    let mut offer = world.offer("r", 1);
    offer.profile.draining = true;
    world.submit(job("ann"));
    let hub = world.hub.clone();
    assert_eq!(
        world.queue.claim(world.now, &hub, &offer),
        ClaimAnswer::Settled
    );
}

#[test]
fn a_delay_is_waited_for() {
    let mut world = World::new();
    world.runner("r");
    let delayed = Submission {
        delay: Some(Millis(60_000)),
        ..job("ann")
    };
    let delayed = world.submit(delayed);
    assert_eq!(world.events(delayed), "created");
    assert_eq!(world.why(delayed), "its delay is not over");
    world.wait(59);
    assert!(world.claim("r", 1).is_empty());
    world.wait(1);
    assert_eq!(world.claim("r", 1), [delayed]);
}

#[test]
fn foreign_jobs_hide_nothing() {
    let mut world = World::new();
    world.runner("r");
    for _ in 0..50 {
        world.submit(with_label("gpu"));
    }
    let own = world.submit(job("ann"));
    assert_eq!(world.claim("r", 1), [own]);
}

#[test]
fn an_attempt_begins_once_per_number() {
    let mut world = World::new();
    world.runner("r");
    world.runner("s");
    let first = world.submit(job("ann"));
    let mut seen = BTreeSet::new();
    for round in 0..4 {
        let name = if round % 2 == 0 { "r" } else { "s" };
        assert_eq!(world.claim(name, 1), [first]);
        let key: AttemptKey = world.key(first);
        assert!(seen.insert(key));
        world.give_back(name, first, Return::HandedBack);
    }
    assert_eq!(world.attempt(first), 4);
}
