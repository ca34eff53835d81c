//! What every back end has to do.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use tidemill_core::event::{LogPiece, Outcome};
use tidemill_core::{
    Attempt, ByteSize, Digest, Event, ExecutionId, JobSpec, Reason, ReasonCode, RunnerId, State,
    Stream, Timestamp,
};
use tidemill_ledger::bounds::EVENTS_KEPT_MAX;
use tidemill_ledger::retention::{Retention, to_forget};
use tidemill_ledger::{
    CancelAnswer, Decision, ListFilter, Origin, Refused, Snapshot, cancel, reported,
};
use tokio::task::JoinSet;

use crate::entry::{LogObject, NewExecution};
use crate::fault::{StoreError, WriteError};
use crate::listing::Resolve;
use crate::store::Store;

/// A future that a laboratory gives.
pub type Opening = Pin<Box<dyn Future<Output = Store> + Send>>;

/// Opens stores. A number that was not used before stands for an empty database; the same number
/// again is another handle on the same one, as another process would have it.
pub struct Lab {
    open: Box<dyn Fn(u32) -> Opening + Send + Sync>,
}

impl Lab {
    /// A laboratory that opens stores in this way.
    pub fn new(open: impl Fn(u32) -> Opening + Send + Sync + 'static) -> Self {
        Self {
            open: Box::new(open),
        }
    }

    async fn open(&self, database: u32) -> Store {
        (self.open)(database).await
    }
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").finish_non_exhaustive()
    }
}

/// Runs the whole suite. Panics at the first thing that is wrong.
pub async fn conformance(lab: &Lab) {
    what_is_created_can_be_read(&lab.open(1).await).await;
    a_second_one_with_the_same_id_is_refused(&lab.open(2).await).await;
    a_refused_change_spoils_none_of_its_neighbours(&lab.open(3).await).await;
    a_history_is_bounded_and_paged(&lab.open(4).await).await;
    a_list_is_filtered_and_paged(&lab.open(5).await).await;
    an_id_is_found_by_its_beginning_and_by_its_end(&lab.open(6).await).await;
    others_are_noticed_and_our_own_changes_are_not(lab).await;
    many_writers_of_one_execution_lose_nothing(lab).await;
    owners_of_unfinished_ones_are_known(&lab.open(9).await).await;
    forgetting_takes_all_that_only_they_used(&lab.open(10).await).await;
    a_decision_that_panics_harms_only_itself(&lab.open(11).await).await;
    an_observer_sees_every_event_once_and_in_order(lab).await;
    somebody_elses_execution_is_kept(&lab.open(13).await).await;
    what_was_acknowledged_is_there_after_closing_and_after_leaving(lab).await;
    a_caller_that_goes_away_does_not_take_its_change_back(&lab.open(15).await).await;
    a_cancellation_is_one_step(&lab.open(16).await).await;
}

/// An id whose beginning and end tell the number.
fn id(number: u64) -> ExecutionId {
    ExecutionId::for_test(u128::from(number) << 96 | u128::from(number))
}

const fn at(second: i64) -> Timestamp {
    Timestamp(second * 1_000_000)
}

fn new(number: u64) -> NewExecution {
    let seconds = i64::try_from(number).expect("test numbers are small");
    NewExecution {
        id: id(number),
        at: at(seconds),
        spec: JobSpec::new("true", []),
        submitter: None,
        run: None,
        correlation_id: None,
        owner: None,
        ahead: 0,
    }
}

fn log(offset: u64) -> Event {
    Event::Log {
        piece: LogPiece {
            stream: Stream::Stdout,
            offset,
            length: 1,
        },
        text: "x".to_owned(),
    }
}

fn assigned(attempt: u32) -> Event {
    Event::Assigned {
        runner: RunnerId("r1".to_owned()),
        attempt: Attempt(attempt),
    }
}

fn started() -> Event {
    Event::Started { grants: Vec::new() }
}

fn completed() -> Event {
    Event::Completed {
        outcome: Outcome {
            exit_code: Some(0),
            ..Outcome::default()
        },
    }
}

async fn record(store: &Store, number: u64, events: Vec<Event>) -> Result<Snapshot, WriteError> {
    let written = store
        .transact(id(number), at(100), move |_| Decision::events(events, ()))
        .await?;
    Ok(written
        .snapshot
        .expect("a change that was made has a snapshot"))
}

/// Creates an execution and leads it to running.
async fn running(store: &Store, number: u64) {
    store.create(new(number)).await.expect("it is new");
    record(store, number, vec![assigned(1), started()])
        .await
        .expect("it may start");
}

async fn what_is_created_can_be_read(store: &Store) {
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

async fn a_second_one_with_the_same_id_is_refused(store: &Store) {
    store.create(new(1)).await.expect("it is new");
    let second = store.create(new(1)).await;
    assert!(matches!(second, Err(WriteError::Refused(Refused::Exists))));
    let page = store.events(id(1), 0, 10).await.expect("it can be read");
    assert_eq!(page.expect("it is there").events.len(), 2);
}

async fn a_refused_change_spoils_none_of_its_neighbours(store: &Store) {
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

async fn a_history_is_bounded_and_paged(store: &Store) {
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

async fn a_list_is_filtered_and_paged(store: &Store) {
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

async fn an_id_is_found_by_its_beginning_and_by_its_end(store: &Store) {
    let ids = [
        "01920000-0000-7000-8000-00000000abcd",
        "01920000-0000-7000-8000-00000001abcd",
        "01930000-0000-7000-8000-0000000001f2",
        "1f200000-0000-7000-8000-000000000000",
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

async fn others_are_noticed_and_our_own_changes_are_not(lab: &Lab) {
    let ours = lab.open(7).await;
    let theirs = lab.open(7).await;
    // Making the database may count as somebody's change.
    ours.changed().await.expect("it can be asked");
    assert!(!ours.changed().await.expect("it can be asked"));
    running(&ours, 1).await;
    assert!(!ours.changed().await.expect("it can be asked"));
    assert!(theirs.changed().await.expect("it can be asked"));
    assert!(!theirs.changed().await.expect("it can be asked"));
    let asked = theirs
        .transact(id(1), at(5), |snapshot| cancel::request(snapshot, "ann"))
        .await
        .expect("it runs");
    assert_eq!(asked.answer, CancelAnswer::Requested);
    // Noticed even if one of our own changes comes in between.
    record(&ours, 1, vec![log(1)])
        .await
        .expect("it is cancelling");
    assert!(ours.changed().await.expect("it can be asked"));
    let snapshot = ours.snapshot(id(1)).await.expect("it can be read");
    assert_eq!(snapshot.expect("it is there").state, State::Cancelling);
    assert!(
        ours.set_owner(id(1), None)
            .await
            .expect("it can be written")
    );
    assert!(
        theirs.changed().await.expect("it can be asked"),
        "whatever was changed"
    );
}

async fn many_writers_of_one_execution_lose_nothing(lab: &Lab) {
    let stores = [lab.open(8).await, lab.open(8).await, lab.open(8).await];
    running(&stores[0], 1).await;
    let mut writers = JoinSet::new();
    for number in 0..150_usize {
        let store = stores[number % stores.len()].clone();
        writers.spawn(async move { record(&store, 1, vec![log(1)]).await });
    }
    let mut answered = Vec::new();
    while let Some(joined) = writers.join_next().await {
        let snapshot = joined.expect("it does not panic").expect("it is recorded");
        answered.push(snapshot.last_sequence);
    }
    answered.sort_unstable();
    assert_eq!(
        answered,
        (5..155).collect::<Vec<u64>>(),
        "each got a sequence of its own"
    );
    let page = stores[1]
        .events(id(1), 4, 1_000)
        .await
        .expect("it can be read");
    let kept: Vec<u64> = page
        .expect("it is there")
        .events
        .iter()
        .map(|record| record.sequence)
        .collect();
    assert_eq!(kept, answered);
}

async fn owners_of_unfinished_ones_are_known(store: &Store) {
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

async fn forgetting_takes_all_that_only_they_used(store: &Store) {
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

async fn a_decision_that_panics_harms_only_itself(store: &Store) {
    running(store, 1).await;
    let bad = store.transact::<(), _>(id(1), at(1), |_| {
        std::panic::resume_unwind(Box::new("the caller's defect"))
    });
    let (bad, good) = tokio::join!(bad, record(store, 1, vec![log(1)]));
    assert!(matches!(bad, Err(WriteError::Store(StoreError::Panicked))));
    assert_eq!(good.expect("it is recorded").last_sequence, 5);
}

async fn an_observer_sees_every_event_once_and_in_order(lab: &Lab) {
    let ours = lab.open(12).await;
    let theirs = lab.open(12).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    ours.observe(move |committed| {
        let mut seen = sink.lock().expect("nobody panics while holding it");
        let event = |record: &Arc<_>| (committed.foreign, Arc::clone(record));
        seen.extend(committed.records.iter().map(event));
    });
    running(&ours, 1).await;
    let mut writers = JoinSet::new();
    for number in 0..120 {
        let store = if number % 2 == 0 { &ours } else { &theirs }.clone();
        writers.spawn(async move { record(&store, 1, vec![log(number)]).await });
    }
    while let Some(joined) = writers.join_next().await {
        joined.expect("it does not panic").expect("it is recorded");
    }
    ours.changed().await.expect("it can be asked");
    let seen = seen.lock().expect("nobody panics while holding it").clone();
    let sequences: Vec<u64> = seen.iter().map(|(_, record)| record.sequence).collect();
    assert_eq!(sequences, (1..=124).collect::<Vec<_>>());
    let foreign = seen.iter().filter(|(foreign, _)| *foreign).count();
    assert_eq!(foreign, 60);
}

async fn somebody_elses_execution_is_kept(store: &Store) {
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

async fn what_was_acknowledged_is_there_after_closing_and_after_leaving(lab: &Lab) {
    let store = lab.open(14).await;
    running(&store, 1).await;
    let other = store.clone();
    store.close().await;
    let closed = other.changed().await;
    assert!(matches!(closed, Err(StoreError::Closed)));
    let closed = record(&other, 1, vec![log(1)]).await;
    assert!(matches!(closed, Err(WriteError::Store(StoreError::Closed))));
    assert!(matches!(
        other.snapshot(id(1)).await,
        Err(StoreError::Closed)
    ));
    other.close().await;
    let store = lab.open(14).await;
    let snapshot = store.snapshot(id(1)).await.expect("it can be read");
    assert_eq!(snapshot.expect("it is there").state, State::Running);
    record(&store, 1, vec![completed()]).await.expect("it runs");
    store.leave().await;
    assert!(matches!(store.changed().await, Err(StoreError::Closed)));
    let store = lab.open(14).await;
    let snapshot = store.snapshot(id(1)).await.expect("it can be read");
    assert_eq!(snapshot.expect("it is there").state, State::Succeeded);
}

async fn a_caller_that_goes_away_does_not_take_its_change_back(store: &Store) {
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

async fn a_cancellation_is_one_step(store: &Store) {
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
