//! Control groups of one job: version 2 where its controllers are, version 1 where the host mounts
//! them there, both side by side where it must be.
//!
//! A host has a *place* per controller: a directory in which groups may be made. A job gets one
//! group in each place, all of one name, and they are removed when it has ended.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tidemill_core::Limits;

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
        let mounted = parse_mounts(&mounts);
        let groups = parse_own_groups(&own);
        if let Some(mount) = mounted.get("") {
            let directory = below(mount, groups.get("").map_or("/", String::as_str));
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
            let directory = below(
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

    /// The directories that the groups of a job of this name have.
    pub(crate) fn paths(&self, name: &str) -> Vec<PathBuf> {
        let unified = self.unified.iter().map(|(directory, _)| directory);
        unified
            .chain(self.legacy.values())
            .map(|place| place.join(group_name(name)))
            .collect()
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

/// The version 1 controllers and (under the empty name) version 2, each with its mount point.
fn parse_mounts(mountinfo: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = left.split(' ').nth(4) else {
            continue;
        };
        let mut fields = right.split(' ');
        match fields.next() {
            Some("cgroup2") => {
                found
                    .entry(String::new())
                    .or_insert_with(|| PathBuf::from(point));
            }
            Some("cgroup") => {
                for option in fields.nth(1).unwrap_or_default().split(',') {
                    found
                        .entry(option.to_owned())
                        .or_insert_with(|| PathBuf::from(point));
                }
            }
            _ => {}
        }
    }
    found
}

/// The group of this process per version 1 controller, and (under the empty name) in version 2.
fn parse_own_groups(text: &str) -> BTreeMap<String, String> {
    let mut groups = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        for controller in controllers.split(',') {
            groups.insert(controller.to_owned(), path.to_owned());
        }
    }
    groups
}

fn below(mount: &Path, group: &str) -> PathBuf {
    let relative = group.trim_start_matches('/');
    // A path with `..` lies outside of this cgroup namespace's root.
    if relative.is_empty() || relative.starts_with("..") {
        mount.to_owned()
    } else {
        mount.join(relative)
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

/// The groups of one job. Dropping it removes them.
#[derive(Debug)]
pub(crate) struct JobCgroup {
    unified: Option<PathBuf>,
    legacy: BTreeMap<Controller, PathBuf>,
    controllers: Vec<Controller>,
}

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
    /// Makes the groups and sets the limits.
    ///
    /// # Errors
    /// The path that could not be made or written, and why.
    pub(crate) fn create(
        places: &CgroupPlaces,
        name: &str,
        limits: &Limits,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let mut group = Self {
            unified: None,
            legacy: BTreeMap::new(),
            controllers: Vec::new(),
        };
        let leaf = group_name(name);
        if let Some((directory, controllers)) = &places.unified {
            let path = directory.join(&leaf);
            fs::create_dir(&path).map_err(|error| (path.clone(), error))?;
            group.unified = Some(path.clone());
            for controller in controllers {
                set_unified(&path, *controller, limits)?;
                group.controllers.push(*controller);
            }
        }
        for (controller, directory) in &places.legacy {
            let path = directory.join(&leaf);
            fs::create_dir(&path).map_err(|error| (path.clone(), error))?;
            group.legacy.insert(*controller, path.clone());
            set_legacy(&path, *controller, limits)?;
            group.controllers.push(*controller);
        }
        Ok(group)
    }

    /// The directories, for the note that a later sweep reads.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.unified
            .iter()
            .chain(self.legacy.values())
            .cloned()
            .collect()
    }

    /// True if this controller bounds the job.
    pub(crate) fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// Puts a process into all groups.
    ///
    /// # Errors
    /// The file that could not be written, and why.
    pub(crate) fn add(&self, pid: i32) -> Result<(), (PathBuf, io::Error)> {
        for directory in self.unified.iter().chain(self.legacy.values()) {
            write(&directory.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// What was counted so far.
    pub(crate) fn figures(&self) -> CgroupFigures {
        let mut figures = CgroupFigures::default();
        let number = |path: &Path| {
            fs::read_to_string(path)
                .ok()
                .and_then(|t| t.trim().parse().ok())
        };
        if let Some(path) = &self.unified {
            if self.controllers.contains(&Controller::Memory) {
                figures.peak_memory_bytes = number(&path.join("memory.peak"));
                figures.oom_kills = field(&path.join("memory.events"), "oom_kill");
            }
            figures.peak_pids = number(&path.join("pids.peak")).map(without_the_first);
            figures.pids_refused = field(&path.join("pids.events"), "max");
        }
        if let Some(path) = self.legacy.get(&Controller::Memory) {
            figures.peak_memory_bytes = number(&path.join("memory.max_usage_in_bytes"));
            figures.oom_kills = field(&path.join("memory.oom_control"), "oom_kill");
        }
        if let Some(path) = self.legacy.get(&Controller::Pids) {
            figures.peak_pids = number(&path.join("pids.peak")).map(without_the_first);
            figures.pids_refused = field(&path.join("pids.events"), "max");
        }
        figures
    }

    /// The path of the memory group as the kernel log names it.
    pub(crate) fn memory_group_name(&self) -> Option<String> {
        self.legacy
            .get(&Controller::Memory)
            .or(self.unified.as_ref())
            .and_then(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
    }

    /// Ends every process in the group at once, where the kernel can (version 2, Linux 5.14).
    pub(crate) fn kill(&self) {
        if let Some(path) = &self.unified {
            // Where the file does not exist, the end of the pid namespace does the same.
            fs::write(path.join("cgroup.kill"), "1").ok();
        }
    }
}

impl Drop for JobCgroup {
    fn drop(&mut self) {
        for path in self.paths() {
            if let Err(error) = remove_group(&path) {
                tracing::warn!(path = %path.display(), %error, "cgroup was not removed");
            }
        }
    }
}

/// The directory name of a job's groups.
pub(crate) fn group_name(name: &str) -> String {
    format!("tidemill-{name}")
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

fn field(path: &Path, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// The scheduling period of a CPU quota, in microseconds: the kernel's default.
const CPU_PERIOD_MICROS: u64 = 100_000;

fn quota(limits: &Limits) -> Option<u64> {
    limits
        .cpus
        .map(|cpus| u64::from(cpus.thousandths) * CPU_PERIOD_MICROS / 1000)
}

fn set_unified(
    path: &Path,
    controller: Controller,
    limits: &Limits,
) -> Result<(), (PathBuf, io::Error)> {
    match controller {
        Controller::Memory => {
            if let Some(memory) = limits.memory {
                write(&path.join("memory.max"), &memory.0.to_string())?;
                // Not memory.oom.group: process 1 is in the group too, and has to live to tell; and a
                // job whose child was ended may go on and say so, as under version 1.
                let swap = path.join("memory.swap.max");
                if swap.exists() {
                    write(&swap, "0")?;
                }
            }
        }
        Controller::Pids => write(&path.join("pids.max"), &pids_with_the_first(limits))?,
        Controller::Cpu => {
            if let Some(quota) = quota(limits) {
                write(
                    &path.join("cpu.max"),
                    &format!("{quota} {CPU_PERIOD_MICROS}"),
                )?;
            }
        }
    }
    Ok(())
}

/// Process 1 is in the job's groups and none of the job's processes. More than 2^22 processes are
/// nowhere, and the kernel refuses to be asked for them.
fn pids_with_the_first(limits: &Limits) -> String {
    (u64::from(limits.pids) + 1).min(1 << 22).to_string()
}

const fn without_the_first(count: u64) -> u64 {
    count.saturating_sub(1)
}

fn set_legacy(
    path: &Path,
    controller: Controller,
    limits: &Limits,
) -> Result<(), (PathBuf, io::Error)> {
    match controller {
        Controller::Memory => {
            if let Some(memory) = limits.memory {
                write(&path.join("memory.limit_in_bytes"), &memory.0.to_string())?;
                let with_swap = path.join("memory.memsw.limit_in_bytes");
                if with_swap.exists() {
                    write(&with_swap, &memory.0.to_string())?;
                }
            }
        }
        Controller::Pids => write(&path.join("pids.max"), &pids_with_the_first(limits))?,
        Controller::Cpu => {
            if let Some(quota) = quota(limits) {
                write(
                    &path.join("cpu.cfs_period_us"),
                    &CPU_PERIOD_MICROS.to_string(),
                )?;
                write(&path.join("cpu.cfs_quota_us"), &quota.max(1000).to_string())?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_both_versions_are_told_apart() {
        let text = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw\n\
                    27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let found = parse_mounts(text);
        assert_eq!(
            found.get(""),
            Some(&PathBuf::from("/sys/fs/cgroup/unified"))
        );
        assert_eq!(
            found.get("cpu"),
            Some(&PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(found.get("memory"), None);
    }

    #[test]
    fn own_groups_are_read_per_controller() {
        let groups = parse_own_groups("4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user.slice\n");
        assert_eq!(groups.get("memory").map(String::as_str), Some("/a/b"));
        assert_eq!(groups.get("cpuacct").map(String::as_str), Some("/"));
        assert_eq!(groups.get("").map(String::as_str), Some("/user.slice"));
        assert_eq!(below(Path::new("/m"), "/../x"), PathBuf::from("/m"));
    }
}
