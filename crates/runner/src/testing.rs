//! Doubles of what a runner works with: sandboxes whose programs are closures, a hub that remembers,
//! images that plan nothing.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidemill_core::job::User;
use tidemill_core::root::Account;
use tidemill_core::{Event, Grant, JobSpec, Reason, RootPlan, Stream};
use tidemill_dispatch::{Cause, JobId};
use tidemill_image::Planned;
use tidemill_sandbox::{Ended, SandboxRequest, StartError, Stdio, output_pipes};

use crate::hub_port::{Answer, HubPort, Later, Report, ReportError};
use crate::images::{Images, LayerBuild};
use crate::live::LiveSink;
use crate::sandboxes::{Killing, Output, Running, Sandboxes};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is sent to a running program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// A signal.
    Signal(i32),
    /// The kill.
    Kill,
}

/// A running program, as its closure sees it.
#[derive(Debug)]
pub struct Program {
    /// What it was asked to be.
    pub request: SandboxRequest,
    /// Its standard input.
    pub stdin: File,
    /// Its standard output.
    pub stdout: File,
    /// Its standard error.
    pub stderr: File,
    sent: Receiver<Sent>,
}

impl Program {
    /// Writes to one of its streams.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) {
        let file = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        // Whoever reads may be gone, as for any program.
        file.write_all(bytes).ok();
    }

    /// Waits until something is sent to it.
    pub fn wait_for_signal(&self) -> Sent {
        self.sent.recv().unwrap_or(Sent::Kill)
    }

    /// Waits for a while until something is sent to it.
    pub fn wait_a_while(&self, time: Duration) -> Option<Sent> {
        match self.sent.recv_timeout(time) {
            Ok(sent) => Some(sent),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Sent::Kill),
        }
    }
}

/// How a program that exits by itself ends.
pub fn exited(code: i32) -> Ended {
    Ended {
        exit_code: Some(code),
        ..Ended::default()
    }
}

/// How a program that a signal ends ends.
pub fn signalled(signal: i32) -> Ended {
    Ended {
        signal: Some(signal),
        ..Ended::default()
    }
}

type Behaviour = Arc<dyn Fn(&mut Program) -> Ended + Send + Sync>;

/// Sandboxes whose programs are closures, found by the program's name.
#[derive(Clone, Default)]
pub struct FakeSandboxes {
    state: Arc<Mutex<SandboxState>>,
}

#[derive(Default)]
struct SandboxState {
    programs: HashMap<String, Behaviour>,
    missing: Vec<Grant>,
    started: Vec<String>,
    running: usize,
    running_most: usize,
}

impl fmt::Debug for FakeSandboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("FakeSandboxes")
            .field("started", &state.started)
            .field("running", &state.running)
            .finish_non_exhaustive()
    }
}

impl FakeSandboxes {
    /// Adds a program.
    #[must_use]
    pub fn with(
        self,
        name: &str,
        behaviour: impl Fn(&mut Program) -> Ended + Send + Sync + 'static,
    ) -> Self {
        lock(&self.state)
            .programs
            .insert(name.to_owned(), Arc::new(behaviour));
        self
    }

    /// Lacks a wall.
    #[must_use]
    pub fn without_wall(self, wall: &str, why: &str) -> Self {
        lock(&self.state).missing.push(Grant::Missing {
            wall: wall.to_owned(),
            why: why.to_owned(),
        });
        self
    }

    /// The names of the sandboxes that were started, in order.
    pub fn started(&self) -> Vec<String> {
        lock(&self.state).started.clone()
    }

    /// How many ran at once at most.
    pub fn running_most(&self) -> usize {
        lock(&self.state).running_most
    }
}

impl Sandboxes for FakeSandboxes {
    fn output(&self) -> io::Result<(Box<dyn Output>, OwnedFd, OwnedFd)> {
        let (reader, stdout, stderr) = output_pipes()?;
        Ok((Box::new(reader), stdout, stderr))
    }

    fn terminal(&self) -> io::Result<(Box<dyn Output>, OwnedFd, OwnedFd)> {
        crate::sandboxes::terminal()
    }

    fn spawn(
        &self,
        request: &SandboxRequest,
        stdio: Stdio,
    ) -> Result<Box<dyn Running>, StartError> {
        let mut state = lock(&self.state);
        let Some(behaviour) = state.programs.get(&request.program).cloned() else {
            return Err(StartError::ProgramNotFound {
                program: request.program.clone(),
                searched: None,
            });
        };
        state.started.push(request.name.clone());
        state.running += 1;
        state.running_most = state.running_most.max(state.running);
        let (send, sent) = sync_channel(64);
        let mut program = Program {
            request: request.clone(),
            stdin: stdio.stdin.into(),
            stdout: stdio.stdout.into(),
            stderr: stdio.stderr.into(),
            sent,
        };
        let counter = Arc::clone(&self.state);
        let thread = thread::spawn(move || {
            let ended = behaviour(&mut program);
            drop(program);
            lock(&counter).running -= 1;
            ended
        });
        Ok(Box::new(FakeRunning {
            missing: state.missing.clone(),
            send,
            thread,
        }))
    }
}

struct FakeRunning {
    missing: Vec<Grant>,
    send: SyncSender<Sent>,
    thread: JoinHandle<Ended>,
}

struct FakeKilling(SyncSender<Sent>);

impl Running for FakeRunning {
    fn missing_walls(&self) -> Vec<Grant> {
        self.missing.clone()
    }

    fn killing(&self) -> Box<dyn Killing> {
        Box::new(FakeKilling(self.send.clone()))
    }

    fn wait(self: Box<Self>) -> Result<Ended, StartError> {
        self.thread.join().map_err(|_| StartError::LauncherGone {
            error: "the program panicked".to_owned(),
        })
    }
}

impl Killing for FakeKilling {
    fn signal(&self, signal: i32) {
        // A program that has ended hears nothing.
        self.0.try_send(Sent::Signal(signal)).ok();
    }

    fn kill(&self) {
        self.0.try_send(Sent::Kill).ok();
    }
}

/// A hub that remembers what it was told.
#[derive(Debug, Clone, Default)]
pub struct FakeHub {
    state: Arc<(Mutex<HubState>, Condvar)>,
}

#[derive(Debug, Default)]
struct HubState {
    events: BTreeMap<JobId, Vec<Event>>,
    calls: u64,
    failures: u64,
    not_wanted: Vec<JobId>,
    cancel: Vec<JobId>,
    sealed: Vec<JobId>,
}

impl FakeHub {
    /// Fails the next calls.
    pub fn fail_next(&self, calls: u64) {
        self.state().failures = calls;
    }

    /// Does not want to hear of a job.
    pub fn refuse(&self, job: JobId) {
        self.state().not_wanted.push(job);
    }

    /// Answers the reports of a job with the wish to cancel it.
    pub fn wish_cancel(&self, job: JobId) {
        self.state().cancel.push(job);
    }

    /// What was told of a job.
    pub fn events(&self, job: JobId) -> Vec<Event> {
        self.state().events.get(&job).cloned().unwrap_or_default()
    }

    /// The kinds of what was told of a job.
    pub fn kinds(&self, job: JobId) -> Vec<&'static str> {
        self.events(job).iter().map(Event::kind).collect()
    }

    /// How many calls there were.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// The jobs whose logs were sealed, in order.
    pub fn sealed(&self) -> Vec<JobId> {
        self.state().sealed.clone()
    }

    /// Blocks until what was told of a job satisfies a condition, for a while.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn wait_for(&self, job: JobId, condition: impl Fn(&[Event]) -> bool) {
        let (mutex, changed) = &*self.state;
        let state = lock(mutex);
        let waiting = |state: &mut HubState| {
            let events = state.events.get(&job).map_or(&[][..], Vec::as_slice);
            !condition(events)
        };
        let (_state, result) = changed
            .wait_timeout_while(state, Duration::from_secs(30), waiting)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!result.timed_out(), "it was not told in time");
    }

    fn state(&self) -> MutexGuard<'_, HubState> {
        lock(&self.state.0)
    }

    fn take(&self, report: Report) -> Answer {
        let mut state = self.state();
        if state.not_wanted.contains(&report.job) {
            let why = "the test says so".to_owned();
            return Answer::NotWanted { why };
        }
        let told = state.events.entry(report.job).or_default();
        told.extend(report.events);
        let cancel = state.cancel.contains(&report.job);
        self.state.1.notify_all();
        Answer::Taken {
            cancel: cancel.then(|| "somebody".to_owned()),
        }
    }
}

impl HubPort for FakeHub {
    fn report(&self, reports: Vec<Report>) -> Later<'_, Vec<Result<Answer, ReportError>>> {
        Box::pin(async move {
            let fails = {
                let mut state = self.state();
                state.calls += 1;
                let fails = state.failures > 0;
                state.failures = state.failures.saturating_sub(1);
                fails
            };
            reports
                .into_iter()
                .map(|report| {
                    if fails {
                        Err(ReportError::new("the disk is full"))
                    } else {
                        Ok(self.take(report))
                    }
                })
                .collect()
        })
    }

    fn seal_log(&self, job: JobId) -> Later<'_, Result<(), ReportError>> {
        Box::pin(async move {
            self.state().sealed.push(job);
            Ok(())
        })
    }
}

/// Images whose plans are empty, and whose layers are built by counting.
#[derive(Debug, Clone, Default)]
pub struct FakeImages {
    state: Arc<Mutex<ImageState>>,
}

#[derive(Debug, Default)]
struct ImageState {
    layers: Vec<String>,
    broken: Option<String>,
    built: Vec<String>,
    plan_error: Option<Reason>,
    silent: bool,
}

impl FakeImages {
    /// Which layers a job needs is asked of a disk that does not answer.
    #[must_use]
    pub fn without_answer(self) -> Self {
        lock(&self.state).silent = true;
        self.with_layers(&["base"])
    }

    /// Every job needs these layers.
    #[must_use]
    pub fn with_layers(self, names: &[&str]) -> Self {
        lock(&self.state).layers = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// This layer cannot be built.
    #[must_use]
    pub fn with_broken_layer(self, name: &str) -> Self {
        lock(&self.state).broken = Some(name.to_owned());
        self
    }

    /// Nothing can be planned.
    #[must_use]
    pub fn without_plan(self, reason: Reason) -> Self {
        lock(&self.state).plan_error = Some(reason);
        self
    }

    /// The layers that were built, in order.
    pub fn built(&self) -> Vec<String> {
        lock(&self.state).built.clone()
    }
}

impl Images for FakeImages {
    fn needs_nothing(&self, _spec: &JobSpec) -> bool {
        lock(&self.state).layers.is_empty()
    }

    fn layers(&self, _spec: &JobSpec) -> Result<Vec<LayerBuild>, Reason> {
        while lock(&self.state).silent {
            thread::park();
        }
        let builds = lock(&self.state).layers.clone();
        let builds = builds.into_iter().map(|name| {
            let state = Arc::clone(&self.state);
            LayerBuild {
                name: Arc::from(name.as_str()),
                build: Arc::new(move |_| {
                    let mut state = lock(&state);
                    if state.broken.as_ref() == Some(&name) {
                        return Err(Cause::from("it is broken"));
                    }
                    state.built.push(name.clone());
                    Ok(PathBuf::from("/trees").join(&name))
                }),
            }
        });
        Ok(builds.collect())
    }

    fn plan(&self, spec: &JobSpec) -> Result<Planned, Reason> {
        if let Some(reason) = &lock(&self.state).plan_error {
            return Err(reason.clone());
        }
        Ok(Planned {
            root: RootPlan {
                trees: Vec::new(),
                nodes: Vec::new(),
                mounts: Vec::new(),
                files: Vec::new(),
                account: Account {
                    user: User {
                        uid: 1000,
                        gid: 1000,
                    },
                    name: "job".to_owned(),
                    home: "/home/job".to_owned(),
                    groups: Vec::new(),
                },
                root_writable: false,
                devices: Vec::new(),
                sys: false,
                allow: Vec::new(),
            },
            env: Vec::new(),
            grants: Vec::new(),
            workdir: spec.workdir.clone().unwrap_or_else(|| "/".to_owned()),
        })
    }
}

/// A listener that remembers everything. Clones share what they remember.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    state: Arc<Mutex<RecordingState>>,
}

#[derive(Debug, Default)]
struct RecordingState {
    pieces: Vec<(Stream, u64, Vec<u8>)>,
    breaks_after: Option<usize>,
    ended: bool,
    terminal: Option<OwnedFd>,
}

impl Recording {
    /// A listener that goes away after so many pieces.
    pub fn breaking_after(pieces: usize) -> Self {
        let recording = Self::default();
        lock(&recording.state).breaks_after = Some(pieces);
        recording
    }

    /// What came, piece by piece.
    pub fn pieces(&self) -> Vec<(Stream, u64, Vec<u8>)> {
        lock(&self.state).pieces.clone()
    }

    /// Everything that came, of both streams.
    pub fn bytes(&self) -> Vec<u8> {
        let state = lock(&self.state);
        let parts: Vec<&[u8]> = state.pieces.iter().map(|(.., bytes)| &**bytes).collect();
        parts.concat()
    }

    /// True once it was told that nothing more comes.
    pub fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    /// The controlling end of the job's terminal, if there was one.
    pub fn terminal(&self) -> Option<OwnedFd> {
        lock(&self.state).terminal.take()
    }
}

impl LiveSink for Recording {
    fn write(&mut self, stream: Stream, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.breaks_after == Some(state.pieces.len()) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        state.pieces.push((stream, offset, bytes.to_vec()));
        Ok(())
    }

    fn terminal(&mut self, controller: OwnedFd) {
        lock(&self.state).terminal = Some(controller);
    }

    fn end(&mut self) {
        lock(&self.state).ended = true;
    }
}
