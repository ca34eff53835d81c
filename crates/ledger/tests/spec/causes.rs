//! "States and moves": the causes that stand in brackets behind each move of the table.

use tidemill_core::{ReasonCode, State};
use tidemill_ledger::Span;

use crate::script::{after, run};

/// Where it stands, what happens, where it ends, the reason's code, and whether the job is at fault.
type Cause = (
    &'static str,
    &'static str,
    State,
    Option<ReasonCode>,
    Option<bool>,
);

const PLATFORM: Option<bool> = Some(false);
const JOB: Option<bool> = Some(true);

const CAUSES: &[Cause] = &[
    // queued
    ("created", "assigned r1 1", State::Starting, None, None),
    (
        "adopt m1",
        "report m1 1 started",
        State::Running,
        None,
        None,
    ),
    ("created", "paused hub-stopped", State::Paused, None, None),
    ("created", "paused queue-paused", State::Paused, None, None),
    (
        "created",
        "cancelled",
        State::Cancelled,
        Some(ReasonCode::Cancelled),
        PLATFORM,
    ),
    (
        "created",
        "failed expired",
        State::Failed,
        Some(ReasonCode::Expired),
        PLATFORM,
    ),
    (
        "created",
        "failed unplaceable",
        State::Failed,
        Some(ReasonCode::Unplaceable),
        PLATFORM,
    ),
    (
        "adopt m1\nwait 30",
        "silence",
        State::Failed,
        Some(ReasonCode::Unavailable),
        PLATFORM,
    ),
    (
        "created",
        "interrupted shutdown",
        State::Interrupted,
        Some(ReasonCode::Shutdown),
        PLATFORM,
    ),
    // paused
    ("created\npaused", "resumed", State::Queued, None, None),
    (
        "created\npaused",
        "cancelled",
        State::Cancelled,
        Some(ReasonCode::Cancelled),
        PLATFORM,
    ),
    (
        "created\npaused",
        "failed expired",
        State::Failed,
        Some(ReasonCode::Expired),
        PLATFORM,
    ),
    (
        "created\npaused",
        "interrupted shutdown",
        State::Interrupted,
        Some(ReasonCode::Shutdown),
        PLATFORM,
    ),
    // starting
    ("created\nassigned", "started", State::Running, None, None),
    (
        "created\nassigned",
        "cancelling ann",
        State::Cancelling,
        None,
        None,
    ),
    (
        "created\nassigned",
        "failed layer",
        State::Failed,
        Some(ReasonCode::Layer),
        PLATFORM,
    ),
    (
        "created\nassigned",
        "failed sandbox",
        State::Failed,
        Some(ReasonCode::Sandbox),
        PLATFORM,
    ),
    (
        "created\nassigned",
        "failed program_not_found",
        State::Failed,
        Some(ReasonCode::ProgramNotFound),
        JOB,
    ),
    (
        "created\nassigned",
        "failed bad_workdir",
        State::Failed,
        Some(ReasonCode::BadWorkdir),
        JOB,
    ),
    (
        "created\nassigned",
        "timed_out prepare_time",
        State::TimedOut,
        Some(ReasonCode::PrepareTime),
        PLATFORM,
    ),
    (
        "created\nassigned",
        "requeued declined",
        State::Queued,
        Some(ReasonCode::Declined),
        PLATFORM,
    ),
    (
        "created\nassigned",
        "lost allowed",
        State::Queued,
        Some(ReasonCode::Lost),
        PLATFORM,
    ),
    (
        "created\nassigned",
        "lost exhausted",
        State::Failed,
        Some(ReasonCode::Lost),
        PLATFORM,
    ),
    // running
    (
        "created\nassigned\nstarted",
        "completed",
        State::Succeeded,
        None,
        None,
    ),
    (
        "created\nassigned\nstarted",
        "failed exit 1",
        State::Failed,
        Some(ReasonCode::Exit),
        JOB,
    ),
    (
        "created\nassigned\nstarted",
        "failed signal",
        State::Failed,
        Some(ReasonCode::Signal),
        JOB,
    ),
    (
        "created\nassigned\nstarted",
        "failed memory",
        State::Failed,
        Some(ReasonCode::Memory),
        JOB,
    ),
    (
        "created\nassigned\nstarted",
        "failed internal",
        State::Failed,
        Some(ReasonCode::Internal),
        PLATFORM,
    ),
    (
        "created\nassigned\nstarted",
        "timed_out time",
        State::TimedOut,
        Some(ReasonCode::Time),
        JOB,
    ),
    (
        "created\nassigned\nstarted",
        "cancelling ann",
        State::Cancelling,
        None,
        None,
    ),
    (
        "created\nassigned\nstarted",
        "lost allowed",
        State::Queued,
        Some(ReasonCode::Lost),
        PLATFORM,
    ),
    // cancelling
    (
        "created\nassigned\nstarted\ncancelling",
        "lost allowed",
        State::Cancelled,
        Some(ReasonCode::Lost),
        PLATFORM,
    ),
];

#[test]
fn each_cause_of_the_table_leads_where_it_says_with_its_code() {
    for (road, line, to, code, fault) in CAUSES {
        let mut world = after(road);
        world.line(line);
        let snapshot = world.snapshot();
        let reason = snapshot.reason.as_ref();
        assert_eq!(snapshot.state, *to, "{line} after {road}");
        assert_eq!(
            reason.map(|reason| reason.code),
            *code,
            "{line} after {road}"
        );
        assert_eq!(
            reason.map(|reason| reason.code.is_jobs_own_fault()),
            *fault,
            "{line} after {road}"
        );
    }
}

#[test]
fn one_that_expired_or_that_no_runner_can_run_never_ran() {
    for code in ["expired", "unplaceable"] {
        for road in ["created\nqueued 3\nwait 7", "created\npaused\nwait 7"] {
            let mut world = after(road);
            world.line(&format!("failed {code}"));
            let snapshot = world.snapshot();
            assert_eq!(snapshot.reason.as_ref().unwrap().code.as_str(), code);
            assert_eq!(snapshot.failure, snapshot.reason);
            assert_eq!(snapshot.finished_at, Some(world.now));
            assert_eq!(snapshot.duration_ms.unwrap().0, 0);
            assert_eq!(
                (
                    snapshot.started_at,
                    snapshot.runner.as_ref(),
                    snapshot.exit_code
                ),
                (None, None, None)
            );
            assert_eq!((snapshot.attempts, snapshot.ahead), (0, None));
            let span = Span::closed(snapshot).unwrap();
            assert_eq!(
                span.error.unwrap().as_str(),
                code,
                "it is an error in the trace"
            );
        }
    }
}

#[test]
fn one_that_expired_is_final() {
    insta::assert_snapshot!(run("
        created
        paused
        wait 5
        failed expired
        failed expired
        resumed
        assigned
        ask ann
        lost allowed
        say state reason.code finished_at event_count
    "), @r#"
    created                      1:created -> queued
    paused                       2:paused -> paused
    wait 5
    failed expired               3:failed -> failed
    failed expired               nothing changed
    resumed                      refused: an execution cannot go from failed to queued
    assigned                     refused: an execution cannot go from failed to starting
    ask ann                      nothing changed AlreadyFinished { state: Failed }
    lost allowed                 nothing follows
    say state reason.code finished_at event_count state="failed" reason.code="expired" finished_at=1005000000 event_count=3
    "#);
}

#[test]
fn queued_says_how_many_are_ahead_until_it_is_no_longer_waiting() {
    insta::assert_snapshot!(run("
        created
        say ahead
        queued 3
        say ahead
        queued 1
        say ahead
        assigned
        say ahead runner
    "), @r#"
    created                      1:created -> queued
    say ahead                    no ahead
    queued 3                     2:queued -> queued
    say ahead                    ahead=3
    queued 1                     3:queued -> queued
    say ahead                    ahead=1
    assigned                     4:assigned -> starting
    say ahead runner             no ahead runner="r1"
    "#);
}

#[test]
fn why_it_was_paused_and_resumed_is_in_the_history() {
    let world = after("created\npaused hub-stopped\nresumed hub-started");
    let history = serde_json::to_string(&world.history).unwrap();
    for why in ["hub-stopped", "hub-started"] {
        assert!(history.contains(why), "{history}");
    }
}
