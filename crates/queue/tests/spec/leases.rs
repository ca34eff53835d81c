//! "Leases" and what fences attempts off.

use std::time::Duration;

use tidemill_core::{Attempt, ReasonCode, State};
use tidemill_queue::offer::AttemptKey;
use tidemill_queue::retry::RetryOn;
use tidemill_queue::settings::BadSettings;
use tidemill_queue::{HubId, Queue, ReportAnswer, Return, Said, Settings, Submission, Verdict};

use crate::world::{World, exit, id, job, retrying};

pub(crate) fn lease() -> u64 {
    Settings::default().lease.as_secs()
}

/// One job that a runner has.
pub(crate) fn running(submission: Submission) -> World {
    let mut world = World::new();
    world.runner("r");
    world.submit(submission);
    assert_eq!(world.claim("r", 1), [1]);
    world.start("r", 1);
    world
}

#[test]
fn several_reports_fit_in_a_lease() {
    let settings = Settings::default();
    assert!(settings.check().is_ok());
    let short = Settings {
        lease: settings.report_every * 2,
        ..settings
    };
    assert!(matches!(
        Queue::new(short),
        Err(BadSettings::LeaseTooShort { .. })
    ));
}

#[test]
fn a_report_renews_all_leases_of_a_runner() {
    let mut world = World::new();
    world.runner("r");
    for _ in 0..3 {
        world.submit(job("ann"));
    }
    world.claim("r", 3);
    for _ in 0..10 {
        // Most of the reports are lost, and the hub's pass comes late.
        world.wait(lease() - 1);
        world.report("r");
        world.pass();
    }
    let states: Vec<_> = (1..4).map(|n| world.state(n)).collect();
    assert_eq!(states, [State::Starting; 3]);
}

#[test]
fn a_lease_that_ends_makes_the_attempt_lost() {
    let mut world = running(job("ann"));
    world.run_for(lease() - 1);
    assert_eq!(world.state(1), State::Running);
    world.run_for(1);
    assert_eq!(world.state(1), State::Failed);
    assert_eq!(world.reason(1), "runner lost: `r` was not heard for 30 s");
    assert_eq!(world.snapshot(1).reason.unwrap().code, ReasonCode::Lost);
    let key = world.key(1);
    assert_eq!(world.report("r"), [(1, Verdict::Gone)], "it kills the job");
    let report = world.report_of("r", vec![(key, Said::Ended(exit(0)))]);
    assert_eq!(world.send("r", report), [(1, Verdict::Gone)]);
    assert_eq!(world.state(1), State::Failed, "a finished one never moves");
}

#[test]
fn by_its_policy_a_lost_one_is_tried_again_after_a_while() {
    let mut world = running(retrying(RetryOn::Infrastructure, 2));
    world.run_for(lease());
    assert_eq!(world.state(1), State::Queued);
    assert_eq!(world.events(1), "created queued assigned started requeued");
    assert_eq!(world.why(1), "waits before it is tried again");
    world.runner("s");
    assert!(world.claim("s", 1).is_empty());
    world.wait(10);
    assert_eq!(world.claim("s", 1), [1]);
    assert_eq!(world.attempt(1), 2);
    // The first runner thaws.
    let stale = AttemptKey {
        execution: id(1),
        attempt: Attempt(1),
    };
    let report = world.report_of("r", vec![(stale, Said::Ended(exit(3)))]);
    assert_eq!(world.send("r", report), [(1, Verdict::Gone)]);
    assert_eq!(world.state(1), State::Starting);
    // Nor can another runner speak for the attempt.
    let current = world.key(1);
    let forged = world.report_of("r", vec![(current, Said::Ended(exit(0)))]);
    assert_eq!(world.send("r", forged), [(1, Verdict::Gone)]);
    assert_eq!(world.end("s", 1, exit(0)), Verdict::Recorded);
    assert_eq!(world.state(1), State::Succeeded);
}

#[test]
fn a_stale_attempt_of_the_same_runner_is_refused_too() {
    let mut world = running(job("ann"));
    let first = world.key(1);
    world.give_back("r", 1, Return::HandedBack);
    assert_eq!(world.claim("r", 1), [1]);
    let late = world.report_of("r", vec![(first, Said::Ended(exit(1)))]);
    assert_eq!(world.send("r", late)[0], (1, Verdict::Gone));
    assert_eq!(world.state(1), State::Starting);
}

#[test]
fn a_runner_that_comes_back_before_anybody_noticed_goes_on() {
    let mut world = running(job("ann"));
    world.wait(lease() * 2);
    assert_eq!(world.report("r"), [(1, Verdict::Keep)]);
    world.pass();
    assert_eq!(world.state(1), State::Running);
}

#[test]
fn a_report_that_comes_while_the_lease_is_being_ended_wins() {
    let mut world = running(job("ann"));
    world.wait(lease());
    let job = world.queue.job(id(1)).unwrap();
    let until = job.lease().unwrap().until;
    let settings = world.queue.settings().clone();
    let message = "runner lost".to_owned();
    let loss = tidemill_queue::attempt::lose(job, message, Some(until), world.now, &settings);
    world.report("r");
    assert!(world.queue.commit(world.now, loss.unwrap()).is_err());
    assert_eq!(world.state(1), State::Running);
}

#[test]
fn a_finish_is_recorded_once_however_often_it_is_said() {
    let mut world = running(job("ann"));
    let key = world.key(1);
    assert_eq!(world.end("r", 1, exit(0)), Verdict::Recorded);
    for _ in 0..2 {
        let report = world.report_of("r", vec![(key, Said::Ended(exit(1)))]);
        assert_eq!(world.send("r", report), [(1, Verdict::Recorded)]);
    }
    assert_eq!(world.events(1), "created queued assigned started completed");
}

#[test]
fn what_a_runner_should_have_and_does_not_name_is_lost() {
    let mut world = running(job("ann"));
    world.submit(job("ann"));
    world.claim("r", 1);
    let held = &mut world.runners.get_mut("r").unwrap().held;
    held.retain(|key| key.execution != id(1));
    world.report("r");
    assert_eq!(world.state(1), State::Failed);
    assert_eq!(
        world.reason(1),
        "runner lost: `r` does not know of it any more"
    );
    assert_eq!(world.state(2), State::Starting);
}

#[test]
fn an_answer_that_is_on_its_way_is_not_lost() {
    let mut world = World::new();
    world.runner("r");
    world.submit(job("ann"));
    let before = world.report_of("r", vec![]);
    let offer = world.offer("r", 1);
    let hub = world.hub.clone();
    world.queue.claim(world.now, &hub, &offer);
    // The report was written before the answer came.
    world.send("r", before);
    assert_eq!(world.state(1), State::Starting);
    // Now the runner has given the claim up.
    world.runners.get_mut("r").unwrap().claims = 1;
    world.report("r");
    assert_eq!(world.state(1), State::Failed);
}

#[test]
fn a_restarted_runner_is_another_one_and_names_what_it_still_has() {
    let mut world = running(job("ann"));
    world.submit(job("ann"));
    world.claim("r", 1);
    world.start("r", 2);
    let old = world.runners["r"].clone();
    world.runner("r");
    // It found the end of the second one on its disk; of the first one it knows nothing.
    let key = world.key(2);
    let report = world.report_of("r", vec![(key, Said::Ended(exit(0)))]);
    assert_eq!(world.send("r", report), [(2, Verdict::Recorded)]);
    assert_eq!(world.state(2), State::Succeeded);
    assert_eq!(world.state(1), State::Failed);
    assert_eq!(world.reason(1), "runner lost: `r` started again without it");
    let new = world.runners.insert("r", old).unwrap();
    let answer = world.queue.report(world.now, world.report_of("r", vec![]));
    assert_eq!(
        answer,
        ReportAnswer::Replaced {
            by: new.incarnation
        }
    );
    assert!(world.claim("r", 1).is_empty());
}

#[test]
fn what_a_restarted_runner_still_has_is_not_given_to_it_again() {
    let mut world = running(job("ann"));
    let held = world.runners["r"].held.clone();
    world.runner("r");
    world.runners.get_mut("r").unwrap().held = held;
    // The numbers of claims begin anew, and the first life got the job with its first claim.
    assert!(world.claim("r", 1).is_empty());
    assert_eq!(world.state(1), State::Running);
}

#[test]
fn recovery_works_after_the_runners_row_is_gone() {
    let mut world = running(retrying(RetryOn::Infrastructure, 1));
    let name = world.runners["r"].profile.name.clone();
    world.queue.forget_runner(&name);
    let answer = world.queue.report(world.now, world.report_of("r", vec![]));
    assert_eq!(answer, ReportAnswer::UnknownRunner);
    world.run_for(lease());
    assert_eq!(world.state(1), State::Queued);
    // A new runner of the old name does not inherit what the old one said.
    let old = world.runners["r"].incarnation;
    world.runner("r");
    assert!(world.runners["r"].incarnation > old);
}

#[test]
fn after_a_time_without_a_hub_runners_get_a_whole_lease_to_report() {
    let mut world = running(job("ann"));
    world.wait(600);
    world.pass();
    assert_eq!(
        world.state(1),
        State::Running,
        "nobody was there to hear it"
    );
    world.run_for(lease() - 1);
    assert_eq!(world.report("r"), [(1, Verdict::Keep)]);
    world.run_for(lease() - 1);
    assert_eq!(world.state(1), State::Running);
    world.run_for(1);
    assert_eq!(world.state(1), State::Failed);
}

#[test]
fn hub_a_never_ends_the_leases_of_hub_b() {
    let mut world = running(job("ann"));
    let (a, b) = (world.hub.clone(), HubId("b".to_owned()));
    world.queue.start_hub(world.now, b.clone());
    // Hub a lives, and its passes do not come to its leases.
    for _ in 0..lease() + 5 {
        world.wait(1);
        world.queue.pass(world.now, &a, 0);
        world.queue.pass(world.now, &b, 100);
    }
    assert_eq!(world.state(1), State::Running);
    // Hub a dies: hub b makes the lease its own, and gives it its whole time.
    let silence = Settings::default().hub_silence;
    world.hub = b;
    world.run_for(silence.as_secs());
    assert_eq!(
        world.queue.job(id(1)).unwrap().lease().unwrap().hub,
        world.hub
    );
    assert_eq!(world.state(1), State::Running);
    world.run_for(lease());
    assert_eq!(world.state(1), State::Failed);
    assert!(silence < Duration::from_secs(lease()));
}
