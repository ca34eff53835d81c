//! "States and moves".

use tidemill_core::{ReasonCode, State};
use tidemill_ledger::loss::{self, Retry};
use tidemill_ledger::{Applied, Refused, apply, moves};

use crate::script::{after, event, run};

/// The specification's table, row by row, as it is written there.
const TABLE: [(State, &[State]); 10] = [
    (
        State::Queued,
        &[
            State::Starting,
            State::Running,
            State::Paused,
            State::Cancelled,
            State::Failed,
            State::Interrupted,
        ],
    ),
    (
        State::Paused,
        &[
            State::Queued,
            State::Cancelled,
            State::Failed,
            State::Interrupted,
        ],
    ),
    (
        State::Starting,
        &[
            State::Running,
            State::Cancelling,
            State::Failed,
            State::TimedOut,
            State::Queued,
        ],
    ),
    (
        State::Running,
        &[
            State::Succeeded,
            State::Failed,
            State::TimedOut,
            State::Cancelling,
            State::Queued,
        ],
    ),
    (
        State::Cancelling,
        &[
            State::Cancelled,
            State::Succeeded,
            State::Failed,
            State::TimedOut,
        ],
    ),
    (State::Succeeded, &[]),
    (State::Failed, &[]),
    (State::TimedOut, &[]),
    (State::Cancelled, &[]),
    (State::Interrupted, &[]),
];

/// A script that leads to each state.
fn road_to(state: State) -> &'static str {
    match state {
        State::Queued => "created",
        State::Paused => "created\npaused",
        State::Starting => "created\nassigned",
        State::Running => "created\nassigned\nstarted",
        State::Cancelling => "created\nassigned\nstarted\ncancelling",
        State::Succeeded => "created\nassigned\nstarted\ncompleted",
        State::Failed => "created\nassigned\nstarted\nfailed",
        State::TimedOut => "created\nassigned\nstarted\ntimed_out",
        State::Cancelled => "created\ncancelled",
        State::Interrupted => "created\ninterrupted",
    }
}

/// The events that ask for a state, at least one of which must get there from wherever the table
/// allows it.
fn events_for(state: State) -> &'static [&'static str] {
    match state {
        State::Queued => &["resumed", "requeued", "queued"],
        State::Paused => &["paused"],
        State::Starting => &["assigned r1 2"],
        State::Running => &["started"],
        State::Cancelling => &["cancelling"],
        State::Succeeded => &["completed"],
        State::Failed => &["failed"],
        State::TimedOut => &["timed_out"],
        State::Cancelled => &["cancelled"],
        State::Interrupted => &["interrupted"],
    }
}

#[test]
fn the_table_is_the_one_of_the_specification() {
    for (from, allowed) in TABLE {
        for to in State::ALL {
            assert_eq!(
                moves::allows(from, to),
                allowed.contains(&to),
                "{from} to {to}"
            );
        }
    }
}

#[test]
fn every_move_of_the_table_happens_and_no_other_does() {
    for (from, allowed) in TABLE {
        for to in State::ALL.into_iter().filter(|to| *to != from) {
            // From queued only a reported execution starts without having been assigned.
            let road = if (from, to) == (State::Queued, State::Running) {
                "adopt m1"
            } else {
                road_to(from)
            };
            let world = after(road);
            let before = world.snapshot();
            let reached =
                events_for(to)
                    .iter()
                    .any(|line| match apply(before, world.now, event(line)) {
                        Ok(Applied::Recorded(recorded)) => recorded.snapshot.state == to,
                        Ok(Applied::Already) | Err(_) => false,
                    });
            assert_eq!(reached, allowed.contains(&to), "{from} to {to}");
        }
    }
}

#[test]
fn whatever_an_event_does_to_the_state_is_in_the_table() {
    let every_event = [
        "created",
        "queued 3",
        "assigned r1 2",
        "status execute",
        "started",
        "progress a",
        "step_started",
        "step_completed",
        "diagnostic",
        "log",
        "artifact_kept",
        "report_kept",
        "cancelling",
        "paused",
        "resumed",
        "requeued",
        "completed",
        "failed",
        "timed_out",
        "cancelled",
        "interrupted",
    ];
    for from in State::ALL {
        let world = after(road_to(from));
        for line in every_event {
            let before = world.snapshot();
            if let Ok(Applied::Recorded(recorded)) = apply(before, world.now, event(line)) {
                let to = recorded.snapshot.state;
                assert!(
                    to == from || moves::allows(from, to),
                    "{line}: {from} to {to}"
                );
                assert!(!from.is_final(), "{line} was recorded after {from}");
            }
        }
    }
}

#[test]
fn a_move_that_is_not_in_the_table_is_refused_and_the_caller_learns_it() {
    let mut world = after("created");
    let before = world.snapshot().clone();
    let refused = apply(&before, world.now, event("completed")).unwrap_err();
    assert_eq!(
        refused,
        Refused::Move {
            from: State::Queued,
            to: State::Succeeded
        }
    );
    assert_eq!(
        world.line("completed"),
        "refused: an execution cannot go from queued to succeeded"
    );
    assert_eq!(
        *world.snapshot(),
        before,
        "nothing changes, no event is recorded"
    );
    assert_eq!(world.history.len(), 1);
}

#[test]
fn saying_the_current_state_again_is_neither_a_move_nor_an_error() {
    let again = [
        ("created\nqueued 3", "queued 3"),
        ("created", "resumed"),
        ("created", "requeued"),
        ("created\npaused", "paused"),
        ("created\nassigned r1 1", "assigned r1 1"),
        ("created\nassigned\nstatus layers", "status layers"),
        ("created\nassigned\nstarted", "started"),
        ("created\nassigned\nstarted\ncancelling", "cancelling"),
        ("created\nassigned\nstarted\ncompleted", "completed"),
        ("created\nassigned\nstarted\nfailed exit", "failed time"),
        ("created\nassigned\nstarted\ntimed_out", "timed_out"),
        ("created\ncancelled", "cancelled"),
        ("created\ninterrupted", "interrupted"),
    ];
    for (road, line) in again {
        let world = after(road);
        let applied = apply(world.snapshot(), world.now, event(line));
        assert_eq!(applied, Ok(Applied::Already), "{line} after {road}");
    }
}

#[test]
fn a_second_completed_after_a_cancelled_changes_nothing() {
    insta::assert_snapshot!(run("
        created
        assigned
        started
        cancelling ann
        cancelled
        completed
        say state exit_code last_sequence
    "), @r#"
    created                      1:created -> queued
    assigned                     2:assigned -> starting
    started                      3:started -> running
    cancelling ann               4:cancelling -> cancelling
    cancelled                    5:cancelled -> cancelled
    completed                    refused: an execution cannot go from cancelled to succeeded
    say state exit_code last_sequence state="cancelled" no exit_code last_sequence=5
    "#);
}

#[test]
fn a_finished_execution_never_starts_again() {
    for state in State::ALL.into_iter().filter(|state| state.is_final()) {
        let world = after(road_to(state));
        for line in ["queued", "assigned r9 9", "started", "resumed", "requeued"] {
            let applied = apply(world.snapshot(), world.now, event(line));
            assert!(applied.is_err(), "{line} after {state}: {applied:?}");
        }
    }
}

#[test]
fn nothing_is_ever_cancelled_straight_from_running() {
    insta::assert_snapshot!(run("
        created
        assigned
        cancelled
        started
        cancelled
        cancelling ann
        cancelled
        say reason.message cancel.by
    "), @r#"
    created                      1:created -> queued
    assigned                     2:assigned -> starting
    cancelled                    refused: an execution cannot go from starting to cancelled
    started                      3:started -> running
    cancelled                    refused: an execution cannot go from running to cancelled
    cancelling ann               4:cancelling -> cancelling
    cancelled                    5:cancelled -> cancelled
    say reason.message cancel.by reason.message="cancelled by ann" cancel.by="ann"
    "#);
}

#[test]
fn only_a_reported_execution_starts_without_having_been_assigned() {
    assert_eq!(
        after("created").line("started"),
        "refused: an execution cannot go from queued to running"
    );
    assert_eq!(after("adopt m1").line("started"), "2:started -> running");
}

#[test]
fn a_paused_one_continues_as_queued_and_not_otherwise() {
    insta::assert_snapshot!(run("
        created
        queued 2
        paused hub-stopped
        say paused_why
        assigned
        started
        requeued
        resumed
        say paused_why
        assigned
    "), @r#"
    created                      1:created -> queued
    queued 2                     2:queued -> queued
    paused hub-stopped           3:paused -> paused
    say paused_why               paused_why="hub-stopped"
    assigned                     refused: an execution cannot go from paused to starting
    started                      refused: an execution cannot go from paused to running
    requeued                     refused: `requeued` does not belong to an execution that is paused
    resumed                      4:resumed -> queued
    say paused_why               no paused_why
    assigned                     5:assigned -> starting
    "#);
}

#[test]
fn what_really_happened_first_is_what_a_cancelling_one_ends_as() {
    for (line, state) in [
        ("completed", State::Succeeded),
        ("failed exit 3", State::Failed),
        ("timed_out", State::TimedOut),
        ("cancelled", State::Cancelled),
    ] {
        let mut world = after("created\nassigned\nstarted\ncancelling ann");
        world.line(line);
        assert_eq!(world.snapshot().state, state);
        assert_eq!(world.snapshot().cancel.as_ref().unwrap().by, "ann");
    }
}

#[test]
fn a_lost_runner_makes_it_queued_failed_or_cancelled() {
    let cases = [
        (State::Queued, Retry::Allowed, None),
        (State::Paused, Retry::Allowed, None),
        (State::Queued, Retry::Exhausted, Some(State::Interrupted)),
        (State::Paused, Retry::Exhausted, Some(State::Interrupted)),
        (State::Starting, Retry::Allowed, Some(State::Queued)),
        (State::Starting, Retry::Exhausted, Some(State::Failed)),
        (State::Running, Retry::Allowed, Some(State::Queued)),
        (State::Running, Retry::Exhausted, Some(State::Failed)),
        (State::Cancelling, Retry::Allowed, Some(State::Cancelled)),
        (State::Cancelling, Retry::Exhausted, Some(State::Cancelled)),
        (State::Succeeded, Retry::Allowed, None),
        (State::Failed, Retry::Allowed, None),
        (State::TimedOut, Retry::Exhausted, None),
        (State::Cancelled, Retry::Exhausted, None),
        (State::Interrupted, Retry::Exhausted, None),
    ];
    for (from, retry, expected) in cases {
        let world = after(road_to(from));
        let reason = tidemill_core::Reason::new(ReasonCode::Lost, "gone");
        let event = loss::runner_lost(world.snapshot(), reason, retry);
        let state = event.map(
            |event| match apply(world.snapshot(), world.now, event).unwrap() {
                Applied::Recorded(recorded) => recorded.snapshot.state,
                Applied::Already => panic!("a loss changes something"),
            },
        );
        assert_eq!(state, expected, "{from}, {retry:?}");
    }
}

#[test]
fn failed_covers_the_jobs_own_fault_and_the_platforms_and_the_code_tells_them_apart() {
    let own = after("created\nassigned\nstarted\nfailed exit 1");
    let platform = after("created\nassigned\nfailed sandbox");
    let fault = |world: &crate::script::World| {
        let snapshot = world.snapshot();
        assert_eq!(snapshot.state, State::Failed);
        snapshot.reason.as_ref().unwrap().code.is_jobs_own_fault()
    };
    assert!(fault(&own));
    assert!(!fault(&platform));
}

#[test]
fn an_attempt_is_numbered_and_a_stale_one_is_refused() {
    insta::assert_snapshot!(run("
        created
        assigned r1 1
        assigned r2 1
        assigned r2 2
        started
        lost allowed
        assigned r2 1
        assigned r2 2
        say attempt attempts runner
    "), @r#"
    created                      1:created -> queued
    assigned r1 1                2:assigned -> starting
    assigned r2 1                refused: attempt 1 is stale: 1 is the newest that has begun
    assigned r2 2                refused: attempt 2 is stale: 1 is the newest that has begun
    started                      3:started -> running
    lost allowed                 4:requeued -> queued
    assigned r2 1                refused: attempt 1 is stale: 1 is the newest that has begun
    assigned r2 2                5:assigned -> starting
    say attempt attempts runner  attempt=2 attempts=2 runner="r2"
    "#);
}
