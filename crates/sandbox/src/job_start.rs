//! From process 1 to the job: a process of its own that goes behind every wall and becomes the program.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use tidemill_core::grant::PathAccess;
use tidemill_core::root::Allow;
use tidemill_core::{Limits, RootPlan};

use crate::landlock_wall;
use crate::request::{StartError, Stdio, Work};
use crate::rootfs::{Step, StepError};
use crate::seccomp::{Filter, FilterKind, SetId};
use crate::sys::mount::open_in_root;
use crate::sys::{process, socket, terminal};

/// The largest file, in bytes. The private layer's own bound is lower, and is told by ENOSPC.
const FILE_BYTES_MAX: u64 = 1 << 40;

/// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID and SETUID, see capabilities(7). Not
/// DAC_READ_SEARCH, which opens files by handle.
const ROOT_RIGHTS: u64 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7;

/// What the job's own process is bounded by, beside what the request says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walls {
    /// The user namespace forbids setgroups(2).
    pub(crate) denies_groups: bool,
    pub(crate) filter: FilterKind,
    /// Processes that count as the job user's and are none of the job's.
    pub(crate) spare: u64,
}

/// Starts the job and waits until its program was exec'd. Gives its pid, and the descriptor that tells
/// of refused calls.
pub(crate) fn start_job(
    root: &RootPlan,
    work: &Work,
    stdio: Stdio,
    walls: Walls,
) -> Result<(i32, Option<OwnedFd>), StartError> {
    let (ours, theirs) = socket::pair().step(|| "make a socket pair".to_owned())?;
    let mut live = || {
        let error = become_job((root, work), &stdio, walls, &theirs);
        let bytes = serde_json::to_vec(&error).unwrap_or_default();
        // If process 1 is gone, so is this process in a moment.
        socket::send(theirs.as_fd(), &bytes, &[]).ok();
        127
    };
    let pid = process::start_in_shared_memory(&mut live)
        .step(|| "start a process for the job".to_owned())?;
    // The other process changed its user, which may change this of the memory that both had.
    process::set_undumpable().step(|| "stay undumpable".to_owned())?;
    drop((theirs, stdio));
    let mut listener = None;
    // The other end is closed by exec.
    loop {
        let (answer, mut fds) = socket::receive(ours.as_fd(), true)
            .step(|| "wait for the program to start".to_owned())?;
        if answer.is_empty() {
            return Ok((pid, listener));
        }
        if let Some(fd) = fds.pop() {
            listener = Some(fd);
            continue;
        }
        return Err(
            serde_json::from_slice(&answer).unwrap_or_else(|_| StartError::Setup {
                step: "start the program".to_owned(),
                error: "the reason got lost".to_owned(),
            }),
        );
    }
}

/// Turns this process into the job. Returns only if that failed.
fn become_job(
    (root, work): (&RootPlan, &Work),
    stdio: &Stdio,
    walls: Walls,
    init: &OwnedFd,
) -> StartError {
    match wall_in((root, work), stdio, walls, init) {
        Ok(()) => execute(work),
        Err(error) => error,
    }
}

fn wall_in(
    (root, work): (&RootPlan, &Work),
    stdio: &Stdio,
    walls: Walls,
    init: &OwnedFd,
) -> Result<(), StartError> {
    let user = root.account.user;
    rustix::process::setsid().step(|| "lead a session".to_owned())?;
    let [stdin, stdout, stderr] =
        [&stdio.stdin, &stdio.stdout, &stdio.stderr].map(|fd| process::copy_up(fd.as_fd()));
    for (source, target) in [(stdin, 0), (stdout, 1), (stderr, 2)] {
        let source = source.step(|| format!("keep descriptor {target}"))?;
        process::duplicate_onto(source.as_fd(), target)
            .step(|| format!("set descriptor {target}"))?;
    }
    if work.tty {
        terminal::take_control(rustix::stdio::stdin())
            .step(|| "take the terminal as the controlling one".to_owned())?;
    }
    process::close_on_exec_from(3).step(|| "close what is not the job's".to_owned())?;
    process::restore_signals();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    limit(&work.limits, walls.spare)?;
    let kept = capabilities(root);
    process::shrink_bounding_set(kept).step(|| "shrink the bounding set".to_owned())?;
    let groups = (!walls.denies_groups).then_some(&*root.account.groups);
    process::become_user(user.uid, user.gid, groups)
        .step(|| format!("become user {} and group {}", user.uid, user.gid))?;
    enter(&work.workdir)?;
    if work.tty {
        reopen_terminal()?;
    }
    process::forbid_new_privileges().step(|| "forbid new privileges".to_owned())?;
    landlock_wall::build(root)?;
    process::keep_capabilities(kept).step(|| "drop capabilities".to_owned())?;
    let listener = Filter::of(walls.filter)
        .install()
        .step(|| "install the system call filter".to_owned())?;
    if let Some(listener) = listener {
        socket::send(init.as_fd(), b"listener", &[listener.as_fd()])
            .step(|| "hand over the listener for refused calls".to_owned())?;
    }
    Ok(())
}

/// The capabilities that a job keeps, by their numbers.
fn capabilities(root: &RootPlan) -> u64 {
    if root.allow.contains(&Allow::RootRights) && root.account.user.uid == 0 {
        ROOT_RIGHTS
    } else {
        0
    }
}

/// Which filter a job has. `is_measured` tells that nothing but measuring bounds its private layer,
/// `owns_groups` that its control groups are the caller's.
pub(crate) fn filter_kind(root: &RootPlan, is_measured: bool, owns_groups: bool) -> FilterKind {
    let set_id = if (root.mounts.iter()).any(|mount| mount.access == PathAccess::Write) {
        SetId::None
    } else if root.account.user.uid == 0 {
        SetId::All
    } else {
        SetId::Group
    };
    FilterKind {
        set_id,
        is_measured,
        user_namespaces: root.allow.contains(&Allow::UserNamespaces)
            || root.allow.contains(&Allow::Fuse),
        owns_groups,
    }
}

/// Opens the terminal again by its name inside, where there is one: through the descriptor that came
/// from outside, a job could not open `/dev/stderr`, since its path is not below the job's root.
fn reopen_terminal() -> Result<(), StepError> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let Ok(terminal) = rustix::fs::open("/dev/console", flags, Mode::empty()) else {
        return Ok(());
    };
    for target in 0..=2 {
        process::duplicate_onto(terminal.as_fd(), target)
            .step(|| format!("set descriptor {target} to the terminal"))?;
    }
    Ok(())
}

/// Finite limits per process, whatever the launcher inherited.
fn limit(limits: &Limits, spare: u64) -> Result<(), StepError> {
    let open_files = u64::from(limits.open_files);
    let pids = u64::from(limits.pids) + spare;
    let table = [
        (libc::RLIMIT_NOFILE, open_files, open_files, "open files"),
        // Counted per user and user namespace (Linux 5.14), so it is the job's own count.
        (libc::RLIMIT_NPROC, pids, pids, "processes"),
        // Not 0, which a kernel that pipes core dumps to a program of the host takes for no limit; with
        // 1 it makes none at all, see core(5).
        (libc::RLIMIT_CORE, 1, 1, "core dumps"),
        (libc::RLIMIT_MEMLOCK, 8 << 20, 8 << 20, "locked memory"),
        (libc::RLIMIT_MSGQUEUE, 819_200, 819_200, "message queues"),
        (libc::RLIMIT_SIGPENDING, 4096, 4096, "pending signals"),
        (
            libc::RLIMIT_FSIZE,
            FILE_BYTES_MAX,
            FILE_BYTES_MAX,
            "file size",
        ),
        (libc::RLIMIT_NICE, 0, 0, "priority"),
        (libc::RLIMIT_RTPRIO, 0, 0, "real-time priority"),
        (libc::RLIMIT_STACK, 8 << 20, libc::RLIM_INFINITY, "stack"),
    ];
    for (resource, soft, hard, name) in table {
        let hard = hard.max(soft);
        process::limit_resource(resource, soft, hard).step(|| format!("limit {name}"))?;
    }
    Ok(())
}

/// Makes a directory inside the current one. Magic links, which lead to open files of a process, are
/// refused; the root is the sandbox's, so that nothing leads out of it.
fn enter(workdir: &str) -> Result<(), StartError> {
    let wrong = |error: io::Error| StartError::BadWorkdir {
        workdir: workdir.to_owned(),
        error: match error.raw_os_error() {
            Some(libc::ENOTDIR) => "it is not a directory".to_owned(),
            Some(libc::ENOENT) => "it does not exist in the sandbox".to_owned(),
            Some(libc::ELOOP) => "it leads through links that go round or out".to_owned(),
            _ => error.to_string(),
        },
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty()).map_err(|error| wrong(error.into()))?;
    let directory = open_in_root(
        root.as_fd(),
        workdir,
        libc::O_PATH | libc::O_DIRECTORY,
        0,
        false,
    )
    .map_err(wrong)?;
    rustix::process::fchdir(&directory).map_err(|error| wrong(error.into()))
}

fn execute(work: &Work) -> StartError {
    let not_found = |searched: Option<String>| StartError::ProgramNotFound {
        program: work.program.clone(),
        searched,
    };
    let not_executable = |error: &io::Error| StartError::ProgramNotExecutable {
        program: work.program.clone(),
        error: error.to_string(),
    };
    let text = |part: &str| CString::new(part).unwrap_or_default();
    let arguments: Vec<CString> = std::iter::once(&work.program)
        .chain(&work.args)
        .map(|part| text(part))
        .collect();
    let environment: Vec<CString> = work
        .env
        .iter()
        .map(|(name, value)| text(&format!("{name}={value}")))
        .collect();
    if work.program.contains('/') {
        let error = process::execute(&text(&work.program), &arguments, &environment);
        return match error.raw_os_error() {
            Some(libc::ENOENT) if fs::symlink_metadata(&work.program).is_ok() => {
                StartError::ProgramNotExecutable {
                    program: work.program.clone(),
                    error: "it is there, but its interpreter or loader is not".to_owned(),
                }
            }
            Some(libc::ENOENT | libc::ENOTDIR) => not_found(None),
            _ => not_executable(&error),
        };
    }
    let path = work
        .env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map_or("", |(_, value)| value);
    let mut refused = None;
    for directory in path.split(':').filter(|directory| !directory.is_empty()) {
        let candidate = format!("{directory}/{}", work.program);
        let error = process::execute(&text(&candidate), &arguments, &environment);
        match error.raw_os_error() {
            Some(libc::ENOENT) if fs::symlink_metadata(&candidate).is_ok() => {
                refused = refused.or(Some(io::Error::other(format!(
                    "{candidate} is there, but its interpreter or loader is not"
                ))));
            }
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            // A directory of PATH that is closed to the job says nothing about the program.
            Some(libc::EACCES) if fs::symlink_metadata(&candidate).is_err() => {}
            _ => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) => not_executable(&error),
        None => not_found(Some(path.to_owned())),
    }
}
