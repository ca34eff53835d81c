//! A runner with fake sandboxes: what is told to the hub, what reaches the log and the listener.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tidemill_core::job::Stdin;
use tidemill_core::signal::SIGTERM;
use tidemill_core::{
    Attempt, ByteSize, Event, ExecutionId, JobSpec, LogTotals, Millis, Reason, ReasonCode,
    RunnerId, Stream,
};
use tidemill_log::{LogReader, Next, spool};
use tidemill_runner::testing::{
    FakeHub, FakeImages, FakeSandboxes, Recording, Sent, exited, signalled,
};
use tidemill_runner::{
    CancelMode, Capacity, Ended, Job, JobHandle, JobId, LiveSink, LocalRunner, Recorded,
    RunnerConfig,
};
use tidemill_sandbox::Ended as SandboxEnded;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a runner waits.
struct Waits {
    /// For what it killed.
    stuck: Duration,
    /// For the layers of a job.
    prepare: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            stuck: PATIENCE,
            prepare: PATIENCE,
        }
    }
}

/// A runner and everything around it.
struct Scene {
    root: TempDir,
    hub: FakeHub,
    sandboxes: FakeSandboxes,
    runner: LocalRunner,
    jobs: u128,
}

impl Scene {
    fn new(sandboxes: FakeSandboxes) -> Self {
        Self::with(sandboxes, FakeImages::default(), 2)
    }

    fn with(sandboxes: FakeSandboxes, images: FakeImages, slots: u32) -> Self {
        Self::waiting(Waits::default(), sandboxes, images, slots)
    }

    fn waiting(waits: Waits, sandboxes: FakeSandboxes, images: FakeImages, slots: u32) -> Self {
        let root = TempDir::new().unwrap();
        let hub = FakeHub::default();
        let config = RunnerConfig {
            runner: RunnerId("here".to_owned()),
            capacity: Capacity::slots(NonZeroU32::new(slots).unwrap()),
            prepare_timeout: Some(waits.prepare),
            report_waits: vec![Duration::from_millis(1); 4],
            logs: root.path().join("logs"),
            scratch: Some(root.path().join("sandboxes")),
            hub: Arc::new(hub.clone()),
            sandboxes: Arc::new(sandboxes.clone()),
            images: Arc::new(images),
        };
        let runner = LocalRunner::start_giving_up_after(config, waits.stuck);
        Self {
            root,
            hub,
            sandboxes,
            runner,
            jobs: 0,
        }
    }

    fn next_job(&mut self) -> JobId {
        self.jobs += 1;
        JobId {
            execution: ExecutionId::for_test(self.jobs),
            attempt: Attempt(1),
        }
    }

    async fn enqueue(
        &mut self,
        spec: JobSpec,
        live: Option<Box<dyn LiveSink>>,
    ) -> (JobId, JobHandle) {
        let job = self.next_job();
        let handle = self.enqueue_as(job, spec, live).await;
        (job, handle)
    }

    async fn enqueue_as(
        &self,
        job: JobId,
        spec: JobSpec,
        live: Option<Box<dyn LiveSink>>,
    ) -> JobHandle {
        let enqueued = self.runner.enqueue(Job {
            execution: job.execution,
            attempt: job.attempt,
            spec: Arc::new(spec),
            live,
            stdin: None,
        });
        enqueued.await.unwrap()
    }

    /// Runs a job to its end.
    async fn run(&mut self, spec: JobSpec) -> (JobId, Ended) {
        let (job, mut handle) = self.enqueue(spec, None).await;
        (job, ended(&mut handle).await)
    }

    fn log(&self, job: JobId) -> LogReader {
        let logs = self.root.path().join("logs");
        LogReader::of_spool(spool::dir_of(&logs, job.execution, job.attempt))
    }

    async fn wait_for(&self, job: JobId, condition: impl Fn(&[Event]) -> bool + Send + 'static) {
        let hub = self.hub.clone();
        let waited = tokio::task::spawn_blocking(move || hub.wait_for(job, condition));
        waited.await.unwrap();
    }

    async fn started(&self, job: JobId) {
        self.wait_for(job, |events| {
            events.iter().any(|event| event.kind() == "started")
        })
        .await;
    }
}

async fn ended(handle: &mut JobHandle) -> Ended {
    timeout(PATIENCE, handle.ended()).await.unwrap().unwrap()
}

fn spec(program: &str) -> JobSpec {
    JobSpec::new(program, [])
}

/// Everything in a log, with the gaps as their lengths.
fn read(mut reader: LogReader) -> (Vec<(Stream, Vec<u8>)>, Vec<u64>) {
    let mut buffer = vec![0; 64 * 1024];
    let (mut pieces, mut gaps): (Vec<(Stream, Vec<u8>)>, _) = (Vec::new(), Vec::new());
    loop {
        match reader.next(&mut buffer).unwrap() {
            Next::Piece(piece) => match pieces.last_mut() {
                Some((stream, bytes)) if *stream == piece.stream => {
                    bytes.extend_from_slice(&buffer[..piece.length]);
                }
                _ => pieces.push((piece.stream, buffer[..piece.length].to_vec())),
            },
            Next::Gap(gap) => gaps.push(gap.length),
            Next::Pending => panic!("the log of a job that has ended is complete"),
            Next::End => return (pieces, gaps),
        }
    }
}

fn text(reader: LogReader) -> String {
    let (pieces, _) = read(reader);
    let bytes: Vec<u8> = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
    String::from_utf8(bytes).unwrap()
}

fn reason(event: &Event) -> Option<&Reason> {
    match event {
        Event::Failed { reason, .. }
        | Event::TimedOut { reason, .. }
        | Event::Diagnostic { reason }
        | Event::Requeued { reason } => Some(reason),
        Event::Cancelled { reason, .. } => reason.as_ref(),
        _ => None,
    }
}

fn message(event: &Event) -> &str {
    reason(event).map_or("", |reason| &reason.message)
}

fn log_totals(event: &Event) -> LogTotals {
    match event {
        Event::Completed { outcome } => outcome.log,
        Event::Failed { outcome, .. }
        | Event::TimedOut { outcome, .. }
        | Event::Cancelled { outcome, .. } => outcome.as_ref().unwrap().log,
        other => panic!("{other:?} is no end"),
    }
}

/// Programs that the tests use.
fn programs() -> FakeSandboxes {
    FakeSandboxes::default()
        .with("hello", |program| {
            program.write(Stream::Stdout, b"hello\n");
            program.write(Stream::Stderr, b"to you");
            exited(0)
        })
        .with("fail", |program| {
            program.write(Stream::Stderr, b"oh no\n");
            exited(3)
        })
        .with("server", |program| {
            program.write(Stream::Stdout, b"up\n");
            match program.wait_for_signal() {
                Sent::Signal(signal) => {
                    program.write(Stream::Stdout, format!("cleanup {signal}\n").as_bytes());
                    exited(7)
                }
                Sent::Kill => signalled(9),
            }
        })
        .with("stubborn", |program| {
            program.write(Stream::Stdout, b"up\n");
            while program.wait_for_signal() != Sent::Kill {
                program.write(Stream::Stdout, b"no\n");
            }
            signalled(9)
        })
}

#[tokio::test]
async fn a_job_is_told_from_its_beginning_to_its_end() {
    let mut scene = Scene::new(programs());
    let (job, ended) = scene.run(spec("hello")).await;
    assert!(matches!(ended.recorded, Recorded::Yes));
    let kinds = scene.hub.kinds(job);
    assert_eq!(
        kinds,
        ["assigned", "status", "started", "log", "log", "completed"]
    );
    let totals = log_totals(&ended.event);
    assert_eq!((totals.stdout_bytes, totals.stderr_bytes), (6, 6));
    assert_eq!(
        read(scene.log(job)).0,
        [
            (Stream::Stdout, b"hello\n".to_vec()),
            (Stream::Stderr, b"to you".to_vec())
        ]
    );
    let sandbox = job.execution.sandbox_name(job.attempt);
    assert_eq!(scene.sandboxes.started(), [sandbox]);
    scene.runner.drain().await;
    assert_eq!(scene.hub.sealed(), [job]);
}

#[tokio::test]
async fn a_short_job_costs_few_calls() {
    let mut scene = Scene::new(programs());
    scene.run(spec("hello")).await;
    assert!(scene.hub.calls() <= 3, "{} calls", scene.hub.calls());
}

#[tokio::test]
async fn a_bad_end_is_failed_with_its_code_and_its_log() {
    let mut scene = Scene::new(programs());
    let (job, ended) = scene.run(spec("fail")).await;
    assert_eq!(reason(&ended.event).unwrap().code, ReasonCode::Exit);
    assert_eq!(text(scene.log(job)), "oh no\n");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_the_jobs_fault_and_nothing_starts() {
    let mut scene = Scene::new(programs());
    let (job, ended) = scene.run(spec("nothing")).await;
    assert_eq!(
        reason(&ended.event).unwrap().code,
        ReasonCode::ProgramNotFound
    );
    assert_eq!(scene.hub.kinds(job), ["assigned", "status", "failed"]);
    assert!(scene.sandboxes.started().is_empty());
}

#[tokio::test]
async fn a_plan_that_cannot_be_made_keeps_its_code() {
    let cause = Reason::new(ReasonCode::BadWorkdir, "it is a file").with_hint("name another");
    let images = FakeImages::default().without_plan(cause.clone());
    let mut scene = Scene::with(programs(), images, 1);
    let (_, ended) = scene.run(spec("hello")).await;
    assert_eq!(reason(&ended.event), Some(&cause));
    assert!(scene.sandboxes.started().is_empty());
}

#[tokio::test]
async fn a3_a_graceful_cancel_lets_it_clean_up() {
    let mut scene = Scene::new(programs());
    let (job, mut handle) = scene.enqueue(spec("server"), None).await;
    scene.started(job).await;
    let cancel = scene.runner.cancel(job.execution, CancelMode::Graceful);
    cancel.await.unwrap();
    let ended = ended(&mut handle).await;
    assert_eq!(
        message(&ended.event),
        "cancelled: SIGTERM sent, ended by itself (exit code 7)"
    );
    assert_eq!(text(scene.log(job)), format!("up\ncleanup {SIGTERM}\n"));
}

#[tokio::test]
async fn a3_a_job_is_asked_with_the_signal_that_it_names() {
    let mut scene = Scene::new(programs());
    let mut server = spec("server");
    server.stop_signal = "INT".parse().unwrap();
    let (job, mut handle) = scene.enqueue(server, None).await;
    scene.started(job).await;
    let cancel = scene.runner.cancel(job.execution, CancelMode::Graceful);
    cancel.await.unwrap();
    let ended = ended(&mut handle).await;
    assert_eq!(
        message(&ended.event),
        "cancelled: SIGINT sent, ended by itself (exit code 7)"
    );
    assert_eq!(text(scene.log(job)), "up\ncleanup 2\n");
}

#[tokio::test]
async fn a3_what_does_not_end_in_its_grace_is_killed() {
    let mut scene = Scene::new(programs());
    let mut stubborn = spec("stubborn");
    stubborn.limits.grace = Millis(50);
    let (job, mut handle) = scene.enqueue(stubborn, None).await;
    scene.started(job).await;
    let cancel = scene.runner.cancel(job.execution, CancelMode::Graceful);
    cancel.await.unwrap();
    let ended = ended(&mut handle).await;
    assert_eq!(
        message(&ended.event),
        "cancelled: SIGTERM sent, killed after grace of 50 ms (SIGKILL)"
    );
    assert_eq!(text(scene.log(job)), "up\nno\n");
}

#[tokio::test]
async fn a14_a_second_cancel_kills_at_once() {
    let mut scene = Scene::new(programs());
    let mut stubborn = spec("stubborn");
    stubborn.limits.grace = Millis(600_000);
    let (job, mut handle) = scene.enqueue(stubborn, None).await;
    scene.started(job).await;
    for mode in [CancelMode::Graceful, CancelMode::Graceful, CancelMode::Now] {
        scene.runner.cancel(job.execution, mode).await.unwrap();
    }
    let ended = ended(&mut handle).await;
    assert_eq!(message(&ended.event), "cancelled: killed at once (SIGKILL)");
    // One polite signal, however often it was asked for.
    assert_eq!(text(scene.log(job)), "up\nno\n");
}

#[tokio::test]
async fn a6_a_time_limit_kills_and_keeps_the_log() {
    let mut scene = Scene::new(programs());
    let mut limited = spec("stubborn");
    limited.limits.timeout = Some(Millis(100));
    let (job, ended) = scene.run(limited).await;
    assert!(matches!(ended.event, Event::TimedOut { .. }));
    assert_eq!(reason(&ended.event).unwrap().code, ReasonCode::Time);
    assert!(message(&ended.event).contains("100 ms for running"));
    assert_eq!(text(scene.log(job)), "up\n");
}

#[tokio::test]
async fn b8_what_is_written_while_it_is_cancelled_is_kept() {
    let sandboxes = FakeSandboxes::default().with("counter", |program| {
        program.write(Stream::Stdout, b"up\n");
        let _sent = program.wait_for_signal();
        for number in 0..200 {
            program.write(Stream::Stdout, format!("line {number}\n").as_bytes());
        }
        exited(0)
    });
    let mut scene = Scene::new(sandboxes);
    let (job, mut handle) = scene.enqueue(spec("counter"), None).await;
    scene.started(job).await;
    let cancel = scene.runner.cancel(job.execution, CancelMode::Graceful);
    cancel.await.unwrap();
    ended(&mut handle).await;
    let log = text(scene.log(job));
    assert_eq!(log.lines().count(), 201);
    assert!(log.ends_with("line 199\n"));
}

#[tokio::test]
async fn a_cancel_in_the_queue_starts_nothing() {
    let mut scene = Scene::with(programs(), FakeImages::default(), 1);
    let (first, mut first_handle) = scene.enqueue(spec("server"), None).await;
    scene.started(first).await;
    let (second, mut second_handle) = scene.enqueue(spec("server"), None).await;
    scene
        .wait_for(second, |events| {
            events.iter().any(|event| event.kind() == "status")
        })
        .await;
    let cancel = scene.runner.cancel(second.execution, CancelMode::Graceful);
    cancel.await.unwrap();
    let ended_second = ended(&mut second_handle).await;
    assert_eq!(message(&ended_second.event), "cancelled: before it started");
    let cancel = scene.runner.cancel(first.execution, CancelMode::Now);
    cancel.await.unwrap();
    ended(&mut first_handle).await;
    assert_eq!(scene.sandboxes.started().len(), 1);
}

#[tokio::test]
async fn a_cancel_does_not_wait_for_a_disk_that_does_not_answer() {
    for mode in [CancelMode::Graceful, CancelMode::Now] {
        let images = FakeImages::default().without_answer();
        let mut scene = Scene::with(programs(), images, 1);
        let (job, mut handle) = scene.enqueue(spec("hello"), None).await;
        scene.runner.cancel(job.execution, mode).await.unwrap();
        let end = ended(&mut handle).await;
        assert_eq!(message(&end.event), "cancelled: before it started");
        scene.runner.drain().await;
        assert!(scene.sandboxes.started().is_empty());
    }
}

#[tokio::test]
async fn the_time_to_prepare_ends_at_a_disk_that_does_not_answer_too() {
    let waits = Waits {
        prepare: Duration::from_millis(20),
        ..Waits::default()
    };
    let images = FakeImages::default().without_answer();
    let mut scene = Scene::waiting(waits, programs(), images, 1);
    let (_, end) = scene.run(spec("hello")).await;
    assert!(
        message(&end.event).starts_with("the time limit for preparing was reached"),
        "{:?}",
        end.event
    );
    scene.runner.drain().await;
    assert!(scene.sandboxes.started().is_empty());
}

#[tokio::test]
async fn what_the_hub_does_not_want_is_not_started() {
    let mut scene = Scene::new(programs());
    let job = scene.next_job();
    scene.hub.refuse(job);
    let mut handle = scene.enqueue_as(job, spec("hello"), None).await;
    let ended = ended(&mut handle).await;
    assert!(matches!(ended.recorded, Recorded::NotWanted { .. }));
    assert!(scene.hub.events(job).is_empty());
    assert!(scene.sandboxes.started().is_empty());
    scene.runner.drain().await;
}

#[tokio::test]
async fn a_wish_in_an_answer_cancels() {
    let mut scene = Scene::new(programs());
    let job = scene.next_job();
    let mut handle = scene.enqueue_as(job, spec("server"), None).await;
    scene.started(job).await;
    // The next report is the one of the program's output.
    scene.hub.wish_cancel(job);
    let cancel = scene.runner.cancel(job.execution, CancelMode::Graceful);
    cancel.await.unwrap();
    let ended = ended(&mut handle).await;
    assert!(matches!(ended.event, Event::Cancelled { .. }));
}

#[tokio::test]
async fn a_record_that_fails_for_a_while_loses_nothing() {
    let mut scene = Scene::new(programs());
    scene.hub.fail_next(2);
    let (job, ended) = scene.run(spec("hello")).await;
    assert!(matches!(ended.recorded, Recorded::Yes));
    let kinds = scene.hub.kinds(job);
    assert_eq!(kinds.first(), Some(&"assigned"));
    assert_eq!(kinds.last(), Some(&"completed"));
    assert_eq!(scene.sandboxes.started().len(), 1);
}

#[tokio::test]
async fn without_a_record_nothing_starts_and_the_end_says_why() {
    let mut scene = Scene::new(programs());
    scene.hub.fail_next(u64::MAX);
    let (_, mut handle) = scene.enqueue(spec("hello"), None).await;
    let ended = handle.ended().await.unwrap();
    assert_eq!(reason(&ended.event).unwrap().code, ReasonCode::Internal);
    assert!(message(&ended.event).ends_with("the disk is full"));
    assert!(matches!(ended.recorded, Recorded::Failed { .. }));
    assert!(scene.sandboxes.started().is_empty());
}

#[tokio::test]
async fn a_layer_is_built_once_for_all_and_a_broken_one_fails_each() {
    let images = FakeImages::default().with_layers(&["base", "tools"]);
    let mut scene = Scene::with(programs(), images.clone(), 4);
    let mut handles = Vec::new();
    for _ in 0..8 {
        handles.push(scene.enqueue(spec("hello"), None).await.1);
    }
    for handle in &mut handles {
        let ended = ended(handle).await;
        assert!(matches!(ended.event, Event::Completed { .. }));
    }
    let mut built = images.built();
    built.sort();
    assert_eq!(built, ["base", "tools"]);
    assert!(scene.sandboxes.running_most() <= 4);

    let images = FakeImages::default()
        .with_layers(&["base", "tools"])
        .with_broken_layer("tools");
    let mut scene = Scene::with(programs(), images, 4);
    for _ in 0..2 {
        let (_, ended) = scene.run(spec("hello")).await;
        let reason = reason(&ended.event).unwrap();
        assert_eq!(reason.code, ReasonCode::Layer);
        assert!(
            reason.message.starts_with("it is broken (") && reason.message.contains("tools"),
            "{}",
            reason.message
        );
    }
    assert!(scene.sandboxes.started().is_empty());
}

#[tokio::test]
async fn the_listener_gets_everything_where_the_log_is_cut() {
    let sandboxes = FakeSandboxes::default().with("flood", |program| {
        for _ in 0..40 {
            program.write(Stream::Stdout, &b"y\n".repeat(8 * 1024));
        }
        program.write(Stream::Stdout, b"LAST\n");
        exited(3)
    });
    let mut scene = Scene::new(sandboxes);
    let mut flood = spec("flood");
    flood.limits.log = ByteSize(64 * 1024);
    let live = Recording::default();
    let (job, mut handle) = scene.enqueue(flood, Some(Box::new(live.clone()))).await;
    let ended = ended(&mut handle).await;
    let total = 40 * 16 * 1024 + 5;
    let totals = log_totals(&ended.event);
    assert_eq!(
        (totals.bytes, totals.dropped_bytes),
        (total, total - 64 * 1024)
    );
    assert_eq!(live.bytes().len() as u64, total);
    assert!(live.bytes().ends_with(b"y\nLAST\n"));
    assert!(live.has_ended());
    let mut position = 0;
    for (_, offset, bytes) in live.pieces() {
        assert_eq!(offset, position);
        position += bytes.len() as u64;
    }
    let (pieces, gaps) = read(scene.log(job));
    assert!(pieces.last().unwrap().1.ends_with(b"LAST\n"));
    assert_eq!(gaps.len(), 1);
    // The log's limit is no reason and no warning.
    assert_eq!(reason(&ended.event).unwrap().code, ReasonCode::Exit);
    assert!(!scene.hub.kinds(job).contains(&"diagnostic"));
}

#[tokio::test]
async fn a_listener_that_goes_away_does_not_stop_the_job() {
    let sandboxes = FakeSandboxes::default().with("lines", |program| {
        for number in 0..100 {
            let stream = if number % 2 == 0 {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            program.write(stream, format!("{number}\n").as_bytes());
        }
        exited(0)
    });
    let mut scene = Scene::new(sandboxes);
    let live = Recording::breaking_after(3);
    let (job, mut handle) = scene
        .enqueue(spec("lines"), Some(Box::new(live.clone())))
        .await;
    let ended = ended(&mut handle).await;
    assert!(matches!(ended.event, Event::Completed { .. }));
    assert_eq!(live.pieces().len(), 3);
    assert_eq!(text(scene.log(job)).lines().count(), 100);
}

#[tokio::test]
async fn alternating_lines_keep_their_order_in_log_and_listener() {
    let sandboxes = FakeSandboxes::default().with("both", |program| {
        for number in 0..1000 {
            let stream = if number % 2 == 0 {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            program.write(stream, format!("line {number}\n").as_bytes());
        }
        exited(0)
    });
    let mut scene = Scene::new(sandboxes);
    let live = Recording::default();
    let (job, mut handle) = scene
        .enqueue(spec("both"), Some(Box::new(live.clone())))
        .await;
    ended(&mut handle).await;
    let expected: String = (0..1000).map(|number| format!("line {number}\n")).collect();
    assert_eq!(text(scene.log(job)), expected);
    assert_eq!(String::from_utf8(live.bytes()).unwrap(), expected);
    let (pieces, _) = read(scene.log(job));
    assert_eq!(pieces.len(), 1000);
    let told = scene.hub.events(job);
    let log_events = told.iter().filter(|event| event.kind() == "log").count();
    assert!(
        (1..=64).contains(&log_events),
        "{log_events} events for 1,000 lines"
    );
}

#[tokio::test]
async fn output_is_told_while_the_job_runs() {
    let mut scene = Scene::new(programs());
    let (job, mut handle) = scene.enqueue(spec("server"), None).await;
    scene
        .wait_for(job, |events| {
            events
                .iter()
                .any(|event| matches!(event, Event::Log { text, .. } if text == "up\n"))
        })
        .await;
    let cancel = scene.runner.cancel(job.execution, CancelMode::Now);
    cancel.await.unwrap();
    ended(&mut handle).await;
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_a_warning_and_no_more() {
    let mut scene = Scene::new(programs());
    fs::write(scene.root.path().join("logs"), "in the way").unwrap();
    let live = Recording::default();
    let (job, mut handle) = scene
        .enqueue(spec("hello"), Some(Box::new(live.clone())))
        .await;
    let ended = ended(&mut handle).await;
    assert!(matches!(ended.event, Event::Completed { .. }));
    let totals = log_totals(&ended.event);
    assert_eq!((totals.bytes, totals.dropped_bytes), (12, 12));
    assert_eq!(live.bytes(), b"hello\nto you");
    let told = scene.hub.events(job);
    let warnings: Vec<&Reason> = told.iter().filter_map(reason).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].code, ReasonCode::Log);
}

#[tokio::test]
async fn limits_and_left_overs_are_told() {
    let sandboxes = FakeSandboxes::default()
        .without_wall("cgroup.memory", "not delegated")
        .with("messy", |_| SandboxEnded {
            killed_processes: 2,
            ..exited(0)
        });
    let mut scene = Scene::new(sandboxes);
    let (job, ended) = scene.run(spec("messy")).await;
    let Event::Completed { outcome } = &ended.event else {
        panic!("{ended:?}");
    };
    assert_eq!(outcome.killed_processes, 2);
    let told = scene.hub.events(job);
    let codes: Vec<ReasonCode> = told
        .iter()
        .filter_map(reason)
        .map(|reason| reason.code)
        .collect();
    assert_eq!(codes, [ReasonCode::Weakened, ReasonCode::LeftOvers]);
}

#[tokio::test]
async fn a_program_that_panics_the_sandbox_is_the_platforms_fault() {
    let sandboxes = FakeSandboxes::default().with("bomb", |_| panic!("the sandbox is gone"));
    let mut scene = Scene::new(sandboxes);
    let (_, ended) = scene.run(spec("bomb")).await;
    assert_eq!(reason(&ended.event).unwrap().code, ReasonCode::Sandbox);
}

#[tokio::test]
async fn a10_standard_input_is_empty_unless_it_is_passed_on() {
    let sandboxes = FakeSandboxes::default().with("cat", |program| {
        let mut input = Vec::new();
        program.stdin.read_to_end(&mut input).unwrap();
        program.write(Stream::Stdout, &input);
        exited(0)
    });
    let mut scene = Scene::new(sandboxes);
    let (job, _) = scene.run(spec("cat")).await;
    assert_eq!(text_or_nothing(&scene, job), "");

    let path = scene.root.path().join("input");
    File::create(&path)
        .unwrap()
        .write_all(b"from outside")
        .unwrap();
    let mut inherit = spec("cat");
    inherit.stdin = Stdin::Inherit;
    let job = scene.next_job();
    let enqueued = scene.runner.enqueue(Job {
        execution: job.execution,
        attempt: job.attempt,
        spec: Arc::new(inherit),
        live: None,
        stdin: Some(File::open(&path).unwrap().into()),
    });
    ended(&mut enqueued.await.unwrap()).await;
    assert_eq!(text_or_nothing(&scene, job), "from outside");
}

fn text_or_nothing(scene: &Scene, job: JobId) -> String {
    let logs = scene.root.path().join("logs");
    let dir = spool::dir_of(&logs, job.execution, job.attempt);
    if Path::new(&dir).exists() {
        text(scene.log(job))
    } else {
        String::new()
    }
}

#[tokio::test]
async fn f13_a_terminal_is_one_stream_with_a_handle_for_the_keyboard() {
    let sandboxes = FakeSandboxes::default().with("shell", |program| {
        let mut key = [0; 3];
        program.stdin.read_exact(&mut key).unwrap();
        program.write(Stream::Stdout, b"got ");
        program.write(Stream::Stderr, &key);
        exited(0)
    });
    let mut scene = Scene::new(sandboxes);
    let mut tty = spec("shell");
    tty.tty = true;
    let live = Recording::default();
    let (job, mut handle) = scene.enqueue(tty, Some(Box::new(live.clone()))).await;
    scene.started(job).await;
    File::from(live.terminal().unwrap())
        .write_all(b"hi\n")
        .unwrap();
    ended(&mut handle).await;
    let (pieces, _) = read(scene.log(job));
    assert_eq!(pieces.len(), 1);
    assert_eq!(pieces[0].0, Stream::Stdout);
    let seen = String::from_utf8(pieces[0].1.clone()).unwrap();
    assert!(seen.contains("got hi"), "{seen:?}");
}

#[tokio::test]
async fn a9_a_job_that_hangs_in_the_kernel_is_given_up() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let sandboxes = programs().with("undead", move |program| {
        program.write(Stream::Stdout, b"up\n");
        while !opened.load(Ordering::Acquire) {
            program.wait_a_while(Duration::from_millis(5));
        }
        signalled(9)
    });
    let stuck_after = Duration::from_millis(150);
    let waits = Waits {
        stuck: stuck_after,
        ..Waits::default()
    };
    let mut scene = Scene::waiting(waits, sandboxes, FakeImages::default(), 2);
    let (job, mut handle) = scene.enqueue(spec("undead"), None).await;
    scene.started(job).await;
    let cancel = scene.runner.cancel(job.execution, CancelMode::Now);
    cancel.await.unwrap();
    let given_up = ended(&mut handle).await;
    assert!(matches!(given_up.event, Event::Cancelled { .. }));
    let what = message(&given_up.event);
    assert!(what.contains("have not ended for 150 ms"), "{what}");
    let told = scene.hub.events(job);
    let warned = told
        .iter()
        .filter(|event| event.kind() == "diagnostic")
        .count();
    assert_eq!(warned, 1);
    // It ends after all, and nobody minds; the slot is free again.
    gate.store(true, Ordering::Release);
    let (_, next) = scene.run(spec("hello")).await;
    assert!(matches!(next.event, Event::Completed { .. }));
    timeout(PATIENCE, scene.runner.drain()).await.unwrap();
}

#[tokio::test]
async fn a_drained_runner_finishes_what_runs_and_hands_back_what_waits() {
    let gate = Arc::new(AtomicBool::new(false));
    let opened = Arc::clone(&gate);
    let sandboxes = programs().with("patient", move |program| {
        while !opened.load(Ordering::Acquire) {
            assert_eq!(program.wait_a_while(Duration::from_millis(5)), None);
        }
        exited(0)
    });
    let mut scene = Scene::with(sandboxes, FakeImages::default(), 1);
    let (first, mut first_handle) = scene.enqueue(spec("patient"), None).await;
    scene.started(first).await;
    let (_, mut second_handle) = scene.enqueue(spec("server"), None).await;
    let Scene { runner, hub, .. } = scene;
    let drained = timeout(PATIENCE, runner.drain());
    let finish = async {
        let second = ended(&mut second_handle).await;
        assert!(matches!(second.event, Event::Requeued { .. }), "{second:?}");
        assert!(!hub.kinds(first).contains(&"failed"));
        gate.store(true, Ordering::Release);
        ended(&mut first_handle).await
    };
    let (drained, first) = tokio::join!(drained, finish);
    drained.unwrap();
    assert!(matches!(first.event, Event::Completed { .. }), "{first:?}");
}

#[tokio::test]
async fn a_runner_that_is_shut_down_kills_what_runs() {
    let mut scene = Scene::with(programs(), FakeImages::default(), 1);
    let (first, mut first_handle) = scene.enqueue(spec("stubborn"), None).await;
    scene.started(first).await;
    let (_, mut second_handle) = scene.enqueue(spec("hello"), None).await;
    timeout(PATIENCE, scene.runner.shut_down()).await.unwrap();
    for handle in [&mut first_handle, &mut second_handle] {
        let ended = ended(handle).await;
        assert_eq!(reason(&ended.event).unwrap().code, ReasonCode::Shutdown);
    }
    assert_eq!(
        text(LogReader::of_spool(spool::dir_of(
            &scene.root.path().join("logs"),
            first.execution,
            first.attempt,
        ))),
        "up\n"
    );
    assert_eq!(scene.sandboxes.started().len(), 1);
}

#[tokio::test]
async fn a_runner_that_is_dropped_kills_what_runs() {
    let mut scene = Scene::new(programs());
    let (job, mut handle) = scene.enqueue(spec("stubborn"), None).await;
    scene.started(job).await;
    let Scene { runner, root, .. } = scene;
    drop(runner);
    handle.ended().await.unwrap_err();
    let logs = root.path().join("logs");
    let dir = spool::dir_of(&logs, job.execution, job.attempt);
    // The attempt's own thread ends the log when the program is gone.
    let complete = async {
        while LogReader::of_spool(dir.clone()).totals().unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, complete).await.unwrap();
}
