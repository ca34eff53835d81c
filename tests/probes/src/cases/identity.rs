//! Who the process is, and what it could become: hostile cases 1 to 8.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::attempt::{Answer, attempt};
use crate::sys::{self, call};
use crate::verdict::{Findings, Verdict, errno_name};

/// Flags of clone and unshare that make a namespace, but for the user's.
const NAMESPACES: &[(&str, i32)] = &[
    ("mount", libc::CLONE_NEWNS),
    ("uts", libc::CLONE_NEWUTS),
    ("ipc", libc::CLONE_NEWIPC),
    ("network", libc::CLONE_NEWNET),
    ("pid", libc::CLONE_NEWPID),
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("time", libc::CLONE_NEWTIME),
];

/// The names of the files in /proc/PID/ns.
const NAMESPACE_FILES: &[&str] = &["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];

/// Where programs with set-id bits lie.
const PROGRAM_DIRECTORIES: &[&str] = &[
    "/bin",
    "/sbin",
    "/usr/bin",
    "/usr/sbin",
    "/usr/libexec",
    "/usr/lib/openssh",
    "/usr/lib/dbus-1.0",
    "/usr/local/bin",
];

/// `ST_NOSUID` of statfs.
const NOSUID: u64 = 2;

fn status_lines() -> BTreeMap<String, String> {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

pub(crate) fn state() -> Verdict {
    let mut findings = Findings::new();
    let status = status_lines();
    let of = |name: &str| status.get(name).map_or("unknown", String::as_str);
    findings.unless(of("NoNewPrivs") != "1", "privileges can be gained by exec");
    findings.unless(of("Seccomp") != "2", "there is no system call filter");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let is_empty = u64::from_str_radix(of(set), 16) == Ok(0);
        findings.unless(!is_empty, format!("{set} is {}", of(set)));
    }
    let securebits = call!(libc::SYS_prctl, libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    findings.unless(!matches!(securebits, Ok(1)), "no_new_privs is off");
    findings.held("no new privileges, filtered, without capabilities");
    findings.verdict()
}

pub(crate) fn host_root() -> Verdict {
    let mut findings = Findings::new();
    for path in ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"] {
        match fs::metadata(path) {
            Ok(found) if found.uid() == sys::effective_user() => {
                findings.hole(format!("{path} belongs to this process"));
            }
            Ok(_) => findings.held(format!("{path} belongs to somebody else")),
            Err(_) => findings.absent(format!("{path} is not there")),
        }
    }
    findings.verdict()
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

pub(crate) fn set_id_programs() -> Verdict {
    let mut findings = Findings::new();
    let can_gain = status_lines().get("NoNewPrivs").map(String::as_str) != Some("1");
    let mut seen = 0;
    for directory in PROGRAM_DIRECTORIES {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(found) = fs::symlink_metadata(&path) else {
                continue;
            };
            let has_capabilities = call!(
                libc::SYS_lgetxattr,
                c_path(&path).as_c_str(),
                c"security.capability",
                0,
                0
            )
            .is_ok();
            let has_bits = found.permissions().mode() & 0o6000 != 0;
            if !found.is_file() || !(has_bits || has_capabilities) {
                continue;
            }
            seen += 1;
            let is_plain = sys::mount_flags(&c_path(&path)).is_ok_and(|flags| flags & NOSUID != 0);
            let name = path.display();
            findings.unless(!is_plain, format!("{name} is on a mount without nosuid"));
            findings.unless(can_gain, format!("{name} gives privileges by exec"));
        }
    }
    findings.held(format!("{seen} programs with privileges, none effective"));
    findings.verdict()
}

/// One way to a file with these mode bits.
type Way = fn(&CStr, u32) -> std::io::Result<()>;

const WAYS_TO_A_MODE: &[(&str, Way)] = &[
    ("open", |path, mode| {
        let flags = libc::O_CREAT | libc::O_WRONLY;
        call!(libc::SYS_open, path, flags, mode).map(drop)
    }),
    ("openat", |path, mode| {
        let flags = libc::O_CREAT | libc::O_WRONLY;
        call!(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode).map(drop)
    }),
    ("openat2", |path, mode| {
        let flags = (libc::O_CREAT | libc::O_WRONLY).cast_unsigned();
        let how = [u64::from(flags), u64::from(mode), 0];
        call!(libc::SYS_openat2, libc::AT_FDCWD, path, &how, 24).map(drop)
    }),
    ("creat", |path, mode| {
        call!(libc::SYS_creat, path, mode).map(drop)
    }),
    ("mknod", |path, mode| {
        call!(libc::SYS_mknod, path, mode | libc::S_IFREG, 0).map(drop)
    }),
    ("mknodat", |path, mode| {
        let mode = mode | libc::S_IFREG;
        call!(libc::SYS_mknodat, libc::AT_FDCWD, path, mode, 0).map(drop)
    }),
    ("tmpfile", |path, mode| {
        let flags = libc::O_TMPFILE | libc::O_WRONLY;
        let file = call!(libc::SYS_openat, libc::AT_FDCWD, c".", flags, mode)?;
        let follow = libc::AT_EMPTY_PATH;
        let from = CString::new(format!("/proc/self/fd/{file}"))?;
        call!(libc::SYS_linkat, file, c"", libc::AT_FDCWD, path, follow)
            .or_else(|_| {
                let follow = libc::AT_SYMLINK_FOLLOW;
                let here = libc::AT_FDCWD;
                call!(libc::SYS_linkat, here, from.as_c_str(), here, path, follow)
            })
            .map(drop)
    }),
    ("chmod", |path, mode| {
        plain_file(path)?;
        call!(libc::SYS_chmod, path, mode).map(drop)
    }),
    ("fchmod", |path, mode| {
        let file = plain_file(path)?;
        call!(libc::SYS_fchmod, file.as_raw_fd(), mode).map(drop)
    }),
    ("fchmodat", |path, mode| {
        plain_file(path)?;
        call!(libc::SYS_fchmodat, libc::AT_FDCWD, path, mode).map(drop)
    }),
    ("fchmodat2", |path, mode| {
        plain_file(path)?;
        call!(libc::SYS_fchmodat2, libc::AT_FDCWD, path, mode, 0).map(drop)
    }),
    ("rename", |path, mode| {
        // The private layer may have such files; they must not come out of it.
        let other = c"/tmp/with-a-set-id-bit";
        call!(libc::SYS_creat, other, 0o755)?;
        call!(libc::SYS_chmod, other, mode)?;
        let moved = call!(libc::SYS_rename, other, path);
        moved
            .or_else(|_| call!(libc::SYS_link, other, path))
            .map(drop)
    }),
];

fn plain_file(path: &CStr) -> std::io::Result<File> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path.to_bytes()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o755);
    options.open(path)
}

pub(crate) fn set_id_files() -> Verdict {
    files_with(&[0o4000, 0o2000], |_| true)
}

/// What a private layer refuses: there the kind that has its mode in memory is as harmless as the file.
pub(crate) fn set_user_files() -> Verdict {
    files_with(&[0o4000], |way| way != "openat2")
}

fn files_with(bits: &[u32], is_tried: impl Fn(&str) -> bool) -> Verdict {
    let mut findings = Findings::new();
    if let Err(error) = fs::write("plain", "") {
        return Verdict::Absent(format!("the working directory cannot be written: {error}"));
    }
    for (name, way) in WAYS_TO_A_MODE.iter().filter(|(name, _)| is_tried(name)) {
        for &bit in bits {
            let file = PathBuf::from(format!("set-id-{name}-{bit:o}"));
            let path = c_path(&file);
            let answer = attempt(|| way(&path, 0o755 | bit));
            let mode = fs::symlink_metadata(&file).map_or(0, |found| found.mode());
            // Left behind on purpose: whoever gave the directory looks at it too.
            findings.unless(mode & bit != 0, format!("{name} makes a file with {bit:o}"));
            if let Answer::Refused(errno) = answer {
                findings.held(format!("{name} {bit:o}: {}", errno_name(errno)));
            }
        }
    }
    drop(fs::remove_file("/tmp/with-a-set-id-bit"));
    findings.verdict()
}

pub(crate) fn privileged_attributes() -> Verdict {
    let mut findings = Findings::new();
    // A file capability of version 2: CAP_NET_RAW, permitted and effective.
    let capability = [0x0200_0001_u32, 1 << 13, 0, 0, 0];
    for file in ["./attributes", "/tmp/attributes"] {
        if fs::write(file, "").is_err() {
            findings.absent(format!("{file} cannot be written"));
            continue;
        }
        let path = c_path(Path::new(file));
        for (name, bytes) in [
            (c"security.capability", 20),
            (c"security.probe", 4),
            (c"trusted.probe", 4),
            (c"trusted.overlay.opaque", 1),
        ] {
            let what = format!("{} on {file}", name.to_string_lossy());
            findings.attempt(&what, || {
                call!(
                    libc::SYS_setxattr,
                    path.as_c_str(),
                    name,
                    &capability,
                    bytes,
                    0
                )
                .map(drop)
            });
        }
        drop(fs::remove_file(file));
    }
    findings.verdict()
}

/// Makes a child by `clone` with these flags, and ends it.
fn clone(flags: i32) -> std::io::Result<()> {
    let pid = call!(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0)?;
    if pid == 0 {
        sys::exit_now(0);
    }
    sys::wait(i32::try_from(pid).unwrap_or(-1)).map(drop)
}

fn clone3(flags: i32) -> std::io::Result<()> {
    let flags = u64::from(flags.cast_unsigned());
    let signal = u64::from(libc::SIGCHLD.cast_unsigned());
    let arguments = [flags, 0, 0, 0, signal, 0, 0, 0, 0, 0, 0];
    let pid = call!(libc::SYS_clone3, &arguments, 88)?;
    if pid == 0 {
        sys::exit_now(0);
    }
    sys::wait(i32::try_from(pid).unwrap_or(-1)).map(drop)
}

fn unshare(flags: i32) -> std::io::Result<()> {
    call!(libc::SYS_unshare, flags).map(drop)
}

pub(crate) fn user_namespace() -> Verdict {
    let mut findings = Findings::new();
    let user = libc::CLONE_NEWUSER;
    findings.attempt("unshare", || unshare(user));
    findings.attempt("clone", || clone(user));
    match attempt(|| clone3(user)) {
        // The C library falls back to clone only from this one.
        Answer::Refused(libc::ENOSYS) => findings.held("clone3: ENOSYS"),
        other => findings.hole(format!("clone3 answers {other:?}")),
    }
    for (name, flag) in NAMESPACES {
        findings.attempt(&format!("unshare of user and {name}"), || {
            unshare(user | flag)
        });
    }
    findings.verdict()
}

pub(crate) fn other_namespaces() -> Verdict {
    let mut findings = Findings::new();
    for (name, flag) in NAMESPACES {
        findings.attempt(&format!("unshare {name}"), || unshare(*flag));
        if *flag != libc::CLONE_NEWTIME {
            // To clone, the bit of the time namespace is part of a signal's number.
            findings.attempt(&format!("clone {name}"), || clone(*flag));
        }
    }
    findings.verdict()
}

pub(crate) fn setns() -> Verdict {
    let mut findings = Findings::new();
    for process in ["self", "1"] {
        for name in NAMESPACE_FILES {
            let path = format!("/proc/{process}/ns/{name}");
            findings.attempt(&path, || {
                let file = File::open(&path)?;
                call!(libc::SYS_setns, file.as_raw_fd(), 0).map(drop)
            });
        }
    }
    findings.attempt("the namespaces of process 1", || {
        let process = call!(libc::SYS_pidfd_open, 1, 0)?;
        call!(libc::SYS_setns, process, libc::CLONE_NEWUTS).map(drop)
    });
    findings.verdict()
}

pub(crate) fn unshare_tool() -> Verdict {
    let mut findings = Findings::new();
    let quiet = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status()
    };
    for arguments in [
        &["-Ur", "true"][..],
        &["-Urn", "true"],
        &["-Urm", "mount", "-t", "tmpfs", "probe", "/mnt"],
        &["-m", "true"],
        &["-n", "true"],
    ] {
        let shown = format!("unshare {}", arguments.join(" "));
        match quiet(arguments) {
            Ok(status) if status.success() => findings.hole(shown),
            Ok(status) => findings.held(format!("{shown}: {status}")),
            Err(error) => findings.absent(format!("{shown}: {error}")),
        }
    }
    findings.verdict()
}
