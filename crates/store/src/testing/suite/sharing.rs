//! Several handles on one database, and the end of a handle.

use std::sync::{Arc, Mutex};

use tidemill_core::State;
use tidemill_ledger::{CancelAnswer, cancel};
use tokio::task::JoinSet;

use super::{Lab, at, completed, id, log, record, running};
use crate::fault::{StoreError, WriteError};

pub(super) async fn others_are_noticed_and_our_own_changes_are_not(lab: &Lab) {
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

pub(super) async fn many_writers_of_one_execution_lose_nothing(lab: &Lab) {
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

pub(super) async fn an_observer_sees_every_event_once_and_in_order(lab: &Lab) {
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

pub(super) async fn what_was_acknowledged_is_there_after_closing_and_after_leaving(lab: &Lab) {
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
