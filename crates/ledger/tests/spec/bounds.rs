//! "Bounds, and what happens at each".

use std::time::Duration;

use tidemill_core::{ByteSize, Event, ExecutionId, LogPiece, Stream, Timestamp};
use tidemill_ledger::admission::{Admission, Concurrency, Running, admit};
use tidemill_ledger::bounds::{CUT_MARK, EVENTS_KEPT_MAX, LINE_CHARS_MAX, cut_lines};
use tidemill_ledger::retention::{Kept, Retention, to_forget};
use tidemill_ledger::{Applied, Decision, apply};

use crate::script::{after, event};

fn kept(number: u128, finished_at: Option<i64>, bytes: u64) -> Kept {
    Kept {
        id: ExecutionId::for_test(number),
        finished_at: finished_at.map(|seconds| Timestamp(seconds * 1_000_000)),
        bytes: ByteSize(bytes),
    }
}

fn forgotten(retention: Retention, now: i64, all: &[Kept]) -> Vec<u128> {
    to_forget(&retention, Timestamp(now * 1_000_000), all)
        .into_iter()
        .map(|id| id.as_uuid().as_u128())
        .collect()
}

#[test]
fn by_age_the_oldest_finished_ones_go_first() {
    let all = [
        kept(1, Some(50), 1),
        kept(2, Some(10), 1),
        kept(3, Some(89), 1),
        kept(4, Some(90), 1),
    ];
    let retention = Retention {
        age: Some(Duration::from_secs(10)),
        ..Retention::default()
    };
    assert_eq!(forgotten(retention, 100, &all), [2, 1, 3]);
}

#[test]
fn by_count_the_oldest_finished_ones_go_first() {
    let all = [
        kept(1, Some(5), 1),
        kept(2, None, 1),
        kept(3, Some(2), 1),
        kept(4, Some(9), 1),
    ];
    let retention = Retention {
        count: Some(2),
        ..Retention::default()
    };
    assert_eq!(forgotten(retention, 100, &all), [3, 1]);
}

#[test]
fn by_bytes_the_oldest_finished_ones_go_first() {
    let all = [
        kept(1, Some(5), 40),
        kept(2, None, 10),
        kept(3, Some(2), 1),
        kept(4, Some(9), 50),
    ];
    let retention = Retention {
        bytes: Some(ByteSize(70)),
        ..Retention::default()
    };
    assert_eq!(forgotten(retention, 100, &all), [3, 1]);
}

#[test]
fn one_that_is_not_finished_is_never_forgotten_however_old() {
    let all = [
        kept(1, None, 1_000),
        kept(2, None, 1_000),
        kept(3, Some(99), 1),
    ];
    let retention = Retention {
        age: Some(Duration::ZERO),
        count: Some(0),
        bytes: Some(ByteSize(0)),
    };
    assert_eq!(forgotten(retention, 1_000_000, &all), [3]);
}

#[test]
fn without_a_bound_nothing_is_forgotten() {
    assert!(
        forgotten(
            Retention::default(),
            1_000_000,
            &[kept(1, Some(1), u64::MAX)]
        )
        .is_empty()
    );
}

#[test]
fn past_2000_events_the_oldest_go_and_event_count_still_counts_all() {
    let mut world = after("created\nassigned\nstarted");
    let log = |offset| Event::Log {
        piece: LogPiece {
            stream: Stream::Stdout,
            offset,
            length: 1,
        },
        text: "x".to_owned(),
    };
    for offset in 0..EVENTS_KEPT_MAX - 3 {
        world.decide(Decision::events(vec![log(offset)], ()));
    }
    assert_eq!(world.history.len() as u64, EVENTS_KEPT_MAX);
    assert!(
        !world.snapshot().events_truncated,
        "at the bound nothing is lost yet"
    );
    for offset in 0..5 {
        world.decide(Decision::events(
            vec![log(EVENTS_KEPT_MAX + offset), log(0)],
            (),
        ));
    }
    assert_eq!(world.history.len() as u64, EVENTS_KEPT_MAX);
    assert_eq!(
        world.history[0].sequence, 11,
        "the oldest go, the first one too"
    );
    assert!(world.snapshot().events_truncated);
    assert_eq!(world.snapshot().event_count, EVENTS_KEPT_MAX + 10);
    assert_eq!(world.snapshot().events_kept, EVENTS_KEPT_MAX);
    world.line("completed");
    assert_eq!(world.history.last().unwrap().event.kind(), "completed");
}

#[test]
fn progress_that_is_replaced_drops_nothing() {
    let mut world = after("created\nassigned\nstarted");
    for current in 0..EVENTS_KEPT_MAX + 50 {
        world.line(&format!("progress build {current}"));
    }
    assert_eq!(world.history.len(), 4);
    assert!(!world.snapshot().events_truncated);
}

#[test]
fn a_log_line_is_cut_at_2000_characters_with_a_mark() {
    let exact = "é".repeat(LINE_CHARS_MAX);
    assert_eq!(cut_lines(&exact), exact);
    let long = format!("{exact}€tail");
    assert_eq!(
        cut_lines(&long),
        format!("{exact}{CUT_MARK}"),
        "between characters"
    );
    assert_eq!(
        cut_lines(&cut_lines(&long)),
        cut_lines(&long),
        "cutting twice is once"
    );
    let several = format!("short\n{long}\n{exact}\r\n{long}");
    let expected = format!("short\n{exact}{CUT_MARK}\n{exact}\r\n{exact}{CUT_MARK}");
    assert_eq!(cut_lines(&several), expected, "each line by itself");
    assert_eq!(LINE_CHARS_MAX, 2_000);
}

#[test]
fn every_text_of_an_event_is_cut() {
    let world = after("created\nassigned\nstarted");
    let long = "x".repeat(LINE_CHARS_MAX + 1);
    for line in [
        format!("step_started {long}"),
        format!("step_completed a ok {long}"),
        format!("progress a 1 2 {long}"),
        format!("cancelling {long}"),
    ] {
        let Ok(Applied::Recorded(recorded)) = apply(world.snapshot(), world.now, event(&line))
        else {
            panic!("it is not refused");
        };
        let text = serde_json::to_string(&recorded.record).unwrap();
        assert!(
            text.contains(CUT_MARK) && !text.contains(&long),
            "{}",
            &line[..20]
        );
    }
}

#[test]
fn more_than_may_run_per_hub_or_per_queue_wait() {
    let both = Concurrency {
        per_hub: Some(3),
        per_queue: Some(2),
    };
    let cases = [
        (both, 0, 0, Admission::Start),
        (both, 2, 1, Admission::Start),
        (both, 2, 2, Admission::QueueFull),
        (both, 3, 0, Admission::HubFull),
        (both, 3, 2, Admission::HubFull),
        (Concurrency::default(), 9_999, 9_999, Admission::Start),
        (
            Concurrency {
                per_hub: Some(0),
                per_queue: None,
            },
            0,
            0,
            Admission::HubFull,
        ),
    ];
    for (bounds, on_hub, in_queue, expected) in cases {
        assert_eq!(admit(bounds, Running { on_hub, in_queue }), expected);
    }
}
