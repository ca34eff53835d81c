//! The SQLite back end: the suite that all back ends pass, and what is SQLite's own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod child;
mod model;
mod opening;
mod processes;
mod rows;

use std::path::PathBuf;

use tempfile::TempDir;
use tidemill_store::Store;
use tidemill_store::testing::{Lab, conformance};

/// A directory for databases, and the path of one in it.
fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidemill.db");
    (directory, path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms() {
    let (directory, _) = place();
    let root = directory.path().to_path_buf();
    let lab = Lab::new(move |number| {
        let path = root.join(format!("{number}.db"));
        Box::pin(async move { Store::open(&path).await.unwrap() })
    });
    conformance(&lab).await;
}

#[tokio::test]
async fn sqlite_conforms_on_one_thread() {
    let (directory, _) = place();
    let root = directory.path().to_path_buf();
    let lab = Lab::new(move |number| {
        let path = root.join(format!("{number}.db"));
        Box::pin(async move { Store::open(&path).await.unwrap() })
    });
    conformance(&lab).await;
}
