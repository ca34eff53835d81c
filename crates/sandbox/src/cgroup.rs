//! Control groups of one job: version 2 where its controllers are, version 1 where the host mounts
//! them there, both side by side where it must be.
//!
//! A host has a *place* per controller: a directory in which groups may be made. A warden has one
//! group in each place, all of one name, and stands in them itself: what it starts is in them from the
//! first moment on. To move a process into a group of version 1 takes milliseconds, because the kernel
//! waits until no processor is in the middle of a fork; so the groups are kept from job to job as long
//! as what they count can still be told for each job alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemill_core::Limits;

use crate::cgroup_text;
use crate::sys::process;

/// The controllers that bound a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// Memory of all processes.
    Memory,
    /// Number of processes and threads.
    Pids,
    /// CPU time per wall time.
    Cpu,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
        }
    }
}

/// Where groups may be made on this host.
#[derive(Debug, Clone, Default)]
pub struct CgroupPlaces {
    /// The version 2 directory, and which controllers its children have. The list may be empty: the
    /// group still serves for ending all processes at once.
    pub unified: Option<(PathBuf, Vec<Controller>)>,
    /// The version 1 directory of each controller that is mounted so.
    pub legacy: BTreeMap<Controller, PathBuf>,
    /// Why a controller is not to be had.
    pub missing: BTreeMap<Controller, String>,
    /// The version 1 directory of each controller that is mounted so and may not be written.
    pub refused: BTreeMap<Controller, PathBuf>,
}

impl CgroupPlaces {
    /// Looks at the mounts and groups of this process.
    pub fn find() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut places = Self::default();
        let mounted = cgroup_text::mounts(&mounts);
        let groups = cgroup_text::own_groups(&own);
        if let Some(mount) = mounted.get("") {
            let directory = cgroup_text::below(mount, groups.get("").map_or("/", String::as_str));
            places.unified = open_unified(&directory);
        }
        for controller in Controller::ALL {
            let in_unified = places
                .unified
                .as_ref()
                .is_some_and(|(_, list)| list.contains(&controller));
            if in_unified {
                continue;
            }
            let Some(mount) = mounted.get(controller.name()) else {
                let why = match &places.unified {
                    Some((directory, _)) => {
                        format!("the controller is not delegated to {}", directory.display())
                    }
                    None => "no cgroup hierarchy with this controller may be written".to_owned(),
                };
                places.missing.insert(controller, why);
                continue;
            };
            let directory = cgroup_text::below(
                mount,
                groups.get(controller.name()).map_or("/", String::as_str),
            );
            if is_writable(&directory) {
                places.legacy.insert(controller, directory);
            } else {
                let why = format!("{} is not writable for this user", directory.display());
                places.missing.insert(controller, why);
                places.refused.insert(controller, directory);
            }
        }
        places
    }

    /// The directories in which groups are made.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Path> {
        let unified = self.unified.iter().map(|(directory, _)| directory);
        unified.chain(self.legacy.values()).map(PathBuf::as_path)
    }

    /// True if jobs can be bounded by this controller.
    pub fn has(&self, controller: Controller) -> bool {
        self.legacy.contains_key(&controller)
            || self
                .unified
                .as_ref()
                .is_some_and(|(_, list)| list.contains(&controller))
    }
}

fn is_writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
        && rustix::fs::access(directory.join("cgroup.procs"), rustix::fs::Access::WRITE_OK).is_ok()
}

/// Prepares a version 2 directory: enables the controllers for its children, which needs this process
/// to stand in a leaf of its own unless the directory is the root.
fn open_unified(directory: &Path) -> Option<(PathBuf, Vec<Controller>)> {
    if !is_writable(directory) {
        return None;
    }
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    let available = read("cgroup.controllers");
    let wanted: Vec<Controller> = Controller::ALL
        .into_iter()
        .filter(|controller| {
            available
                .split_whitespace()
                .any(|name| name == controller.name())
        })
        .collect();
    let enabled = |text: &str, controller: Controller| {
        text.split_whitespace()
            .any(|name| name == controller.name())
    };
    let subtree = read("cgroup.subtree_control");
    if wanted
        .iter()
        .any(|controller| !enabled(&subtree, *controller))
    {
        let line: Vec<String> = wanted.iter().map(|c| format!("+{}", c.name())).collect();
        let line = line.join(" ");
        let control = directory.join("cgroup.subtree_control");
        if fs::write(&control, &line).is_err() {
            // "No internal processes": step aside into a leaf, but only if nobody else is here.
            let own = std::process::id().to_string();
            let others = read("cgroup.procs")
                .lines()
                .any(|pid| pid != own && !is_relative(pid));
            let leaf = directory.join("tidemill-supervisor");
            if !others && (leaf.is_dir() || fs::create_dir(&leaf).is_ok()) {
                for pid in read("cgroup.procs").lines() {
                    // A process that ended meanwhile needs no move.
                    fs::write(leaf.join("cgroup.procs"), pid).ok();
                }
                // What could not be enabled is found out by reading it back.
                fs::write(&control, &line).ok();
            }
        }
    }
    let subtree = read("cgroup.subtree_control");
    let list = wanted
        .into_iter()
        .filter(|controller| enabled(&subtree, *controller))
        .collect();
    Some((directory.to_owned(), list))
}

/// True if a process is our parent: the command that started this launcher.
fn is_relative(pid: &str) -> bool {
    rustix::process::getppid().is_some_and(|parent| pid == parent.as_raw_nonzero().to_string())
}

/// The groups that one job after the other runs in.
#[derive(Debug)]
pub(crate) struct JobCgroup {
    unified: Option<PathBuf>,
    legacy: BTreeMap<Controller, PathBuf>,
    controllers: Vec<Controller>,
    /// What is set now.
    limits: Option<Limits>,
    /// What had been counted when the present job began.
    before: Counters,
    /// What is read or written for every job, kept open.
    files: Files,
    /// True if something could not be set: nobody knows what holds in it.
    is_spoiled: bool,
}

#[derive(Debug, Default)]
struct Files {
    memory_peak: Option<File>,
    memory_usage: Option<File>,
    oom: Option<File>,
    pids_peak: Option<File>,
    pids_events: Option<File>,
}

/// What only grows in a group.
#[derive(Debug, Clone, Copy, Default)]
struct Counters {
    oom_kills: u64,
    pids_refused: u64,
}

/// Processes in a job's groups that are not the job's: the warden and process 1.
const RESIDENTS: u64 = 2;
/// A group with more memory than this in it, after all of a job's processes have ended, holds what the
/// job has left in the page cache: the next job's figures would have it too.
const LEFT_BYTES_MAX: u64 = 4 << 20;

/// What the groups counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CgroupFigures {
    /// Most memory at one time, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Most processes and threads at one time.
    pub peak_pids: Option<u64>,
    /// How many processes the kernel ended for want of memory.
    pub oom_kills: u64,
    /// How many forks were refused at the limit.
    pub pids_refused: u64,
}

impl JobCgroup {
    /// Makes the groups.
    ///
    /// # Errors
    /// The path that could not be made, and why.
    pub(crate) fn create(places: &CgroupPlaces, leaf: &str) -> Result<Self, (PathBuf, io::Error)> {
        let mut group = Self {
            unified: None,
            legacy: BTreeMap::new(),
            controllers: Vec::new(),
            limits: None,
            before: Counters::default(),
            files: Files::default(),
            is_spoiled: false,
        };
        if let Some((directory, controllers)) = &places.unified {
            let path = directory.join(leaf);
            fs::create_dir(&path).map_err(|error| (path.clone(), error))?;
            group.unified = Some(path);
            group.controllers.extend(controllers);
        }
        for (controller, directory) in &places.legacy {
            let path = directory.join(leaf);
            fs::create_dir(&path).map_err(|error| (path.clone(), error))?;
            group.legacy.insert(*controller, path);
            group.controllers.push(*controller);
        }
        group.files = group.open_files();
        Ok(group)
    }

    fn open_files(&self) -> Files {
        // A kernel that does not have one of them does not tell that figure.
        let read = |path: PathBuf| File::open(path).ok();
        let both = |path: PathBuf| File::options().read(true).write(true).open(path).ok();
        let mut files = Files::default();
        if let Some(path) = self.legacy.get(&Controller::Memory) {
            files.memory_peak = both(path.join("memory.max_usage_in_bytes"));
            files.memory_usage = read(path.join("memory.usage_in_bytes"));
            files.oom = read(path.join("memory.oom_control"));
        } else if let Some(path) = self
            .unified
            .as_ref()
            .filter(|_| self.has(Controller::Memory))
        {
            files.memory_peak = read(path.join("memory.peak"));
            files.oom = read(path.join("memory.events"));
        }
        let pids = self.legacy.get(&Controller::Pids).or(self.unified.as_ref());
        if let Some(path) = pids.filter(|_| self.has(Controller::Pids)) {
            files.pids_peak = read(path.join("pids.peak"));
            files.pids_events = read(path.join("pids.events"));
        }
        files
    }

    /// Puts this process into all groups.
    ///
    /// # Errors
    /// The file that could not be written, and why.
    pub(crate) fn join(&mut self) -> Result<(), (PathBuf, io::Error)> {
        self.is_spoiled = true;
        for directory in self.paths() {
            write(&directory.join("cgroup.procs"), "0")?;
        }
        self.is_spoiled = false;
        Ok(())
    }

    /// Sets the limits of the next job, and begins to count for it.
    ///
    /// # Errors
    /// The file that could not be written, and why.
    pub(crate) fn begin(&mut self, limits: &Limits) -> Result<(), (PathBuf, io::Error)> {
        self.is_spoiled = true;
        self.change(limits)?;
        self.is_spoiled = false;
        Ok(())
    }

    /// Takes the limits of memory and CPU away, so that they do not bound what the warden does between
    /// jobs.
    pub(crate) fn end(&mut self) {
        let Some(limits) = self.limits else { return };
        self.is_spoiled |= self
            .change(&Limits {
                memory: None,
                cpus: None,
                ..limits
            })
            .is_err();
    }

    fn change(&mut self, limits: &Limits) -> Result<(), (PathBuf, io::Error)> {
        let old = self.limits.take();
        if let Some(path) = &self.unified {
            for controller in Controller::ALL {
                if !self.legacy.contains_key(&controller) && self.has(controller) {
                    set_unified(path, controller, old.as_ref(), limits)?;
                }
            }
        }
        for (controller, path) in &self.legacy {
            set_legacy(path, *controller, old.as_ref(), limits)?;
        }
        self.limits = Some(*limits);
        if self.legacy.contains_key(&Controller::Memory)
            && let Some(file) = &self.files.memory_peak
        {
            file.write_at(b"0", 0)
                .map_err(|error| (PathBuf::from("memory.max_usage_in_bytes"), error))?;
        }
        Ok(())
    }

    /// True if the next job's figures can be told from those of the jobs before it: the most processes
    /// at one time cannot be counted anew, and what a job has left in memory stays.
    pub(crate) fn is_as_new(&self) -> bool {
        if self.is_spoiled {
            return false;
        }
        let left = match &self.files.memory_usage {
            Some(file) => number(file),
            // The peak of version 2 cannot be counted anew.
            None if self.files.memory_peak.is_some() => return false,
            None => None,
        };
        let peak = self.files.pids_peak.as_ref().and_then(number);
        peak.is_none_or(|peak| peak <= RESIDENTS + 1)
            && left.is_none_or(|bytes| bytes <= LEFT_BYTES_MAX)
    }

    fn counters(&self) -> Counters {
        let count = |file: &Option<File>, key| file.as_ref().map_or(0, |file| field(file, key));
        Counters {
            oom_kills: count(&self.files.oom, "oom_kill"),
            pids_refused: count(&self.files.pids_events, "max"),
        }
    }

    /// What was counted since the job began. From now on it is counted for the next one.
    pub(crate) fn take_figures(&mut self) -> CgroupFigures {
        let counters = self.counters();
        let before = std::mem::replace(&mut self.before, counters);
        let peak_pids = self.files.pids_peak.as_ref().and_then(number);
        CgroupFigures {
            peak_memory_bytes: self.files.memory_peak.as_ref().and_then(number),
            peak_pids: peak_pids.map(|peak| peak.saturating_sub(RESIDENTS)),
            oom_kills: counters.oom_kills.saturating_sub(before.oom_kills),
            pids_refused: counters.pids_refused.saturating_sub(before.pids_refused),
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.unified
            .iter()
            .chain(self.legacy.values())
            .cloned()
            .collect()
    }

    /// Removes the groups, which nobody may be in any more.
    pub(crate) fn remove(self) {
        for path in self.paths() {
            if let Err(error) = remove_group(&path) {
                tracing::warn!(path = %path.display(), %error, "a cgroup was not removed");
            }
        }
    }

    /// True if this controller bounds the job.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// The path of the memory group as the kernel log names it.
    pub(crate) fn memory_group_name(&self) -> Option<String> {
        self.legacy
            .get(&Controller::Memory)
            .or(self.unified.as_ref())
            .and_then(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
    }
}

/// What the names of all groups begin with.
pub(crate) const GROUP_PREFIX: &str = "tidemill-";

/// Ends the processes in every group whose name begins so, and removes the groups. Gives each with the
/// reason if it is still there.
pub(crate) fn remove_groups(place: &Path, prefix: &str) -> Vec<(PathBuf, Option<io::Error>)> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        prefix.starts_with(GROUP_PREFIX)
            && entry.file_name().to_string_lossy().starts_with(prefix)
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    ours.map(|entry| {
        let path = entry.path();
        let kill = fs::OpenOptions::new()
            .write(true)
            .open(path.join("cgroup.kill"))
            .and_then(|mut file| file.write_all(b"1"));
        if kill.is_err() {
            let listed = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
            for pid in listed.lines().filter_map(|line| line.parse().ok()) {
                // It may have ended by itself.
                process::kill(pid, libc::SIGKILL).ok();
            }
        }
        let error = remove_group(&path).err();
        (path, error)
    })
    .collect()
}

/// Removes a group whose processes have ended or are about to: the kernel gives the directory free
/// a moment after the last one was reaped.
///
/// # Errors
/// If it is still busy after two seconds.
pub(crate) fn remove_group(path: &Path) -> io::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let start = now();
    loop {
        // A job with groups of its own may have made some below.
        let below = fs::read_dir(path).into_iter().flatten().flatten();
        for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove_group(&entry.path())?;
        }
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if start.elapsed() > PATIENCE => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The monotonic clock, for deadlines on the kernel's own housekeeping.
fn now() -> Instant {
    Instant::now()
}

fn write(path: &Path, text: &str) -> Result<(), (PathBuf, io::Error)> {
    fs::write(path, text).map_err(|error| (path.to_owned(), error))
}

/// A small file of the kernel, read from its beginning.
fn content(file: &File) -> String {
    let mut bytes = [0; 4096];
    // A file that cannot be read tells nothing.
    let length = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn number(file: &File) -> Option<u64> {
    cgroup_text::number(&content(file))
}

fn field(file: &File, key: &str) -> u64 {
    cgroup_text::field(&content(file), key)
}

/// The scheduling period of a CPU quota, in microseconds: the kernel's default.
const CPU_PERIOD_MICROS: u64 = 100_000;

fn quota(limits: &Limits) -> Option<u64> {
    limits
        .cpus
        .map(|cpus| u64::from(cpus.thousandths) * CPU_PERIOD_MICROS / 1000)
}

/// True if a limit has to be written: it is another one than before.
fn differs<T: PartialEq>(
    old: Option<&Limits>,
    new: &Limits,
    limit: impl Fn(&Limits) -> Option<T>,
) -> bool {
    old.and_then(&limit) != limit(new)
}

fn set_unified(
    path: &Path,
    controller: Controller,
    old: Option<&Limits>,
    limits: &Limits,
) -> Result<(), (PathBuf, io::Error)> {
    match controller {
        Controller::Memory if differs(old, limits, |limits| limits.memory) => {
            let memory = limits
                .memory
                .map_or("max".to_owned(), |size| size.0.to_string());
            // Not memory.oom.group: the warden and process 1 are in the group too, and have to live to
            // tell; and a job whose child was ended may go on and say so, as under version 1.
            write(&path.join("memory.max"), &memory)?;
            let swap = path.join("memory.swap.max");
            if old.is_none() && swap.exists() {
                write(&swap, "0")?;
            }
        }
        Controller::Pids if differs(old, limits, |limits| Some(limits.pids)) => {
            write(&path.join("pids.max"), &pids_with_residents(limits))?;
        }
        Controller::Cpu if differs(old, limits, quota) => {
            let quota = quota(limits).map_or("max".to_owned(), |quota| quota.to_string());
            write(
                &path.join("cpu.max"),
                &format!("{quota} {CPU_PERIOD_MICROS}"),
            )?;
        }
        _ => {}
    }
    Ok(())
}

/// More than 2^22 processes are nowhere, and the kernel refuses to be asked for them.
fn pids_with_residents(limits: &Limits) -> String {
    (u64::from(limits.pids) + RESIDENTS)
        .min(1 << 22)
        .to_string()
}

fn set_legacy(
    path: &Path,
    controller: Controller,
    old: Option<&Limits>,
    limits: &Limits,
) -> Result<(), (PathBuf, io::Error)> {
    match controller {
        Controller::Memory if differs(old, limits, |limits| limits.memory) => {
            let value = |limits: &Limits| limits.memory.map_or(-1, |size| size.0.cast_signed());
            let memory = value(limits).to_string();
            let with_swap = path.join("memory.memsw.limit_in_bytes");
            let mut files = vec![path.join("memory.limit_in_bytes")];
            if with_swap.exists() {
                files.push(with_swap);
            }
            // Memory alone may never be more than memory and swap together.
            let size = |limits: &Limits| limits.memory.map_or(u64::MAX, |size| size.0);
            let grows = old.map_or(u64::MAX, size) < size(limits);
            if grows {
                files.reverse();
            }
            // Buffers of TCP and UDP are counted apart, where the kernel counts them at all.
            let sockets = path.join("memory.kmem.tcp.limit_in_bytes");
            if sockets.exists() {
                files.push(sockets);
            }
            for file in files {
                write(&file, &memory)?;
            }
        }
        Controller::Pids if differs(old, limits, |limits| Some(limits.pids)) => {
            write(&path.join("pids.max"), &pids_with_residents(limits))?;
        }
        Controller::Cpu if differs(old, limits, quota) => {
            if old.is_none() {
                write(
                    &path.join("cpu.cfs_period_us"),
                    &CPU_PERIOD_MICROS.to_string(),
                )?;
            }
            let quota = quota(limits).map_or(-1, |quota| quota.max(1000).cast_signed());
            write(&path.join("cpu.cfs_quota_us"), &quota.to_string())?;
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Files of a directory stand for those of the kernel: what is written is what version 2 takes.
    #[test]
    fn limits_of_version_2_are_written_when_they_change() {
        let place = tempfile::tempdir().unwrap();
        let places = CgroupPlaces {
            unified: Some((place.path().to_owned(), Controller::ALL.to_vec())),
            ..CgroupPlaces::default()
        };
        let mut group = JobCgroup::create(&places, "a").unwrap();
        let read = |name: &str| fs::read_to_string(place.path().join("a").join(name));
        let limits = Limits {
            memory: Some(tidemill_core::ByteSize::mib(64)),
            cpus: Some(tidemill_core::limits::CpuCount { thousandths: 1500 }),
            pids: 10,
            ..Limits::default()
        };
        group.begin(&limits).unwrap();
        assert_eq!(read("memory.max").unwrap(), "67108864");
        assert_eq!(read("cpu.max").unwrap(), "150000 100000");
        // The warden and process 1 are in it too.
        assert_eq!(read("pids.max").unwrap(), "12");
        group.end();
        assert_eq!(read("memory.max").unwrap(), "max");
        assert_eq!(read("cpu.max").unwrap(), "max 100000");
        fs::remove_file(place.path().join("a/pids.max")).unwrap();
        group.begin(&limits).unwrap();
        assert_eq!(read("memory.max").unwrap(), "67108864");
        assert!(read("pids.max").is_err(), "it was not another one");
        assert!(!group.is_spoiled);
    }
}
