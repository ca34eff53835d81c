//! Opening: migrations, and everything that may be wrong with a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, SqliteConnection};
use tidemill_core::{ExecutionId, JobSpec};
use tidemill_store::{NewExecution, OpenError, OpenOptions, Store, StoreError, WriteError};

use super::{child, place};

/// A connection of some other program.
pub(crate) async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .connect()
        .await
        .unwrap()
}

pub(crate) async fn execute(connection: &mut SqliteConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(connection)
        .await
        .unwrap();
}

/// The whole schema as text, in an order that does not depend on how it came about.
async fn schema(path: &Path) -> String {
    let mut connection = raw(path).await;
    let parts: Vec<String> = sqlx::query_scalar(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
         ORDER BY type DESC, name",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    let normal = |part: &String| part.split_whitespace().collect::<Vec<_>>().join(" ");
    parts.iter().map(normal).collect::<Vec<_>>().join(";\n") + ";\n"
}

fn migrations() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/sqlite");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().is_some_and(|name| name != "schema.sql"))
        .collect();
    files.sort();
    files
}

async fn fails(path: &Path) -> OpenError {
    let lock_wait = Duration::from_millis(50);
    Store::open_with(path, OpenOptions { lock_wait })
        .await
        .unwrap_err()
}

#[tokio::test]
async fn the_fresh_schema_is_that_of_all_migrations() {
    let (_directory, path) = place();
    Store::open(&path).await.unwrap().close().await;
    let migrated = schema(&path).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/sqlite/schema.sql");
    if std::env::var_os("TIDEMILL_BLESS").is_some() {
        std::fs::write(&file, &migrated).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(migrated, written);
    // The file is a schema and not only a text: a database made from it is the same one.
    let (_directory, path) = place();
    let mut connection = raw(&path).await;
    execute(&mut connection, &written).await;
    connection.close().await.unwrap();
    assert_eq!(schema(&path).await, migrated);
}

#[tokio::test]
async fn migrations_are_numbered_without_a_gap_and_each_older_version_is_brought_up_to_date() {
    let files = migrations();
    for (index, file) in files.iter().enumerate() {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with(&format!("{:04}_", index + 1)), "{name}");
    }
    let (_directory, fresh) = place();
    Store::open(&fresh).await.unwrap().close().await;
    let expected = schema(&fresh).await;
    for version in 1..=files.len() {
        let (_directory, path) = place();
        let mut connection = raw(&path).await;
        for file in &files[..version] {
            execute(&mut connection, &std::fs::read_to_string(file).unwrap()).await;
        }
        execute(&mut connection, &format!("PRAGMA user_version = {version}")).await;
        connection.close().await.unwrap();
        Store::open(&path).await.unwrap().close().await;
        assert_eq!(schema(&path).await, expected, "from version {version}");
    }
}

#[tokio::test]
async fn opening_an_up_to_date_database_writes_nothing() {
    let (_directory, path) = place();
    let store = Store::open(&path).await.unwrap();
    child::start(&store, 1).await;
    store.close().await;
    let before = std::fs::read(&path).unwrap();
    let store = Store::open(&path).await.unwrap();
    let wal = path.with_extension("db-wal");
    assert_eq!(std::fs::metadata(&wal).map_or(0, |meta| meta.len()), 0);
    assert!(!store.changed().await.unwrap());
    store.close().await;
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let (_directory, path) = place();
    Store::open(&path).await.unwrap().close().await;
    let mut connection = raw(&path).await;
    execute(&mut connection, "PRAGMA user_version = 900").await;
    connection.close().await.unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = fails(&path).await;
    let known = u32::try_from(migrations().len()).unwrap();
    assert!(
        matches!(error, OpenError::Newer { found: 900, known: k, .. } if k == known),
        "{error:?}"
    );
    assert!(error.to_string().contains("newer Tidemill"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_left_alone() {
    let (_directory, path) = place();
    let mut connection = raw(&path).await;
    execute(&mut connection, "CREATE TABLE t (x)").await;
    connection.close().await.unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = fails(&path).await;
    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let (directory, path) = place();
    let text = "this is a letter and not a database\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = fails(&path).await;
    assert!(matches!(error, OpenError::NotADatabase { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    let error = fails(directory.path()).await;
    assert!(matches!(error, OpenError::NotADatabase { .. }), "{error:?}");
}

/// SQLite itself takes a file of one byte for an empty database.
#[tokio::test]
async fn a_short_file_that_is_no_database_is_refused_and_left_alone() {
    for text in ["x", "one short line of garbage\n", &"a".repeat(511)] {
        let (_directory, path) = place();
        std::fs::write(&path, text).unwrap();
        let error = fails(&path).await;
        assert!(matches!(error, OpenError::NotADatabase { .. }), "{error:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        let names: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }
}

#[tokio::test]
async fn a_database_that_is_cut_short_is_told_and_left_alone() {
    let (_directory, path) = place();
    Store::open(&path).await.unwrap().close().await;
    let whole = std::fs::read(&path).unwrap();
    for length in [16, 100, 511, 512, 4_000] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = fails(&path).await;
        assert!(
            matches!(
                error,
                OpenError::Damaged { .. } | OpenError::NotADatabase { .. }
            ),
            "{length}: {error:?}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), whole[..length], "{length}");
    }
}

#[tokio::test]
async fn a_damaged_database_is_told() {
    let (_directory, path) = place();
    Store::open(&path).await.unwrap().close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    // The header stays; the schema's page is filled with nonsense.
    bytes[100..4_096].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let error = fails(&path).await;
    assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}");
}

#[tokio::test]
async fn a_missing_directory_is_told() {
    let (directory, _) = place();
    let error = fails(&directory.path().join("none/tidemill.db")).await;
    assert!(matches!(error, OpenError::NoDirectory { .. }), "{error:?}");
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = fails(&file.join("tidemill.db")).await;
    assert!(matches!(error, OpenError::NoDirectory { .. }), "{error:?}");
}

#[tokio::test]
async fn an_empty_file_is_a_fresh_database() {
    let (_directory, path) = place();
    std::fs::write(&path, "").unwrap();
    let store = Store::open(&path).await.unwrap();
    child::start(&store, 1).await;
}

#[tokio::test]
async fn a_lock_that_is_held_for_too_long_is_told() {
    let (_directory, path) = place();
    let mut other = raw(&path).await;
    execute(&mut other, "CREATE TABLE t (x); DROP TABLE t").await;
    execute(&mut other, "BEGIN EXCLUSIVE").await;
    let error = fails(&path).await;
    assert!(matches!(error, OpenError::Locked { .. }), "{error:?}");
    execute(&mut other, "ROLLBACK").await;
    other.close().await.unwrap();
    Store::open(&path).await.unwrap().close().await;
}

/// Runs a role of this test binary in a mount namespace of its own, after a few shell commands
/// with the directory as `$1`. False, and a note, where the host does not allow that.
#[expect(clippy::print_stderr, reason = "a test that cannot run here says so")]
fn in_a_mount_namespace(role: &str, mounts: &str) -> bool {
    let (directory, _) = place();
    let script = format!("{mounts} || exit 99; shift; exec \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            &script,
            "sh",
        ])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap());
    child::play(&mut command, role, &[directory.path().to_str().unwrap()]);
    match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) if output.status.code() != Some(99) && output.status.code() != Some(1) => {
            panic!("{}", String::from_utf8_lossy(&output.stderr))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("panicked"), "{said}");
            eprintln!("skipped: no mount namespace here: {said}");
            false
        }
        Err(error) => {
            eprintln!("skipped: no unshare here: {error}");
            false
        }
    }
}

#[test]
fn a_read_only_directory_is_told() {
    in_a_mount_namespace(
        "read-only",
        "mount -t tmpfs tmpfs \"$1\" && mkdir \"$1/rw\" \"$1/ro\" \
         && mount --bind \"$1/rw\" \"$1/ro\" && mount -o remount,ro,bind \"$1/ro\"",
    );
}

/// `ro` is a read-only view of `rw`.
pub(crate) async fn in_a_read_only_directory(root: &Path) {
    let read_only = root.join("ro/tidemill.db");
    let error = fails(&read_only).await;
    assert!(
        matches!(error, OpenError::ReadOnly { .. }),
        "fresh: {error:?}"
    );
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("Read-only file system"), "{source}");
    Store::open(&root.join("rw/tidemill.db"))
        .await
        .unwrap()
        .close()
        .await;
    match Store::open(&read_only).await {
        Err(error) => assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}"),
        Ok(_) => panic!("it cannot be written"),
    }
}

#[test]
fn a_full_disk_is_told_and_nothing_acknowledged_is_lost() {
    in_a_mount_namespace("full", "mount -t tmpfs -o size=2m tmpfs \"$1\"");
}

/// The directory is a disk of 2 MiB.
pub(crate) async fn on_a_full_disk(root: &Path) {
    let filler = root.join("filler");
    fill(&filler);
    let path = root.join("tidemill.db");
    let error = fails(&path).await;
    assert!(matches!(error, OpenError::Full { .. }), "{error:?}");
    std::fs::remove_file(&filler).unwrap();
    let reserve = root.join("reserve");
    std::fs::write(&reserve, vec![1; 256 << 10]).unwrap();

    let store = Store::open(&path).await.unwrap();
    let mut acknowledged = Vec::new();
    let error = loop {
        let number = acknowledged.len() as u128 + 1;
        let spec = JobSpec::new("x".repeat(30_000 + acknowledged.len()), []);
        let new = NewExecution {
            spec,
            ..child::new(number)
        };
        match store.create(new).await {
            Ok(_) => acknowledged.push(number),
            Err(error) => break error,
        }
        assert!(number < 1_000, "the disk is never full");
    };
    assert!(
        matches!(error, WriteError::Store(StoreError::Full)),
        "{error:?}"
    );
    assert!(!acknowledged.is_empty());
    for number in &acknowledged {
        let id = ExecutionId::for_test(*number);
        assert!(store.snapshot(id).await.unwrap().is_some());
    }
    let failed = ExecutionId::for_test(acknowledged.len() as u128 + 1);
    assert_eq!(
        store.snapshot(failed).await.unwrap(),
        None,
        "nothing of it is there"
    );
    // Once there is room again the same store goes on.
    std::fs::remove_file(&reserve).unwrap();
    store.create(child::new(9_999)).await.unwrap();
    acknowledged.push(9_999);
    store.close().await;
    let store = Store::open(&path).await.unwrap();
    assert_eq!(
        store
            .list(&Default::default(), 1_000, None)
            .await
            .unwrap()
            .executions
            .len(),
        acknowledged.len()
    );
    child::say("done");
}

/// Fills the disk.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    let block = [1_u8; 4_096];
    while file.write_all(&block).is_ok() {}
    while file.write_all(&block[..1]).is_ok() {}
}
