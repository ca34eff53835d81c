//! The launcher process: a small program with one thread, from which all sandboxes are cloned.
//!
//! It is started by [`crate::Launcher`] with a socket as standard input. It has no secrets: its
//! environment is empty, and it holds no descriptor of its owner beyond that socket. When the socket
//! closes, because its owner ended in whatever way, it kills every sandbox and ends; when it is killed
//! itself, the kernel kills each process 1, and with it each sandbox.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};
use tidemill_core::check::OPEN_FILES_MAX;
use tidemill_core::job::{Network, User};
use tidemill_core::limits::OPEN_FILES_DEFAULT;
use tidemill_core::root::Owners;
use tidemill_core::{ByteSize, Grant, Limits, RootPlan, Usage};

use crate::cgroup::{CgroupPlaces, Controller, JobCgroup};
use crate::host::namespace_refusal;
use crate::identity::Identity;
use crate::init::{self, Birth, Report};
use crate::namespace::{IdMapCache, assume_identity};
use crate::request::{Ended, Notice, Oom, Order, SandboxRequest, StartError, Stdio};
use crate::rootfs::{Prepared, Sizes, Step, StepError};
use crate::seccomp::Filter;
use crate::sweep;
use crate::sys::{process, socket};
use crate::victim::KernelLog;

/// What the launcher says first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// How ids are mapped, or why no sandbox can be made here.
    pub(crate) identity: Result<Identity, String>,
    /// Why sub-ids are not used, where they are not.
    pub(crate) no_sub_ids: Option<String>,
}

/// What the owner says first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) state_dir: PathBuf,
}

/// Runs the launcher on the socket that is standard input. The binary's `main` calls this, before
/// anything else, when its first argument is [`crate::LAUNCHER_ARG`].
pub fn launcher_main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the sandbox launcher failed");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    process::set_name(c"tidemill-launch");
    process::ignore_group_signals();
    // What our owner's own caller left open is none of our business, nor of any process 1.
    process::close_from(3)?;
    let owner = process::move_up(rustix::stdio::stdin().try_clone_to_owned()?)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
    process::duplicate_onto(null.as_fd(), 0)?;
    process::duplicate_onto(null.as_fd(), 1)?;
    let (bytes, _) = socket::receive(owner.as_fd(), true)?;
    let settings: Settings = serde_json::from_slice(&bytes)?;
    // A job's own limits come from its spec, and not from whoever started this: a launcher with the
    // privilege for it raises what was lowered. One without leaves the jobs with what there is.
    process::limit_resource(
        libc::RLIMIT_NOFILE,
        u64::from(OPEN_FILES_DEFAULT),
        u64::from(OPEN_FILES_MAX),
    )?;
    let places = CgroupPlaces::find();
    let mut no_sub_ids = None;
    let identity = assume_identity(&mut no_sub_ids);
    let hello = Hello {
        identity: identity.clone(),
        no_sub_ids,
    };
    socket::send(owner.as_fd(), &serde_json::to_vec(&hello)?, &[])?;
    let Ok(identity) = identity else {
        return Ok(());
    };
    // Compiled once, here, for all jobs: they are forked from this process.
    Filter::of(false);
    let mut launcher = Server {
        owner,
        settings,
        places,
        identity,
        maps: IdMapCache::new(identity),
        kernel_log: KernelLog::open(),
        sandboxes: Vec::new(),
        next_cpu: 0,
        memory: total_memory(),
        helpers: Vec::new(),
    };
    launcher.run()
}

/// One sandbox from the launcher's side.
struct Running {
    name: String,
    pid: i32,
    pidfd: OwnedFd,
    /// To process 1. `None` once that is gone.
    channel: Option<OwnedFd>,
    /// To the owner of the sandbox. `None` once it let go of it.
    control: Option<OwnedFd>,
    cgroup: JobCgroup,
    limits: Limits,
    missing: Vec<Grant>,
    report: Option<Report>,
    started: bool,
    killed: bool,
}

struct Server {
    owner: OwnedFd,
    settings: Settings,
    places: CgroupPlaces,
    identity: Identity,
    maps: IdMapCache,
    kernel_log: Option<KernelLog>,
    sandboxes: Vec<Running>,
    next_cpu: usize,
    /// The host's memory in bytes.
    memory: u64,
    /// Programs that were started for the owner, until they are reaped.
    helpers: Vec<Child>,
}

impl Server {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let (owner_spoke, ready) = self.wait()?;
            for index in (0..ready.len()).rev() {
                let [ended, reported, ordered] = ready[index];
                if reported {
                    self.sandboxes[index].hear();
                }
                if ordered {
                    self.sandboxes[index].obey();
                }
                if ended {
                    let running = self.sandboxes.swap_remove(index);
                    self.bury(running);
                }
            }
            if owner_spoke && !self.serve_request()? {
                // A process that is stuck in the kernel keeps us; it must keep neither the other
                // sandboxes nor whoever reads what our owner wrote.
                let sandboxes = std::mem::take(&mut self.sandboxes);
                sandboxes.iter().for_each(Running::destroy);
                let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
                process::duplicate_onto(null.as_fd(), 2)?;
                for running in sandboxes {
                    self.bury(running);
                }
                for mut helper in std::mem::take(&mut self.helpers) {
                    // It may have ended by itself.
                    helper.kill().ok();
                    helper.wait()?;
                }
                return Ok(());
            }
        }
    }

    /// Waits until the owner, a sandbox's owner, a process 1 or a sandbox's end has something for us.
    fn wait(&self) -> io::Result<(bool, Vec<[bool; 3]>)> {
        let mut fds = vec![PollFd::new(&self.owner, PollFlags::IN)];
        for running in &self.sandboxes {
            fds.push(PollFd::new(&running.pidfd, PollFlags::IN));
            if let Some(channel) = &running.channel {
                fds.push(PollFd::new(channel, PollFlags::IN));
            }
            if let Some(control) = &running.control {
                fds.push(PollFd::new(control, PollFlags::IN));
            }
        }
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok((false, Vec::new())),
            Err(error) => return Err(error.into()),
        }
        let mut events = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || events.next().unwrap_or(false);
        let owner_spoke = next();
        let ready = self
            .sandboxes
            .iter()
            .map(|running| {
                let ended = next();
                let reported = running.channel.is_some() && next();
                [ended, reported, running.control.is_some() && next()]
            })
            .collect();
        Ok((owner_spoke, ready))
    }

    /// Takes one request. False if the owner is gone.
    fn serve_request(&mut self) -> io::Result<bool> {
        let (bytes, fds) = socket::receive(self.owner.as_fd(), true)?;
        self.helpers
            .retain_mut(|helper| matches!(helper.try_wait(), Ok(None)));
        let fds = match <[OwnedFd; 2]>::try_from(fds) {
            Ok([arguments, output]) => {
                // Its output ends before it began, which its owner takes for a failure.
                self.help(arguments, output).ok();
                return Ok(true);
            }
            Err(fds) => fds,
        };
        let Ok([control, body, stdin, stdout, stderr]) = <[OwnedFd; 5]>::try_from(fds) else {
            return Ok(!bytes.is_empty());
        };
        let stdio = Stdio {
            stdin,
            stdout,
            stderr,
        };
        match self.start(body, stdio, &control) {
            Ok(mut running) => {
                running.control = Some(control);
                self.sandboxes.push(running);
            }
            Err(error) => tell(control.as_fd(), &Notice::StartFailed { error }),
        }
        Ok(true)
    }

    /// Starts this program again, with these arguments, as root of the launcher's user namespace.
    fn help(&mut self, arguments: OwnedFd, output: OwnedFd) -> io::Result<()> {
        let arguments: Vec<String> = serde_json::from_slice(&read_all(arguments)?)?;
        let helper = Command::new("/proc/self/exe")
            .arg0("tidemill")
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .stdout(output)
            .spawn()?;
        self.helpers.push(helper);
        Ok(())
    }

    fn start(
        &mut self,
        body: OwnedFd,
        stdio: Stdio,
        control: &OwnedFd,
    ) -> Result<Running, StartError> {
        let request = read_request(body)?;
        let name = request.name.clone();
        let result = self.launch(request, stdio, control);
        if result.is_err() {
            sweep::remove_scratch(&self.settings.state_dir, &name);
        }
        result
    }

    fn launch(
        &mut self,
        mut request: SandboxRequest,
        stdio: Stdio,
        control: &OwnedFd,
    ) -> Result<Running, StartError> {
        let mut missing = self.bound(&mut request.limits)?;
        let (name, limits) = (request.name.clone(), request.limits);
        let user = request.root.account.user;
        let is_caller = works_on_the_callers_files(&request.root);
        let builder = self.identity.builder(user, is_caller);
        let sizes = sizes(&limits, self.memory);
        if sizes.disk <= self.memory / 2 {
            request.scratch = None;
        }
        if let Some(scratch) = &request.scratch {
            self.give(scratch, (user, is_caller), builder)?;
        }
        let mut prepared =
            Prepared::open(&request.root, request.scratch.as_deref(), &mut self.maps)?;
        if request.tty {
            prepared.show_terminal(stdio.stdin.as_fd())?;
        }
        for descriptor in [&stdio.stdin, &stdio.stdout, &stdio.stderr] {
            self.give_descriptor(descriptor.as_fd(), (user, is_caller), request.tty)?;
        }
        missing.extend(prepared.notes.iter().map(|note| Grant::Missing {
            wall: "owners".to_owned(),
            why: note.clone(),
        }));
        let cgroup = self.make_cgroup(&name, &limits)?;
        let (channel, inner) = socket::pair().step(|| "make a socket pair".to_owned())?;
        let (ready_reader, ready_writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .step(|| "make a pipe".to_owned())?;
        let namespaces = namespaces(request.network);
        let birth = Birth {
            sizes,
            cpus: self.choose_cpus(&limits),
            watch_memory: !cgroup.has(Controller::Memory),
            watch_pids: !cgroup.has(Controller::Pids),
            denies_groups: self.identity.denies_groups(),
            disk_limit: request.scratch.as_ref().map(|_| sizes.disk),
            request,
            prepared,
            stdio,
            builder,
            ready: ready_reader,
            channel: inner,
        };
        let pid = match process::clone_process(namespaces)
            .map_err(|error| namespace_refusal().explain(&error))
            .step(|| "make the namespaces of the sandbox".to_owned())?
        {
            process::Cloned::Child => {
                self.forget(control, channel, ready_writer);
                init::live(birth)
            }
            process::Cloned::Parent(pid) => pid,
        };
        drop(birth);
        let pidfd = process::open_pidfd(pid).step(|| "open the sandbox's process 1".to_owned())?;
        let running = Running {
            name,
            pid,
            pidfd,
            channel: Some(channel),
            control: None,
            cgroup,
            limits,
            missing,
            report: None,
            started: false,
            killed: false,
        };
        if let Err(error) = self.release(&running, (user, is_caller), &ready_writer) {
            running.destroy();
            self.bury(running);
            return Err(error.into());
        }
        Ok(running)
    }

    /// Makes the job's groups, and a note of them for a sweep in case this process is killed.
    fn make_cgroup(&self, name: &str, limits: &Limits) -> Result<JobCgroup, StartError> {
        // Noted before they are there: this process may be killed at any point.
        sweep::note_cgroups(&self.settings.state_dir, name, &self.places.paths(name))
            .step(|| "note the cgroups for a later sweep".to_owned())?;
        JobCgroup::create(&self.places, name, limits).map_err(|(path, error)| {
            StartError::setup(format!("make the cgroup {}", path.display()), &error)
        })
    }

    /// In a new process 1: lets go of what belongs to the launcher and to other sandboxes.
    fn forget(&mut self, control: &OwnedFd, channel: OwnedFd, ready: OwnedFd) {
        for running in self.sandboxes.drain(..) {
            // Dropping it as it is would remove the cgroups of a sandbox that is not ours.
            let Running {
                pidfd,
                channel,
                control,
                cgroup,
                ..
            } = running;
            drop((pidfd, channel, control));
            std::mem::forget(cgroup);
        }
        self.maps.clear();
        self.kernel_log = None;
        drop((channel, ready));
        process::close_copy(control.as_fd());
        process::close_copy(self.owner.as_fd());
    }

    /// Maps the ids, joins the groups, and lets process 1 go.
    fn release(
        &self,
        running: &Running,
        (user, is_caller): (User, bool),
        ready: &OwnedFd,
    ) -> Result<(), StepError> {
        let pid = running.pid;
        fs::write(
            format!("/proc/{pid}/uid_map"),
            self.identity.map(user.uid, is_caller),
        )
        .step(|| "map the user ids of the sandbox".to_owned())?;
        fs::write(
            format!("/proc/{pid}/gid_map"),
            self.identity.map(user.gid, is_caller),
        )
        .step(|| "map the group ids of the sandbox".to_owned())?;
        running.cgroup.add(pid).map_err(|(path, error)| StepError {
            step: format!("put the sandbox into {}", path.display()),
            error,
        })?;
        rustix::io::write(ready, b"g").step(|| "let process 1 go".to_owned())?;
        Ok(())
    }

    /// Gives the job its pipe or its terminal, so that it may open it again, as `/dev/stderr` does.
    fn give_descriptor(
        &self,
        descriptor: BorrowedFd<'_>,
        (user, is_caller): (User, bool),
        tty: bool,
    ) -> Result<(), StepError> {
        let describe = || "give the job its standard descriptors".to_owned();
        let stat = rustix::fs::fstat(descriptor).step(describe)?;
        let is_own = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => true,
            FileType::CharacterDevice => tty,
            _ => false,
        };
        match self.identity.outside(user.uid, is_caller, user.uid) {
            Some(uid) if is_own => {
                rustix::fs::fchown(descriptor, Some(rustix::fs::Uid::from_raw(uid)), None)
                    .step(describe)
            }
            _ => Ok(()),
        }
    }

    /// Gives a scratch directory to the builder of the sandbox.
    fn give(
        &self,
        scratch: &Path,
        (user, is_caller): (User, bool),
        builder: User,
    ) -> Result<(), StepError> {
        let describe = || format!("give {} to the sandbox", scratch.display());
        let outside = |own, id| self.identity.outside(own, is_caller, id).unwrap_or(0);
        rustix::fs::chown(
            scratch,
            Some(rustix::fs::Uid::from_raw(outside(user.uid, builder.uid))),
            Some(rustix::fs::Gid::from_raw(outside(user.gid, builder.gid))),
        )
        .step(describe)
    }

    /// Refuses a limit that was asked for and cannot be kept, sets finite ones where none was asked
    /// for, and lists the walls that are missing.
    fn bound(&self, limits: &mut Limits) -> Result<Vec<Grant>, StartError> {
        let mut missing = Vec::new();
        let why = |controller| {
            self.places
                .missing
                .get(&controller)
                .cloned()
                .unwrap_or_else(|| "not found".to_owned())
        };
        if limits.cpus.is_some() && !self.places.has(Controller::Cpu) {
            return Err(StartError::LimitUnavailable {
                limit: "cpus".to_owned(),
                why: why(Controller::Cpu),
            });
        }
        for (controller, instead) in [
            (
                Controller::Memory,
                "process 1 watches the job's memory 20 times a second instead",
            ),
            (
                Controller::Pids,
                "RLIMIT_NPROC bounds the job's processes instead",
            ),
        ] {
            if !self.places.has(controller) {
                missing.push(Grant::Missing {
                    wall: format!("cgroup.{}", controller.name()),
                    why: format!("{}; {instead}", why(controller)),
                });
            }
        }
        if limits.memory.is_none() {
            // The host keeps an eighth for itself.
            limits.memory = Some(ByteSize(self.memory / 8 * 7));
        }
        Ok(missing)
    }

    fn choose_cpus(&mut self, limits: &Limits) -> Option<Vec<usize>> {
        let wanted = limits.cpus?.visible() as usize;
        let all = process::allowed_cpus().ok()?;
        if wanted >= all.len() {
            return None;
        }
        let first = self.next_cpu;
        self.next_cpu = (first + wanted) % all.len();
        Some(
            (0..wanted)
                .map(|step| all[(first + step) % all.len()])
                .collect(),
        )
    }

    /// Reaps a process 1, reads the figures, removes what is left, and tells how it ended.
    fn bury(&mut self, mut running: Running) {
        while running.hear() {}
        if let Err(error) = process::reap(running.pid, true) {
            tracing::warn!(%error, name = running.name, "a sandbox's process 1 was not reaped");
        }
        let figures = running.cgroup.figures();
        let group = running.cgroup.memory_group_name();
        let notice = match running.report.take() {
            Some(Report::Failed { error }) => Notice::StartFailed { error },
            report => {
                let mut ended = ended_from(report, running.killed);
                if figures.peak_memory_bytes.is_some() {
                    ended.usage.peak_memory_bytes = figures.peak_memory_bytes;
                }
                if figures.peak_pids.is_some() {
                    ended.usage.peak_pids = figures.peak_pids;
                }
                ended.pids_refused = figures.pids_refused;
                let watched = ended.oom.as_ref().map_or(0, |oom| oom.kills);
                if figures.oom_kills + watched > 0 {
                    let log = self.kernel_log.as_mut();
                    ended.oom = Some(Oom {
                        peak: ended.usage.peak_memory_bytes.map(ByteSize),
                        limit: running.limits.memory,
                        victim: log.zip(group).and_then(|(log, group)| log.victim(&group)),
                        kills: figures.oom_kills + watched,
                    });
                }
                if running.started {
                    Notice::Ended { ended }
                } else {
                    Notice::StartFailed {
                        error: StartError::Setup {
                            step: "start process 1 of the sandbox".to_owned(),
                            error: "it ended before the program was started".to_owned(),
                        },
                    }
                }
            }
        };
        let Running {
            control,
            cgroup,
            name,
            ..
        } = running;
        drop(cgroup);
        sweep::remove_scratch(&self.settings.state_dir, &name);
        if let Some(control) = control {
            tell(control.as_fd(), &notice);
        }
    }
}

fn read_request(body: OwnedFd) -> Result<SandboxRequest, StepError> {
    let text = read_all(body).step(|| "read the request".to_owned())?;
    serde_json::from_slice(&text)
        .map_err(io::Error::other)
        .step(|| "understand the request".to_owned())
}

/// The content of a file in memory that its writer has just written.
fn read_all(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = fs::File::from(file);
    let mut bytes = Vec::new();
    io::Seek::rewind(&mut file)?;
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

/// True if a root shows files that belong to whoever started the job: then the job's user has to be
/// that one. Else it is a sub-id like all others, as the owners in an image's tree are.
fn works_on_the_callers_files(root: &RootPlan) -> bool {
    let is_callers = |owners: &Owners| matches!(owners, Owners::Job { .. });
    root.mounts.iter().any(|mount| is_callers(&mount.owners))
        || root.trees.iter().any(|tree| is_callers(&tree.owners))
}

/// Every namespace that there is for a job; the network's only where the job has one of its own.
fn namespaces(network: Network) -> i32 {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    match network {
        Network::None => always | libc::CLONE_NEWNET,
        Network::Host => always,
    }
}

fn tell(control: BorrowedFd<'_>, notice: &Notice) {
    let bytes = serde_json::to_vec(notice).unwrap_or_default();
    // An owner that let go of its sandbox does not want to know.
    socket::send(control, &bytes, &[]).ok();
}

fn ended_from(report: Option<Report>, killed: bool) -> Ended {
    let Some(Report::Ended {
        exit_code,
        signal,
        core_dumped,
        killed_processes,
        wall_ms,
        user_ms,
        system_ms,
        largest_resident_bytes,
        watched_peak_bytes,
        watched_peak_pids,
        memory_kills,
        disk_bytes,
        disk_full,
        pids_full,
        network_missed,
        refused_calls,
    }) = report
    else {
        // Process 1 was killed: by us, or by the kernel with the whole group.
        return Ended {
            signal: Some(libc::SIGKILL),
            killed_processes: u64::from(killed),
            ..Ended::default()
        };
    };
    Ended {
        exit_code,
        signal,
        core_dumped,
        killed_processes,
        usage: Usage {
            wall_ms,
            user_ms,
            system_ms,
            peak_memory_bytes: Some(largest_resident_bytes.max(watched_peak_bytes)),
            peak_pids: watched_peak_pids,
            disk_bytes: Some(disk_bytes),
        },
        oom: (memory_kills > 0).then(|| Oom {
            kills: memory_kills,
            ..Oom::default()
        }),
        pids_refused: 0,
        pids_full,
        disk_full,
        network_missed,
        refused_calls,
    }
}

impl Running {
    /// Takes one report of process 1. False if there is none.
    fn hear(&mut self) -> bool {
        let Some(channel) = &self.channel else {
            return false;
        };
        let bytes = match socket::receive(channel.as_fd(), false) {
            Ok((bytes, _)) if !bytes.is_empty() => bytes,
            // Process 1 is gone: there is no more to hear, and its end is seen elsewhere.
            Ok(_) => {
                self.channel = None;
                return false;
            }
            Err(_) => return false,
        };
        match serde_json::from_slice(&bytes) {
            Ok(Report::Started) => {
                self.started = true;
                if let Some(control) = &self.control {
                    let missing = std::mem::take(&mut self.missing);
                    tell(control.as_fd(), &Notice::Started { missing });
                }
            }
            Ok(report) => self.report = Some(report),
            Err(_) => {}
        }
        true
    }

    /// Takes one order of the sandbox's owner.
    fn obey(&mut self) {
        let Some(control) = &self.control else { return };
        let order = match socket::receive(control.as_fd(), false) {
            Ok((bytes, _)) if bytes.is_empty() => {
                self.control = None;
                Order::Kill
            }
            Ok((bytes, _)) => match serde_json::from_slice(&bytes) {
                Ok(order) => order,
                Err(_) => return,
            },
            Err(_) => return,
        };
        if matches!(order, Order::Kill) && (self.control.is_none() || !self.started) {
            self.killed = true;
            self.destroy();
            return;
        }
        let bytes = serde_json::to_vec(&order).unwrap_or_default();
        let sent = self
            .channel
            .as_ref()
            .is_some_and(|channel| socket::send(channel.as_fd(), &bytes, &[]).is_ok());
        if !sent {
            self.destroy();
        }
    }

    /// Ends everything in the sandbox, without asking anybody in it.
    fn destroy(&self) {
        self.cgroup.kill();
        // ESRCH means that it is over already.
        process::signal_pidfd(self.pidfd.as_fd(), libc::SIGKILL).ok();
    }
}

/// Default bounds of what a job may write: a half of the host's memory for the private layer, and for
/// /dev/shm a half of the job's memory.
fn sizes(limits: &Limits, host_memory: u64) -> Sizes {
    let memory = limits.memory.map_or(host_memory, |size| size.0);
    Sizes {
        disk: limits.disk.map_or(host_memory / 2, |size| size.0),
        shared_memory: limits.shm.map_or(memory / 2, |size| size.0),
    }
}

/// The host's memory in bytes.
fn total_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches(" kB")
                .trim()
                .parse::<u64>()
                .ok()
        })
        .map_or(1 << 30, |kib| kib * 1024)
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("name", &self.name)
            .field("pid", &self.pid)
            .field("pidfd", &self.pidfd.as_raw_fd())
            .finish_non_exhaustive()
    }
}
