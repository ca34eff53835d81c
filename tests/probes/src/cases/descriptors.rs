//! What is open at the start, and where one stands: hostile cases 22 to 24, 26, 43 and 46.

use std::env;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};

use crate::sys::{self, call};
use crate::verdict::{Findings, Verdict, errno_name};

pub(crate) fn leaked_descriptors() -> Verdict {
    let mut findings = Findings::new();
    // Asked by number: what lists them would be one of them.
    for descriptor in 0..4096 {
        if call!(libc::SYS_fcntl, descriptor, libc::F_GETFD).is_err() {
            continue;
        }
        let path = format!("/proc/self/fd/{descriptor}");
        let target = fs::read_link(&path).unwrap_or_default();
        let shown = format!("{descriptor} is {}", target.display());
        let kind = fs::metadata(&path).map(|found| found.file_type());
        let is_odd =
            kind.is_ok_and(|kind| kind.is_dir() || kind.is_block_device() || kind.is_socket());
        findings.unless(descriptor > 2 || is_odd, shown);
    }
    findings.held("only 0, 1 and 2 are open");
    findings.verdict()
}

pub(crate) fn working_directory() -> Verdict {
    let mut findings = Findings::new();
    let mut buffer = [0_u8; 4096];
    match call!(libc::SYS_getcwd, &mut buffer, 4096) {
        Err(error) => findings.hole(format!("the working directory is nowhere: {error}")),
        Ok(_) => {
            let text = String::from_utf8_lossy(&buffer);
            let path = text.split('\0').next().unwrap_or_default().to_owned();
            findings.unless(!path.starts_with('/'), format!("it is outside: {path}"));
            let by_path = fs::metadata(&path).map(|found| (found.dev(), found.ino()));
            let by_place = fs::metadata(".").map(|found| (found.dev(), found.ino()));
            let is_same = by_path.ok() == by_place.ok();
            findings.unless(!is_same, format!("it is not what {path} is"));
            findings.held(format!("it is {path}"));
        }
    }
    findings.verdict()
}

/// Mount and inode: what no other directory has.
fn identity_of(directory: &File) -> io::Result<(u64, u64, u64)> {
    const MOUNT_ID: i32 = 0x1000;
    let mut found = [0_u64; 32];
    let (place, flags) = (directory.as_raw_fd(), libc::AT_EMPTY_PATH);
    call!(
        libc::SYS_statx,
        place,
        c"",
        flags,
        MOUNT_ID | 0x7ff,
        &mut found
    )?;
    // In `struct statx`, the inode is the fifth word, the device the eighteenth, the mount the next.
    Ok((found[4], found[17], found[18]))
}

pub(crate) fn parent_walk() -> Verdict {
    const STEPS_MAX: usize = 200;
    let mut findings = Findings::new();
    let Ok(root) = File::open("/").and_then(|root| identity_of(&root)) else {
        return Verdict::Absent("the root directory cannot be opened".to_owned());
    };
    let mut starts = vec![".".to_owned()];
    let mut places: Vec<String> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.parse::<u32>().is_ok())
        .flat_map(|pid| ["root", "cwd"].map(|place| format!("/proc/{pid}/{place}")))
        .collect();
    starts.append(&mut places);
    let own = (0..1024).map(|descriptor| format!("/proc/self/fd/{descriptor}"));
    starts.extend(own);
    let mut walked = 0;
    for start in starts {
        let Ok(mut place) = File::open(&start) else {
            continue;
        };
        if !place.metadata().is_ok_and(|found| found.is_dir()) {
            continue;
        }
        walked += 1;
        for _ in 0..STEPS_MAX {
            let above = format!("/proc/self/fd/{}/..", place.as_raw_fd());
            let Ok(above) = File::open(above) else {
                break;
            };
            let is_top = identity_of(&above).ok() == identity_of(&place).ok();
            place = above;
            if is_top {
                break;
            }
        }
        let top = identity_of(&place).ok();
        findings.unless(top != Some(root), format!("{start} leads to another root"));
    }
    findings.held(format!("{walked} directories lead to this root"));
    findings.verdict()
}

/// A program whose interpreter is whatever runs: `probe self-interpreter SCRIPT` is what it must be.
pub(crate) fn self_interpreter() -> Verdict {
    let mut findings = Findings::new();
    for interpreter in ["/proc/self/exe", "/proc/self/fd/0", "/proc/1/exe"] {
        let script = "/tmp/interpreted-by-itself";
        let text = format!("#!{interpreter} interpreted\n");
        let made = fs::write(script, text)
            .and_then(|()| fs::set_permissions(script, Permissions::from_mode(0o755)));
        if let Err(error) = made {
            findings.absent(format!("no script can be made: {error}"));
            continue;
        }
        let output = Command::new(script).stdin(Stdio::null()).output();
        match output {
            Err(error) => findings.held(format!("{interpreter}: {error}")),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                let first = said.lines().next().unwrap_or_default().to_owned();
                // The probe says who it is; a runtime's own binary would not.
                let is_own = first == "interpreted by the probe";
                let is_mine = interpreter == "/proc/self/exe" && is_own;
                if is_mine || said.is_empty() {
                    findings.held(format!("{interpreter}: {}", output.status));
                } else {
                    findings.hole(format!("{interpreter} runs: {first}"));
                }
            }
        }
        drop(fs::remove_file(script));
    }
    findings.verdict()
}

/// The most descriptors that one process may have, unless the test says otherwise.
const DESCRIPTORS_MAX: u64 = 65_536;

pub(crate) fn descriptor_bomb() -> Verdict {
    let mut findings = Findings::new();
    let Ok((_, hard)) = sys::limit(libc::RLIMIT_NOFILE) else {
        return Verdict::Absent("the limit cannot be read".to_owned());
    };
    let raised = sys::set_limit(libc::RLIMIT_NOFILE, hard + 1, hard + 1);
    findings.unless(
        raised.is_ok(),
        format!("the hard limit of {hard} can be raised"),
    );
    drop(sys::set_limit(libc::RLIMIT_NOFILE, hard, hard));
    let told = env::var("PROBE_BOUND").ok();
    let bound = told.and_then(|text| text.parse().ok());
    let bound: u64 = bound.unwrap_or(DESCRIPTORS_MAX);
    let mut open = 0_u64;
    let last = loop {
        if open > bound {
            break None;
        }
        match call!(libc::SYS_dup, 0) {
            Ok(_) => open += 1,
            Err(error) => break error.raw_os_error(),
        }
    };
    match last {
        None => findings.hole(format!("{open} descriptors are open")),
        Some(errno) => findings.held(format!("{} after {open}", errno_name(errno))),
    }
    findings.verdict()
}

/// Limits that must not be infinite.
const FINITE: &[(&str, u32)] = &[
    ("processes", libc::RLIMIT_NPROC),
    ("open files", libc::RLIMIT_NOFILE),
    ("file size", libc::RLIMIT_FSIZE),
    ("core dumps", libc::RLIMIT_CORE),
    ("locked memory", libc::RLIMIT_MEMLOCK),
    ("message queues", libc::RLIMIT_MSGQUEUE),
    ("pending signals", libc::RLIMIT_SIGPENDING),
    ("priority", libc::RLIMIT_NICE),
    ("real-time priority", libc::RLIMIT_RTPRIO),
];

pub(crate) fn hard_limits() -> Verdict {
    let mut findings = Findings::new();
    for (name, resource) in FINITE {
        match sys::limit(*resource) {
            Ok((_, u64::MAX)) => findings.hole(format!("{name}: no limit")),
            Ok((_, hard)) => {
                let raised = sys::set_limit(*resource, hard, hard.saturating_add(1));
                findings.unless(raised.is_ok(), format!("{name}: raised above {hard}"));
                findings.held(format!("{name}: {hard}"));
            }
            Err(error) => findings.absent(format!("{name}: {error}")),
        }
    }
    findings.verdict()
}
