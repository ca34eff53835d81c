//! What can be asked, and in which order and pieces the answers come.

use tidemill_core::{Digest, Event, ExecutionId, JobSpec, State};
use tidemill_ledger::ListFilter;
use tidemill_ledger::bounds::EVENTS_KEPT_MAX;

use super::{assigned, at, completed, id, log, new, record, running, started};
use crate::entry::NewExecution;
use crate::listing::Resolve;
use crate::store::Store;

pub(super) async fn what_is_created_can_be_read(store: &Store) {
    let mut spec = JobSpec::new("cargo", ["test".to_owned()]);
    spec.name = Some("tests".to_owned());
    spec.labels.insert("team".to_owned(), "core".to_owned());
    let written = store
        .create(NewExecution {
            spec: spec.clone(),
            submitter: Some("ann".to_owned()),
            run: Some("run-7".to_owned()),
            correlation_id: Some("c-1".to_owned()),
            ahead: 3,
            ..new(1)
        })
        .await
        .expect("it is new");
    let snapshot = written.snapshot.expect("it is there");
    assert_eq!(snapshot.state, State::Queued);
    assert_eq!(snapshot.command, ["cargo", "test"]);
    assert_eq!(snapshot.ahead, Some(3));
    assert_eq!(snapshot.spec, spec.digest());
    assert_eq!(snapshot.correlation_id.as_deref(), Some("c-1"));
    let read = store.snapshot(id(1)).await.expect("it can be read");
    assert_eq!(read.as_ref(), Some(&snapshot));
    let read = store.spec(snapshot.spec).await.expect("it can be read");
    assert_eq!(read, Some(spec));
    let page = store.events(id(1), 0, 10).await.expect("it can be read");
    assert_eq!(page.expect("it is there").events, written.records);
    assert_eq!(store.snapshot(id(9)).await.expect("it can be read"), None);
    assert_eq!(
        store.events(id(9), 0, 1).await.expect("it can be read"),
        None
    );
    let unknown = store.spec(Digest::of(b"?")).await.expect("it can be read");
    assert_eq!(unknown, None);
}

pub(super) async fn a_history_is_bounded_and_paged(store: &Store) {
    running(store, 1).await;
    let progress = |current| Event::Progress {
        step: None,
        current,
        total: None,
        message: None,
    };
    record(store, 1, vec![progress(1), progress(2)])
        .await
        .expect("it runs");
    record(store, 1, vec![progress(3)]).await.expect("it runs");
    let page = store.events(id(1), 0, 100).await.expect("it can be read");
    let page = page.expect("it is there");
    let sequences: Vec<u64> = page.events.iter().map(|record| record.sequence).collect();
    assert_eq!(sequences, [1, 2, 3, 4, 7]);
    assert!(!page.truncated && !page.more);

    // Seven have been, five are kept. As many again as are kept, and ten more.
    for batch in 0..EVENTS_KEPT_MAX / 100 {
        let events = (0..100).map(|n| log(batch * 100 + n)).collect();
        record(store, 1, events).await.expect("it runs");
    }
    let snapshot = record(store, 1, (0..10).map(log).collect())
        .await
        .expect("it runs");
    assert!(snapshot.events_truncated);
    assert_eq!(snapshot.event_count, EVENTS_KEPT_MAX + 17);
    let mut after = 0;
    let mut seen = Vec::new();
    loop {
        let page = store
            .events(id(1), after, 333)
            .await
            .expect("it can be read");
        let page = page.expect("it is there");
        assert!(page.truncated);
        assert_eq!(page.gap, after == 0, "only the first page missed anything");
        assert_eq!(page.last_sequence, snapshot.last_sequence);
        seen.extend(page.events.iter().map(|record| record.sequence));
        after = page.next_after(after);
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, (18..=EVENTS_KEPT_MAX + 17).collect::<Vec<_>>());
    let beyond = store.events(id(1), after, 5).await.expect("it can be read");
    assert!(beyond.expect("it is there").events.is_empty());
}

pub(super) async fn a_list_is_filtered_and_paged(store: &Store) {
    for number in 1..=30 {
        let mut spec = JobSpec::new("true", []);
        spec.name = Some(format!("name-{}", number % 2));
        spec.labels
            .insert("third".to_owned(), (number % 3).to_string());
        store
            .create(NewExecution {
                spec,
                // Five at a time are made in the same microsecond.
                at: at(i64::try_from(number / 5).expect("test numbers are small")),
                run: (number > 10).then(|| "late".to_owned()),
                submitter: Some(format!("s{}", number % 5)),
                ..new(number)
            })
            .await
            .expect("it is new");
    }
    record(store, 7, vec![assigned(1)])
        .await
        .expect("it is queued");
    let filters = [
        ListFilter::default(),
        ListFilter {
            states: vec![State::Starting, State::Failed],
            ..ListFilter::default()
        },
        ListFilter {
            name: Some("name-1".to_owned()),
            ..ListFilter::default()
        },
        ListFilter {
            labels: [("third".to_owned(), "2".to_owned())].into(),
            run: Some("late".to_owned()),
            ..ListFilter::default()
        },
        ListFilter {
            submitter: Some("s3".to_owned()),
            states: vec![State::Queued],
            ..ListFilter::default()
        },
        ListFilter {
            labels: [("third".to_owned(), "nine".to_owned())].into(),
            ..ListFilter::default()
        },
    ];
    let everything = store
        .list(&filters[0], 1_000, None)
        .await
        .expect("it can be read");
    assert_eq!(everything.executions.len(), 30);
    assert!(everything.next.is_none());
    let newest_first = everything
        .executions
        .is_sorted_by_key(|s| std::cmp::Reverse((s.created_at, s.id)));
    assert!(newest_first);
    for filter in &filters {
        let expected: Vec<ExecutionId> = everything
            .executions
            .iter()
            .filter(|snapshot| filter.matches(snapshot))
            .map(|snapshot| snapshot.id)
            .collect();
        let mut found = Vec::new();
        let mut cursor = None;
        loop {
            let page = store.list(filter, 4, cursor).await.expect("it can be read");
            assert!(page.executions.len() <= 4);
            found.extend(page.executions.iter().map(|snapshot| snapshot.id));
            let Some(next) = page.next else { break };
            // A cursor survives being written and read.
            cursor = Some(next.to_string().parse().expect("it is one"));
        }
        assert_eq!(found, expected, "{filter:?}");
    }
}

pub(super) async fn an_id_is_found_by_its_beginning_and_by_its_end(store: &Store) {
    let ids = [
        "01920000-0000-7000-8000-00000000abcd",
        "01920000-0000-7000-8000-00000001abcd",
        "01930000-0000-7000-8000-0000000001f2",
        "1f200000-0000-7000-8000-000000000000",
        "01940000-0000-7000-8000-777f00000000",
    ]
    .map(|text| text.parse::<ExecutionId>().expect("it is an id"));
    for id in ids {
        store
            .create(NewExecution { id, ..new(0) })
            .await
            .expect("it is new");
    }
    let cases = [
        ("0193", Resolve::Found(ids[2])),
        (
            "01920000-0000-7000-8000-00000000abcd",
            Resolve::Found(ids[0]),
        ),
        ("0192000000007000800000000001ABCD", Resolve::Found(ids[1])),
        ("1abcd", Resolve::Found(ids[1])),
        ("0001-abcd", Resolve::Found(ids[1])),
        ("0192", Resolve::Ambiguous(vec![ids[1], ids[0]])),
        ("abcd", Resolve::Ambiguous(vec![ids[1], ids[0]])),
        // The beginning of what a list shows, but no other place in the middle.
        ("777f", Resolve::Found(ids[4])),
        ("77f", Resolve::Unknown),
        // The end of one and the beginning of another.
        ("1f2", Resolve::Ambiguous(vec![ids[3], ids[2]])),
        ("2222", Resolve::Unknown),
        ("", Resolve::Unknown),
        ("-", Resolve::Unknown),
        ("xyz", Resolve::Unknown),
        ("0192%", Resolve::Unknown),
        ("0192000000007000800000000000abcd0", Resolve::Unknown),
    ];
    for (text, expected) in cases {
        let resolved = store.resolve(text).await.expect("it can be read");
        assert_eq!(resolved, expected, "{text}");
    }
}

pub(super) async fn owners_of_unfinished_ones_are_known(store: &Store) {
    for number in 1..=3 {
        store
            .create(NewExecution {
                owner: (number != 2).then(|| format!("process-{number}")),
                ..new(number)
            })
            .await
            .expect("it is new");
    }
    running(store, 4).await;
    record(store, 1, vec![assigned(1), started(), completed()])
        .await
        .expect("it may run");
    assert!(
        store
            .set_owner(id(4), Some("late".to_owned()))
            .await
            .expect("it can be written")
    );
    assert!(
        !store
            .set_owner(id(9), Some("late".to_owned()))
            .await
            .expect("it can be written")
    );
    let unfinished = store.unfinished().await.expect("it can be read");
    let told: Vec<_> = unfinished
        .iter()
        .map(|one| (one.id, one.state, one.owner.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            (id(2), State::Queued, None),
            (id(3), State::Queued, Some("process-3")),
            (id(4), State::Running, Some("late")),
        ]
    );
}
