//! A warden: a process that runs one sandbox after the other. It stands in the control groups that its
//! jobs are bounded by, and in the network namespace that its jobs without a network have, so that what
//! it starts is there from the first moment on.
//!
//! ```text
//! request ─► open the host's paths ─► clone process 1 ─► map ids ─► attend ─► bury ─► tell ─► freshen
//!     ▲                                                                                        │
//!     └──────────────────────────── groups and network as new ◄────────────────────────────────┘
//! ```
//!
//! Its owner holds the other end of its link. When that closes, the warden kills its sandbox, removes
//! what it has made, and ends; when the launcher is killed, so is the warden, and with it process 1.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use tidemill_core::job::{Network, User};
use tidemill_core::root::Owners;
use tidemill_core::{ByteSize, Grant, Limits, RootPlan};

use crate::cgroup::{CgroupPlaces, Controller, JobCgroup};
use crate::dev;
use crate::host::namespace_refusal;
use crate::identity::Identity;
use crate::init::{self, Birth, Bounds, Report, Task};
use crate::job_network::JobNetwork;
use crate::job_start::filter_kind;
use crate::namespace::IdMapCache;
use crate::request::{Notice, Oom, SandboxRequest, Spawn, StartError, Stdio, ToWarden};
use crate::rootfs::{Prepared, Sizes, Step, StepError};
use crate::running::{Running, ended_from, now};
use crate::seccomp::Filter;
use crate::seen::look_at_sources;
use crate::shares::Shares;
use crate::standby::{Init, Shape, Standby};
use crate::sweep;
use crate::sys::{process, socket};
use crate::victim::KernelLog;

/// What a warden is born with.
#[derive(Debug)]
pub(crate) struct Settings {
    /// To its owner.
    pub(crate) link: OwnedFd,
    /// The network of its jobs.
    pub(crate) network: Network,
    pub(crate) state_dir: PathBuf,
    pub(crate) places: Rc<CgroupPlaces>,
    pub(crate) identity: Identity,
    /// The part of /dev that is the same for all jobs.
    pub(crate) dev: Option<Rc<dev::Template>>,
    /// What the names of its groups begin with.
    pub(crate) group_prefix: String,
    /// Which of the CPUs its jobs begin with, where they may not have all.
    pub(crate) turn: usize,
    /// The host's memory in bytes.
    pub(crate) memory: u64,
    pub(crate) shares: Shares,
}

/// How long a sandbox that was built ahead waits for its job.
const STANDBY_KEPT: Duration = Duration::from_secs(10);

/// The life of a warden: returns when its owner is gone.
///
/// # Errors
/// What the kernel answers where nothing can be done about it.
pub(crate) fn live(settings: Settings) -> io::Result<()> {
    process::set_name(c"tidemill-warden");
    process::die_with_parent()?;
    // Refused without the privilege for it: then it stays what it was, which is less than what the
    // job's processes have.
    let is_spared = fs::write("/proc/self/oom_score_adj", "-999").is_ok();
    let mut warden = Warden {
        maps: IdMapCache::new(settings.identity),
        settings,
        kernel_log: KernelLog::open(),
        is_spared,
        group: None,
        group_number: 0,
        network: None,
        last: None,
        standby: None,
    };
    let result = warden.run();
    warden.dismiss();
    result
}

struct Warden {
    settings: Settings,
    maps: IdMapCache,
    kernel_log: Option<KernelLog>,
    /// True if the kernel does not end this process when memory runs out.
    is_spared: bool,
    group: Option<JobCgroup>,
    group_number: u64,
    /// The network namespace of jobs without a network.
    network: Option<JobNetwork>,
    /// What the last job's sandbox was like, and true if the one before it was like that too.
    last: Option<(Shape, bool)>,
    /// The next job's sandbox, if that is like the last two.
    standby: Option<Standby>,
}

impl Warden {
    /// Serves until the owner is gone.
    fn run(&mut self) -> io::Result<()> {
        let mut ready = self.freshen();
        loop {
            if ready.is_ok() {
                self.build_ahead();
                let ahead = self.standby.is_some();
                self.tell(&Notice::Ready { ahead });
            }
            self.wait_for_order()?;
            let (bytes, fds) = socket::receive(self.settings.link.as_fd(), true)?;
            if bytes.is_empty() {
                return Ok(());
            }
            // Anything else is for a job that has ended.
            if let Ok(ToWarden::Spawn(spawn)) = serde_json::from_slice(&bytes) {
                let gone = self.serve(*spawn, fds, ready)?;
                if gone {
                    return Ok(());
                }
                ready = self.freshen();
            }
        }
    }

    /// Waits until the owner says something, or is gone. What was built ahead is given up when that takes
    /// long: it keeps file systems of the host in use.
    fn wait_for_order(&mut self) -> io::Result<()> {
        if self.standby.is_none() {
            return Ok(());
        }
        let mut fds = [PollFd::new(&self.settings.link, PollFlags::IN)];
        let timeout = Timespec::try_from(STANDBY_KEPT).ok();
        let ready = loop {
            match poll(&mut fds, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        if ready == 0 {
            self.dismiss();
            self.tell(&Notice::Ready { ahead: false });
        }
        Ok(())
    }

    /// Ends the sandbox that was built ahead, if there is one.
    fn dismiss(&mut self) {
        if let Some(standby) = self.standby.take() {
            standby.init.end();
        }
    }

    /// Makes new what the next job would otherwise share with the last one.
    fn freshen(&mut self) -> Result<(), StepError> {
        if self.settings.network == Network::None && self.network.is_none() {
            self.dismiss();
            let made = JobNetwork::make()
                .step(|| "make a network namespace with a loopback interface".to_owned())?;
            self.network = Some(made);
        }
        if self.group.as_ref().is_some_and(JobCgroup::is_as_new) {
            return Ok(());
        }
        self.dismiss();
        let leaf = format!("{}{}", self.settings.group_prefix, self.group_number);
        self.group_number += 1;
        let describe = |what: &str, path: &Path| format!("{what} {}", path.display());
        let mut group =
            JobCgroup::create(&self.settings.places, &leaf).map_err(|(path, error)| StepError {
                step: describe("make the cgroup", &path),
                error,
            })?;
        let joined = group.join();
        if let Some(old) = self.group.replace(group) {
            old.remove();
        }
        joined.map_err(|(path, error)| StepError {
            step: describe("go into the cgroup by", &path),
            error,
        })
    }

    fn tell(&self, notice: &Notice) {
        let bytes = serde_json::to_vec(notice).unwrap_or_default();
        // An owner that is gone does not want to know, and is noticed elsewhere.
        socket::send(self.settings.link.as_fd(), &bytes, &[]).ok();
    }

    /// Runs one job from the request to its end. True if the owner is gone.
    fn serve(
        &mut self,
        spawn: Spawn,
        fds: Vec<OwnedFd>,
        ready: Result<(), StepError>,
    ) -> io::Result<bool> {
        let mut fds = fds.into_iter();
        let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
            return Ok(false);
        };
        let stdio = Stdio {
            stdin,
            stdout,
            stderr,
        };
        let job = spawn.job;
        let started = ready
            .and_then(|()| spawn.unpack(fds.next()))
            .map_err(StartError::from)
            .and_then(|request| self.start(job, request, stdio));
        match started {
            Ok(mut running) => {
                let gone = self.attend(&mut running)?;
                self.bury(running);
                Ok(gone)
            }
            Err(error) => {
                self.tell(&Notice::StartFailed { error });
                Ok(false)
            }
        }
    }

    /// Watches over a sandbox until it is over. True if the owner is gone.
    fn attend(&self, running: &mut Running) -> io::Result<bool> {
        let mut owner_is_gone = false;
        loop {
            let mut fds = vec![PollFd::new(&running.init.pidfd, PollFlags::IN)];
            if !owner_is_gone {
                fds.push(PollFd::new(&self.settings.link, PollFlags::IN));
            }
            if let Some(channel) = &running.channel {
                fds.push(PollFd::new(channel, PollFlags::IN));
            }
            let rest = running
                .patience
                .map(|end| end.saturating_duration_since(now()));
            let timeout = rest.and_then(|rest| Timespec::try_from(rest).ok());
            match poll(&mut fds, timeout.as_ref()) {
                Ok(0) => {
                    running.patience = None;
                    running.destroy();
                    continue;
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut events = fds.iter().map(|fd| !fd.revents().is_empty());
            let mut next = || events.next().unwrap_or(false);
            let ended = next();
            let ordered = !owner_is_gone && next();
            let reported = running.channel.is_some() && next();
            if reported && running.hear() && running.started && !running.told {
                running.told = true;
                let missing = std::mem::take(&mut running.missing);
                self.tell(&Notice::Started { missing });
            }
            if ordered {
                owner_is_gone = self.obey(running)?;
            }
            if ended || running.is_over() {
                return Ok(owner_is_gone);
            }
        }
    }

    /// Takes one order of the owner. True if it is gone.
    fn obey(&self, running: &mut Running) -> io::Result<bool> {
        let (bytes, _) = socket::receive(self.settings.link.as_fd(), false)?;
        if bytes.is_empty() {
            running.killed = true;
            running.destroy();
            // A process that is stuck in the kernel keeps us; it must not keep whoever reads what our
            // owner wrote.
            process::silence_stderr()?;
            return Ok(true);
        }
        match serde_json::from_slice::<ToWarden>(&bytes) {
            Ok(ToWarden::Order { job, order }) if job == running.job => running.obey(order),
            // For a job that has ended.
            _ => {}
        }
        Ok(false)
    }

    fn start(
        &mut self,
        job: u64,
        request: SandboxRequest,
        stdio: Stdio,
    ) -> Result<Running, StartError> {
        let (name, has_scratch) = (request.name.clone(), request.scratch.is_some());
        let result = self.launch(job, request, stdio);
        if result.is_err() && has_scratch {
            sweep::remove_scratch(&self.settings.state_dir, &name);
        }
        result
    }

    fn launch(
        &mut self,
        job: u64,
        mut request: SandboxRequest,
        stdio: Stdio,
    ) -> Result<Running, StartError> {
        let mut missing = self.bound(&mut request.limits)?;
        self.keep_mapped_groups(&mut request.root);
        let (name, limits) = (request.name.clone(), request.limits);
        let program = request.program.rsplit('/').next().unwrap_or("").to_owned();
        let sizes = sizes(&limits, self.settings.memory);
        if sizes.disk <= self.settings.memory / 2 {
            request.scratch = None;
        }
        if let Some(scratch) = &request.scratch {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(scratch);
            made.step(|| format!("make {} for the private layer", scratch.display()))?;
        }
        self.give_away(&request, &stdio)?;
        if let Some(group) = &mut self.group {
            group.begin(&limits).map_err(|(path, error)| {
                StartError::setup(format!("set the limit {}", path.display()), &error)
            })?;
        }
        let standby = self.take_standby(&request, sizes);
        let scratch = request.scratch.take();
        let is_measured = request.measured || scratch.is_some();
        let (root, mut work) = request.split();
        work.cpus = self.choose_cpus(&limits);
        let begun = standby.and_then(|standby| standby.begin(&mut work, &stdio));
        let (init, channel, notes) = match begun {
            Some(begun) => begun,
            None => {
                let terminal = work.tty.then_some(stdio.stdin.as_fd());
                let dev = self.open_dev(&root, terminal)?;
                let prepared = Prepared::open(&root, dev, scratch.as_deref(), &mut self.maps)?;
                let disk_limit = scratch.is_some().then_some(sizes.disk);
                let mut bounds = self.bounds(&root, limits, sizes, is_measured);
                bounds.disk_limit = disk_limit;
                self.give_birth(root, bounds, prepared, Some(Task { work, stdio }))?
            }
        };
        missing.extend(notes);
        Ok(Running {
            job,
            name,
            program,
            scratch,
            init,
            channel: Some(channel),
            limits,
            missing,
            report: None,
            started: false,
            told: false,
            killed: false,
            patience: None,
        })
    }

    /// What a sandbox is bounded by whose private layer is in memory.
    fn bounds(&self, root: &RootPlan, limits: Limits, sizes: Sizes, is_measured: bool) -> Bounds {
        let is_caller = works_on_the_callers_files(root);
        let bounds = Bounds {
            limits,
            sizes,
            builder: self.settings.identity.builder(root.account.user, is_caller),
            denies_groups: self.settings.identity.denies_groups(),
            filter: filter_kind(root, is_measured, self.owns_groups()),
            shares: self.settings.shares,
            watch_memory: !self.counts(Controller::Memory),
            watch_pids: !self.counts(Controller::Pids),
            disk_limit: None,
        };
        // Compiled here, for the jobs after this one too.
        Filter::of(bounds.filter);
        bounds
    }

    /// Makes a process 1, and lets it go. Gives the channel to it, and what its root lacks.
    fn give_birth(
        &mut self,
        root: RootPlan,
        bounds: Bounds,
        prepared: Prepared,
        task: Option<Task>,
    ) -> Result<(Init, OwnedFd, Vec<Grant>), StartError> {
        let notes = prepared.notes.iter().map(|note| Grant::Missing {
            wall: "owners".to_owned(),
            why: note.clone(),
        });
        let notes = notes.collect();
        let (channel, inner) = socket::pair().step(|| "make a socket pair".to_owned())?;
        let (ready_reader, ready_writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
                .step(|| "make a pipe".to_owned())?;
        let ids = (root.account.user, works_on_the_callers_files(&root));
        let birth = Birth {
            root,
            bounds,
            prepared,
            task,
            ready: ready_reader,
            channel: inner,
        };
        let pid = match process::clone_process(NAMESPACES)
            .map_err(|error| namespace_refusal().explain(&error))
            .step(|| "make the namespaces of the sandbox".to_owned())?
        {
            process::Cloned::Child => {
                self.forget(channel, ready_writer);
                init::live(birth)
            }
            process::Cloned::Parent(pid) => pid,
        };
        drop(birth);
        let init = Init::open(pid).step(|| "open the sandbox's process 1".to_owned())?;
        if let Err(error) = self.release(pid, ids, &ready_writer) {
            init.end();
            return Err(error.into());
        }
        Ok((init, channel, notes))
    }

    /// The sandbox that was built ahead, if it is what this job needs. What it is not is noted for the
    /// next one.
    fn take_standby(&mut self, request: &SandboxRequest, sizes: Sizes) -> Option<Standby> {
        let is_same = matches!(&self.last, Some((shape, _)) if shape.fits(request, sizes));
        if is_same {
            self.last = self.last.take().map(|(shape, _)| (shape, true));
        } else {
            self.last = Shape::of(request, sizes).map(|shape| (shape, false));
        }
        let standby = self.standby.take()?;
        if is_same && standby.is_still_so() {
            return Some(standby);
        }
        standby.init.end();
        None
    }

    /// Builds the sandbox of the next job, if it is likely to be like those of the last two. Without it
    /// the next one is built when it is asked for.
    fn build_ahead(&mut self) {
        if self.standby.is_some() {
            return;
        }
        let Some((shape, true)) = &self.last else {
            return;
        };
        let shape = shape.clone();
        match self.build_standby(shape) {
            Ok(standby) => self.standby = Some(standby),
            Err(error) => {
                tracing::debug!(%error, "no sandbox could be built ahead");
                self.last = None;
            }
        }
    }

    fn build_standby(&mut self, shape: Shape) -> Result<Standby, StartError> {
        let seen = look_at_sources(&shape.root);
        let dev = self.open_dev(&shape.root, None)?;
        let prepared = Prepared::open(&shape.root, dev, None, &mut self.maps)?;
        let bounds = self.bounds(&shape.root, shape.limits(), shape.sizes, false);
        let born = self.give_birth(shape.root.clone(), bounds, prepared, None)?;
        Standby::wait(born, shape, seen)
    }

    /// True if the control groups belong to the caller, and so to a job that works on its files.
    fn owns_groups(&self) -> bool {
        !matches!(self.settings.identity, Identity::Root { .. })
            && self.settings.places.directories().next().is_some()
    }

    /// True if a control group bounds the job by this.
    fn counts(&self, controller: Controller) -> bool {
        self.group
            .as_ref()
            .is_some_and(|group| group.has(controller))
    }

    fn open_dev(
        &self,
        root: &RootPlan,
        terminal: Option<BorrowedFd<'_>>,
    ) -> Result<dev::Prepared, StepError> {
        match &self.settings.dev {
            Some(template) if terminal.is_none() && root.devices.is_empty() => template
                .copy()
                .map(dev::Prepared::Whole)
                .step(|| "copy the /dev of all jobs".to_owned()),
            _ => {
                let mut dev = dev::Prepared::open()?;
                let user = root.account.user.uid;
                let is_caller = works_on_the_callers_files(root);
                let owner = match self.settings.identity {
                    Identity::Root { .. } => self.settings.identity.outside(user, is_caller, user),
                    // Only root of the host makes device nodes.
                    Identity::Ranged { .. } | Identity::Single => None,
                };
                for device in &root.devices {
                    dev.add(device, owner)?;
                }
                if let Some(terminal) = terminal {
                    dev.show_terminal(terminal)?;
                }
                Ok(dev)
            }
        }
    }

    /// In a new process 1: lets go of what belongs to the warden.
    fn forget(&mut self, channel: OwnedFd, ready: OwnedFd) {
        self.maps.clear();
        self.kernel_log = None;
        drop((channel, ready));
        process::close_copy(self.settings.link.as_fd());
    }

    /// Maps the ids, and lets process 1 go.
    fn release(
        &self,
        pid: i32,
        (user, is_caller): (User, bool),
        ready: &OwnedFd,
    ) -> Result<(), StepError> {
        let identity = self.settings.identity;
        if self.is_spared {
            // Not what the job can take for itself.
            fs::write(format!("/proc/{pid}/oom_score_adj"), "0")
                .step(|| "make process 1 one that may be ended".to_owned())?;
        }
        fs::write(
            format!("/proc/{pid}/uid_map"),
            identity.map(user.uid, is_caller),
        )
        .step(|| "map the user ids of the sandbox".to_owned())?;
        fs::write(
            format!("/proc/{pid}/gid_map"),
            identity.map(user.gid, is_caller),
        )
        .step(|| "map the group ids of the sandbox".to_owned())?;
        rustix::io::write(ready, b"g").step(|| "let process 1 go".to_owned())?;
        Ok(())
    }

    /// Leaves the job only those further groups that it can be in here.
    fn keep_mapped_groups(&self, root: &mut RootPlan) {
        if root.account.groups.is_empty() {
            return;
        }
        let (own, is_caller) = (root.account.user.gid, works_on_the_callers_files(root));
        let identity = self.settings.identity;
        let groups = &mut root.account.groups;
        groups.retain(|group| identity.outside(own, is_caller, *group).is_some());
    }

    /// Gives the sandbox what the job or its builder has to own.
    fn give_away(&self, request: &SandboxRequest, stdio: &Stdio) -> Result<(), StepError> {
        let user = request.root.account.user;
        let is_caller = works_on_the_callers_files(&request.root);
        let owner = (user, is_caller);
        let builder = self.settings.identity.builder(user, is_caller);
        if let Some(scratch) = &request.scratch {
            self.give(scratch, owner, builder)?;
        }
        for descriptor in [&stdio.stdin, &stdio.stdout, &stdio.stderr] {
            self.give_descriptor(descriptor.as_fd(), owner, request.tty)?;
        }
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
        match self
            .settings
            .identity
            .outside(user.uid, is_caller, user.uid)
        {
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
        let outside = |own, id| {
            self.settings
                .identity
                .outside(own, is_caller, id)
                .unwrap_or(0)
        };
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
            self.settings
                .places
                .missing
                .get(&controller)
                .cloned()
                .unwrap_or_else(|| "not found".to_owned())
        };
        if limits.cpus.is_some() && !self.settings.places.has(Controller::Cpu) {
            return Err(StartError::LimitUnavailable {
                limit: "cpus".to_owned(),
                why: why(Controller::Cpu),
            });
        }
        for (controller, instead) in [
            (
                Controller::Memory,
                "process 1 watches the job's memory 20 times a second instead, but for file systems in \
                 memory that the job mounts itself with --grant userns",
            ),
            (
                Controller::Pids,
                "RLIMIT_NPROC bounds the job's processes instead",
            ),
        ] {
            if !self.settings.places.has(controller) {
                missing.push(Grant::Missing {
                    wall: format!("cgroup.{}", controller.name()),
                    why: format!("{}; {instead}", why(controller)),
                });
            }
        }
        if limits.memory.is_none() {
            // The host keeps an eighth for itself.
            limits.memory = Some(ByteSize(self.settings.memory / 8 * 7));
        }
        Ok(missing)
    }

    fn choose_cpus(&self, limits: &Limits) -> Option<Vec<usize>> {
        let wanted = limits.cpus?.visible() as usize;
        let all = process::allowed_cpus().ok()?;
        if wanted >= all.len() {
            return None;
        }
        let first = self.settings.turn * wanted;
        Some(
            (0..wanted)
                .map(|step| all[(first + step) % all.len()])
                .collect(),
        )
    }

    /// Reads the figures, removes what is left, says how it ended, and reaps process 1. Where that has
    /// said that all of the job is gone, it is only about to let go of its namespaces, which nobody needs
    /// to wait for.
    fn bury(&mut self, mut running: Running) {
        while running.hear() {}
        let is_over = running.is_over();
        if !is_over {
            running.init.reap();
        }
        let notice = self.account_for(&mut running);
        self.tell(&notice);
        if is_over {
            running.init.reap();
        }
        // It is a socket too.
        running.channel = None;
        self.network.take_if(|network| !network.is_as_new());
        if let Some(group) = &mut self.group {
            group.end();
        }
    }

    /// How a sandbox ended.
    fn account_for(&mut self, running: &mut Running) -> Notice {
        let figures = self
            .group
            .as_mut()
            .map(JobCgroup::take_figures)
            .unwrap_or_default();
        let used = self.network.take_if(|_| running.made_sockets());
        let network_missed = used.is_some_and(|network| network.was_missed());
        let group = self.group.as_ref().and_then(JobCgroup::memory_group_name);
        if running.scratch.is_some() {
            sweep::remove_scratch(&self.settings.state_dir, &running.name);
        }
        match running.report.take() {
            Some(Report::Failed { error }) => Notice::StartFailed { error },
            _ if !running.started => Notice::StartFailed {
                error: StartError::Setup {
                    step: "start process 1 of the sandbox".to_owned(),
                    error: "it ended before the program was started".to_owned(),
                },
            },
            report => {
                let mut ended = ended_from(report, running.killed);
                if figures.peak_memory_bytes.is_some() {
                    ended.usage.peak_memory_bytes = figures.peak_memory_bytes;
                }
                if figures.peak_pids.is_some() {
                    ended.usage.peak_pids = figures.peak_pids;
                }
                ended.pids_refused = figures.pids_refused;
                ended.network_missed = network_missed;
                let watched = ended.oom.as_ref().map_or(0, |oom| oom.kills);
                if figures.oom_kills + watched > 0 {
                    let log = self.kernel_log.as_mut();
                    let told = log.zip(group).and_then(|(log, group)| log.victim(&group));
                    let seen = ended.oom.take().and_then(|oom| oom.victim);
                    let kills = figures.oom_kills + watched;
                    // Where the log may not be read, the one that was killed is at least known if it is
                    // the main process.
                    let main = (kills == 1 && ended.signal == Some(libc::SIGKILL))
                        .then(|| running.program.clone());
                    ended.oom = Some(Oom {
                        peak: ended.usage.peak_memory_bytes.map(ByteSize),
                        limit: running.limits.memory,
                        victim: told.or(seen).or(main),
                        kills,
                    });
                }
                Notice::Ended { ended }
            }
        }
    }
}

/// True if a root shows files that belong to whoever started the job: then the job's user has to be
/// that one. Else it is a sub-id like all others, as the owners in an image's tree are.
fn works_on_the_callers_files(root: &RootPlan) -> bool {
    let is_callers = |owners: &Owners| matches!(owners, Owners::Job { .. });
    let over = root.mounts.iter().flat_map(|mount| &mount.over);
    root.mounts.iter().any(|mount| is_callers(&mount.owners))
        || root
            .trees
            .iter()
            .chain(over)
            .any(|tree| is_callers(&tree.owners))
}

/// Every namespace that there is for a job but the network's, in which its warden stands.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Default bounds of what a job may write: a half of the host's memory for the private layer, and for
/// /dev/shm a half of the job's memory.
fn sizes(limits: &Limits, host_memory: u64) -> Sizes {
    let memory = limits.memory.map_or(host_memory, |size| size.0);
    Sizes {
        disk: limits.disk.map_or(host_memory / 2, |size| size.0),
        shared_memory: limits.shm.map_or(memory / 2, |size| size.0),
    }
}
