//! Rows that no store has written.

use tidemill_ledger::ListFilter;
use tidemill_store::testing::{AnyRows, AnyValue};
use tidemill_store::{Store, StoreError};

use super::place;

/// An execution whose id is this and whose snapshot is that; the rest are zeros.
fn execution(id: AnyValue, snapshot: AnyValue) -> Vec<AnyValue> {
    let mut values = vec![AnyValue::Number(0); 14];
    values[0] = AnyValue::Number(1);
    values[1] = id;
    values[3] = AnyValue::Null;
    values[13] = snapshot;
    values
}

#[tokio::test]
async fn what_nobody_can_have_written_is_told_as_damage() {
    let (_directory, path) = place();
    Store::open(&path).await.unwrap().close().await;
    AnyRows::loosen(&path).await.unwrap();
    let mut rows = AnyRows::open(&path).await.unwrap();
    let store = Store::open(&path).await.unwrap();
    let id = || AnyValue::Bytes(vec![1; 16]);
    let text = |text: &str| AnyValue::Text(text.as_bytes().to_vec());
    for (row, is_damage) in [
        (execution(id(), text("{}")), true),
        (execution(id(), AnyValue::Text(vec![0xff, 0xfe])), false),
        (execution(id(), AnyValue::Bytes(vec![0; 3])), false),
        (execution(id(), AnyValue::Null), true),
    ] {
        rows.replace(&[(0, row.clone())]).await.unwrap();
        let list = store.list(&ListFilter::default(), 10, None).await;
        let error = list.expect_err("there is a row, and it is none");
        let is_told = matches!(&error, StoreError::Damaged { .. });
        let is_of_database = matches!(&error, StoreError::Database { .. });
        assert!(
            if is_damage { is_told } else { is_of_database },
            "{row:?}: {error:?}"
        );
    }
    for id in [AnyValue::Bytes(vec![1; 15]), text("an id"), AnyValue::Null] {
        rows.replace(&[(0, execution(id, text("{}")))])
            .await
            .unwrap();
        store.unfinished().await.unwrap_err();
        store.kept().await.unwrap_err();
    }
    rows.replace(&[]).await.unwrap();
    assert!(store.kept().await.unwrap().is_empty());
    store.close().await;
}
