//! "Executions that someone else runs".

use tidemill_core::{ReasonCode, RunnerId, State};
use tidemill_ledger::reported::{self, HEARTBEAT_EVERY, ReportAnswer, SILENCE_MAX};
use tidemill_ledger::{Origin, snapshot::Snapshot};

use crate::script::{after, event, run};

#[test]
fn adopting_an_id_twice_changes_nothing() {
    insta::assert_snapshot!(run("
        adopt m1
        adopt m1
        adopt m2
        say origin.by origin.through last_sequence
    "), @r#"
    adopt m1                     1:created -> queued Adopted
    adopt m1                     nothing changed Already
    adopt m2                     nothing changed ReportedByAnother
    say origin.by origin.through last_sequence origin.by="m1" origin.through=0 last_sequence=1
    "#);
}

#[test]
fn an_id_that_this_hub_runs_itself_cannot_be_adopted() {
    insta::assert_snapshot!(run("
        created
        adopt m1
        say origin.kind
    "), @r#"
    created                      1:created -> queued
    adopt m1                     nothing changed RunHere
    say origin.kind              origin.kind="local"
    "#);
}

#[test]
fn each_event_is_applied_at_most_once_and_in_order_and_a_repeat_is_harmless() {
    insta::assert_snapshot!(run("
        adopt m1
        report m1 1 created; 2 started; 3 progress a 1
        report m1 2 started; 3 progress a 1
        report m1 3 progress a 1; 4 log
        report m1 5 completed
        report m1 1 created; 2 started; 3 progress a 1; 4 log; 5 completed
        history
    "), @"
    adopt m1                     1:created -> queued Adopted
    report m1 1 created; 2 started; 3 progress a 1 2:started 3:progress -> running Held { through: 3, cancel_requested: false, passed_over: [] }
    report m1 2 started; 3 progress a 1 nothing changed Held { through: 3, cancel_requested: false, passed_over: [] }
    report m1 3 progress a 1; 4 log 4:log -> running Held { through: 4, cancel_requested: false, passed_over: [] }
    report m1 5 completed        5:completed -> succeeded Held { through: 5, cancel_requested: false, passed_over: [] }
    report m1 1 created; 2 started; 3 progress a 1; 4 log; 5 completed nothing changed Held { through: 5, cancel_requested: false, passed_over: [] }
    history                      1:created 2:started 3:progress 4:log 5:completed
    ");
}

#[test]
fn after_a_gap_nothing_is_applied_and_through_says_where_to_resume() {
    insta::assert_snapshot!(run("
        adopt m1
        report m1 1 created; 2 started; 4 log; 5 completed
        report m1 3 log; 4 log; 5 completed
    "), @"
    adopt m1                     1:created -> queued Adopted
    report m1 1 created; 2 started; 4 log; 5 completed 2:started -> running Held { through: 2, cancel_requested: false, passed_over: [] }
    report m1 3 log; 4 log; 5 completed 3:log 4:log 5:completed -> succeeded Held { through: 5, cancel_requested: false, passed_over: [] }
    ");
}

#[test]
fn a_report_about_an_unknown_id_or_one_that_this_hub_runs_answers_nothing_held() {
    insta::assert_snapshot!(run("
        report m1 1 created
        created
        report m1 2 started
        say state
    "), @r#"
    report m1 1 created          nothing changed NothingHeld
    created                      1:created -> queued
    report m1 2 started          nothing changed NothingHeld
    say state                    state="queued"
    "#);
    let mut world = after("adopt m1");
    assert!(world.line("report m2 1 started").contains("NothingHeld"));
    assert_eq!(world.snapshot().state, State::Queued);
}

#[test]
fn an_event_that_the_state_machine_refuses_is_passed_over_not_believed() {
    insta::assert_snapshot!(run("
        adopt m1
        report m1 1 created; 2 completed; 3 started; 4 cancelled; 5 completed
        say state origin.through
    "), @r#"
    adopt m1                     1:created -> queued Adopted
    report m1 1 created; 2 completed; 3 started; 4 cancelled; 5 completed 2:started 3:completed -> succeeded Held { through: 5, cancel_requested: false, passed_over: [2, 4] }
    say state origin.through     state="succeeded" origin.through=5
    "#);
}

#[test]
fn its_own_created_and_a_cancelling_that_the_hub_asked_for_are_not_recorded_twice() {
    insta::assert_snapshot!(run("
        adopt m1
        report m1 1 created; 2 started
        ask ann
        report m1
        report m1 3 cancelling m1; 4 cancelled
        history
        say cancel.by
    "), @r#"
    adopt m1                     1:created -> queued Adopted
    report m1 1 created; 2 started 2:started -> running Held { through: 2, cancel_requested: false, passed_over: [] }
    ask ann                      3:cancelling -> cancelling Requested
    report m1                    nothing changed Held { through: 2, cancel_requested: true, passed_over: [] }
    report m1 3 cancelling m1; 4 cancelled 4:cancelled -> cancelled Held { through: 4, cancel_requested: false, passed_over: [] }
    history                      1:created 2:started 3:cancelling 4:cancelled
    say cancel.by                cancel.by="ann"
    "#);
}

#[test]
fn a_queued_one_that_is_cancelled_is_left_queued_here_until_its_reporter_says_otherwise() {
    insta::assert_snapshot!(run("
        adopt m1
        ask ann
        ask bob
        report m1 1 created
        report m1 2 cancelled
        history
    "), @"
    adopt m1                     1:created -> queued Adopted
    ask ann                      2:cancelling -> queued Requested
    ask bob                      nothing changed AlreadyRequested
    report m1 1 created          -> queued Held { through: 1, cancel_requested: true, passed_over: [] }
    report m1 2 cancelled        3:cancelled -> cancelled Held { through: 2, cancel_requested: false, passed_over: [] }
    history                      1:created 2:cancelling 3:cancelled
    ");
    // It had started meanwhile, and its reporter says so: it really goes through `cancelling`.
    insta::assert_snapshot!(run("
        adopt m1
        ask ann
        report m1 1 created; 2 started; 3 cancelling m1; 4 cancelled
        say cancel.by
    "), @r#"
    adopt m1                     1:created -> queued Adopted
    ask ann                      2:cancelling -> queued Requested
    report m1 1 created; 2 started; 3 cancelling m1; 4 cancelled 3:started 4:cancelling 5:cancelled -> cancelled Held { through: 4, cancel_requested: false, passed_over: [] }
    say cancel.by                cancel.by="ann"
    "#);
}

#[test]
fn after_30_s_of_silence_an_unfinished_one_is_failed_once_with_code_unavailable() {
    insta::assert_snapshot!(run("
        adopt m1
        report m1 1 created; 2 started
        wait 29.999
        silence
        report m1
        wait 29.999
        silence
        wait 2.5
        silence
        silence
        say reason.code reason.message
        report m1 3 completed
        say state last_sequence
    "), @r#"
    adopt m1                     1:created -> queued Adopted
    report m1 1 created; 2 started 2:started -> running Held { through: 2, cancel_requested: false, passed_over: [] }
    wait 29.999
    silence                      not yet
    report m1                    -> running Held { through: 2, cancel_requested: false, passed_over: [] }
    wait 29.999
    silence                      not yet
    wait 2.5
    silence                      3:failed -> failed
    silence                      not yet
    say reason.code reason.message reason.code="unavailable" reason.message="nothing has been heard from its reporter m1 for 32 s"
    report m1 3 completed        -> failed Held { through: 3, cancel_requested: false, passed_over: [3] }
    say state last_sequence      state="failed" last_sequence=3
    "#);
    assert_eq!((HEARTBEAT_EVERY.as_secs(), SILENCE_MAX.as_secs()), (2, 30));
}

#[test]
fn whatever_state_it_is_in_silence_ends_it() {
    for road in [
        "adopt m1",
        "adopt m1\nreport m1 1 paused",
        "adopt m1\nreport m1 1 assigned",
        "adopt m1\nreport m1 1 started",
        "adopt m1\nreport m1 1 started\nask ann",
    ] {
        let mut world = after(road);
        world.line("wait 30");
        world.line("silence");
        let snapshot: &Snapshot = world.snapshot();
        assert_eq!(snapshot.state, State::Failed, "{road}");
        assert_eq!(
            snapshot.reason.as_ref().unwrap().code,
            ReasonCode::Unavailable
        );
    }
}

#[test]
fn a_hubs_own_execution_is_never_silent() {
    let mut world = after("created\nassigned\nstarted\nwait 999999");
    assert_eq!(world.line("silence"), "not yet");
}

#[test]
fn the_silent_ones_among_many_are_found() {
    let old = after("adopt m1");
    let mut young = after("adopt m2\nwait 20\nreport m2");
    young.line("wait 10");
    let all = [old.snapshot().clone(), young.snapshot().clone()];
    let silent = reported::silent(&all, young.now);
    assert_eq!(silent.len(), 1);
    assert!(
        serde_json::to_string(&silent[0].1)
            .unwrap()
            .contains("reporter m1 for 30 s")
    );
}

#[test]
fn any_report_lets_its_reporter_be_heard() {
    let mut world = after("adopt m1\nwait 5");
    let by = RunnerId("m1".to_owned());
    let now = world.now;
    let decision = reported::report(world.snapshot.as_ref(), &by, now, &[(7, event("started"))]);
    assert_eq!(
        decision.answer,
        ReportAnswer::Held {
            through: 0,
            cancel_requested: false,
            passed_over: vec![]
        }
    );
    world.decide(decision);
    let Origin::Reported { last_heard, .. } = world.snapshot().origin else {
        panic!("it is reported");
    };
    assert_eq!(last_heard, now);
}
