//! Several processes on one database, and processes that die.

use std::collections::BTreeMap;

use tidemill_core::ExecutionId;
use tidemill_store::{OpenOptions, Store};

use super::{child, place};

#[tokio::test]
async fn kill_9_in_the_middle_of_commits_loses_nothing_acknowledged() {
    let (_directory, path) = place();
    let text = path.to_str().unwrap();
    let mut acknowledged: BTreeMap<u128, u64> = BTreeMap::new();
    // Two processes at a time die at a different place each round; the database is the same.
    for round in 0..6_u128 {
        let mut children =
            [1, 2].map(|n| child::spawn("write", &[text, &(round * 100 + n * 10).to_string()]));
        for _ in 0..25 + round * 7 {
            for child in &mut children {
                let said = child.next().unwrap();
                let (number, sequence) = said.split_once(' ').unwrap();
                let last = acknowledged.entry(number.parse().unwrap()).or_default();
                *last = (*last).max(sequence.parse().unwrap());
            }
        }
        for child in &mut children {
            child.child.kill().unwrap();
        }
        for child in &mut children {
            // What it said before it died counts, too.
            while let Some(said) = child.next() {
                let (number, sequence) = said.split_once(' ').unwrap();
                let last = acknowledged.entry(number.parse().unwrap()).or_default();
                *last = (*last).max(sequence.parse().unwrap());
            }
        }
        drop(children);
        let store = Store::open(&path).await.unwrap();
        for (number, last) in &acknowledged {
            let id = ExecutionId::for_test(*number);
            let snapshot = store.snapshot(id).await.unwrap().unwrap();
            assert!(snapshot.last_sequence >= *last, "{number}: {last} is gone");
            let page = store.events(id, 0, 1_000).await.unwrap().unwrap();
            let sequences: Vec<u64> = page.events.iter().map(|r| r.sequence).collect();
            let dense: Vec<u64> = (1..=snapshot.last_sequence).collect();
            assert_eq!(sequences, dense, "the history fits the snapshot");
        }
        store.close().await;
    }
    assert!(acknowledged.len() >= 12, "the children did something");
}

#[tokio::test]
async fn several_processes_write_one_execution() {
    let (_directory, path) = place();
    let store = Store::open(&path).await.unwrap();
    child::start(&store, 1).await;
    let arguments = [path.to_str().unwrap(), "60"];
    let mut children: Vec<_> = (0..3).map(|_| child::spawn("append", &arguments)).collect();
    let mut sequences = Vec::new();
    for offset in 0..60 {
        sequences.push(child::record(&store, 1, vec![child::log(offset)]).await);
    }
    for child in &mut children {
        while let Some(said) = child.next() {
            sequences.push(said.parse().unwrap());
        }
    }
    sequences.sort_unstable();
    assert_eq!(sequences, (5..245).collect::<Vec<u64>>());
    assert!(store.changed().await.unwrap());
}

#[tokio::test]
async fn several_processes_make_the_database_at_once() {
    let (_directory, path) = place();
    for _ in 0..5 {
        let mut children: Vec<_> = (1..=4_u32)
            .map(|n| child::spawn("create", &[path.to_str().unwrap(), &n.to_string()]))
            .collect();
        for child in &mut children {
            assert_eq!(child.next().as_deref(), Some("done"));
        }
        drop(children);
        let store = Store::open(&path).await.unwrap();
        assert_eq!(store.unfinished().await.unwrap().len(), 4);
        store.close().await;
        std::fs::remove_file(&path).unwrap();
    }
}

#[tokio::test]
async fn a_change_that_waits_too_long_for_another_process_says_so_and_later_ones_work() {
    let (_directory, path) = place();
    let lock_wait = std::time::Duration::from_millis(50);
    let store = Store::open_with(&path, OpenOptions { lock_wait })
        .await
        .unwrap();
    child::start(&store, 1).await;
    let mut other = super::opening::raw(&path).await;
    super::opening::execute(&mut other, "BEGIN IMMEDIATE").await;
    let owner = Some("p".to_owned());
    let id = ExecutionId::for_test(1);
    let refused = store.set_owner(id, owner.clone()).await.unwrap_err();
    assert!(
        matches!(refused, tidemill_store::StoreError::Locked { waited } if waited == lock_wait),
        "{refused:?}"
    );
    // Reading goes on meanwhile.
    assert!(store.snapshot(id).await.unwrap().is_some());
    super::opening::execute(&mut other, "ROLLBACK").await;
    assert!(store.set_owner(id, owner).await.unwrap());
}

#[tokio::test]
async fn a_change_that_the_database_itself_refuses_leaves_nothing_and_later_ones_work() {
    let (_directory, path) = place();
    let store = Store::open(&path).await.unwrap();
    let mut other = super::opening::raw(&path).await;
    let trap = "CREATE TRIGGER trap BEFORE INSERT ON label BEGIN SELECT RAISE(ABORT, 'no'); END";
    super::opening::execute(&mut other, trap).await;
    let mut poisoned = child::new(1);
    poisoned.spec.labels.insert("a".to_owned(), "b".to_owned());
    let error = store.create(poisoned).await.unwrap_err();
    let expected = tidemill_store::StoreError::Database {
        doing: "store a label",
        source: std::sync::Arc::new(sqlx::Error::RowNotFound),
    };
    let tidemill_store::WriteError::Store(error) = error else {
        panic!("the ledger has nothing against it");
    };
    assert_eq!(error.to_string(), expected.to_string());
    child::start(&store, 2).await;
    let id = ExecutionId::for_test;
    assert_eq!(store.snapshot(id(1)).await.unwrap(), None);
    assert!(store.snapshot(id(2)).await.unwrap().is_some());
}
