//! "Submitting": coalescing, bounds, answers.

use tidemill_core::{Digest, Millis, State};
use tidemill_queue::order::Position;
use tidemill_queue::submission::AnswerKey;
use tidemill_queue::{Answer, Refusal, Standing, Submission};

use crate::world::{World, id, job, queue_named, with_key, with_priority};

fn position(answer: Result<Answer, Refusal>) -> Standing {
    match answer.unwrap() {
        Answer::Accepted { standing, .. } => standing,
        coalesced @ Answer::Coalesced { .. } => panic!("{coalesced:?}"),
    }
}

const fn in_line(number: u64) -> Standing {
    Standing::InLine {
        position: Position::Exactly(number),
        but: None,
    }
}

#[test]
fn a_submission_like_a_waiting_one_is_that_one() {
    let mut world = World::new();
    let first = world.submit(with_key("k"));
    let again = world.try_submit(with_key("k"));
    assert_eq!(again, Ok(Answer::Coalesced { id: id(first) }));
    let other_kind_of_key = [with_key("l"), job("ann")];
    for submission in other_kind_of_key {
        assert!(matches!(
            world.try_submit(submission),
            Ok(Answer::Accepted { .. })
        ));
    }
    let mut other_queue = with_key("k");
    other_queue.queue = queue_named("other");
    assert!(matches!(
        world.try_submit(other_queue),
        Ok(Answer::Accepted { .. })
    ));
    assert_eq!(world.queue.waiting(&queue_named("main")), 3);
}

#[test]
fn a_running_one_absorbs_nothing() {
    let mut world = World::new();
    world.runner("r");
    let first = world.submit(with_key("k"));
    assert_eq!(world.claim("r", 1), [first]);
    let second = world.submit(with_key("k"));
    assert_ne!(first, second);
    // It is declined, and waits beside the one that holds the key now.
    world.give_back("r", first, tidemill_queue::Return::Declined);
    assert_eq!(world.state(first), State::Queued);
    assert_eq!(world.submit(with_key("k")), second);
    assert_eq!(world.claim("r", 9), [second]);
}

#[test]
fn at_the_limit_nothing_is_taken_and_nothing_is_lost() {
    let mut world = World::new();
    let queue = queue_named("main");
    world.queue.set_waiting_max(&queue, Some(2));
    let waiting = [world.submit(job("ann")), world.submit(with_key("k"))];
    let refused = world.try_submit(job("bob")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "queue `main` has 2 waiting jobs, as many as it may; try again later, or have an administrator \
         raise its limit"
    );
    assert_eq!(world.queue.waiting(&queue), 2);
    // What takes no place is taken, and other queues are not full.
    assert_eq!(world.submit(with_key("k")), waiting[1]);
    let mut elsewhere = job("ann");
    elsewhere.queue = queue_named("other");
    world.submit(elsewhere);
    world.runner("r");
    assert_eq!(world.claim("r", 1), [waiting[0]]);
    world.submit(job("bob"));
}

#[test]
fn the_answer_says_the_position_or_that_it_runs_now() {
    let mut world = World::new();
    world.runner("r");
    world.claim("r", 0);
    let first = position(world.try_submit(job("ann")));
    assert_eq!(first, in_line(1));
    assert_eq!(position(world.try_submit(job("ann"))), in_line(2));
    assert_eq!(
        position(world.try_submit(with_priority("bob", 5))),
        in_line(1)
    );
    assert_eq!(world.claim("r", 9).len(), 3);
    // Nothing is left, so the claim of another one stays open.
    world.runner("s");
    assert!(world.claim("s", 1).is_empty());
    let standing = position(world.try_submit(job("ann")));
    let runner = world.runners["s"].profile.name.clone();
    assert_eq!(standing, Standing::RunsNow { runner });
    assert_eq!(world.claim("s", 1), [4]);
}

#[test]
fn a_runner_that_gave_its_claim_up_or_drains_is_not_said_to_run_it() {
    for draining in [false, true] {
        let mut world = World::new();
        world.runner("r");
        assert!(world.claim("r", 1).is_empty());
        let open = world
            .queue
            .clone()
            .submit(world.now, &world.hub, id(99), job("ann"));
        assert!(matches!(position(open), Standing::RunsNow { .. }));
        let mut report = world.report_of("r", vec![]);
        report.draining = draining;
        report.settled.0 -= u64::from(draining);
        world.send("r", report);
        let standing = position(world.try_submit(job("ann")));
        assert!(matches!(standing, Standing::InLine { .. }), "{standing:?}");
    }
}

#[test]
fn the_same_idempotency_key_gets_the_first_answer_within_its_window() {
    let mut world = World::new();
    world.runner("r");
    let with_answer = || Submission {
        idempotency_key: Some("i".to_owned()),
        ..job("ann")
    };
    let first = world.try_submit(with_answer()).unwrap();
    assert_eq!(world.claim("r", 1), [1]);
    world.end("r", 1, crate::world::exit(0));
    assert_eq!(world.try_submit(with_answer()), Ok(first.clone()));
    let mut another_job = with_answer();
    another_job.job.spec = Digest::of(b"another job");
    let refused = world.try_submit(another_job).unwrap_err();
    assert!(matches!(refused, Refusal::KeyUsed { first, .. } if first == id(1)));
    let mut of_bob = with_answer();
    of_bob.submitter = "bob".to_owned();
    assert_ne!(of_bob.answer_key(), with_answer().answer_key());
    assert!(matches!(of_bob.answer_key(), Some(AnswerKey { .. })));
    assert_ne!(world.try_submit(of_bob), Ok(first.clone()));
    world.wait(24 * 3600);
    assert_ne!(world.try_submit(with_answer()), Ok(first));
}

#[test]
fn a_stopping_hub_takes_nothing() {
    let mut world = World::new();
    world.queue.stop_hub(world.now, &world.hub.clone(), 10);
    let refused = world.try_submit(job("ann")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "hub `a` is stopping; submit to another one, or again when it is back"
    );
}

#[test]
fn what_could_never_run_is_refused() {
    let mut world = World::new();
    let never = Submission {
        delay: Some(Millis(60_000)),
        deadline_after: Some(Millis(60_000)),
        ..job("ann")
    };
    assert_eq!(world.try_submit(never), Err(Refusal::NeverRuns));
    let unknown = Submission {
        kind: "dream".to_owned(),
        ..job("ann")
    };
    assert!(matches!(
        world.try_submit(unknown),
        Err(Refusal::UnknownKind { .. })
    ));
    let again = world.queue.submit(world.now, &world.hub, id(7), job("ann"));
    assert!(again.is_ok());
    let again = world.queue.submit(world.now, &world.hub, id(7), job("ann"));
    assert_eq!(again, Err(Refusal::IdTaken { id: id(7) }));
}

#[test]
fn the_record_begins_with_what_was_submitted() {
    let mut world = World::new();
    world.submit(job("bob"));
    let submission = Submission {
        request_id: Some("req-1".to_owned()),
        ..job("ann")
    };
    let second = world.try_submit(submission).unwrap();
    let Answer::Accepted {
        standing: Standing::InLine { position, but },
        ..
    } = second
    else {
        panic!("{second:?}");
    };
    assert_eq!(position, Position::Exactly(2));
    assert_eq!(
        but.unwrap().to_string(),
        "no runner takes jobs of queue `main`"
    );
    let second = 2;
    assert_eq!(world.events(second), "created queued");
    let snapshot = world.snapshot(second);
    assert_eq!(snapshot.submitter.as_deref(), Some("ann"));
    assert_eq!(snapshot.correlation_id.as_deref(), Some("req-1"));
    assert_eq!(snapshot.ahead, Some(1));
}
