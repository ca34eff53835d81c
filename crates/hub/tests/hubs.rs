//! Hubs over a real store: one, and several on one state directory.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tidemill_core::event::Outcome;
use tidemill_core::{
    Attempt, ByteSize, Event, ExecutionId, JobSpec, LogTotals, ReasonCode, RunnerId, State, Stream,
    Timestamp,
};
use tidemill_hub::{
    Answer, Hub, HubConfig, HubError, LogView, NewJob, NoRemnants, Remnants, Report,
};
use tidemill_ledger::retention::Retention;
use tidemill_ledger::{CancelAnswer, Delivery, Interest, ListFilter, Snapshot};
use tidemill_log::{LogSpool, Next, spool};
use tokio::time::timeout;

/// How long a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(30);
const FIRST: Attempt = Attempt(1);

/// Remembers whose remnants were to be removed.
#[derive(Debug, Default)]
struct Removed(Mutex<Vec<String>>);

impl Remnants for Removed {
    fn remove(&self, sandbox: &str) {
        self.0.lock().unwrap().push(sandbox.to_owned());
    }
}

fn config(dir: &Path) -> HubConfig {
    HubConfig {
        state_dir: dir.to_owned(),
        retention: Retention::default(),
        remnants: Arc::new(NoRemnants),
    }
}

async fn open(dir: &Path) -> Hub {
    Hub::open(config(dir)).await.unwrap()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it came in time")
}

fn spec() -> JobSpec {
    JobSpec::new("sh", ["-c".to_owned(), "echo hello".to_owned()])
}

async fn create(hub: &Hub) -> ExecutionId {
    hub.create(NewJob::new(spec())).await.unwrap()
}

fn assigned() -> Event {
    Event::Assigned {
        runner: RunnerId("here".to_owned()),
        attempt: FIRST,
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

async fn report(hub: &Hub, execution: ExecutionId, events: Vec<Event>) -> Answer {
    let report = Report {
        execution,
        attempt: FIRST,
        events,
    };
    hub.report(vec![report]).await.remove(0).unwrap()
}

async fn run(hub: &Hub) -> ExecutionId {
    let id = create(hub).await;
    report(hub, id, vec![assigned(), started()]).await;
    id
}

async fn kinds(hub: &Hub, id: ExecutionId) -> Vec<&'static str> {
    let page = hub.events(id, 0, 100).await.unwrap();
    page.events
        .iter()
        .map(|record| record.event.kind())
        .collect()
}

#[tokio::test]
async fn a_life_is_recorded_and_survives_the_process() {
    let dir = TempDir::new().unwrap();
    let hub = open(dir.path()).await;
    let id = run(&hub).await;
    let answer = report(&hub, id, vec![completed()]).await;
    assert_eq!(answer, Answer::Taken { cancel: None });
    hub.close().await;
    assert_eq!(fs::read_dir(dir.path().join("owners")).unwrap().count(), 0);

    let hub = open(dir.path()).await;
    let snapshot = hub.snapshot(id).await.unwrap();
    assert_eq!(
        (snapshot.state, snapshot.exit_code),
        (State::Succeeded, Some(0))
    );
    assert_eq!(
        kinds(&hub, id).await,
        ["created", "queued", "assigned", "started", "completed"]
    );
    assert_eq!(hub.spec(snapshot.spec).await.unwrap(), Some(spec()));
    let list = hub.list(&ListFilter::default(), 10, None).await.unwrap();
    assert_eq!(list.executions.len(), 1);
}

#[tokio::test]
async fn what_one_process_commits_the_others_see() {
    let dir = TempDir::new().unwrap();
    let ours = open(dir.path()).await;
    let theirs = open(dir.path()).await;
    let id = create(&ours).await;
    let mut follow = theirs.follow(id, 0);
    let mut all = theirs.subscribe(Interest::All);
    let waiting = tokio::join!(soon(theirs.wait(id)), async {
        report(&ours, id, vec![assigned()]).await;
        report(&ours, id, vec![started()]).await;
        report(&ours, id, vec![completed()]).await;
    });
    assert_eq!(waiting.0.unwrap().state, State::Succeeded);
    let mut followed = Vec::new();
    while let Some(record) = soon(follow.next()).await.unwrap() {
        followed.push((record.sequence, record.event.kind()));
    }
    let expected = ["created", "queued", "assigned", "started", "completed"];
    assert_eq!(followed, (1..).zip(expected).collect::<Vec<_>>());
    let Some(Delivery::Event(record)) = soon(all.next()).await else {
        panic!("the subscription hears of other processes");
    };
    assert_eq!(record.execution, id);
}

#[tokio::test]
async fn a_follower_that_comes_late_or_asks_for_what_is_not_there_comes_to_its_end() {
    let dir = TempDir::new().unwrap();
    let hub = open(dir.path()).await;
    let id = run(&hub).await;
    report(&hub, id, vec![completed()]).await;
    let mut follow = hub.follow(id, 3);
    assert_eq!(soon(follow.next()).await.unwrap().unwrap().sequence, 4);
    assert_eq!(soon(follow.next()).await.unwrap().unwrap().sequence, 5);
    assert_eq!(soon(follow.next()).await.unwrap(), None);
    assert_eq!(soon(hub.follow(id, 99).next()).await.unwrap(), None);
    let unknown = ExecutionId::for_test(1);
    let error = soon(hub.follow(unknown, 0).next()).await.unwrap_err();
    assert!(matches!(error, HubError::Unknown { .. }), "{error}");
    let error = soon(hub.wait(unknown)).await.unwrap_err();
    assert!(matches!(error, HubError::Unknown { .. }), "{error}");
}

#[tokio::test]
async fn a_cancel_reaches_the_process_that_runs_it() {
    let dir = TempDir::new().unwrap();
    let ours = open(dir.path()).await;
    let theirs = open(dir.path()).await;
    let id = run(&ours).await;
    let other = run(&theirs).await;
    assert_eq!(
        theirs.cancel(id, "ann").await.unwrap(),
        CancelAnswer::Requested
    );
    assert_eq!(
        theirs.cancel(id, "bob").await.unwrap(),
        CancelAnswer::AlreadyRequested
    );
    let wish = soon(ours.next_cancel()).await;
    assert_eq!((wish.execution, &*wish.by), (id, "ann"));
    assert_eq!(theirs.snapshot(id).await.unwrap().state, State::Cancelling);
    let cancelled = Event::Cancelled {
        reason: None,
        outcome: None,
    };
    let answer = report(&ours, id, vec![cancelled]).await;
    let cancel = Some("ann".to_owned());
    assert_eq!(answer, Answer::Taken { cancel });
    assert_eq!(soon(theirs.wait(id)).await.unwrap().state, State::Cancelled);
    assert_eq!(
        theirs.cancel(id, "ann").await.unwrap(),
        CancelAnswer::AlreadyFinished {
            state: State::Cancelled
        }
    );
    // A request for somebody else's execution is not ours.
    ours.cancel(other, "ann").await.unwrap();
    assert_eq!(soon(theirs.next_cancel()).await.execution, other);
}

#[tokio::test]
async fn what_was_cancelled_before_it_started_is_not_started() {
    let dir = TempDir::new().unwrap();
    let hub = open(dir.path()).await;
    let id = create(&hub).await;
    assert_eq!(
        hub.cancel(id, "ann").await.unwrap(),
        CancelAnswer::Requested
    );
    assert_eq!(hub.snapshot(id).await.unwrap().state, State::Cancelled);
    let answer = report(&hub, id, vec![assigned()]).await;
    assert!(matches!(answer, Answer::NotWanted { .. }), "{answer:?}");
    assert_eq!(
        kinds(&hub, id).await,
        ["created", "queued", "cancelling", "cancelled"]
    );
}

#[tokio::test]
async fn reports_of_many_executions_are_answered_each() {
    let dir = TempDir::new().unwrap();
    let hub = open(dir.path()).await;
    let mut reports = Vec::new();
    for _ in 0..20 {
        reports.push(Report {
            execution: create(&hub).await,
            attempt: FIRST,
            events: vec![assigned(), started()],
        });
    }
    reports.insert(
        7,
        Report {
            execution: ExecutionId::for_test(5),
            attempt: FIRST,
            events: vec![assigned()],
        },
    );
    let answers = hub.report(reports).await;
    for (place, answer) in answers.into_iter().enumerate() {
        let taken = matches!(answer.unwrap(), Answer::Taken { .. });
        assert_eq!(taken, place != 7);
    }
}

/// A process that is killed: its lock is free, and nothing was tidied up.
fn die(hub: Hub) {
    drop(hub);
}

fn write_log(dir: &Path, id: ExecutionId, text: &[u8]) -> LogSpool {
    let logs = dir.join("logs");
    let mut spool = LogSpool::new(spool::dir_of(&logs, id, FIRST), ByteSize::mib(1));
    spool.append(Stream::Stdout, Timestamp(1), text).unwrap();
    spool
}

/// Reads a log to its end, waiting where it is being written.
async fn read_log(view: &mut LogView) -> Vec<u8> {
    let mut buffer = vec![0; 64 * 1024];
    let mut bytes = Vec::new();
    loop {
        match view.next(&mut buffer).unwrap() {
            Next::Piece(piece) => bytes.extend_from_slice(&buffer[..piece.length]),
            Next::Gap(gap) => panic!("{gap:?}"),
            Next::End => return bytes,
            Next::Pending => {
                if !soon(view.more()).await.unwrap() {
                    return bytes;
                }
            }
        }
    }
}

#[tokio::test]
async fn executions_of_a_dead_process_are_lost_and_cleaned_up_once() {
    let dir = TempDir::new().unwrap();
    let dead = open(dir.path()).await;
    let running = run(&dead).await;
    let queued = create(&dead).await;
    let cancelling = run(&dead).await;
    dead.cancel(cancelling, "ann").await.unwrap();
    let finished = run(&dead).await;
    report(&dead, finished, vec![completed()]).await;
    drop(write_log(dir.path(), running, b"half a line"));
    write_log(dir.path(), finished, b"all of it\n")
        .finish()
        .unwrap();
    let left = finished.sandbox_name(FIRST);
    fs::create_dir_all(dir.path().join("sandboxes").join(&left)).unwrap();

    // While it lives, nobody touches what is its own.
    let alive = open(dir.path()).await;
    assert_eq!(alive.snapshot(running).await.unwrap().state, State::Running);
    alive.close().await;
    die(dead);

    let removed = Arc::new(Removed::default());
    let config = HubConfig {
        remnants: Arc::<Removed>::clone(&removed),
        ..config(dir.path())
    };
    let hub = Hub::open(config).await.unwrap();
    let state = async |id| hub.snapshot(id).await.unwrap();
    let lost = state(running).await;
    assert_eq!(lost.state, State::Failed);
    assert_eq!(lost.reason.unwrap().code, ReasonCode::Lost);
    assert_eq!(state(queued).await.state, State::Interrupted);
    assert_eq!(state(cancelling).await.state, State::Cancelled);
    assert_eq!(state(finished).await.state, State::Succeeded);

    let mut removed = removed.0.lock().unwrap().clone();
    removed.sort();
    let mut expected = vec![
        running.sandbox_name(FIRST),
        cancelling.sandbox_name(FIRST),
        left,
    ];
    expected.sort();
    assert_eq!(removed, expected);
    assert_eq!(fs::read_dir(dir.path().join("owners")).unwrap().count(), 0);

    assert_eq!(fs::read_dir(dir.path().join("logs")).unwrap().count(), 0);
    let mut log = hub.open_log(running, None).await.unwrap();
    assert_eq!(read_log(&mut log).await, b"half a line");
    let mut log = hub.open_log(finished, None).await.unwrap();
    assert_eq!(read_log(&mut log).await, b"all of it\n");
    assert_eq!(hub.sweep().await.unwrap(), Default::default());
}

#[tokio::test]
async fn many_processes_sweep_at_once_and_each_execution_is_lost_once() {
    let dir = TempDir::new().unwrap();
    let dead = open(dir.path()).await;
    let mut ids = Vec::new();
    for _ in 0..10 {
        let id = run(&dead).await;
        drop(write_log(dir.path(), id, b"text"));
        ids.push(id);
    }
    die(dead);
    let (one, two, three) = tokio::join!(open(dir.path()), open(dir.path()), open(dir.path()));
    // Whoever came second may have passed over what the first was cleaning up.
    one.sweep().await.unwrap();
    for id in ids {
        let failed = kinds(&two, id)
            .await
            .iter()
            .filter(|kind| **kind == "failed")
            .count();
        assert_eq!(failed, 1);
        let mut log = three.open_log(id, None).await.unwrap();
        assert_eq!(read_log(&mut log).await, b"text");
    }
}

#[tokio::test]
async fn a_log_is_followed_while_it_is_written_and_through_its_sealing() {
    let dir = TempDir::new().unwrap();
    let ours = open(dir.path()).await;
    let theirs = open(dir.path()).await;
    let id = run(&ours).await;
    let early = theirs.open_log(id, None).await.unwrap();
    let mut spool = write_log(dir.path(), id, b"one\n");
    let mut late = theirs.open_log(id, None).await.unwrap();
    let mut early = early;
    let follow = async {
        let early = read_log(&mut early).await;
        let late = read_log(&mut late).await;
        (early, late)
    };
    let write = async {
        for number in 0..500 {
            let line = format!("line {number}\n");
            spool
                .append(Stream::Stderr, Timestamp(number), line.as_bytes())
                .unwrap();
            if number % 50 == 0 {
                tokio::task::yield_now().await;
            }
        }
        spool
            .append(Stream::Stdout, Timestamp(900), b"no line end")
            .unwrap();
        let totals = spool.finish().unwrap();
        let outcome = Outcome {
            log: totals,
            ..Outcome::default()
        };
        report(&ours, id, vec![Event::Completed { outcome }]).await;
        assert!(ours.seal_log(id).await.unwrap());
        assert!(!ours.seal_log(id).await.unwrap());
        totals
    };
    let ((early, late), totals) = soon(async { tokio::join!(follow, write) }).await;
    assert_eq!(early.len() as u64, totals.bytes);
    assert!(early == late);
    assert!(early.starts_with(b"one\nline 0\n") && early.ends_with(b"line 499\nno line end"));
    assert!(!dir.path().join("logs").join(id.to_string()).exists());

    let mut sealed = theirs.open_log(id, None).await.unwrap();
    assert_eq!(sealed.reader().totals().unwrap(), Some(totals));
    sealed.reader().select(Some(Stream::Stdout));
    assert_eq!(read_log(&mut sealed).await, b"one\nno line end");
}

#[tokio::test]
async fn an_execution_without_output_has_an_empty_log() {
    let dir = TempDir::new().unwrap();
    let hub = open(dir.path()).await;
    let id = run(&hub).await;
    report(&hub, id, vec![completed()]).await;
    assert!(!hub.seal_log(id).await.unwrap());
    let mut log = hub.open_log(id, None).await.unwrap();
    assert!(read_log(&mut log).await.is_empty());
}

#[tokio::test]
async fn finished_executions_past_the_bounds_are_forgotten_with_their_logs() {
    let dir = TempDir::new().unwrap();
    let config = HubConfig {
        retention: Retention {
            count: Some(2),
            ..Retention::default()
        },
        ..config(dir.path())
    };
    let hub = Hub::open(config).await.unwrap();
    let mut ids = Vec::new();
    for number in 0..4 {
        let id = run(&hub).await;
        write_log(dir.path(), id, format!("log {number}").as_bytes())
            .finish()
            .unwrap();
        if number > 0 {
            report(&hub, id, vec![completed()]).await;
            hub.seal_log(id).await.unwrap();
        }
        ids.push(id);
    }
    let blobs = || count_files(&dir.path().join("blobs"));
    let before = blobs();
    // The oldest one still runs, so it stays.
    assert_eq!(hub.retain().await.unwrap(), ids[1..3]);
    assert_eq!(before - blobs(), 2);
    assert!(hub.snapshot(ids[0]).await.is_ok() && hub.snapshot(ids[3]).await.is_ok());
    assert!(hub.retain_if_due().await.unwrap().is_empty());
}

fn count_files(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| if path.is_dir() { count_files(&path) } else { 1 })
        .sum()
}

#[tokio::test]
async fn sensitive_values_do_not_reach_the_record() {
    let dir = TempDir::new().unwrap();
    let hub = open(dir.path()).await;
    let job = NewJob {
        sensitive: vec!["hunter2".to_owned()],
        ..NewJob::new(JobSpec::new("login", ["--password=hunter2".to_owned()]))
    };
    let id = hub.create(job).await.unwrap();
    let snapshot: Snapshot = hub.snapshot(id).await.unwrap();
    assert_eq!(snapshot.command[1], "--password=[redacted]");
    let spec = hub.spec(snapshot.spec).await.unwrap().unwrap();
    assert_eq!(spec.args, ["--password=[redacted]"]);
    assert_eq!(snapshot.log, LogTotals::default());
}

#[tokio::test]
async fn a_closed_hub_ends_its_followers() {
    let dir = TempDir::new().unwrap();
    let hub = open(dir.path()).await;
    let id = run(&hub).await;
    let waiting = hub.clone();
    let (waited, ()) = tokio::join!(soon(waiting.wait(id)), async {
        tokio::task::yield_now().await;
        hub.close().await;
    });
    waited.unwrap_err();
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_told_apart() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Hub::open(config(&file)).await.unwrap_err();
    assert!(matches!(error, HubError::StateDir(_)), "{error}");
    let state = dir.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::write(
        state.join("tidemill.db"),
        "no database, and longer than a header of one",
    )
    .unwrap();
    let error = Hub::open(config(&state)).await.unwrap_err();
    assert!(matches!(error, HubError::Open(_)), "{error}");
}
