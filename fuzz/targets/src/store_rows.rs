//! The database: rows that no store has written.

use std::cell::RefCell;

use tempfile::TempDir;
use tidemill_core::{Digest, ExecutionId};
use tidemill_ledger::ListFilter;
use tidemill_store::testing::{AnyRows, AnyValue};
use tidemill_store::{Store, StoreError};
use tokio::runtime::{Builder, Runtime};

use crate::input::Input;

/// Rows of one input.
const ROWS_MAX: usize = 16;

/// A database that takes anything, and the store that reads it.
struct World {
    runtime: Runtime,
    rows: AnyRows,
    store: Store,
    _directory: TempDir,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is a directory for temporary files");
        let path = directory.path().join("rows.db");
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime of one thread can be made");
        let (rows, store) = runtime.block_on(async {
            let empty = Store::open(&path).await.expect("the directory is ours");
            empty.close().await;
            AnyRows::loosen(&path).await.expect("nobody else has it");
            let rows = AnyRows::open(&path).await.expect("it is a database");
            let store = Store::open(&path).await.expect("it has a known version");
            (rows, store)
        });
        Self {
            runtime,
            rows,
            store,
            _directory: directory,
        }
    }

    fn try_rows(&mut self, rows: &[(usize, Vec<AnyValue>)]) {
        let Self {
            runtime,
            rows: writer,
            store,
            ..
        } = self;
        runtime.block_on(async {
            writer.replace(rows).await.expect("the database is whole");
            read_all(store, rows).await;
            change_all(store).await;
        });
    }
}

/// What a reader finds is a value, or damage that is told as such.
fn told<T>(result: Result<T, StoreError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        // A column of another kind is what the database itself says.
        Err(StoreError::Damaged { .. } | StoreError::Database { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

async fn read_all(store: &Store, rows: &[(usize, Vec<AnyValue>)]) {
    let mut ids: Vec<ExecutionId> = Vec::new();
    let page = store.list(&ListFilter::default(), ROWS_MAX, None).await;
    ids.extend(
        told(page)
            .into_iter()
            .flat_map(|page| page.executions)
            .map(|found| found.id),
    );
    let unfinished = told(store.unfinished().await).unwrap_or_default();
    ids.extend(unfinished.iter().map(|found| found.id));
    let kept = told(store.kept().await).unwrap_or_default();
    ids.extend(kept.iter().map(|found| found.id));
    for id in ids {
        told(store.snapshot(id).await);
        told(store.logs(id).await);
        let mut after = 0;
        while let Some(page) = told(store.events(id, after, 2).await).flatten() {
            assert!(page.events.len() <= 2);
            let Some(last) = page.events.last() else {
                break;
            };
            // Whoever reads on from here comes to an end.
            if last.sequence <= after {
                break;
            }
            after = last.sequence;
        }
        told(store.resolve(&id.to_string()).await);
    }
    told(store.resolve("0").await);
    for value in rows.iter().flat_map(|(_, values)| values) {
        if let AnyValue::Bytes(bytes) = value
            && let Ok(digest) = <[u8; 32]>::try_from(&bytes[..])
        {
            told(store.spec(Digest::from_bytes(digest)).await);
        }
    }
}

/// What is written goes beside what is damaged, and what can be forgotten goes.
async fn change_all(store: &Store) {
    let kept = told(store.kept().await).unwrap_or_default();
    let ids: Vec<ExecutionId> = kept.iter().map(|found| found.id).collect();
    for id in &ids {
        told(store.set_owner(*id, Some("somebody".to_owned())).await);
    }
    told(store.forget(ids).await);
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn value(input: &mut Input<'_>) -> AnyValue {
    match input.byte() % 6 {
        0 => AnyValue::Null,
        1 => AnyValue::Number(input.number().cast_signed()),
        2 => AnyValue::Text(input.piece().to_vec()),
        3 => AnyValue::Bytes(input.piece().to_vec()),
        // Ids and digests have these lengths.
        4 => AnyValue::Bytes(input.bytes(16).to_vec()),
        _ => AnyValue::Bytes(input.bytes(32).to_vec()),
    }
}

/// Rows of any content are read as values, or told as damage; they never panic a reader or a writer, and
/// do not keep what is whole from being read.
pub fn store_rows(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut rows = Vec::new();
    while !input.is_empty() && rows.len() < ROWS_MAX {
        let table = usize::from(input.byte()) % AnyRows::TABLES.len();
        let columns = AnyRows::TABLES[table].1;
        let values = (0..columns).map(|_| value(&mut input)).collect();
        rows.push((table, values));
    }
    WORLD.with_borrow_mut(|world| world.get_or_insert_with(World::new).try_rows(&rows));
}
