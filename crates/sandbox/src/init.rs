//! Process 1 of a sandbox. It builds the root, starts the job, reaps, forwards signals, and ends
//! when the job's main process has ended.
//!
//! ```text
//! wait for the id map ─► build the root ─► fork the job ─► watch ─► main ended ─► kill the rest ─► report
//!        └── a failed step: report it, end ──────┘
//! ```
//!
//! It is a copy of the launcher, which has one thread, so it may allocate. The job never is process 1
//! and cannot reach it: it is not dumpable, and no signal from inside ends it.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tidemill_core::job::User;
use tidemill_core::limits::{disk_reserve, inodes_for};
use tidemill_core::{Limits, RootPlan};
use tidemill_tree::Measured;

use crate::in_use::{InUse, in_use};
use crate::job_start::{Walls, start_job};
use crate::request::{Order, StartError, Stdio, Work};
use crate::rootfs::{self, Prepared, Site, Sizes, Step};
use crate::seccomp::{FilterKind, RefusalNotes, RefusedCall};
use crate::shares::Shares;
use crate::sys::mount::space;
use crate::sys::{process, socket};

/// How long processes that outlive the main one may take to end by themselves.
pub const DRAIN: Duration = Duration::from_millis(250);
/// How often process 1 looks at what no event tells it: the fill of the private layer, and memory
/// where no control group bounds it.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);
/// How often a private layer on disk is measured, which takes a walk over all of it.
const DISK_INTERVAL: Duration = Duration::from_millis(500);
/// A private layer in memory with less than this free was full: a write of a page or two was refused.
const ALMOST_FULL: u64 = 64 * 1024;
/// How readily the kernel ends the job's processes, of 1,000: when memory runs out it takes one of them,
/// which are to blame, before process 1 and the warden, which have to tell of it.
const JOB_EAGERNESS: i32 = 1000;
/// How long after the job's time limit process 1 ends it, if whoever should have done it did not: it may be
/// stopped, or have lost its processor.
const TIME_LIMIT_MARGIN: Duration = Duration::from_secs(1);

/// From process 1 to the launcher.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Report {
    /// Nothing runs.
    Failed { error: StartError },
    /// The root is built, and the job's work is waited for.
    Built,
    /// The program was exec'd.
    Started,
    /// The main process ended and the rest is gone.
    Ended {
        exit_code: Option<i32>,
        signal: Option<i32>,
        core_dumped: bool,
        killed_processes: u64,
        wall_ms: u64,
        user_ms: u64,
        system_ms: u64,
        largest_resident_bytes: u64,
        watched_peak_bytes: u64,
        watched_peak_pids: Option<u64>,
        memory_kills: u64,
        memory_victim: Option<String>,
        disk_bytes: u64,
        disk_full: bool,
        disk_low: bool,
        shared_memory_full: bool,
        pids_full: bool,
        time_limit: bool,
        refused_calls: Vec<RefusedCall>,
        made_sockets: bool,
    },
}

/// What process 1 is made with.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) root: RootPlan,
    pub(crate) bounds: Bounds,
    pub(crate) prepared: Prepared,
    /// What is done in the root; if absent, it comes over the channel.
    pub(crate) task: Option<Task>,
    /// Readable when the launcher has mapped the ids.
    pub(crate) ready: OwnedFd,
    /// To and from the launcher.
    pub(crate) channel: OwnedFd,
}

/// What holds for a sandbox whatever its job does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The job's limits, as far as the root shows them.
    pub(crate) limits: Limits,
    pub(crate) sizes: Sizes,
    pub(crate) builder: User,
    pub(crate) denies_groups: bool,
    pub(crate) filter: FilterKind,
    pub(crate) shares: Shares,
    /// True if process 1 itself has to bound memory, because no control group does.
    pub(crate) watch_memory: bool,
    /// True if process 1 itself has to count processes, because no control group does.
    pub(crate) watch_pids: bool,
    /// The bound of a private layer on disk, which process 1 itself has to keep.
    pub(crate) disk_limit: Option<u64>,
}

/// What is done in a root.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) work: Work,
    pub(crate) stdio: Stdio,
}

/// The life of process 1. Does not return.
pub(crate) fn live(birth: Birth) -> ! {
    let channel = birth.channel.try_clone();
    let failed = match start(birth) {
        Ok(watch) => watch.run(),
        Err(error) => error,
    };
    if let Ok(channel) = channel {
        tell(channel.as_fd(), &Report::Failed { error: failed });
    }
    process::exit_now(1)
}

fn tell(channel: BorrowedFd<'_>, report: &Report) {
    let bytes = serde_json::to_vec(report).unwrap_or_default();
    // If the launcher is gone, this process is being killed, and nobody is left to tell.
    socket::send(channel, &bytes, &[]).ok();
}

struct Watch {
    channel: OwnedFd,
    children: OwnedFd,
    site: OwnedFd,
    shared_memory: OwnedFd,
    main: i32,
    asked: Asked,
    waits_for_children: bool,
    /// When process 1 itself ends the job.
    deadline: Option<Instant>,
    time_limit: bool,
    refusals: RefusalNotes,
    started: Instant,
    memory_limit: Option<u64>,
    peak_memory: u64,
    memory_kills: u64,
    /// The name of the first process that was ended for its memory.
    memory_victim: Option<String>,
    pids_limit: Option<u64>,
    peak_pids: u64,
    disk_full: bool,
    /// Set when the job was ended because the disk that its private layer lies on was almost full.
    disk_low: bool,
    shared_memory_full: bool,
    /// Set if the private layer is on disk, where no file system bounds it.
    disk: Option<DiskWatch>,
}

/// What the job was asked to do from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// By a signal: whoever asked it leaves it time, and says when that is over.
    ToEnd,
    AtOnce,
}

/// Bounds a private layer on disk: measured from time to time, and the job killed when it is too much.
struct DiskWatch {
    limit: u64,
    next: Instant,
    /// What has to stay free of the whole disk. A walk does not meet what is open and has no name.
    reserve: u64,
}

/// A root that is built, and what process 1 has opened on the way.
struct Stage {
    site: Site,
    shared_memory: OwnedFd,
    children: OwnedFd,
    eagerness: OomEagerness,
}

fn start(birth: Birth) -> Result<Watch, StartError> {
    process::set_name(c"tidemill-init");
    process::die_with_parent().step(|| "ask to end with the launcher".to_owned())?;
    let mut go = [0_u8; 1];
    let count =
        rustix::io::read(&birth.ready, &mut go).step(|| "wait for the id map".to_owned())?;
    if count == 0 {
        process::exit_now(1);
    }
    let stage = build(birth.prepared, &birth.root, &birth.bounds)?;
    let Task { work, stdio } = match birth.task {
        Some(task) => task,
        None => wait_for_task(birth.channel.as_fd())?,
    };
    stage.site.replace(&work.replaced)?;
    if let Some(cpus) = &work.cpus {
        process::keep_on_cpus(cpus).step(|| "keep the job on its CPUs".to_owned())?;
    }
    let bounds = birth.bounds;
    // Where the job's user is the builder too, process 1 counts as one of its processes. Where a
    // control group counts, it has to be the first to refuse, because it tells of it.
    let is_builder = bounds.builder.uid == birth.root.account.user.uid;
    let walls = Walls {
        denies_groups: bounds.denies_groups,
        filter: bounds.filter,
        spare: u64::from(is_builder) + u64::from(!bounds.watch_pids),
    };
    stage.eagerness.set(JOB_EAGERNESS);
    let (main, listener) = start_job(&birth.root, &work, stdio, walls)?;
    stage.eagerness.take_back();
    let kept_free = space(&stage.site.directory)
        .map_or(0, |space| disk_reserve(space.total_bytes, space.free_bytes));
    Ok(Watch {
        channel: birth.channel,
        children: stage.children,
        site: stage.site.directory,
        shared_memory: stage.shared_memory,
        main,
        asked: Asked::Nothing,
        waits_for_children: work.wait_children,
        deadline: (work.limits.timeout)
            .and_then(|limit| now().checked_add(limit.as_duration()))
            .map(|end| end + TIME_LIMIT_MARGIN),
        time_limit: false,
        refusals: RefusalNotes::new(listener),
        started: now(),
        memory_limit: (work.limits.memory)
            .map(|size| size.0)
            .filter(|_| bounds.watch_memory),
        peak_memory: 0,
        memory_kills: 0,
        memory_victim: None,
        pids_limit: (bounds.watch_pids).then(|| u64::from(work.limits.pids)),
        peak_pids: 1,
        disk_full: false,
        disk_low: false,
        shared_memory_full: false,
        disk: (bounds.disk_limit).map(|limit| DiskWatch {
            limit,
            next: now(),
            reserve: kept_free,
        }),
    })
}

/// Builds the root and goes into it: all that can be done before the job's program is known.
fn build(prepared: Prepared, root: &RootPlan, bounds: &Bounds) -> Result<Stage, StartError> {
    let eagerness = OomEagerness::open();
    let children = process::child_signals().step(|| "watch for ended children".to_owned())?;
    let builder = bounds.builder;
    let groups = (!bounds.denies_groups).then_some(&[][..]);
    process::become_user(builder.uid, builder.gid, groups)
        .step(|| "become the builder of the sandbox".to_owned())?;
    // Changing the user clears it.
    process::die_with_parent().step(|| "ask to end with the launcher".to_owned())?;
    bounds.shares.keep();
    rustix::process::umask(Mode::empty());
    process::set_host_name("tidemill").step(|| "set the host name".to_owned())?;
    let site = rootfs::build(prepared, root, &bounds.limits, bounds.sizes, builder)?;
    let shared_memory = rustix::fs::open(
        "/dev/shm",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .step(|| "open /dev/shm inside".to_owned())?;
    // Memory and /proc entries of this process are nobody's business. Only now: a process that is
    // not dumpable does not own its own /proc entries.
    process::set_undumpable().step(|| "become undumpable".to_owned())?;
    Ok(Stage {
        site,
        shared_memory,
        children,
        eagerness,
    })
}

/// Waits for what is to be done in a root that is built.
fn wait_for_task(channel: BorrowedFd<'_>) -> Result<Task, StartError> {
    tell(channel, &Report::Built);
    let (message, fds) = socket::receive(channel, true).step(|| "wait for the job".to_owned())?;
    let mut fds = fds.into_iter();
    let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
        // The warden is gone, or needs no further sandbox like the last.
        process::exit_now(1);
    };
    Ok(Task {
        work: Work::unpack(&message, fds.next())?,
        stdio: Stdio {
            stdin,
            stdout,
            stderr,
        },
    })
}

/// How readily the kernel ends this process when memory runs out. It is opened before this process
/// changes its user, and with that loses its own /proc entries; a child inherits the value, and not
/// the descriptor. It decides about nothing but which process is ended first, so a host where it
/// cannot be changed is no reason to fail.
struct OomEagerness {
    file: Option<OwnedFd>,
    /// What it was.
    own: Vec<u8>,
}

impl OomEagerness {
    fn open() -> Self {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/oom_score_adj", flags, Mode::empty()).ok();
        let mut own = vec![0; 16];
        let length = file
            .as_ref()
            .and_then(|file| rustix::io::pread(file, &mut own, 0).ok());
        own.truncate(length.unwrap_or(0));
        Self { file, own }
    }

    fn set(&self, value: i32) {
        self.write(value.to_string().as_bytes());
    }

    fn take_back(&self) {
        self.write(&self.own);
    }

    fn write(&self, value: &[u8]) {
        if let Some(file) = &self.file {
            rustix::io::pwrite(file, value, 0).ok();
        }
    }
}

/// The monotonic clock: how long the program ran is part of its record.
fn now() -> Instant {
    Instant::now()
}

impl Watch {
    /// Watches until all is over. Does not return; the type says what [`live`] does if it could.
    fn run(mut self) -> StartError {
        tell(self.channel.as_fd(), &Report::Started);
        let main = self.wait_for_main();
        let wall = self.started.elapsed();
        // One more than there are now: the main one has just gone.
        self.look_at_processes(1);
        let killed = self.end_the_rest(self.waits_for_children);
        self.look();
        let (user_ms, system_ms, largest) = process::children_usage();
        let used = match &self.disk {
            Some(_) => disk_in_use(&self.site, u64::MAX).bytes,
            None => space_used(&self.site),
        };
        let report = Report::Ended {
            exit_code: main.exit_code,
            signal: main.signal,
            core_dumped: main.core_dumped,
            killed_processes: killed,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            user_ms,
            system_ms,
            largest_resident_bytes: largest,
            watched_peak_bytes: self.peak_memory,
            watched_peak_pids: self.pids_limit.map(|_| self.peak_pids),
            memory_kills: self.memory_kills,
            memory_victim: self.memory_victim.take(),
            disk_bytes: used,
            disk_full: self.disk_full,
            disk_low: self.disk_low,
            shared_memory_full: self.shared_memory_full,
            time_limit: self.time_limit,
            pids_full: self.pids_limit.is_some_and(|limit| self.peak_pids >= limit),
            refused_calls: self.refusals.take(),
            made_sockets: self.refusals.made_sockets(),
        };
        tell(self.channel.as_fd(), &report);
        process::exit_now(0)
    }

    fn wait_for_main(&mut self) -> process::Reaped {
        let mut next_look = now() + WATCH_INTERVAL;
        loop {
            while let Ok(Some(reaped)) = process::reap(-1, false) {
                if reaped.pid == self.main {
                    return reaped;
                }
            }
            if self.wait_for_event(next_look.saturating_duration_since(now())) {
                self.obey();
            }
            if now() >= next_look {
                self.look();
                next_look = now() + WATCH_INTERVAL;
            }
        }
    }

    /// True if the launcher has something to say (or is gone).
    fn wait_for_event(&mut self, timeout: Duration) -> bool {
        let mut fds = vec![
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.channel, PollFlags::IN),
        ];
        if let Some(listener) = self.refusals.listener() {
            fds.push(PollFd::from_borrowed_fd(listener, PollFlags::IN));
        }
        let timeout = Timespec::try_from(timeout).ok();
        // An interrupted wait is as good as one that timed out.
        poll(&mut fds, timeout.as_ref()).ok();
        let spoke = !fds[1].revents().is_empty();
        match fds.get(2).map(PollFd::revents) {
            Some(events) if events.contains(PollFlags::IN) => self.refusals.answer(),
            // Nobody is left who has this filter: to wait for a call would be to wait for ever.
            Some(events) if !events.is_empty() => self.refusals.stop(),
            _ => {}
        }
        let mut info = [0_u8; 128];
        while rustix::io::read(&self.children, &mut info).is_ok_and(|count| count > 0) {}
        spoke
    }

    /// Does what the launcher has to say.
    fn obey(&mut self) {
        let Ok((bytes, _)) = socket::receive(self.channel.as_fd(), false) else {
            return;
        };
        if bytes.is_empty() {
            process::exit_now(1);
        }
        let (signal, asked) = match serde_json::from_slice(&bytes) {
            Ok(Order::Signal { signal }) => (signal, Asked::ToEnd),
            Ok(Order::Kill) => (libc::SIGKILL, Asked::AtOnce),
            Err(_) => return,
        };
        self.asked = asked;
        // To every process of this namespace but ourselves. Nobody there is no error.
        process::kill(-1, signal).ok();
    }

    /// Waits a moment for what outlives the main process, then kills it. Returns how many were killed. A
    /// job that was asked to end has the time that it was given, all of it: what cleans up may be a
    /// child whose parent has ended at once.
    fn end_the_rest(&mut self, wait_for_all: bool) -> u64 {
        let deadline = now() + DRAIN;
        loop {
            let is_patient = match self.asked {
                Asked::Nothing => wait_for_all,
                Asked::ToEnd => true,
                Asked::AtOnce => break,
            };
            match process::reap(-1, false) {
                Ok(Some(_)) => {}
                Err(_) => return 0,
                Ok(None) if !is_patient && now() >= deadline => break,
                Ok(None) => {
                    let rest = if is_patient {
                        WATCH_INTERVAL
                    } else {
                        deadline.saturating_duration_since(now())
                    };
                    if self.wait_for_event(rest) {
                        self.obey();
                    }
                    self.look();
                }
            }
        }
        let mut killed = 0;
        loop {
            // A fork that is under way when the signal arrives is given up by the kernel, so one round
            // is enough; the loop is for children of children, which become ours only by and by.
            process::kill(-1, libc::SIGKILL).ok();
            match process::reap(-1, true) {
                Ok(Some(_)) => killed += 1,
                Ok(None) => {}
                Err(_) => return killed,
            }
        }
    }

    /// Notes a private layer that is full, and ends a job whose layer on disk has outgrown its bound, or
    /// has left the disk almost nothing.
    fn look_at_disk(&mut self) {
        let Some(watch) = &mut self.disk else {
            self.disk_full |= is_full(&self.site);
            return;
        };
        if space(&self.site).is_ok_and(|space| space.free_bytes < watch.reserve) {
            self.disk_low = true;
            // Nobody there is no error.
            process::kill(-1, libc::SIGKILL).ok();
            return;
        }
        if now() < watch.next {
            return;
        }
        let entries_max = inodes_for(watch.limit);
        let used = disk_in_use(&self.site, entries_max);
        watch.next = now() + DISK_INTERVAL;
        if used.bytes > watch.limit || used.entries > entries_max {
            self.disk_full = true;
            // Nobody there is no error.
            process::kill(-1, libc::SIGKILL).ok();
        }
    }

    /// Looks at what no event tells: the private layer, and what no control group counts.
    fn look(&mut self) {
        self.look_at_disk();
        self.shared_memory_full |= is_full(&self.shared_memory);
        if self.deadline.is_some_and(|deadline| now() >= deadline) {
            self.time_limit = true;
            self.asked = Asked::AtOnce;
            // Nobody there is no error.
            process::kill(-1, libc::SIGKILL).ok();
        }
        self.look_at_processes(0);
    }

    /// Counts processes and memory where no control group does, and ends the largest process where
    /// that is our task. `gone` is how many processes have ended just now.
    fn look_at_processes(&mut self, gone: u64) {
        if self.memory_limit.is_none() && self.pids_limit.is_none() {
            return;
        }
        let mut files = space_used(&self.shared_memory);
        if self.disk.is_none() {
            files += space_used(&self.site);
        }
        let InUse {
            tasks,
            bytes,
            largest,
        } = in_use(files, self.memory_limit);
        self.peak_pids = self.peak_pids.max(tasks + gone);
        self.peak_memory = self.peak_memory.max(bytes);
        if self.memory_limit.is_some_and(|limit| bytes > limit)
            && let Some((pid, _)) = largest
        {
            // Asked before: afterwards it has none.
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok();
            if process::kill(pid, libc::SIGKILL).is_ok() {
                self.memory_kills += 1;
                let name = name.map(|name| name.trim_end().to_owned());
                self.memory_victim = self.memory_victim.take().or(name);
            }
        }
    }
}

/// True if a file system in memory has no room left.
fn is_full(file_system: &OwnedFd) -> bool {
    space(file_system).is_ok_and(|space| {
        let almost = ALMOST_FULL.min(space.total_bytes / 16);
        space.free_bytes < almost || space.free_inodes == 0 && space.total_inodes > 0
    })
}

fn space_used(file_system: &OwnedFd) -> u64 {
    space(file_system).map_or(0, |space| space.total_bytes - space.free_bytes)
}

/// What is in a private layer on disk. What is mounted on the site (lower layers, the merged root) is not
/// in the layer.
fn disk_in_use(site: &OwnedFd, entries_max: u64) -> Measured {
    let is_of_the_layer =
        |name: &[u8]| name.ends_with(b"upper") || name == b"tmp" || name == b"var-tmp";
    // A layer that cannot be looked at is as good as empty: its job cannot write it either.
    tidemill_tree::measure(site.as_fd(), entries_max, is_of_the_layer).unwrap_or_default()
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("main", &self.main)
            .field("site", &self.site.as_raw_fd())
            .finish_non_exhaustive()
    }
}
