//! "Cancelling".

use tidemill_core::{Event, State};
use tidemill_ledger::{CancelAnswer, cancel};

use crate::script::{World, after, run};

#[test]
fn answers_are_requested_already_requested_already_finished_and_unknown() {
    insta::assert_snapshot!(run("
        ask ann
        created
        assigned
        started
        ask ann
        ask bob
        completed
        ask ann
        say cancel.by
    "), @r#"
    ask ann                      nothing changed Unknown
    created                      1:created -> queued
    assigned                     2:assigned -> starting
    started                      3:started -> running
    ask ann                      4:cancelling -> cancelling Requested
    ask bob                      nothing changed AlreadyRequested
    completed                    5:completed -> succeeded
    ask ann                      nothing changed AlreadyFinished { state: Succeeded }
    say cancel.by                cancel.by="ann"
    "#);
}

#[test]
fn the_answers_have_stable_names() {
    let names: Vec<String> = [
        CancelAnswer::Requested,
        CancelAnswer::AlreadyRequested,
        CancelAnswer::AlreadyFinished {
            state: State::TimedOut,
        },
        CancelAnswer::Unknown,
    ]
    .iter()
    .map(|answer| serde_json::to_string(answer).unwrap())
    .collect();
    insta::assert_snapshot!(names.join("\n"), @r#"
    {"answer":"requested"}
    {"answer":"already_requested"}
    {"answer":"already_finished","state":"timed_out"}
    {"answer":"unknown"}
    "#);
}

#[test]
fn the_request_and_the_cancelling_event_are_one_step() {
    let world = after("created\nassigned");
    let decision = cancel::request(world.snapshot.as_ref(), "ann");
    assert_eq!(decision.answer, CancelAnswer::Requested);
    assert_eq!(
        decision.events,
        [Event::Cancelling {
            by: "ann".to_owned()
        }]
    );
    let mut world = world;
    world.decide(decision);
    let request = world.snapshot().cancel.clone().unwrap();
    assert_eq!((&*request.by, request.at), ("ann", world.now));
    assert_eq!(world.snapshot().state, State::Cancelling);
}

#[test]
fn a_queued_execution_is_finished_on_the_spot() {
    for road in ["created\nqueued 4", "created\npaused"] {
        let mut world = after(road);
        world.line("ask ann");
        let snapshot = world.snapshot();
        assert_eq!(snapshot.state, State::Cancelled);
        assert_eq!(snapshot.cancel.as_ref().unwrap().by, "ann");
        assert_eq!(snapshot.finished_at, Some(world.now));
        assert_eq!(
            snapshot.reason.as_ref().unwrap().message,
            "cancelled by ann before it started"
        );
    }
}

#[test]
fn a_runner_that_picks_it_up_in_that_instant_is_refused_its_start() {
    insta::assert_snapshot!(run("
        created
        ask ann
        assigned
        started
    "), @r"
    created                      1:created -> queued
    ask ann                      2:cancelling 3:cancelled -> cancelled Requested
    assigned                     refused: an execution cannot go from cancelled to starting
    started                      refused: an execution cannot go from cancelled to running
    ");
    // Even between the two events nothing could start.
    insta::assert_snapshot!(run("
        created
        cancelling ann
        cancelling bob
        assigned
        cancelled
    "), @r"
    created                      1:created -> queued
    cancelling ann               2:cancelling -> queued
    cancelling bob               nothing changed
    assigned                     refused: it may not start: ann asked to cancel it
    cancelled                    3:cancelled -> cancelled
    ");
}

#[test]
fn one_that_is_being_prepared_does_not_start_once_it_is_asked_to_cancel() {
    let mut world = after("created\nassigned\ncancelling ann");
    assert_eq!(
        world.line("started"),
        "refused: an execution cannot go from cancelling to running"
    );
}

#[test]
fn a_job_that_never_looks_at_the_request_and_finishes_normally_is_recorded_as_what_it_did() {
    let mut world: World = after("created\nassigned\nstarted\ncancelling ann");
    world.line("completed");
    let snapshot = world.snapshot();
    assert_eq!(
        (snapshot.state, snapshot.exit_code),
        (State::Succeeded, Some(0))
    );
    assert!(snapshot.reason.is_none());
}
