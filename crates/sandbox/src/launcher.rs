//! The owner's side of the launcher process.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tidemill_core::job::Network;
use tidemill_core::{Grant, RootPlan};

use crate::identity::Identity;
use crate::request::{
    Ended, Notice, Order, SandboxRequest, Spawn, StartError, Stdio, ToWarden, in_memory,
};
use crate::serve::{Demand, Hello, Settings};
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
    /// The networks of the first jobs, as far as they are known: what they need is made ready at once,
    /// while whoever starts the launcher does something else.
    pub first: Vec<Network>,
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
    wardens: Mutex<Wardens>,
}

/// Wardens without a sandbox that are kept beside one for each that has one.
const SPARE_WARDENS_MAX: usize = 8;

/// The wardens that there are.
#[derive(Debug, Default)]
struct Wardens {
    /// Those without a sandbox, the one that has waited longest first.
    idle: Vec<Link>,
    /// How many have one.
    busy: usize,
}

/// To a warden, which runs one sandbox at a time.
#[derive(Debug)]
struct Link {
    socket: Arc<OwnedFd>,
    network: Network,
    /// How many sandboxes it was asked for.
    jobs: u64,
    /// True if it is known to start the next one without delay.
    is_ready: bool,
    /// Which root its last sandbox had.
    last_root: Option<u64>,
    /// True if it has built a sandbox with that root ahead.
    has_built: bool,
}

impl Link {
    /// Looks whether the warden has said that it is ready. False if it is gone.
    fn look(&mut self) -> bool {
        loop {
            match socket::receive(self.socket.as_fd(), false) {
                Ok((bytes, _)) if bytes.is_empty() => return false,
                Ok((bytes, _)) => {
                    if let Ok(Notice::Ready { ahead }) = serde_json::from_slice(&bytes) {
                        self.is_ready = true;
                        self.has_built = ahead;
                    }
                }
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }
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
        let mut wardens = Wardens::default();
        let hello = (|| {
            socket::send(ours.as_fd(), &serde_json::to_vec(&settings)?, &[])?;
            for network in &config.first {
                wardens.idle.push(demand_warden(ours.as_fd(), *network)?);
            }
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
            wardens: Mutex::new(wardens),
        })))
    }

    fn wardens(&self) -> MutexGuard<'_, Wardens> {
        self.0
            .wardens
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn demand_warden(&self, network: Network) -> Result<Link, StartError> {
        let launcher = self.0.socket.as_ref().ok_or(io::ErrorKind::NotConnected);
        launcher
            .map_err(io::Error::from)
            .and_then(|launcher| demand_warden(launcher.as_fd(), network))
            .map_err(|error| gone(&error))
    }

    /// A warden for a sandbox with this root: one that has built it, else one that is ready and has built
    /// nothing for others, else any that is ready, else the one that will be ready first, else a new one.
    fn take_warden(&self, network: Network, root: u64) -> Result<Link, StartError> {
        let mut wardens = self.wardens();
        wardens.idle.retain_mut(Link::look);
        let rank = |link: &Link| match (link.is_ready, link.has_built) {
            (true, true) if link.last_root == Some(root) => 3,
            (true, false) => 2,
            (true, true) => 1,
            (false, _) => 0,
        };
        let fit = wardens.idle.iter().enumerate();
        let fit = fit.filter(|(_, link)| link.network == network);
        // Of those that are ready the one that ran last, whose memory is warm; else the one that ran first.
        let chosen = fit.max_by_key(|(index, link)| {
            let order = isize::try_from(*index).unwrap_or(isize::MAX);
            let rank = rank(link);
            (rank, if rank == 0 { -order } else { order })
        });
        let chosen = chosen.map(|(index, _)| index);
        let mut link = match chosen {
            Some(index) => wardens.idle.remove(index),
            None => self.demand_warden(network)?,
        };
        // Jobs come faster than wardens are freshened: with one more they need not wait next time.
        if !link.is_ready && link.jobs > 0 && wardens.idle.len() <= wardens.busy {
            let spare = self.demand_warden(network)?;
            wardens.idle.push(spare);
        }
        wardens.busy += 1;
        link.has_built = false;
        link.last_root = Some(root);
        Ok(link)
    }

    /// Counts a warden no more, which ends with its link.
    fn let_go(&self, link: Link) {
        self.wardens().busy -= 1;
        drop(link);
    }

    fn give_back(&self, mut link: Link) {
        link.is_ready = false;
        let mut wardens = self.wardens();
        wardens.busy -= 1;
        wardens.idle.push(link);
        // What a crowd of jobs needed is too much for those that follow.
        let most = wardens.busy + SPARE_WARDENS_MAX;
        if wardens.idle.len() > most {
            let surplus = wardens.idle.len() - most;
            wardens.idle.drain(..surplus);
        }
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
        let demand = serde_json::to_vec(&Demand::Help)?;
        socket::send(launcher.as_fd(), &demand, &[body.as_fd(), writer.as_fd()])?;
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
        let root = hash_of(&request.root);
        let mut link = self.take_warden(request.network, root)?;
        let job = link.jobs;
        link.jobs += 1;
        let started = self.start_in(&link, job, request, stdio);
        match started {
            Ok(missing) => Ok(Sandbox {
                name: request.name.clone(),
                killer: Killer {
                    socket: Arc::downgrade(&link.socket),
                    job,
                },
                link: Some(link),
                missing,
                launcher: self.clone(),
            }),
            Err(error) => {
                if matches!(error, StartError::LauncherGone { .. }) {
                    self.let_go(link);
                } else {
                    self.give_back(link);
                }
                Err(error)
            }
        }
    }

    fn start_in(
        &self,
        link: &Link,
        job: u64,
        request: &SandboxRequest,
        stdio: Stdio,
    ) -> Result<Vec<Grant>, StartError> {
        let (message, file) = Spawn::pack(job, request).map_err(|error| gone(&error))?;
        let mut fds = vec![
            stdio.stdin.as_fd(),
            stdio.stdout.as_fd(),
            stdio.stderr.as_fd(),
        ];
        fds.extend(file.as_ref().map(AsFd::as_fd));
        socket::send(link.socket.as_fd(), &message, &fds).map_err(|error| gone(&error))?;
        drop(stdio);
        match self.hear(&link.socket, &request.name)? {
            Notice::Started { missing } => Ok(missing),
            Notice::StartFailed { error } => Err(error),
            Notice::Ended { .. } | Notice::Ready { .. } => Err(out_of_turn()),
        }
    }

    /// Waits for what a warden says of its sandbox. If it is gone, all its processes are, and what
    /// it could not remove any more is removed here.
    fn hear(&self, link: &OwnedFd, name: &str) -> Result<Notice, StartError> {
        let heard = hear(link);
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

/// Asks the launcher for a warden. It need not be there yet to be given a sandbox.
fn demand_warden(launcher: BorrowedFd<'_>, network: Network) -> io::Result<Link> {
    let (ours, theirs) = socket::pair()?;
    let demand = serde_json::to_vec(&Demand::Warden { network })?;
    socket::send(launcher, &demand, &[theirs.as_fd()])?;
    Ok(Link {
        socket: Arc::new(ours),
        network,
        jobs: 0,
        is_ready: false,
        last_root: None,
        has_built: false,
    })
}

/// Tells roots apart well enough to choose a warden by.
fn hash_of(root: &RootPlan) -> u64 {
    let mut hasher = DefaultHasher::new();
    root.hash(&mut hasher);
    hasher.finish()
}

fn gone(error: &io::Error) -> StartError {
    StartError::LauncherGone {
        error: error.to_string(),
    }
}

fn out_of_turn() -> StartError {
    StartError::LauncherGone {
        error: "it spoke out of turn".to_owned(),
    }
}

fn hear(link: &OwnedFd) -> Result<Notice, StartError> {
    loop {
        let (bytes, _) = socket::receive(link.as_fd(), true).map_err(|error| gone(&error))?;
        if bytes.is_empty() {
            return Err(StartError::LauncherGone {
                error: "it closed the connection".to_owned(),
            });
        }
        match serde_json::from_slice(&bytes).map_err(|error| gone(&error.into()))? {
            Notice::Ready { .. } => {}
            notice => return Ok(notice),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The closed sockets tell it and the wardens to end; waiting makes sure that nothing is left when
        // we are gone.
        self.socket = None;
        let wardens = self.wardens.get_mut();
        wardens.unwrap_or_else(PoisonError::into_inner).idle.clear();
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
    /// Present until the warden is given back.
    link: Option<Link>,
    missing: Vec<Grant>,
    launcher: Launcher,
}

/// Signals and kills a sandbox while somebody else waits for it.
#[derive(Debug, Clone)]
pub struct Killer {
    /// Gone with its sandbox: who keeps this keeps no warden.
    socket: Weak<OwnedFd>,
    job: u64,
}

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
        let job = self.job;
        let Some(socket) = self.socket.upgrade() else {
            return;
        };
        let order: ToWarden = ToWarden::Order { job, order };
        let bytes = serde_json::to_vec(&order).unwrap_or_default();
        if let Err(error) = socket::send(socket.as_fd(), &bytes, &[]) {
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
    pub fn wait(mut self) -> Result<Ended, StartError> {
        let link = self.link.take().ok_or_else(out_of_turn)?;
        let heard = self.launcher.hear(&link.socket, &self.name);
        match &heard {
            Ok(_) => self.launcher.give_back(link),
            Err(_) => self.launcher.let_go(link),
        }
        let notice = heard?;
        match notice {
            Notice::Ended { ended } => Ok(ended),
            Notice::StartFailed { error } => Err(error),
            Notice::Started { .. } | Notice::Ready { .. } => Err(out_of_turn()),
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Nobody hears any more how it ends: its warden kills it, and ends with its link.
        if let Some(link) = self.link.take() {
            self.killer.kill();
            self.launcher.let_go(link);
        }
    }
}
