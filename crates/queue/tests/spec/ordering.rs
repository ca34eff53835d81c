//! "Order and fairness".

use crate::world::{World, exit, job, queue_named, with_priority};

#[test]
fn priority_then_turns_then_age() {
    let mut world = World::new();
    world.runner("r");
    let ann: Vec<_> = (0..3).map(|_| world.submit(job("ann"))).collect();
    let bob: Vec<_> = (0..2).map(|_| world.submit(job("bob"))).collect();
    let urgent = world.submit(with_priority("ann", 1));
    // Ann had her turn with the urgent one.
    assert_eq!(
        world.claim("r", 9),
        [urgent, bob[0], ann[0], bob[1], ann[1], ann[2]]
    );
}

#[test]
fn turns_go_on_from_claim_to_claim() {
    let mut world = World::new();
    world.runner("r");
    for submitter in ["ann", "ann", "ann", "bob", "bob", "cy"] {
        world.submit(job(submitter));
    }
    assert_eq!(world.work_off("r"), [1, 4, 6, 2, 5, 3]);
}

#[test]
fn one_who_submits_one_at_a_time_takes_turns_with_one_who_submits_many() {
    let mut world = World::new();
    world.runner("r");
    for _ in 0..6 {
        world.submit(job("ann"));
    }
    let mut order = String::new();
    for _ in 0..4 {
        let bobs = world.submit(job("bob"));
        for _ in 0..2 {
            let jobs = world.claim("r", 1);
            order.push(if jobs == [bobs] { 'b' } else { 'a' });
        }
    }
    assert_eq!(order, "abababab");
}

#[test]
fn runners_have_no_more_of_a_queue_at_once_than_they_may() {
    let mut world = World::new();
    world.runner("r");
    world.queue.set_running_max(&queue_named("main"), Some(2));
    let jobs: Vec<_> = (0..4).map(|_| world.submit(job("ann"))).collect();
    let mut elsewhere = job("ann");
    elsewhere.queue = queue_named("other");
    let elsewhere = world.submit(elsewhere);
    // Two that plan at once do not make it more.
    let offer = world.offer("r", 1);
    let planned = world.queue.plan_claim(world.now, &offer);
    assert_eq!(world.claim("r", 9), [jobs[0], elsewhere, jobs[1]]);
    let hub = world.hub.clone();
    let late = world.queue.commit_claim(world.now, &hub, &offer, &planned);
    assert!(late.is_empty());
    assert_eq!(
        world.why(jobs[2]),
        "its queue has 2 jobs running, as many as it may"
    );
    world.end("r", jobs[0], exit(0));
    assert_eq!(world.claim("r", 9), [jobs[2]]);
}

#[test]
fn what_is_passed_over_for_long_goes_before_a_higher_priority() {
    let mut world = World::new();
    world.runner("r");
    let low: Vec<_> = (0..3)
        .map(|_| world.submit(with_priority("ann", 0)))
        .collect();
    let step = world.queue.settings().ageing_step.as_secs();
    world.wait(3 * step);
    let high: Vec<_> = (0..3)
        .map(|_| world.submit(with_priority("bob", 2)))
        .collect();
    // One of the low ones has waited for three steps, the others now begin to.
    assert_eq!(
        world.work_off("r"),
        [&[low[0]], &high[..], &low[1..]].concat()
    );
}

#[test]
fn a_paused_queue_accepts_and_does_not_start() {
    let mut world = World::new();
    world.runner("r");
    let queue = queue_named("main");
    let first = world.submit(job("ann"));
    let offer = world.offer("r", 9);
    let planned = world.queue.plan_claim(world.now, &offer);
    world.queue.pause(&queue, "ann repairs it");
    let hub = world.hub.clone();
    assert!(
        world
            .queue
            .commit_claim(world.now, &hub, &offer, &planned)
            .is_empty()
    );
    let second = world.submit(job("ann"));
    assert!(world.claim("r", 9).is_empty());
    assert_eq!(world.why(second), "its queue is paused: ann repairs it");
    world.queue.resume(&queue);
    assert_eq!(world.claim("r", 9), [first, second]);
}
