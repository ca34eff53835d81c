//! What holds after any sequence of events.

use proptest::prelude::*;
use tidemill_core::{EventRecord, Timestamp};
use tidemill_ledger::bounds::cut_lines;
use tidemill_ledger::{Applied, Decision, Redactor, Snapshot, apply, change, create, moves};

use crate::script::{World, event};

/// One line of a script that is an event or a request.
fn line() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "status layers",
        "status execute",
        "started",
        "diagnostic",
        "log",
        "artifact_kept",
        "cancelling ann",
        "paused",
        "resumed",
        "requeued",
        "completed",
        "failed exit 1",
        "timed_out",
        "cancelled",
        "interrupted",
        "ask bob",
        "lost allowed",
        "lost exhausted",
        "silence",
        "wait 7",
    ])
    .prop_map(str::to_owned);
    prop_oneof![
        8 => fixed,
        1 => (0_u64..3).prop_map(|n| format!("queued {n}")),
        3 => (1_u32..4, 1_u32..4).prop_map(|(r, a)| format!("assigned r{r} {a}")),
        2 => (0_u64..9, 0_u8..2).prop_map(|(n, s)| format!("progress s{s} {n}")),
        1 => (0_u8..3).prop_map(|s| format!("step_started s{s}")),
        1 => (0_u8..3).prop_map(|s| format!("step_completed s{s}")),
    ]
}

fn check_invariants(before: Option<&Snapshot>, world: &World) {
    let snapshot = world.snapshot();
    assert_eq!(snapshot.event_count, snapshot.last_sequence);
    assert_eq!(snapshot.events_kept, world.history.len() as u64);
    assert_eq!(snapshot.is_final(), snapshot.finished_at.is_some());
    assert_eq!(snapshot.is_final(), snapshot.duration_ms.is_some());
    assert!(snapshot.attempt.unwrap_or_default().0 >= snapshot.attempts);
    let sequences: Vec<u64> = world.history.iter().map(|r| r.sequence).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b));
    assert_eq!(sequences.last(), Some(&snapshot.last_sequence));
    if let Some(before) = before {
        assert!(
            before.state == snapshot.state || moves::allows(before.state, snapshot.state)
            // A request for something that waits is two events.
            || snapshot.last_sequence > before.last_sequence + 1
        );
        if before.is_final() {
            assert_eq!(before, snapshot, "nothing moves what is over");
        }
    }
}

/// The snapshot that a whole history leads to.
fn replay(first: &Snapshot, all: &[EventRecord]) -> Snapshot {
    let created = all[0].clone();
    let mut snapshot = create(first.id, first.origin.clone(), created.at, created.event)
        .unwrap()
        .snapshot;
    for record in &all[1..] {
        match apply(&snapshot, record.at, record.event.clone()).unwrap() {
            Applied::Recorded(recorded) => {
                assert_eq!(recorded.record, *record);
                snapshot = recorded.snapshot;
            }
            Applied::Already => panic!("what is recorded was a change"),
        }
    }
    snapshot
}

proptest! {
    #[test]
    fn any_sequence_of_events_keeps_the_invariants(
        lines in prop::collection::vec(line(), 0..60),
        reported: bool,
    ) {
        let mut world = World::new();
        world.line(if reported { "adopt m1" } else { "created" });
        check_invariants(None, &world);
        for line in &lines {
            let before = world.snapshot().clone();
            let effect = world.line(line);
            if effect.starts_with("refused") || effect.contains("nothing changed") {
                prop_assert_eq!(&before, world.snapshot());
            }
            check_invariants(Some(&before), &world);
        }
    }

    #[test]
    fn a_snapshot_is_what_its_events_lead_to(lines in prop::collection::vec(line(), 0..40)) {
        let mut world = World::new();
        let mut all = Vec::new();
        for line in std::iter::once("created").chain(lines.iter().map(String::as_str)) {
            if line.starts_with("wait") {
                world.line(line);
                continue;
            }
            if ["ask", "lost", "silence"].iter().any(|word| line.starts_with(word)) {
                continue;
            }
            let id = tidemill_core::ExecutionId::for_test(1);
            let events = vec![event(line)];
            if let Ok(Some(change)) =
                change(world.snapshot.as_ref(), id, world.now, events, None)
            {
                all.extend(change.records);
            }
            world.line(line);
        }
        prop_assert_eq!(&replay(world.snapshot(), &all), world.snapshot());
    }

    #[test]
    fn events_of_one_change_are_all_applied_or_none(lines in prop::collection::vec(line(), 1..8)) {
        let lines: Vec<_> = lines
            .into_iter()
            .filter(|line| !["ask", "lost", "silence", "wait"].iter().any(|w| line.starts_with(w)))
            .collect();
        let mut together = World::new();
        together.line("created");
        let mut apart = World::new();
        apart.line("created");
        let refused = lines.iter().any(|line| apart.line(line).starts_with("refused"));
        let before = together.snapshot().clone();
        let events = lines.iter().map(|line| event(line)).collect();
        let effect = together.decide(Decision::events(events, ()));
        prop_assert_eq!(effect.starts_with("refused"), refused);
        let expected = if refused { &before } else { apart.snapshot() };
        prop_assert_eq!(together.snapshot(), expected);
        if !refused {
            prop_assert_eq!(together.history, apart.history);
        }
    }

    #[test]
    fn reports_in_any_cut_and_with_any_repeats_give_the_same(
        lines in prop::collection::vec(line(), 1..20),
        cuts in prop::collection::vec((0_usize..20, 0_usize..20), 0..12),
    ) {
        let numbered: Vec<String> = lines
            .iter()
            .filter(|line| !["ask", "lost", "silence", "wait"].iter().any(|w| line.starts_with(w)))
            .enumerate()
            .map(|(index, line)| format!("{} {line}", index + 1))
            .collect();
        let mut whole = World::new();
        whole.line("adopt m1");
        whole.line(&format!("report m1 {}", numbered.join("; ")));
        let mut pieces = World::new();
        pieces.line("adopt m1");
        for (from, to) in cuts {
            let to = to.min(numbered.len());
            let piece = numbered.get(from.min(to)..to).unwrap_or_default();
            pieces.line(&format!("report m1 {}", piece.join("; ")));
        }
        pieces.line(&format!("report m1 {}", numbered.join("; ")));
        prop_assert_eq!(whole.snapshot(), pieces.snapshot());
        prop_assert_eq!(whole.history, pieces.history);
    }

    #[test]
    fn every_snapshot_and_event_survives_being_written_and_read(
        lines in prop::collection::vec(line(), 0..30),
    ) {
        let mut world = World::new();
        world.line("created");
        for line in &lines {
            world.line(line);
        }
        let text = serde_json::to_string(world.snapshot()).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Snapshot>(&text).unwrap(), world.snapshot());
        let text = serde_json::to_string(&world.history).unwrap();
        prop_assert_eq!(
            serde_json::from_str::<Vec<EventRecord>>(&text).unwrap(), world.history
        );
    }

    #[test]
    fn no_line_of_a_cut_text_is_longer_than_the_bound(
        lengths in prop::collection::vec((0_usize..4_500, prop::sample::select(vec!['a', 'é', '€', '\u{1F980}'])), 0..5),
    ) {
        let lines: Vec<String> = lengths.iter().map(|(n, c)| c.to_string().repeat(*n)).collect();
        let text = lines.join("\n");
        let cut = cut_lines(&text);
        prop_assert_eq!(cut.split('\n').count(), text.split('\n').count());
        for (line, original) in cut.split('\n').zip(&lines) {
            if original.chars().count() <= 2_000 {
                prop_assert_eq!(line, original);
            } else {
                let head: String = original.chars().take(2_000).collect();
                prop_assert_eq!(line, format!("{head}… [cut]"));
            }
        }
    }

    #[test]
    fn no_sensitive_value_is_left(
        values in prop::collection::vec("[a-c]{1,4}", 0..4),
        text in "[a-d]{0,40}",
    ) {
        let clean = Redactor::new(values.clone()).text(&text);
        // What stands for a value is taken out first: it has letters of its own.
        for piece in clean.split("[redacted]") {
            for value in &values {
                prop_assert!(!piece.contains(value.as_str()), "{} in {}", value, clean);
            }
        }
        if values.iter().all(|value| !text.contains(value.as_str())) {
            prop_assert_eq!(clean, text);
        }
    }

    #[test]
    fn times_never_make_it_panic(at in any::<i64>()) {
        let mut world = World::new();
        world.line("created");
        world.now = Timestamp(at);
        for line in ["assigned", "started", "completed", "silence"] {
            world.line(line);
        }
        prop_assert!(world.snapshot().is_final());
    }
}
