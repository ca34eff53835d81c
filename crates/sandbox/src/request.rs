//! What a sandbox is asked to run, and what came of it.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidemill_core::job::Network;
use tidemill_core::{ByteSize, Grant, Limits, Reason, ReasonCode, RootPlan, Usage};

use crate::rootfs::{Step, StepError};
use crate::seccomp::RefusedCall;

/// What to run and in what.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SandboxRequest {
    /// A name that no other sandbox of this state directory has: lower-case letters, digits, `-`.
    pub name: String,
    /// The root file system and the job's user.
    pub root: RootPlan,
    /// The program: a path inside, or a name for the job's PATH.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Where it starts: an absolute path inside.
    pub workdir: String,
    /// Its network.
    pub network: Network,
    /// Its bounds. Absent ones are set to finite defaults of this host.
    pub limits: Limits,
    /// True if the three standard descriptors are one terminal, which it gets as its controlling one.
    pub tty: bool,
    /// True to wait for processes that outlive the main one.
    pub wait_children: bool,
    /// Where a directory on disk is made for a private layer whose limit is more than half of the host's
    /// memory. A smaller one is in memory, where the file system itself keeps the limit.
    pub scratch: Option<PathBuf>,
    /// True if somebody outside measures what the job writes for real, and ends it when that is too much:
    /// room that nothing was written to is not given then.
    pub measured: bool,
}

/// What a process 1 that has built its root still has to be told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) workdir: String,
    pub(crate) limits: Limits,
    pub(crate) tty: bool,
    pub(crate) wait_children: bool,
    /// The CPUs that the job is kept on, if its limit says fewer than there are.
    pub(crate) cpus: Option<Vec<usize>>,
    /// Entries of /proc that are replaced and have changed since the root was built, with what they
    /// say now.
    pub(crate) replaced: Vec<(String, String)>,
}

impl SandboxRequest {
    /// The root, and what is to be done in it.
    pub(crate) fn split(self) -> (RootPlan, Work) {
        let work = Work {
            program: self.program,
            args: self.args,
            env: self.env,
            workdir: self.workdir,
            limits: self.limits,
            tty: self.tty,
            wait_children: self.wait_children,
            cpus: None,
            replaced: Vec::new(),
        };
        (self.root, work)
    }
}

/// The standard descriptors of a job.
#[derive(Debug)]
pub struct Stdio {
    /// Standard input.
    pub stdin: OwnedFd,
    /// Standard output.
    pub stdout: OwnedFd,
    /// Standard error.
    pub stderr: OwnedFd,
}

/// Why no program runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum StartError {
    /// There is no such program inside: the job's fault.
    #[error("there is no program `{program}` in the sandbox")]
    ProgramNotFound {
        /// As it was given.
        program: String,
        /// The PATH that was searched, if it was a bare name.
        searched: Option<String>,
    },
    /// It is there and cannot be executed: the job's fault.
    #[error("`{program}` cannot be executed: {error}")]
    ProgramNotExecutable {
        /// As it was given.
        program: String,
        /// What the kernel said.
        error: String,
    },
    /// The working directory cannot be entered: the job's fault.
    #[error("the working directory `{workdir}` cannot be entered: {error}")]
    BadWorkdir {
        /// As it was given.
        workdir: String,
        /// What the kernel said.
        error: String,
    },
    /// The sandbox could not be built: the runner's fault.
    #[error("the sandbox could not be built: {step}: {error}")]
    Setup {
        /// What was tried, on what.
        step: String,
        /// What the kernel said.
        error: String,
    },
    /// A limit that was asked for cannot be kept on this host.
    #[error("this host cannot keep the limit `{limit}`: {why}")]
    LimitUnavailable {
        /// Which limit.
        limit: String,
        /// Which rule blocks it.
        why: String,
    },
    /// The launcher process is gone.
    #[error("the sandbox launcher is gone: {error}")]
    LauncherGone {
        /// What was noticed.
        error: String,
    },
}

impl StartError {
    /// A failed set-up step.
    pub(crate) fn setup(step: impl Into<String>, error: &io::Error) -> Self {
        Self::Setup {
            step: step.into(),
            error: error.to_string(),
        }
    }

    /// True if the job is at fault, false if the runner is.
    pub const fn is_jobs_own_fault(&self) -> bool {
        matches!(
            self,
            Self::ProgramNotFound { .. }
                | Self::ProgramNotExecutable { .. }
                | Self::BadWorkdir { .. }
        )
    }

    /// The reason as the record keeps it.
    pub fn reason(&self) -> Reason {
        let (code, hint) = match self {
            Self::ProgramNotFound { program, searched } => (
                ReasonCode::ProgramNotFound,
                Some(shell_words(program).unwrap_or_else(|| match searched {
                    Some(path) => format!(
                        "it was searched for in PATH={path}; `tidemill explain` lists what the job sees"
                    ),
                    None => "`tidemill explain` lists what the job sees; bring the program in with \
                             --layer or another --image"
                        .to_owned(),
                })),
            ),
            Self::ProgramNotExecutable { .. } => (
                ReasonCode::ProgramNotExecutable,
                Some(
                    "it needs the execute permission, and its interpreter and libraries must be in \
                     the sandbox too"
                        .to_owned(),
                ),
            ),
            Self::BadWorkdir { .. } => (
                ReasonCode::BadWorkdir,
                Some("name a directory inside the sandbox with --workdir".to_owned()),
            ),
            Self::Setup { .. } => (
                ReasonCode::Sandbox,
                Some("`tidemill doctor` says what this host cannot do and how to mend it".to_owned()),
            ),
            Self::LimitUnavailable { limit, .. } => (
                ReasonCode::Sandbox,
                Some(format!("leave out --{limit}, or see `tidemill doctor` for the exact fix")),
            ),
            Self::LauncherGone { .. } => (ReasonCode::Sandbox, None),
        };
        let mut reason = Reason::new(code, self.to_string());
        reason.hint = hint;
        reason
    }
}

/// What to write instead of a program's name that only a shell understands.
fn shell_words(program: &str) -> Option<String> {
    const BUILT_IN: [&str; 10] = [
        ".", "alias", "cd", "eval", "exec", "export", "set", "source", "ulimit", "unset",
    ];
    if let Some((name, _)) = program.split_once('=')
        && !name.contains('/')
    {
        return Some(format!(
            "a variable is set with --env {program}, before the program"
        ));
    }
    if program.contains(char::is_whitespace) {
        return Some(
            "no shell takes it apart: give each word as an argument of its own, or the whole line to \
             a shell with sh -c"
                .to_owned(),
        );
    }
    BUILT_IN.contains(&program).then(|| {
        "it is a command of the shell and no program: give the whole line to a shell with sh -c"
            .to_owned()
    })
}

/// How a sandbox ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The main process's exit code, if it exited.
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// True if the kernel says that it left a core dump.
    pub core_dumped: bool,
    /// Processes that were still there and were killed.
    pub killed_processes: u64,
    /// What was used. The time on the wall is measured from exec to the end of the main process.
    pub usage: Usage,
    /// Set if the memory limit ended a process.
    pub oom: Option<Oom>,
    /// How many forks the limit of processes refused, where a control group counts them.
    pub pids_refused: u64,
    /// True if the job was seen to have as many processes as it may, where no control group counts.
    pub pids_full: bool,
    /// True if process 1 ended it at its time limit, because nobody else had.
    pub time_limit: bool,
    /// True if the private layer was full at some time.
    pub disk_full: bool,
    /// True if it was ended because the disk that its private layer lies on was almost full.
    pub disk_low: bool,
    /// True if /dev/shm was full at some time.
    pub shared_memory_full: bool,
    /// True if something inside wanted to reach a network, and the job has none.
    pub network_missed: bool,
    /// Calls that policy refused.
    pub refused_calls: Vec<RefusedCall>,
}

/// What the memory limit did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Oom {
    /// Most memory at one time.
    pub peak: Option<ByteSize>,
    /// The limit.
    pub limit: Option<ByteSize>,
    /// The name of the first process that was ended, where the host tells it.
    pub victim: Option<String>,
    /// How many processes were ended.
    pub kills: u64,
}

/// From a warden.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Notice {
    /// The next job can be started without delay.
    Ready {
        /// True if a sandbox like that of the last job is built already.
        ahead: bool,
    },
    /// The program was exec'd.
    Started {
        /// Walls that this host cannot build.
        missing: Vec<Grant>,
    },
    /// Nothing runs, and nothing is left.
    StartFailed {
        /// Why.
        error: StartError,
    },
    /// All is over, and nothing is left.
    Ended {
        /// How.
        ended: Ended,
    },
}

/// To a warden. Who sends it only borrows the request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToWarden<R = SandboxRequest> {
    /// Start a sandbox. The standard descriptors come with it, and the request's file if it has one.
    Spawn(Box<Spawn<R>>),
    /// About the sandbox of this number. One that has ended needs nothing any more.
    Order {
        /// The number that it was started with.
        job: u64,
        /// What to do.
        order: Order,
    },
}

/// A request on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spawn<R = SandboxRequest> {
    /// Counts the sandboxes of one warden.
    pub(crate) job: u64,
    /// The request, unless it is too long for a message and comes as a file.
    request: Option<R>,
}

/// A message of this many bytes is still sent as one.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// A message around a body, and the file with the body if the message would be too long with it.
fn pack<'a, B: Serialize, M: Serialize>(
    body: &'a B,
    message: impl Fn(Option<&'a B>) -> M,
) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let whole = serde_json::to_vec(&message(Some(body)))?;
    if whole.len() <= INLINE_BYTES_MAX {
        return Ok((whole, None));
    }
    let file = in_memory(&serde_json::to_vec(body)?)?;
    Ok((serde_json::to_vec(&message(None))?, Some(file)))
}

/// The body of a message that [`pack`] has made.
fn unpack<B: DeserializeOwned>(body: Option<B>, file: Option<OwnedFd>) -> Result<B, StepError> {
    if let Some(body) = body {
        return Ok(body);
    }
    let file = file
        .ok_or(io::ErrorKind::UnexpectedEof)
        .step(|| "receive the request".to_owned())?;
    let text = read_all(file).step(|| "read the request".to_owned())?;
    serde_json::from_slice(&text)
        .map_err(io::Error::other)
        .step(|| "understand the request".to_owned())
}

impl Spawn<&SandboxRequest> {
    /// The message, and the file with the request if it is too long for one.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn pack(
        job: u64,
        request: &SandboxRequest,
    ) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        pack(request, |request| {
            ToWarden::Spawn(Box::new(Spawn { job, request }))
        })
    }
}

impl Spawn {
    /// The request.
    ///
    /// # Errors
    /// If it came as a file, and that is not what it should be.
    pub(crate) fn unpack(self, file: Option<OwnedFd>) -> Result<SandboxRequest, StepError> {
        unpack(self.request, file)
    }
}

impl Work {
    /// The message, and the file with the work if it is too long for one.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(crate) fn pack(&self) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
        pack(self, |work| work)
    }

    /// The work of a message.
    ///
    /// # Errors
    /// If it is not what it should be.
    pub(crate) fn unpack(message: &[u8], file: Option<OwnedFd>) -> Result<Self, StepError> {
        let work = serde_json::from_slice(message)
            .map_err(io::Error::other)
            .step(|| "understand the request".to_owned())?;
        unpack(work, file)
    }
}

/// Bytes as a file in memory: arguments and environment may be larger than a message.
pub(crate) fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("tidemill-request", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = fs::File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// The content of a file in memory that its writer has just written.
pub(crate) fn read_all(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = fs::File::from(file);
    let mut bytes = Vec::new();
    io::Seek::rewind(&mut file)?;
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

/// What to do with a sandbox.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Send a signal to every process of the job.
    Signal {
        /// Its number.
        signal: i32,
    },
    /// End it at once.
    Kill,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_shell_understands_is_told_from_a_program_that_is_not_there() {
        let hint = |program: &str| {
            let error = StartError::ProgramNotFound {
                program: program.to_owned(),
                searched: Some("/bin".to_owned()),
            };
            error.reason().hint.unwrap_or_default()
        };
        for (program, said) in [
            ("make test", "sh -c"),
            ("cd", "command of the shell"),
            ("RUST_LOG=debug", "--env RUST_LOG=debug"),
            ("cargo", "PATH=/bin"),
        ] {
            assert!(hint(program).contains(said), "{program}: {}", hint(program));
        }
        assert!(!hint("./a=b/c").contains("--env"));
    }
}
