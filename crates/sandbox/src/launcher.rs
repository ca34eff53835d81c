//! The owner's side of the launcher process.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_core::Grant;

use crate::identity::Identity;
use crate::request::{Ended, Notice, Order, SandboxRequest, StartError, Stdio};
use crate::serve::{Hello, Settings};
use crate::sweep::sweep;
use crate::sys::socket;

/// The hidden first argument with which a binary starts as a launcher, see [`crate::launcher_main`].
pub const LAUNCHER_ARG: &str = "sandbox-launcher";

/// How to start a launcher.
#[derive(Debug, Clone)]
pub struct LauncherConfig {
    /// The state directory: scratch directories lie below it, in `sandboxes`.
    pub state_dir: PathBuf,
    /// The program to start as the launcher, with [`LAUNCHER_ARG`]: usually this one itself.
    pub exe: PathBuf,
}

/// Why there is no launcher.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// The process could not be started.
    #[error("failed to start the sandbox launcher `{exe}`")]
    Start {
        /// The program.
        exe: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It ended, or said something that is not understood.
    #[error("the sandbox launcher gave no answer")]
    NoAnswer {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// This host cannot isolate jobs.
    #[error("this host cannot isolate jobs: {why}")]
    Unable {
        /// Which rule blocks it.
        why: String,
    },
}

/// A running launcher process. Clones share it; when the last one is dropped, it kills what still runs
/// and ends.
#[derive(Debug, Clone)]
pub struct Launcher(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    socket: Option<OwnedFd>,
    child: Mutex<Child>,
    state_dir: PathBuf,
    identity: Identity,
    no_sub_ids: Option<String>,
}

impl Launcher {
    /// Starts the process and waits until it is ready.
    ///
    /// # Errors
    /// If it cannot be started, or if this host cannot isolate jobs.
    pub fn start(config: &LauncherConfig) -> Result<Self, LauncherError> {
        let no_answer = |source| LauncherError::NoAnswer { source };
        let (ours, theirs) = socket::pair().map_err(no_answer)?;
        let child = Command::new(&config.exe)
            // Process 1 of each sandbox has this command line, and the job can read it.
            .arg0("tidemill")
            .arg(LAUNCHER_ARG)
            .env_clear()
            .current_dir("/")
            .stdin(ProcessStdio::from(theirs))
            .stdout(ProcessStdio::null())
            .stderr(ProcessStdio::inherit())
            .spawn()
            .map_err(|source| LauncherError::Start {
                exe: config.exe.clone(),
                source,
            })?;
        let settings = Settings {
            state_dir: config.state_dir.clone(),
        };
        let hello = (|| {
            socket::send(ours.as_fd(), &serde_json::to_vec(&settings)?, &[])?;
            let (bytes, _) = socket::receive(ours.as_fd(), true)?;
            Ok(serde_json::from_slice::<Hello>(&bytes)?)
        })()
        .map_err(no_answer)?;
        let identity = hello
            .identity
            .map_err(|why| LauncherError::Unable { why })?;
        Ok(Self(Arc::new(Inner {
            socket: Some(ours),
            child: Mutex::new(child),
            state_dir: config.state_dir.clone(),
            identity,
            no_sub_ids: hello.no_sub_ids,
        })))
    }

    /// How ids of jobs are mapped.
    pub fn identity(&self) -> Identity {
        self.0.identity
    }

    /// Why sub-ids are not used, where they are not.
    pub fn no_sub_ids(&self) -> Option<&str> {
        self.0.no_sub_ids.as_deref()
    }

    /// Starts this binary again with these arguments as root of the launcher's user namespace, where
    /// the caller's sub-ids can be given files, and returns what it wrote to standard output. Blocks.
    ///
    /// # Errors
    /// If the launcher is gone. A helper that could not be started or that failed has written nothing
    /// of use.
    pub fn help(&self, arguments: &[String]) -> io::Result<Vec<u8>> {
        let launcher = self.0.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let body = in_memory(&serde_json::to_vec(arguments)?)?;
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        socket::send(launcher.as_fd(), b"help", &[body.as_fd(), writer.as_fd()])?;
        drop(writer);
        let mut output = Vec::new();
        io::Read::read_to_end(&mut fs::File::from(reader), &mut output)?;
        Ok(output)
    }

    /// Starts a program in a new sandbox. Blocks until it was exec'd or that failed; after a failure
    /// nothing is left.
    ///
    /// # Errors
    /// Why nothing runs: the job's fault or the runner's.
    pub fn spawn(&self, request: &SandboxRequest, stdio: Stdio) -> Result<Sandbox, StartError> {
        let gone = |error: io::Error| StartError::LauncherGone {
            error: error.to_string(),
        };
        let launcher = self
            .0
            .socket
            .as_ref()
            .ok_or_else(|| gone(io::ErrorKind::NotConnected.into()))?;
        let (ours, theirs) = socket::pair().map_err(gone)?;
        let body = serde_json::to_vec(request)
            .map_err(io::Error::from)
            .and_then(|bytes| in_memory(&bytes))
            .map_err(gone)?;
        {
            let fds = [
                theirs.as_fd(),
                body.as_fd(),
                stdio.stdin.as_fd(),
                stdio.stdout.as_fd(),
                stdio.stderr.as_fd(),
            ];
            socket::send(launcher.as_fd(), b"spawn", &fds).map_err(gone)?;
        }
        drop((theirs, stdio));
        match self.hear(&ours, &request.name)? {
            Notice::Started { missing } => Ok(Sandbox {
                name: request.name.clone(),
                killer: Killer(Arc::new(ours)),
                missing,
                launcher: self.clone(),
            }),
            Notice::StartFailed { error } => Err(error),
            Notice::Ended { .. } => Err(gone(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Waits for what the launcher says of a sandbox. If it is gone, all its processes are, and what
    /// it could not remove any more is removed here.
    fn hear(&self, control: &OwnedFd, name: &str) -> Result<Notice, StartError> {
        let heard = hear(control);
        if matches!(heard, Err(StartError::LauncherGone { .. })) {
            for note in sweep(&self.0.state_dir, name) {
                if let Some(error) = note.error {
                    tracing::warn!(path = %note.path.display(), error, "a dead launcher left this");
                }
            }
        }
        heard
    }
}

/// Bytes as a file in memory: arguments and environment may be larger than a message.
fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create("tidemill-request", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = fs::File::from(fd);
    file.write_all(bytes)?;
    Ok(file.into())
}

fn hear(control: &OwnedFd) -> Result<Notice, StartError> {
    let gone = |error: String| StartError::LauncherGone { error };
    let (bytes, _) =
        socket::receive(control.as_fd(), true).map_err(|error| gone(error.to_string()))?;
    if bytes.is_empty() {
        return Err(gone("it closed the connection".to_owned()));
    }
    serde_json::from_slice(&bytes).map_err(|error| gone(error.to_string()))
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The closed socket tells it to end; waiting makes sure that nothing is left when we are gone.
        self.socket = None;
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = child.wait() {
            tracing::warn!(%error, "the sandbox launcher was not reaped");
        }
    }
}

/// A running sandbox. Dropping it kills everything in it.
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    killer: Killer,
    missing: Vec<Grant>,
    launcher: Launcher,
}

/// Signals and kills a sandbox while somebody else waits for it.
#[derive(Debug, Clone)]
pub struct Killer(Arc<OwnedFd>);

impl Killer {
    /// Sends a signal to every process of the job. Harmless if it has ended.
    pub fn signal(&self, signal: i32) {
        self.order(Order::Signal { signal });
    }

    /// Ends the job at once. Harmless if it has ended.
    pub fn kill(&self) {
        self.order(Order::Kill);
    }

    fn order(&self, order: Order) {
        let bytes = serde_json::to_vec(&order).unwrap_or_default();
        if let Err(error) = socket::send(self.0.as_fd(), &bytes, &[]) {
            tracing::debug!(%error, "a sandbox that has ended was given an order");
        }
    }
}

impl Sandbox {
    /// Walls that this host cannot build and that the job runs without.
    pub fn missing_walls(&self) -> &[Grant] {
        &self.missing
    }

    /// For signalling and killing from elsewhere.
    pub fn killer(&self) -> Killer {
        self.killer.clone()
    }

    /// Blocks until everything in it has ended and nothing of it is left.
    ///
    /// # Errors
    /// If the launcher is gone. Then the job is gone too, and how it ended is not known.
    pub fn wait(self) -> Result<Ended, StartError> {
        match self.launcher.hear(&self.killer.0, &self.name)? {
            Notice::Ended { ended } => Ok(ended),
            Notice::StartFailed { error } => Err(error),
            Notice::Started { .. } => Err(StartError::LauncherGone {
                error: "it spoke out of turn".to_owned(),
            }),
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.killer.kill();
    }
}
