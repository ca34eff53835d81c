//! "Events".

use tidemill_core::{ReasonCode, State, Timestamp};
use tidemill_ledger::apply::fence;
use tidemill_ledger::bounds::{STEPS_LISTED_MAX, WARNINGS_QUOTED_MAX};
use tidemill_ledger::redact::REDACTED;
use tidemill_ledger::{Applied, Redactor, Refused, Span, apply};

use crate::script::{after, event, run};

#[test]
fn a_whole_life_with_every_event() {
    insta::assert_snapshot!(run("
        created
        queued 2
        paused
        resumed
        wait 1
        assigned r1 1
        status layers
        status execute
        wait 1
        started
        step_started build
        progress build 1 3 compiling
        step_completed build ok fine
        diagnostic pids
        log stdout 0 8
        log stderr 8 4
        artifact_kept
        report_kept
        wait 1.5
        completed
        say state exit_code duration_ms killed_processes
        say usage.peak_memory_bytes log.bytes attempts
        say created_at queued_at started_at finished_at
        say artifacts reports diagnostics event_count
    "), @r#"
    created                      1:created -> queued
    queued 2                     2:queued -> queued
    paused                       3:paused -> paused
    resumed                      4:resumed -> queued
    wait 1
    assigned r1 1                5:assigned -> starting
    status layers                6:status -> starting
    status execute               7:status -> starting
    wait 1
    started                      8:started -> running
    step_started build           9:step_started -> running
    progress build 1 3 compiling 10:progress -> running
    step_completed build ok fine 11:step_completed -> running
    diagnostic pids              12:diagnostic -> running
    log stdout 0 8               13:log -> running
    log stderr 8 4               14:log -> running
    artifact_kept                15:artifact_kept -> running
    report_kept                  16:report_kept -> running
    wait 1.5
    completed                    17:completed -> succeeded
    say state exit_code duration_ms killed_processes state="succeeded" exit_code=0 duration_ms=1500 killed_processes=2
    say usage.peak_memory_bytes log.bytes attempts usage.peak_memory_bytes=4096 log.bytes=12 attempts=1
    say created_at queued_at started_at finished_at created_at=1000000000 queued_at=1000000000 started_at=1002000000 finished_at=1003500000
    say artifacts reports diagnostics event_count artifacts=1 reports=1 diagnostics=1 event_count=17
    "#);
}

#[test]
fn a_progress_event_replaces_the_one_before_it_if_that_was_progress_of_the_same_step() {
    insta::assert_snapshot!(run("
        created
        assigned
        started
        progress build 1
        progress build 2
        progress build 3
        progress link 1
        progress link 2
        log
        progress link 3
        progress - 1
        progress - 2
        history
        say event_count events_kept events_truncated
    "), @r#"
    created                      1:created -> queued
    assigned                     2:assigned -> starting
    started                      3:started -> running
    progress build 1             4:progress -> running
    progress build 2             5:progress -> running
    progress build 3             6:progress -> running
    progress link 1              7:progress -> running
    progress link 2              8:progress -> running
    log                          9:log -> running
    progress link 3              10:progress -> running
    progress - 1                 11:progress -> running
    progress - 2                 12:progress -> running
    history                      1:created 2:assigned 3:started 6:progress 8:progress 9:log 10:progress 12:progress
    say event_count events_kept events_truncated event_count=12 events_kept=8 events_truncated=false
    "#);
}

#[test]
fn followers_see_each_progress_event() {
    let world = after("created\nassigned\nstarted\nprogress a 1");
    let events = vec![event("progress a 2"), event("progress a 3")];
    let id = world.snapshot().id;
    let change = tidemill_ledger::change(world.snapshot.as_ref(), id, world.now, events, None)
        .unwrap()
        .unwrap();
    let sequences: Vec<u64> = change.records.iter().map(|r| r.sequence).collect();
    assert_eq!(sequences, [5, 6]);
    assert_eq!(change.replaced, [4, 5]);
    let kept: Vec<u64> = change.kept_records().map(|r| r.sequence).collect();
    assert_eq!(kept, [6]);
}

#[test]
fn sequences_are_1_2_3_and_dense_and_a_refused_event_takes_none() {
    insta::assert_snapshot!(run("
        created
        completed
        assigned
        assigned
        created
        started
        history
        say last_sequence event_count
    "), @r"
    created                      1:created -> queued
    completed                    refused: an execution cannot go from queued to succeeded
    assigned                     2:assigned -> starting
    assigned                     nothing changed
    created                      refused: the execution exists already
    started                      3:started -> running
    history                      1:created 2:assigned 3:started
    say last_sequence event_count last_sequence=3 event_count=3
    ");
}

#[test]
fn a_snapshot_with_damaged_numbers_takes_events_without_a_panic() {
    let mut snapshot = after("created").snapshot().clone();
    snapshot.last_sequence = u64::MAX;
    snapshot.event_count = u64::MAX;
    snapshot.attempts = u32::MAX;
    snapshot.diagnostics = u64::MAX;
    snapshot.artifacts = u64::MAX;
    snapshot.reports = u64::MAX;
    for line in [
        "diagnostic pids",
        "assigned r1 1",
        "started",
        "artifact_kept",
        "report_kept",
    ] {
        if let Ok(Applied::Recorded(recorded)) = apply(&snapshot, Timestamp(0), event(line)) {
            snapshot = recorded.snapshot;
        }
    }
    assert_eq!(snapshot.state, State::Running);
    assert_eq!(
        (snapshot.last_sequence, snapshot.attempts),
        (u64::MAX, u32::MAX)
    );
}

#[test]
fn nothing_happens_to_an_execution_that_was_not_created() {
    assert_eq!(
        crate::script::World::new().line("started"),
        "refused: there is no such execution"
    );
}

#[test]
fn an_error_has_a_stable_code_a_message_a_suggestion_and_the_correlation_id() {
    let mut world = after("created\nassigned\nstarted");
    let mut failed = event("failed memory 137");
    let tidemill_core::Event::Failed { reason, .. } = &mut failed else {
        panic!("it is a failure");
    };
    reason.hint = Some("give it more with --memory".to_owned());
    reason.correlation_id = Some("c-9".to_owned());
    world.decide(tidemill_ledger::Decision::events(vec![failed], ()));
    let reason = world.snapshot().reason.clone().unwrap();
    assert_eq!(reason.code, ReasonCode::Memory);
    assert_eq!(reason.message, "because of memory");
    assert_eq!(reason.hint.as_deref(), Some("give it more with --memory"));
    assert_eq!(reason.correlation_id.as_deref(), Some("c-9"));
}

#[test]
fn an_error_without_a_correlation_id_gets_the_one_of_the_request() {
    let world = after("created\nassigned\nstarted\nfailed exit 1");
    let reason = world.snapshot().reason.clone().unwrap();
    assert_eq!(reason.correlation_id.as_deref(), Some("c-1"));
}

#[test]
fn a_cancellation_after_a_failure_keeps_the_failure() {
    insta::assert_snapshot!(run("
        created
        assigned
        started
        lost allowed
        ask ann
        say state reason.code failure.code failure.message
    "), @r#"
    created                      1:created -> queued
    assigned                     2:assigned -> starting
    started                      3:started -> running
    lost allowed                 4:requeued -> queued
    ask ann                      5:cancelling 6:cancelled -> cancelled Requested
    say state reason.code failure.code failure.message state="cancelled" reason.code="cancelled" failure.code="lost" failure.message="the runner is gone"
    "#);
    insta::assert_snapshot!(run("
        created
        assigned
        started
        failed exit 3
        cancelling ann
        cancelled
        say state reason.code failure.code exit_code
    "), @r#"
    created                      1:created -> queued
    assigned                     2:assigned -> starting
    started                      3:started -> running
    failed exit 3                4:failed -> failed
    cancelling ann               refused: an execution cannot go from failed to cancelling
    cancelled                    refused: an execution cannot go from failed to cancelled
    say state reason.code failure.code exit_code state="failed" reason.code="exit" failure.code="exit" exit_code=3
    "#);
}

#[test]
fn finished_at_and_the_duration_are_set_once_on_the_first_final_state() {
    insta::assert_snapshot!(run("
        created
        assigned
        wait 1
        started
        wait 2
        failed exit
        say finished_at duration_ms
        wait 5
        failed exit
        completed
        say finished_at duration_ms
    "), @r"
    created                      1:created -> queued
    assigned                     2:assigned -> starting
    wait 1
    started                      3:started -> running
    wait 2
    failed exit                  4:failed -> failed
    say finished_at duration_ms  finished_at=1003000000 duration_ms=2000
    wait 5
    failed exit                  nothing changed
    completed                    refused: an execution cannot go from failed to succeeded
    say finished_at duration_ms  finished_at=1003000000 duration_ms=2000
    ");
    let never_ran = after("created\nwait 9\ncancelled");
    assert_eq!(never_ran.snapshot().duration_ms.unwrap().0, 0);
}

#[test]
fn a_step_that_completes_without_having_been_announced_is_recorded_as_it_is_told() {
    let world = after(
        "created\nassigned\nstarted\nstep_started a\nstep_completed b bad boom\nstep_completed a",
    );
    let steps = &world.snapshot().steps;
    let told: Vec<_> = steps
        .iter()
        .map(|s| (&*s.name, s.started_at.is_some(), s.ok))
        .collect();
    assert_eq!(told, [("a", true, Some(true)), ("b", false, Some(false))]);
    assert_eq!(steps[1].detail.as_deref(), Some("boom"));
    assert_eq!(world.snapshot().step, None);
    assert_eq!(world.history.len(), 6);
}

#[test]
fn the_next_attempt_begins_from_nothing() {
    let world = after(
        "created\nassigned\nstatus layers\nstarted\nstep_started a\nprogress a 1\nlost allowed",
    );
    let snapshot = world.snapshot();
    assert_eq!(snapshot.state, State::Queued);
    assert!(snapshot.steps.is_empty() && snapshot.step.is_none() && snapshot.progress.is_none());
    assert!(snapshot.runner.is_none() && snapshot.status.is_none());
    assert!(snapshot.started_at.is_none() && snapshot.grants.is_empty());
    assert_eq!(snapshot.attempts, 1);
}

#[test]
fn a_snapshot_lists_only_so_many_steps_and_warnings() {
    let mut world = after("created\nassigned\nstarted");
    for number in 0..STEPS_LISTED_MAX + 5 {
        world.line(&format!("step_completed s{number}"));
        world.line("diagnostic pids");
    }
    assert_eq!(world.snapshot().steps.len(), STEPS_LISTED_MAX);
    assert_eq!(world.snapshot().steps[0].name, "s5");
    assert_eq!(world.snapshot().warnings.len(), WARNINGS_QUOTED_MAX);
    assert_eq!(world.snapshot().diagnostics, STEPS_LISTED_MAX as u64 + 5);
}

#[test]
fn what_happens_while_it_executes_is_refused_before_and_after() {
    for road in [
        "created",
        "created\npaused",
        "created\nassigned\nstarted\ncompleted",
    ] {
        let world = after(road);
        for line in [
            "status layers",
            "progress a",
            "step_started",
            "step_completed",
            "log",
            "artifact_kept",
            "report_kept",
        ] {
            let applied = apply(world.snapshot(), world.now, event(line));
            assert!(
                matches!(applied, Err(Refused::OutOfPlace { .. })),
                "{line} after {road}: {applied:?}"
            );
        }
    }
}

#[test]
fn stale_attempts_are_fenced_off() {
    use tidemill_core::Attempt;
    let world = after("created\nassigned r1 1\nstarted\nlost allowed");
    assert!(
        fence(world.snapshot(), Attempt(1)).is_err(),
        "it waits for another one"
    );
    let world = after("created\nassigned r1 1\nstarted\nlost allowed\nassigned r2 2");
    assert!(fence(world.snapshot(), Attempt(1)).is_err());
    assert_eq!(fence(world.snapshot(), Attempt(2)), Ok(()));
}

#[test]
fn sensitive_values_in_the_input_are_replaced_before_the_record_is_made() {
    let redactor = Redactor::new(["hunter2".to_owned(), String::new(), "hunter".to_owned()]);
    let mut spec =
        tidemill_core::JobSpec::new("curl", ["-H".to_owned(), "Token: hunter2".to_owned()]);
    spec.env.insert("TOKEN".to_owned(), "hunter2".to_owned());
    spec.labels
        .insert("who".to_owned(), "hunter and hunter2".to_owned());
    let clean = redactor.spec(&spec);
    let text = String::from_utf8(clean.to_canonical()).unwrap();
    assert!(!text.contains("hunter"), "{text}");
    assert_eq!(clean.args[1], format!("Token: {REDACTED}"));
    assert_eq!(clean.labels["who"], format!("{REDACTED} and {REDACTED}"));
    assert_ne!(
        clean.digest(),
        spec.digest(),
        "the digest says nothing of the value"
    );
    assert_eq!(
        redactor.text("xhunter2x"),
        format!("x{REDACTED}x"),
        "the longest first"
    );
    assert_eq!(
        format!("{redactor:?}"),
        "Redactor { values: 2 }",
        "and none of them is shown"
    );
    assert_eq!(Redactor::new([]).spec(&spec), spec);
}

#[test]
fn sensitive_values_are_replaced_in_every_event() {
    let redactor = Redactor::new(["because".to_owned(), "cargo".to_owned(), "s3".to_owned()]);
    for line in [
        "created",
        "progress s3 1 2 s3",
        "step_started s3",
        "step_completed s3 ok s3",
        "cancelling s3",
        "paused s3",
        "resumed s3",
        "requeued",
        "failed",
        "timed_out",
        "cancelled cancelled",
        "interrupted",
        "diagnostic",
    ] {
        let text = serde_json::to_string(&redactor.event(event(line))).unwrap();
        assert!(text.contains(REDACTED), "{text}");
        assert!(
            !text.contains("because") && !text.contains("cargo") && !text.contains("s3"),
            "{text}"
        );
    }
}

#[test]
fn each_execution_has_a_span_linked_to_its_request_closed_with_its_final_state() {
    assert_eq!(Span::closed(after("created\nassigned").snapshot()), None);
    let world = after("created\nassigned\nwait 1\nstarted\nwait 2\nfailed exit 1");
    let span = Span::closed(world.snapshot()).unwrap();
    assert_eq!(span.execution, world.snapshot().id);
    assert_eq!(span.linked_to.as_deref(), Some("c-1"));
    assert_eq!(span.opened_at, Timestamp(1_000_000_000));
    assert_eq!(span.closed_at, Timestamp(1_003_000_000));
    assert_eq!(span.state, State::Failed);
    assert_eq!(
        span.error,
        Some(ReasonCode::Exit),
        "a failure is marked as an error"
    );
}

#[test]
fn only_a_failure_is_an_error_in_the_trace() {
    for (road, error) in [
        ("created\nassigned\nstarted\ncompleted", None),
        ("created\ncancelled", None),
        ("created\ninterrupted", None),
        (
            "created\nassigned\nstarted\ntimed_out",
            Some(ReasonCode::Time),
        ),
        (
            "created\nassigned\nfailed sandbox",
            Some(ReasonCode::Sandbox),
        ),
    ] {
        assert_eq!(
            Span::closed(after(road).snapshot()).unwrap().error,
            error,
            "{road}"
        );
    }
}
