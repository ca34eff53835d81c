//! Many jobs: what claims cost, and who waits how long.

use std::collections::BTreeMap;

use tidemill_core::Millis;
use tidemill_queue::submission::GroupPolicy;
use tidemill_queue::{Settings, Submission};

use crate::world::{World, exit, id, in_group, job, with_memory, with_priority};

/// Jobs of each kind that a claim has to pass over: a million together in an optimised build.
const HINDRANCES: usize = if cfg!(debug_assertions) {
    20_000
} else {
    200_000
};

/// A world with room for many.
fn large(jobs: u64) -> World {
    World::with(Settings {
        waiting_max: jobs,
        ..Settings::default()
    })
}

/// Submits without looking at the whole after each.
fn fill(world: &mut World, count: usize, submission: impl Fn(usize) -> Submission) {
    for number in 0..count {
        let id = world.new_id();
        let answer = world
            .queue
            .submit(world.now, &world.hub, id, submission(number));
        answer.unwrap();
    }
}

#[test]
fn a_claim_looks_at_as_much_with_many_delayed_foreign_blocked_and_failed_jobs_as_without() {
    let costs: Vec<_> = [0, HINDRANCES]
        .map(|count| {
            let mut world = large(u64::MAX);
            world.runner("r");
            let hasty = Submission {
                expires_after: Some(Millis(1_000)),
                ..job("ann")
            };
            fill(&mut world, count, |_| hasty.clone());
            world.wait(1);
            world.queue.pass(world.now, &world.hub.clone(), usize::MAX);
            let delayed = Submission {
                delay: Some(Millis(3_600_000)),
                ..job("ann")
            };
            fill(&mut world, count, |_| delayed.clone());
            fill(&mut world, count, |number| {
                let gib = 9 + u64::try_from(number % 4).unwrap();
                with_memory(gib)
            });
            fill(&mut world, count, |_| in_group(GroupPolicy::QueueAll));
            let mut rivals = job("rita");
            rivals.queue.name = "paused".to_owned();
            world.queue.pause(&rivals.queue, "for a test");
            fill(&mut world, count, |_| rivals.clone());
            let first = world.submit_unchecked(job("ann"));
            let offer = world.offer("r", 3);
            let planned = world.queue.plan_claim(world.now, &offer);
            let picks: Vec<_> = planned.plan.picks.iter().map(|pick| pick.id).collect();
            assert!(picks.contains(&id(first)));
            planned.plan.looked
        })
        .into();
    assert!(costs[0].rows <= 3, "{costs:?}");
    assert!(costs[1].rows <= 3, "{costs:?}");
    assert!(costs[1].lanes <= costs[0].lanes + 1, "{costs:?}");
    assert!(costs[1].classes <= costs[0].classes + 8, "{costs:?}");
}

/// Runs what waits on one runner, so many at once, each for so many seconds. Returns when each job was
/// given out, in that order.
fn work_off(world: &mut World, slots: u32, seconds: u64, turns: usize) -> Vec<u128> {
    let mut order = Vec::new();
    while order.len() < turns {
        let jobs = world.claim_unchecked("r", slots);
        if jobs.is_empty() {
            break;
        }
        world.wait(seconds);
        for job in &jobs {
            world.end_unchecked("r", *job, exit(0));
        }
        order.extend(jobs);
    }
    order
}

fn count_by_submitter(world: &World, jobs: &[u128]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for job in jobs {
        let job = world.queue.job(id(*job)).unwrap();
        *counts.entry(job.submission.submitter.clone()).or_default() += 1;
    }
    counts
}

#[test]
fn submitters_of_many_and_of_few_share_by_turns() {
    let mut world = large(u64::MAX);
    world.runner("r");
    // Who comes last and has least is not behind the thousands that came before.
    for (submitter, count) in [("many", 3_000), ("some", 300), ("few", 30)] {
        fill(&mut world, count, |_| job(submitter));
        world.wait(60);
    }
    let order = work_off(&mut world, 4, 1, 90);
    let counts = count_by_submitter(&world, &order[..90]);
    assert!(
        counts.values().all(|count| (29..=31).contains(count)),
        "{counts:?}"
    );
    let order = work_off(&mut world, 4, 1, 540);
    let counts = count_by_submitter(&world, &order[..540]);
    assert!((268..=272).contains(&counts["some"]), "{counts:?}");
    assert!((268..=272).contains(&counts["many"]), "{counts:?}");
    work_off(&mut world, 4, 1, usize::MAX);
    let queue = job("any").queue;
    assert_eq!(world.queue.waiting(&queue), 0, "all of them run in the end");
}

#[test]
fn no_number_of_classes_gives_anybody_more_turns() {
    let mut world = large(u64::MAX);
    world.runner("r");
    // One who asks for a little more memory each time has a lane for each.
    fill(&mut world, 300, |number| {
        let mut submission = job("sly");
        submission.requirements.memory.0 = u64::try_from(number).unwrap();
        submission
    });
    fill(&mut world, 1_000, |_| job("plain"));
    let order = work_off(&mut world, 4, 1, 200);
    let counts = count_by_submitter(&world, &order[..200]);
    assert!((99..=101).contains(&counts["sly"]), "{counts:?}");
}

#[test]
fn a_low_priority_runs_now_and_then_under_a_load_that_never_ends() {
    let mut world = large(u64::MAX);
    world.runner("r");
    let step = world.queue.settings().ageing_step.as_secs();
    fill(&mut world, 20, |_| with_priority("low", 0));
    fill(&mut world, 6_000, |_| with_priority("high", 2));
    // Ten seconds each, one at a time: the low lane gets a job about every three steps.
    let order = work_off(&mut world, 1, 10, 3_000);
    let is_low = |job: &u128| *job <= 20;
    let at: Vec<_> = (0_u64..)
        .zip(&order)
        .filter(|(_, job)| is_low(job))
        .map(|(number, _)| number * 10)
        .collect();
    let gaps = at.windows(2).map(|pair| pair[1] - pair[0]);
    let (least, most) = (gaps.clone().min().unwrap(), gaps.max().unwrap());
    assert!(at.len() > 10, "{at:?}");
    assert!(most <= 3 * step + 20, "it is passed over for {most} s");
    assert!(least >= 2 * step, "it is a trickle, not a share: {least} s");
}

#[test]
fn a_batch_is_what_single_claims_would_have_been() {
    let build = || {
        let mut world = large(u64::MAX);
        world.runner("r");
        fill(&mut world, 150, |number| {
            let submitter = ["ann", "bob", "cy", "dan", "eve"][number * 7 % 5];
            with_priority(submitter, i32::try_from(number * 13 % 3).unwrap())
        });
        world
    };
    let (mut batches, mut singly) = (build(), build());
    let mut of_batches = Vec::new();
    while of_batches.len() < 150 {
        of_batches.extend(batches.claim_unchecked("r", 50));
    }
    let of_singles: Vec<_> = (0..150)
        .flat_map(|_| singly.claim_unchecked("r", 1))
        .collect();
    assert_eq!(of_batches, of_singles);
}
