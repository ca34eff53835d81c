//! This test binary, started again to play another process.
//!
//! A test starts a child with [`spawn`]; the child runs only the one test of this module, which
//! does what the variable says and is an empty test otherwise.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use tidemill_core::event::LogPiece;
use tidemill_core::{Attempt, Event, ExecutionId, JobSpec, RunnerId, Stream, Timestamp};
use tidemill_ledger::Decision;
use tidemill_store::{NewExecution, Store};
use tokio::task::JoinSet;

const ROLE: &str = "TIDEMILL_STORE_CHILD";

/// Starts a child with a role and its arguments.
pub(crate) fn spawn(role: &str, arguments: &[&str]) -> Running {
    let mut command = Command::new(std::env::current_exe().unwrap());
    play(&mut command, role, arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    Running { child, lines }
}

/// Adds to a command what makes it a child with this role.
pub(crate) fn play(command: &mut Command, role: &str, arguments: &[&str]) {
    command
        .args([
            "--exact",
            "child::plays_its_role",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, format!("{role}\n{}", arguments.join("\n")));
}

/// A running child.
pub(crate) struct Running {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// The next line that the child says to us; `None` at its end.
    pub(crate) fn next(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test runner of the child says things, too, and not always on lines of its own.
            if let Some((_, said)) = line.trim_end().split_once("say: ") {
                return Some(said.to_owned());
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Says something to the parent, whole, whatever happens to this process next.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("say: {text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

#[test]
fn plays_its_role() {
    let Some(role) = std::env::var_os(ROLE) else {
        return;
    };
    let role = role.into_string().unwrap();
    let words: Vec<&str> = role.lines().collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match words[0] {
            "write" => write_until_killed(Path::new(words[1]), words[2].parse().unwrap()).await,
            "append" => append(Path::new(words[1]), words[2].parse().unwrap()).await,
            "create" => create_at_once(Path::new(words[1]), words[2].parse().unwrap()).await,
            "read-only" => super::opening::in_a_read_only_directory(Path::new(words[1])).await,
            "full" => super::opening::on_a_full_disk(Path::new(words[1])).await,
            other => panic!("`{other}` is no role"),
        }
    });
}

pub(crate) fn new(number: u128) -> NewExecution {
    NewExecution {
        id: ExecutionId::for_test(number),
        at: Timestamp(1),
        spec: JobSpec::new("true", []),
        submitter: None,
        run: None,
        correlation_id: None,
        owner: None,
        ahead: 0,
    }
}

pub(crate) fn log(offset: u64) -> Event {
    Event::Log {
        piece: LogPiece {
            stream: Stream::Stdout,
            offset,
            length: 1,
        },
        text: "x".to_owned(),
    }
}

pub(crate) async fn start(store: &Store, number: u128) {
    store.create(new(number)).await.unwrap();
    let events = vec![
        Event::Assigned {
            runner: RunnerId("r1".to_owned()),
            attempt: Attempt(1),
        },
        Event::Started { grants: vec![] },
    ];
    record(store, number, events).await;
}

/// Records events; gives the sequence of the last one.
pub(crate) async fn record(store: &Store, number: u128, events: Vec<Event>) -> u64 {
    let id = ExecutionId::for_test(number);
    let written = store
        .transact(id, Timestamp(2), move |_| Decision::events(events, ()))
        .await
        .unwrap();
    written.snapshot.unwrap().last_sequence
}

/// Eight writers at a time, each on an execution of its own; every acknowledgement is said.
async fn write_until_killed(path: &Path, first: u128) {
    let store = Store::open(path).await.unwrap();
    let mut writers = JoinSet::new();
    for number in first..first + 8 {
        let store = store.clone();
        writers.spawn(async move {
            start(&store, number).await;
            say(&format!("{number} 4"));
            for offset in 0.. {
                let sequence = record(&store, number, vec![log(offset)]).await;
                say(&format!("{number} {sequence}"));
            }
        });
    }
    writers.join_all().await;
}

/// Adds so many events to the execution 1, one commit each.
async fn append(path: &Path, events: u64) {
    let store = Store::open(path).await.unwrap();
    for offset in 0..events {
        say(&record(&store, 1, vec![log(offset)]).await.to_string());
    }
    store.close().await;
}

/// Opens a database that is perhaps not there yet, together with others, and writes into it.
async fn create_at_once(path: &Path, number: u128) {
    let store = Store::open(path).await.unwrap();
    start(&store, number).await;
    store.close().await;
    say("done");
}
