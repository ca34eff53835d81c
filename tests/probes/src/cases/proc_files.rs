//! What /proc and /sys tell and let change: hostile cases 15, 17 to 19 and 25.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::bait;
use crate::sys::call;
use crate::verdict::{Findings, Verdict};

/// Entries of /proc that show the inside of the kernel or of the host.
const TELLING: &[&str] = &[
    "buddyinfo",
    "config.gz",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "modules",
    "mtrr",
    "pagetypeinfo",
    "sched_debug",
    "schedstat",
    "slabinfo",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
    "zoneinfo",
    "interrupts",
];

pub(crate) fn proc_read() -> Verdict {
    let mut findings = Findings::new();
    for name in TELLING {
        let path = format!("/proc/{name}");
        match first_bytes(&path) {
            Ok(0) => findings.held(format!("{path} is empty")),
            Ok(_) => findings.hole(format!("{path} can be read")),
            // Nothing new to read, and it was opened.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                findings.hole(format!("{path} can be read"));
            }
            Err(_) => findings.held(format!("{path} cannot be read")),
        }
    }
    for directory in ["/proc/acpi", "/proc/scsi", "/proc/driver", "/proc/asound"] {
        let entries = fs::read_dir(directory).map_or(0, Iterator::count);
        findings.unless(entries > 0, format!("{directory} has {entries} entries"));
    }
    findings.attempt("the kernel's log", || {
        const READ_ALL: i32 = 3;
        let mut buffer = [0_u8; 256];
        call!(libc::SYS_syslog, READ_ALL, &mut buffer, 256).map(drop)
    });
    findings.verdict()
}

fn first_bytes(path: &str) -> io::Result<usize> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let mut buffer = [0; 64];
    options.open(path)?.read(&mut buffer)
}

/// Directories of /proc that are searched for files that open for writing.
const CHANGING: &[&str] = &[
    "sys",
    "fs",
    "irq",
    "bus",
    "tty",
    "acpi",
    "driver",
    "scsi",
    "dynamic_debug",
];

pub(crate) fn proc_write() -> Verdict {
    let mut findings = Findings::new();
    let mut files = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            files.push(entry.path());
        }
    }
    for directory in CHANGING {
        files.extend(files_below(&Path::new("/proc").join(directory)));
    }
    let count = files.len();
    for path in files {
        // Nothing is written: that it opens is the answer.
        if OpenOptions::new().write(true).open(&path).is_ok() {
            findings.hole(format!("{} opens for writing", path.display()));
        }
    }
    findings.held(format!("none of {count} files opens for writing"));
    findings.verdict()
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => waiting.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}

/// Places of /sys that no job may change, or see at all.
const SYS_PLACES: &[&str] = &[
    "/sys/kernel/debug",
    "/sys/kernel/tracing",
    "/sys/kernel/security",
    "/sys/firmware",
    "/sys/fs/bpf",
    "/sys/fs/cgroup",
    "/sys/module",
    "/sys/block",
    "/sys/devices",
    "/sys/class/dmi/id",
];

/// Files of /sys that change the host when written.
const SYS_SWITCHES: &[&str] = &[
    "/sys/kernel/uevent_helper",
    "/sys/power/state",
    "/sys/fs/cgroup/cgroup.procs",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/ksm/run",
    "/sys/fs/cgroup/memory/release_agent",
];

pub(crate) fn sys_tree() -> Verdict {
    let mut findings = Findings::new();
    for place in SYS_PLACES {
        if fs::read_dir(place).map_or(0, Iterator::count) > 0 {
            findings.hole(format!("{place} is visible"));
        } else {
            findings.held(format!("{place} is not visible"));
        }
    }
    for switch in SYS_SWITCHES {
        if OpenOptions::new().write(true).open(switch).is_ok() {
            findings.hole(format!("{switch} opens for writing"));
        }
    }
    findings.verdict()
}

/// The processes that belong to the sandbox and not to the job: the first one, and the parent.
fn keepers() -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let parent = std::os::unix::process::parent_id().cast_signed();
    let mut keepers = vec![1, parent];
    keepers.dedup();
    keepers.retain(|pid| *pid > 0 && *pid != own);
    keepers
}

pub(crate) fn keeper_files() -> Verdict {
    let mut findings = Findings::new();
    let root = fs::metadata("/")
        .map(|found| (found.dev(), found.ino()))
        .ok();
    for pid in keepers() {
        let program = format!("/proc/{pid}/exe");
        match OpenOptions::new().write(true).open(&program) {
            Err(error) if error.raw_os_error() != Some(libc::ETXTBSY) => {
                findings.held(format!("{program}: {error}"));
            }
            // Busy means that it runs, and was refused for nothing else.
            _ => findings.hole(format!("{program} opens for writing")),
        }
        for place in ["root", "cwd"] {
            let path = format!("/proc/{pid}/{place}");
            if let Ok(found) = fs::metadata(&path) {
                let leads_out = place == "root" && Some((found.dev(), found.ino())) != root;
                findings.unless(leads_out, format!("{path} leads to another root"));
            }
        }
        if let Ok(variables) = fs::read(format!("/proc/{pid}/environ")) {
            let text = String::from_utf8_lossy(&variables).into_owned();
            let has_secret = text.contains(bait::LAUNCHER_SECRET);
            findings.unless(has_secret, format!("/proc/{pid}/environ has a secret"));
        }
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let path = entry.path();
            let is_directory = fs::metadata(&path).is_ok_and(|found| found.is_dir());
            findings.unless(is_directory, format!("{} is a directory", path.display()));
        }
        findings.attempt(&format!("/proc/{pid}/mem"), || {
            File::open(format!("/proc/{pid}/mem")).map(drop)
        });
    }
    findings.verdict()
}

pub(crate) fn trace_keepers() -> Verdict {
    let mut findings = Findings::new();
    if keepers().is_empty() {
        return Verdict::Absent("there is no process but this one".to_owned());
    }
    for pid in keepers() {
        findings.attempt(&format!("tracing {pid}"), || {
            // It does not stop.
            const SEIZE: i32 = 0x4206;
            call!(libc::SYS_ptrace, SEIZE, pid, 0, 0).map(drop)
        });
        findings.attempt(&format!("reading the memory of {pid}"), || {
            let from = first_mapping(pid)?;
            let mut buffer = [0_u8; 8];
            let here = [buffer.as_mut_ptr().expose_provenance(), 8];
            call!(libc::SYS_process_vm_readv, pid, &here, 1, &[from, 8], 1, 0).map(drop)
        });
        findings.attempt(&format!("a descriptor of {pid}"), || {
            let process = call!(libc::SYS_pidfd_open, pid, 0)?;
            let taken = |number: i32| call!(libc::SYS_pidfd_getfd, process, number, 0);
            let mut last = Err(io::Error::from_raw_os_error(libc::EBADF));
            for number in 0..16 {
                last = taken(number);
                if last.is_ok() {
                    break;
                }
            }
            last.map(drop)
        });
        findings.attempt(&format!("advice on the memory of {pid}"), || {
            const COLD: i32 = 20;
            let process = call!(libc::SYS_pidfd_open, pid, 0)?;
            let from = first_mapping(pid).unwrap_or(0x1000);
            call!(
                libc::SYS_process_madvise,
                process,
                &[from, 4096],
                1,
                COLD,
                0
            )
            .map(drop)
        });
        findings.attempt(&format!("the limits of {pid}"), || {
            let mut limits = [0_u64; 2];
            call!(
                libc::SYS_prlimit64,
                pid,
                libc::RLIMIT_NOFILE,
                0,
                &mut limits
            )
            .map(drop)
        });
    }
    findings.verdict()
}

/// Where the first readable part of a process's memory begins.
fn first_mapping(pid: i32) -> io::Result<usize> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let line = text.lines().find(|line| line.contains(" r"));
    let start = line.and_then(|line| line.split('-').next());
    let start = start.and_then(|start| usize::from_str_radix(start, 16).ok());
    start.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}
