//! "Stopping and starting a hub", and hubs beside each other.

use tidemill_core::{Event, State};
use tidemill_queue::hub::CONTINUES;
use tidemill_queue::{HubId, Settings, Submission};

use crate::world::{ALL, World, exit, id, job};

fn silence() -> u64 {
    Settings::default().hub_silence.as_secs()
}

fn bound() -> Submission {
    Submission {
        continues: false,
        ..job("ann")
    }
}

fn stop(world: &mut World) {
    let hub = world.hub.clone();
    while world.queue.stop_hub(world.now, &hub, 2) {}
    world.queue.check_invariants();
}

fn start(world: &mut World, name: &str) {
    world.hub = HubId(name.to_owned());
    world.queue.start_hub(world.now, world.hub.clone());
}

#[test]
fn the_last_hub_that_stops_pauses_what_can_go_on_and_interrupts_what_cannot() {
    let mut world = World::new();
    world.runner("r");
    let running = world.submit(job("ann"));
    world.claim("r", 1);
    let waiting: Vec<_> = (0..5).map(|_| world.submit(job("ann"))).collect();
    let bound = world.submit(bound());
    stop(&mut world);
    assert!(waiting.iter().all(|job| world.state(*job) == State::Paused));
    assert_eq!(world.state(bound), State::Interrupted);
    assert_eq!(
        world.reason(bound),
        "was not run: hub `a` stopped, and the job cannot go on without it"
    );
    assert_eq!(world.why(waiting[0]), "paused: hub `a` stopped");
    assert!(world.claim("r", 9).is_empty());
    world.start("r", running);
    world.end("r", running, exit(0));
    assert_eq!(
        world.state(running),
        State::Succeeded,
        "remote attempts go on"
    );
}

#[test]
fn paused_ones_continue_under_their_own_id_oldest_first() {
    let mut world = World::new();
    world.runner("r");
    let jobs: Vec<_> = (0..5).map(|_| world.submit(job("ann"))).collect();
    stop(&mut world);
    let old = world.hub.clone();
    world.queue.end_hub(&old);
    start(&mut world, "b");
    world.queue.pass(world.now, &world.hub.clone(), 2);
    let states: Vec<_> = jobs.iter().map(|job| world.state(*job)).collect();
    use State::{Paused, Queued};
    assert_eq!(states, [Queued, Queued, Paused, Paused, Paused]);
    world.queue.pass(world.now, &world.hub.clone(), ALL);
    assert_eq!(world.work_off("r"), jobs, "and none is offered twice");
    let continued = |record: &tidemill_core::EventRecord| {
        record.event
            == Event::Resumed {
                why: Some(CONTINUES.to_owned()),
            }
    };
    for job in jobs {
        let history = world.queue.history(id(job));
        assert_eq!(history.iter().filter(|record| continued(record)).count(), 1);
    }
}

#[test]
fn what_a_dead_hub_left_is_taken_over_once() {
    let mut world = World::new();
    world.runner("r");
    let first = world.submit(job("ann"));
    let left_alone = world.submit(job("ann"));
    let bound = world.submit(bound());
    assert_eq!(world.claim("r", 1), [first]);
    world.wait(silence() - 1);
    start(&mut world, "b");
    world.pass();
    assert_eq!(
        world.events(left_alone),
        "created queued",
        "its hub may live"
    );
    world.run_for(1);
    assert_eq!(world.events(left_alone), "created queued paused resumed");
    assert_eq!(world.state(bound), State::Interrupted);
    assert_eq!(
        world.reason(bound),
        "was not run: hub `a` is gone, and the job cannot go on without it"
    );
    assert_eq!(world.state(first), State::Starting, "its runner goes on");
    world.run_for(5);
    assert_eq!(world.events(left_alone), "created queued paused resumed");
    world.end("r", first, exit(0));
    assert_eq!(world.work_off("r"), [left_alone]);
}

#[test]
fn a_rolling_restart_disturbs_nothing() {
    let mut world = World::new();
    world.runner("r");
    let running: Vec<_> = (0..3).map(|_| world.submit(job("ann"))).collect();
    assert_eq!(world.claim("r", 3), running);
    let waiting: Vec<_> = (0..5).map(|_| world.submit(job("ann"))).collect();
    for (old, new) in [("a", "b"), ("b", "c")] {
        start(&mut world, new);
        world.hub = HubId(old.to_owned());
        stop(&mut world);
        world.hub = HubId(new.to_owned());
        world.run_for(2);
        world.report("r");
        world.queue.end_hub(&HubId(old.to_owned()));
        world.run_for(20);
        world.report("r");
    }
    for job in &running {
        assert_eq!(world.state(*job), State::Starting);
        world.end("r", *job, exit(0));
    }
    assert_eq!(world.work_off("r"), waiting);
    for job in waiting {
        assert!(!world.events(job).contains("interrupted"));
        assert_eq!(world.attempt(job), 1);
    }
}

#[test]
fn beside_another_hub_only_what_lives_and_dies_with_a_hub_is_interrupted() {
    let mut world = World::new();
    let jobs = [job("ann"), bound()].map(|submission| world.submit(submission));
    let job = |number: u128| world.queue.job(id(number)).unwrap();
    let on_stop = |number, hub: &HubId, others| {
        tidemill_queue::hub::on_stop(job(number), hub, world.now, others)
    };
    let states =
        |others| jobs.map(|job| on_stop(job, &world.hub, others).map(|change| change.job.state()));
    assert_eq!(states(true), [None, Some(State::Interrupted)]);
    assert_eq!(
        states(false),
        [Some(State::Paused), Some(State::Interrupted)]
    );
    let other = HubId("b".to_owned());
    assert_eq!(on_stop(jobs[1], &other, true), None);
}

#[test]
fn a_hub_that_stops_takes_over_nothing() {
    let mut world = World::new();
    let waiting = world.submit(job("ann"));
    stop(&mut world);
    world.run_for(30);
    assert_eq!(world.state(waiting), State::Paused);
}

#[test]
fn a_hub_that_is_killed_every_few_seconds_loses_nothing() {
    let mut world = World::new();
    world.runner("r");
    let jobs: Vec<_> = (0..20).map(|_| world.submit(job("ann"))).collect();
    assert_eq!(world.claim("r", 5).len(), 5);
    for life in 0..12 {
        start(&mut world, &format!("life-{life}"));
        world.run_for(5);
        if life % 4 == 3 {
            world.report("r");
        }
    }
    world.run_for(20);
    world.report("r");
    for job in &jobs[..5] {
        assert_eq!(world.state(*job), State::Starting);
        world.end("r", *job, exit(0));
    }
    assert_eq!(world.work_off("r"), jobs[5..]);
    assert!(jobs.iter().all(|job| world.attempt(*job) == 1));
}
