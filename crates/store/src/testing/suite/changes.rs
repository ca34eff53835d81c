//! Changes of one execution: made whole, refused, taken back by nobody.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use tidemill_core::{
    Attempt, ByteSize, Digest, Event, JobSpec, Reason, ReasonCode, RunnerId, State,
};
use tidemill_ledger::retention::{Retention, to_forget};
use tidemill_ledger::{CancelAnswer, Origin, Refused, Snapshot, cancel, reported};
use tokio::task::JoinSet;

use super::{assigned, at, completed, id, log, new, record, running, started};
use crate::entry::{LogObject, NewExecution};
use crate::fault::{StoreError, WriteError};
use crate::store::Store;

pub(super) async fn a_second_one_with_the_same_id_is_refused(store: &Store) {
    store.create(new(1)).await.expect("it is new");
    let second = store.create(new(1)).await;
    assert!(matches!(second, Err(WriteError::Refused(Refused::Exists))));
    let page = store.events(id(1), 0, 10).await.expect("it can be read");
    assert_eq!(page.expect("it is there").events.len(), 2);
}

pub(super) async fn a_refused_change_spoils_none_of_its_neighbours(store: &Store) {
    running(store, 1).await;
    let mut changes = JoinSet::new();
    for number in 0..200 {
        let store = store.clone();
        changes.spawn(async move {
            // Every third one wants something that cannot be, after something that can.
            let events = match number % 3 {
                0 => vec![log(number), Event::Resumed { why: None }],
                _ => vec![log(number)],
            };
            (number, record(&store, 1, events).await)
        });
    }
    while let Some(joined) = changes.join_next().await {
        let (number, result) = joined.expect("it does not panic");
        match result {
            Ok(_) => assert_ne!(number % 3, 0),
            Err(WriteError::Refused(Refused::OutOfPlace { .. })) => assert_eq!(number % 3, 0),
            Err(other) => panic!("{number}: {other:?}"),
        }
    }
    let page = store.events(id(1), 4, 1_000).await.expect("it can be read");
    let page = page.expect("it is there");
    assert_eq!(
        page.events.len(),
        133,
        "no half of a refused change is there"
    );
    let sequences: Vec<u64> = page.events.iter().map(|record| record.sequence).collect();
    assert_eq!(sequences, (5..138).collect::<Vec<_>>());
}

fn log_object(attempt: u32, start: u64, name: &str) -> LogObject {
    LogObject {
        attempt: Attempt(attempt),
        start,
        bytes: 90,
        stdout_bytes: 50,
        stderr_bytes: 40,
        dropped_bytes: 7,
        lines: 3,
        digest: Digest::of(name.as_bytes()),
        object_bytes: ByteSize(30),
    }
}

pub(super) async fn forgetting_takes_all_that_only_they_used(store: &Store) {
    let lone = JobSpec::new("lone", []);
    for number in 1..=4 {
        let spec = if number == 2 {
            lone.clone()
        } else {
            new(1).spec
        };
        store
            .create(NewExecution {
                spec,
                ..new(number)
            })
            .await
            .expect("it is new");
    }
    let pieces = [
        (1, 1, 0, "a"),
        (1, 1, 90, "b"),
        (2, 1, 0, "c"),
        (2, 2, 0, "a"),
    ];
    for (number, attempt, start, name) in pieces {
        let put = store
            .put_log(id(number), log_object(attempt, start, name))
            .await;
        assert!(put.expect("it can be written"));
    }
    let put = store.put_log(id(9), log_object(1, 0, "d")).await;
    assert!(
        !put.expect("it can be written"),
        "there is no such execution"
    );
    let put = store.put_log(id(1), log_object(1, 90, "e")).await;
    assert!(put.expect("it can be written"));
    let logs = store.logs(id(1)).await.expect("it can be read");
    assert_eq!(logs, [log_object(1, 0, "a"), log_object(1, 90, "e")]);

    let cancelled = |number: u64| async move {
        store
            .transact(id(number), at(50), |snapshot| {
                cancel::request(snapshot, "ann")
            })
            .await
            .expect("it waits")
    };
    cancelled(1).await;
    cancelled(2).await;
    let before = store.kept().await.expect("it can be read");
    assert_eq!(before.len(), 4);
    let first = before
        .iter()
        .find(|kept| kept.id == id(1))
        .expect("it is there");
    assert_eq!(first.finished_at, Some(at(50)));
    assert!(first.bytes.0 > 60, "its log and its events count");

    let all: Vec<_> = before.iter().map(|kept| kept.id).collect();
    let forgotten = store
        .forget(vec![id(2), id(9)])
        .await
        .expect("it can be written");
    assert_eq!(forgotten.executions, [id(2)]);
    let alone = [Digest::of(b"c")];
    assert_eq!(
        forgotten.log_objects, alone,
        "`a` is the log of another one, too"
    );
    assert_eq!(store.snapshot(id(2)).await.expect("it can be read"), None);
    assert_eq!(
        store.events(id(2), 0, 1).await.expect("it can be read"),
        None
    );
    assert_eq!(
        store.spec(lone.digest()).await.expect("it can be read"),
        None
    );
    let shared = store
        .spec(new(1).spec.digest())
        .await
        .expect("it can be read");
    assert!(shared.is_some(), "others use it");

    let nothing = Retention {
        count: Some(0),
        ..Retention::default()
    };
    let kept = store.kept().await.expect("it can be read");
    assert_eq!(to_forget(&nothing, at(60), &kept), [id(1)]);
    let forgotten = store.forget(all).await.expect("it can be written");
    assert_eq!(forgotten.executions, [id(1)], "what has not ended stays");
    assert_eq!(store.unfinished().await.expect("it can be read").len(), 2);
}

pub(super) async fn a_decision_that_panics_harms_only_itself(store: &Store) {
    running(store, 1).await;
    let bad = store.transact::<(), _>(id(1), at(1), |_| {
        std::panic::resume_unwind(Box::new("the caller's defect"))
    });
    let (bad, good) = tokio::join!(bad, record(store, 1, vec![log(1)]));
    assert!(matches!(bad, Err(WriteError::Store(StoreError::Panicked))));
    assert_eq!(good.expect("it is recorded").last_sequence, 5);
}

pub(super) async fn somebody_elses_execution_is_kept(store: &Store) {
    let by = RunnerId("laptop".to_owned());
    let adopt = |snapshot: Option<&Snapshot>| {
        let created = Event::Created {
            spec: Digest::of(b"theirs"),
            name: None,
            labels: std::collections::BTreeMap::new(),
            command: vec!["make".to_owned()],
            submitter: None,
            run: None,
            correlation_id: None,
        };
        reported::adopt(snapshot, &RunnerId("laptop".to_owned()), at(1), created)
    };
    let adopted = store
        .transact(id(1), at(1), adopt)
        .await
        .expect("it is new");
    assert_eq!(adopted.answer, reported::Adoption::Adopted);
    let again = store
        .transact(id(1), at(2), adopt)
        .await
        .expect("nothing is refused");
    assert_eq!(again.answer, reported::Adoption::Already);
    assert!(again.records.is_empty());
    let reporter = by.clone();
    let told = store
        .transact(id(1), at(9), move |snapshot| {
            reported::report(
                snapshot,
                &reporter,
                at(9),
                &[(1, started()), (3, completed())],
            )
        })
        .await
        .expect("nothing is refused");
    let through = |answer| match answer {
        reported::ReportAnswer::Held { through, .. } => through,
        reported::ReportAnswer::NothingHeld => panic!("it is held"),
    };
    assert_eq!(through(told.answer), 1);
    let snapshot = store
        .snapshot(id(1))
        .await
        .expect("it can be read")
        .expect("it is there");
    let expected = Origin::Reported {
        by,
        last_heard: at(9),
        through: 1,
    };
    assert_eq!(
        (snapshot.state, snapshot.origin),
        (State::Running, expected)
    );
}

pub(super) async fn a_caller_that_goes_away_does_not_take_its_change_back(store: &Store) {
    running(store, 1).await;
    {
        let mut change = pin!(record(store, 1, vec![log(1)]));
        // Polled once, and dropped: most likely before the commit, but that changes nothing.
        drop(
            change
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop())),
        );
    }
    // Whatever is asked later is done later.
    let next = record(store, 1, vec![log(2)])
        .await
        .expect("it is recorded");
    assert_eq!(next.last_sequence, 6);
}

pub(super) async fn a_cancellation_is_one_step(store: &Store) {
    store.create(new(1)).await.expect("it is new");
    let ask = || store.transact(id(1), at(3), |snapshot| cancel::request(snapshot, "ann"));
    let start = record(store, 1, vec![assigned(1)]);
    let (asked, started) = tokio::join!(ask(), start);
    assert_eq!(asked.expect("it waits").answer, CancelAnswer::Requested);
    assert!(
        matches!(started, Err(WriteError::Refused(_))),
        "nothing runs"
    );
    let again = ask().await.expect("nothing is refused");
    let state = State::Cancelled;
    assert_eq!(again.answer, CancelAnswer::AlreadyFinished { state });
    let lost = Reason::new(ReasonCode::Lost, "gone");
    let late = record(store, 1, vec![Event::Requeued { reason: lost }]).await;
    assert!(matches!(
        late,
        Err(WriteError::Refused(Refused::Move { .. }))
    ));
}
