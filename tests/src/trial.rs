//! One start of the binary: what it is given, and what came of it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::output::{Collected, Collector};
use crate::patience::{PATIENCE, until};
use crate::processes::children_of;
use crate::record::Record;
use crate::world::{Around, MARK, World};

/// How long a run may take, unless a test says otherwise.
const DEADLINE: Duration = Duration::from_secs(90);

/// One start of the binary, before it happens.
#[derive(Debug)]
#[must_use = "nothing happens before `run` or `start`"]
pub struct Trial<'w> {
    world: &'w World,
    number: Option<u32>,
    subcommand: Vec<OsString>,
    flags: Vec<OsString>,
    command: Option<Vec<OsString>>,
    variables: Vec<(OsString, OsString)>,
    around: Around,
    directory: Option<PathBuf>,
    input: Option<Vec<u8>>,
    is_merged: bool,
    deadline: Duration,
}

impl<'w> Trial<'w> {
    pub(crate) fn new<S: AsRef<OsStr>>(
        world: &'w World,
        number: Option<u32>,
        subcommand: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            world,
            number,
            subcommand: owned(subcommand),
            flags: Vec::new(),
            command: None,
            variables: Vec::new(),
            around: Around::Nothing,
            directory: None,
            input: None,
            is_merged: false,
            deadline: DEADLINE,
        }
    }

    pub(crate) fn command<S: AsRef<OsStr>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.command = Some(owned(command));
        self
    }

    /// Adds flags, before the job's program.
    pub fn args<S: AsRef<OsStr>>(mut self, flags: impl IntoIterator<Item = S>) -> Self {
        self.flags.extend(owned(flags));
        self
    }

    /// Sets a variable of the binary's own environment.
    pub fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables
            .push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Gives the binary something to read, and then the end of it. Without this, its standard input is
    /// a pipe that stays open and silent.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.input = Some(bytes.into());
        self
    }

    /// Starts it in another directory.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// Lets standard output and standard error be one and the same pipe, read as standard output.
    pub fn merged(mut self) -> Self {
        self.is_merged = true;
        self
    }

    /// Runs a shell script around it, as the world's user, that ends in `exec "$@"`.
    pub fn through(mut self, script: impl Into<String>) -> Self {
        self.around = Around::Shell(script.into());
        self
    }

    /// Runs a shell script around it, as root in a mount namespace of its own, that ends in
    /// `exec "$@"`. Only where the suite is root.
    pub fn inside(mut self, script: impl Into<String>) -> Self {
        self.around = Around::Mounts(script.into());
        self
    }

    /// Allows it this long until its end.
    pub fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Runs it to its end.
    pub fn run(self) -> Done {
        self.start().wait()
    }

    /// Starts it.
    pub fn start(self) -> Background<'w> {
        let world = self.world;
        let mut process = world.process(&self.around);
        process.args(&self.subcommand).envs(self.variables);
        let mut result_file = None;
        let mut label = None;
        if let Some(number) = self.number {
            let file = world.path().join(format!("results/{number}.json"));
            process.arg("--result-file").arg(&file);
            result_file = Some(file);
            let value = format!("trial={number}");
            process.args(["--label", &value]);
            label = Some(value);
            process.arg("--env").arg(format!("{MARK}={}", world.id()));
        }
        process.args(&self.flags);
        if let Some(command) = &self.command {
            process.arg("--").args(command);
        }
        if let Some(directory) = &self.directory {
            process.current_dir(directory).env("PWD", directory);
        }
        process.stdin(Stdio::piped());
        let (stdout, stderr): (Box<dyn Read + Send>, Box<dyn Read + Send>);
        let shown = format!("{process:?}");
        let mut child = if self.is_merged {
            let (reader, writer) = io::pipe().expect("a pipe can be made");
            let second = writer.try_clone().expect("a pipe can be shared");
            process.stdout(writer).stderr(second);
            let child = process.spawn();
            // The ends that the process writes to must not stay open here.
            drop(process);
            (stdout, stderr) = (Box::new(reader), Box::new(io::empty()));
            child.unwrap_or_else(|error| panic!("{shown}: {error}"))
        } else {
            process.stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = process.spawn();
            let mut child = child.unwrap_or_else(|error| panic!("{shown}: {error}"));
            stdout = Box::new(child.stdout.take().expect("it is piped"));
            stderr = Box::new(child.stderr.take().expect("it is piped"));
            child
        };
        let mut stdin = child.stdin.take();
        if let Some(bytes) = self.input {
            let mut stdin = stdin.take().expect("it is piped");
            thread::spawn(move || {
                // A process that does not want it closes the pipe.
                stdin.write_all(&bytes).ok();
            });
        }
        Background {
            world,
            shown,
            child,
            stdin,
            stdout: Some(Collector::start(stdout)),
            stderr: Some(Collector::start(stderr)),
            result_file,
            label,
            started: Instant::now(),
            deadline: self.deadline,
        }
    }
}

/// The binary while it runs.
#[derive(Debug)]
pub struct Background<'w> {
    world: &'w World,
    shown: String,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<Collector>,
    stderr: Option<Collector>,
    result_file: Option<PathBuf>,
    label: Option<String>,
    started: Instant,
    deadline: Duration,
}

impl Background<'_> {
    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The execution's id, once it is recorded.
    pub fn id(&self) -> String {
        let label = self.label.as_deref().expect("it was started as a job");
        until("the execution is recorded", PATIENCE, || {
            let found = self.world.list(&["--label", label]);
            found.first().map(|record| record.id().to_owned())
        })
    }

    /// What it wrote to standard output so far.
    pub fn stdout(&self) -> Collected {
        self.stdout.as_ref().expect("it was not waited for").now()
    }

    /// What it wrote to standard error so far.
    pub fn stderr(&self) -> Collected {
        self.stderr.as_ref().expect("it was not waited for").now()
    }

    /// Waits until it has written this to standard output.
    pub fn await_output(&self, text: &str) -> &Self {
        self.await_in(self.stdout.as_ref(), text)
    }

    /// Waits until it has written this to standard error.
    pub fn await_error(&self, text: &str) -> &Self {
        self.await_in(self.stderr.as_ref(), text)
    }

    fn await_in(&self, stream: Option<&Collector>, text: &str) -> &Self {
        let stream = stream.expect("it was not waited for");
        let heard = stream.wait_for(PATIENCE, |bytes| contains(bytes, text.as_bytes()));
        assert!(
            heard,
            "it did not say {text:?} in {PATIENCE:?}\n{}",
            self.so_far()
        );
        self
    }

    /// Waits until its execution is in this state.
    pub fn await_state(&self, id: &str, state: &str) -> Record {
        until(&format!("{id} is {state}"), PATIENCE, || {
            Some(self.world.show(id)).filter(|record| record.state() == state)
        })
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) -> &Self {
        kill_process(self.raw_pid(), signal).expect("it has not been waited for");
        self
    }

    /// Sends a signal to the process group, as a terminal does on Ctrl-C.
    pub fn signal_group(&self, signal: Signal) -> &Self {
        kill_process_group(self.raw_pid(), signal).expect("it has not been waited for");
        self
    }

    fn raw_pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id()).expect("process numbers fit");
        Pid::from_raw(pid).expect("it is not 0")
    }

    /// Cancels the execution with `tidemill cancel`, as from another terminal.
    pub fn cancel(&self) -> &Self {
        let id = self.id();
        self.world.ask(["cancel", &id]);
        self
    }

    /// Closes the binary's standard input.
    pub fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Writes to the binary's standard input.
    pub fn write_input(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("it is still open");
        stdin.write_all(bytes).expect("it reads its input");
    }

    /// True if the process has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// Waits for its end. Panics if its deadline passes.
    pub fn wait(mut self) -> Done {
        let deadline = self.started + self.deadline;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            if Instant::now() > deadline {
                let said = self.so_far();
                let pid = i32::try_from(self.child.id()).expect("process numbers fit");
                let below: Vec<String> = children_of(pid)
                    .iter()
                    .map(|process| {
                        let command = String::from_utf8_lossy(&process.command).into_owned();
                        format!("{} {} {command:?}", process.pid, process.state)
                    })
                    .collect();
                panic!(
                    "not over after {:?}\n{said}\nbelow it: {below:#?}",
                    self.deadline
                );
            }
            thread::sleep(Duration::from_millis(3));
        };
        let elapsed = self.started.elapsed();
        let stdout = self.stdout.take().expect("it is waited for once").finish();
        let stderr = self.stderr.take().expect("it is waited for once").finish();
        Done {
            shown: std::mem::take(&mut self.shown),
            code: code(status),
            reads: stdout.reads.iter().map(|(_, length)| *length).collect(),
            stdout: stdout.bytes,
            stderr: stderr.bytes,
            record: self.result_file.as_deref().and_then(read_record),
            elapsed,
        }
    }

    fn so_far(&self) -> String {
        let text = |stream: &Option<Collector>| {
            let bytes = stream.as_ref().map(|stream| stream.now().bytes);
            shortened(&bytes.unwrap_or_default())
        };
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        format!("{}\nstdout: {stdout}\nstderr: {stderr}", self.shown)
    }
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        // Only a test that failed leaves it running. It has ended if this fails.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The binary after its end.
#[derive(Debug)]
pub struct Done {
    shown: String,
    /// The exit code; a negative number is the signal that ended it.
    pub code: i32,
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// How much of that was there after each read.
    pub reads: Vec<usize>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// How long it took, from the start of the process.
    pub elapsed: Duration,
    record: Option<Record>,
}

impl Done {
    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The record that it left in its result file.
    pub fn record(&self) -> &Record {
        self.record
            .as_ref()
            .unwrap_or_else(|| panic!("there is no result file\n{self}"))
    }

    /// True if it left a result file.
    pub const fn has_record(&self) -> bool {
        self.record.is_some()
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.shown)?;
        writeln!(f, "exit code {} after {:?}", self.code, self.elapsed)?;
        writeln!(f, "stdout: {}", shortened(&self.stdout))?;
        writeln!(f, "stderr: {}", shortened(&self.stderr))?;
        match &self.record {
            Some(record) => write!(f, "record: {}", record.without_grants()),
            None => write!(f, "no record"),
        }
    }
}

fn read_record(path: &Path) -> Option<Record> {
    let bytes = fs::read(path).ok()?;
    let value = serde_json::from_slice(&bytes);
    Some(Record(value.unwrap_or_else(|error| {
        panic!("{}: {error}: {}", path.display(), shortened(&bytes))
    })))
}

fn code(status: ExitStatus) -> i32 {
    let signal = || {
        -status
            .signal()
            .expect("a process exits or is ended by a signal")
    };
    status.code().unwrap_or_else(signal)
}

/// A text for a failed assertion: not the whole gigabyte.
fn shortened(bytes: &[u8]) -> String {
    const SHOWN: usize = 4000;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
    if bytes.len() > SHOWN {
        format!("{text}… ({} bytes)", bytes.len())
    } else {
        text.into_owned()
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn owned<S: AsRef<OsStr>>(list: impl IntoIterator<Item = S>) -> Vec<OsString> {
    list.into_iter()
        .map(|part| part.as_ref().to_owned())
        .collect()
}
