//! Processes: clone with namespaces, wait, signals, credentials, limits, the walls of a job.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::{check, check_int};

/// What [`clone_process`] gave: in the parent the child's pid, in the child `Child`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cloned {
    /// We are the parent of this process.
    Parent(i32),
    /// We are the child.
    Child,
}

/// fork(2) with namespace flags. Only for a process with a single thread: the child goes on with a
/// copy of everything, and no lock can be held by a thread that is not there.
///
/// # Errors
/// `EPERM`, `ENOSPC` or `EUSERS` where the host forbids or has run out of namespaces.
pub(crate) fn clone_process(namespaces: i32) -> io::Result<Cloned> {
    debug_assert!(
        is_single_threaded(),
        "clone_process needs a process with one thread"
    );
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without CLONE_VM the child gets its own copy of the memory and continues on the same
    // stack, as with fork(2). The process has one thread, so no lock is left behind.
    match check(unsafe {
        libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize)
    })? {
        0 => Ok(Cloned::Child),
        pid => Ok(Cloned::Parent(i32::try_from(pid).unwrap_or(i32::MAX))),
    }
}

/// Starts a process that shares this one's memory, which stands still until the other one has exec'd or
/// ended: vfork(2) on a stack of its own. That saves the copy of the memory's tables, and the faults of
/// both sides afterwards. What `run` gives is the exit code; what it allocates stays allocated here.
///
/// # Errors
/// What mmap(2) and clone(2) answer.
pub(crate) fn start_in_shared_memory(mut run: &mut dyn FnMut() -> i32) -> io::Result<i32> {
    const STACK_BYTES: usize = 256 * 1024;
    extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: the argument is the closure of the caller, who stands still and keeps it alive.
        let run = unsafe { &mut *argument.cast::<&mut dyn FnMut() -> i32>() };
        run()
    }
    debug_assert!(
        is_single_threaded(),
        "no other thread may see memory change"
    );
    // SAFETY: a new mapping at a place that the kernel chooses.
    let stack = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            STACK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if stack == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the stack grows down from the end of the mapping, which is aligned to pages. With
    // CLONE_VFORK this process goes on only when the other one does not use the memory any more.
    let result = unsafe {
        libc::clone(
            enter,
            stack.byte_add(STACK_BYTES),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut run).cast(),
        )
    };
    let result = check_int(result);
    // SAFETY: nobody uses the stack any more.
    check_int(unsafe { libc::munmap(stack, STACK_BYTES) })?;
    result
}

fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").map_or(true, |tasks| tasks.count() <= 1)
}

/// Ends this process at once, without running any destructor.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) takes an integer and does not return.
    unsafe { libc::_exit(code) }
}

/// unshare(2).
///
/// # Errors
/// What the kernel answers.
pub(crate) fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: an integer only.
    check_int(unsafe { libc::unshare(flags) })?;
    Ok(())
}

/// A descriptor for a process that can be polled for its end, and signalled without a race.
///
/// # Errors
/// What pidfd_open(2) answers.
pub(crate) fn open_pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: integers only; the answer is a new descriptor.
    let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0_u32) })?;
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Signals a process by its descriptor.
///
/// # Errors
/// `ESRCH` if it has ended.
pub(crate) fn signal_pidfd(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: no siginfo is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0_u32,
        )
    })?;
    Ok(())
}

/// kill(2).
///
/// # Errors
/// What the kernel answers.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    // SAFETY: integers only.
    check_int(unsafe { libc::kill(pid, signal) })?;
    Ok(())
}

/// How a reaped process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reaped {
    pub(crate) pid: i32,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) core_dumped: bool,
}

/// Reaps one ended child. `None` if children are there but none has ended (only without blocking).
///
/// # Errors
/// `ECHILD` if there is none.
pub(crate) fn reap(pid: i32, block: bool) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid place for an int.
        let result =
            unsafe { libc::waitpid(pid, &raw mut status, if block { 0 } else { libc::WNOHANG }) };
        match check_int(result) {
            Ok(0) => return Ok(None),
            Ok(pid) => {
                return Ok(Some(Reaped {
                    pid,
                    exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
                    signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
                    core_dumped: libc::WIFSIGNALED(status) && libc::WCOREDUMP(status),
                }));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// CPU time (milliseconds, user and system) and the largest resident set (bytes) of all reaped
/// children and their reaped children.
pub(crate) fn children_usage() -> (u64, u64, u64) {
    // SAFETY: a zeroed rusage is a valid value, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let millis =
        |time: libc::timeval| u64::try_from(time.tv_sec * 1000 + time.tv_usec / 1000).unwrap_or(0);
    let resident = u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024;
    (millis(usage.ru_utime), millis(usage.ru_stime), resident)
}

fn prctl(option: i32, argument: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take integers only.
    check_int(unsafe { libc::prctl(option, argument, 0_u64, 0_u64, 0_u64) })?;
    Ok(())
}

/// Has the kernel kill this process when its parent ends.
///
/// # Errors
/// What prctl(2) answers.
pub(crate) fn die_with_parent() -> io::Result<()> {
    prctl(
        libc::PR_SET_PDEATHSIG,
        libc::c_ulong::from(libc::SIGKILL.cast_unsigned()),
    )
}

/// Makes memory and /proc entries of this process unreadable for others of its uid.
///
/// # Errors
/// What prctl(2) answers.
pub(crate) fn set_undumpable() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Names this process, for `ps` and for people.
pub(crate) fn set_name(name: &std::ffi::CStr) {
    // SAFETY: the name is NUL-terminated; the kernel copies at most 16 bytes.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr(), 0_u64, 0_u64, 0_u64);
    }
}

/// Sets no_new_privs: exec gives nothing that this process does not have.
///
/// # Errors
/// What prctl(2) answers.
pub(crate) fn forbid_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Takes all but these out of the capability bounding set, so that no program can bring any other back.
///
/// # Errors
/// What prctl(2) answers.
pub(crate) fn shrink_bounding_set(kept: u64) -> io::Result<()> {
    // Capability numbers are dense; the first that the kernel does not know ends the loop.
    for capability in (0..64_u64).filter(|capability| kept & (1 << capability) == 0) {
        match prctl(libc::PR_CAPBSET_DROP, capability) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the effective and the permitted capability set these, and empties the inheritable and (with it) the
/// ambient one.
///
/// # Errors
/// What capset(2) answers.
pub(crate) fn keep_capabilities(kept: u64) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    let header = Header {
        version: 0x2008_0522,
        pid: 0,
    };
    let part = |bits: u64| {
        let bits = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        Data {
            effective: bits,
            permitted: bits,
            inheritable: 0,
        }
    };
    let data = [part(kept), part(kept >> 32)];
    // SAFETY: version 3 of the header goes with two data structures of three u32 each.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })?;
    Ok(())
}

/// Becomes this user and group, with these supplementary groups. Without a list they stay what they are,
/// which is unmapped: so it is in a user namespace that forbids setgroups(2) (a single-id map).
///
/// # Errors
/// What the kernel answers.
pub(crate) fn become_user(uid: u32, gid: u32, groups: Option<&[u32]>) -> io::Result<()> {
    // The raw calls change this one thread, which is the only one.
    if let Some(groups) = groups {
        // SAFETY: a list of that length, which the kernel reads.
        check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) })?;
    }
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })?;
    Ok(())
}

/// Sets soft and hard limit of a resource, not above the present hard limit if that cannot be raised.
///
/// # Errors
/// What setrlimit(2) answers.
pub(crate) fn limit_resource(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let wanted = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: a valid structure.
    if unsafe { libc::setrlimit(resource, &raw const wanted) } == 0 {
        return Ok(());
    }
    let mut present = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: valid structures.
    check_int(unsafe { libc::getrlimit(resource, &raw mut present) })?;
    let lowered = libc::rlimit {
        rlim_cur: soft.min(present.rlim_max),
        rlim_max: hard.min(present.rlim_max),
    };
    // SAFETY: a valid structure.
    check_int(unsafe { libc::setrlimit(resource, &raw const lowered) })?;
    Ok(())
}

/// The CPUs that this process may run on.
///
/// # Errors
/// What sched_getaffinity(2) answers.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: a zeroed set is a valid value, and its size is told.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check_int(libc::sched_getaffinity(
            0,
            size_of::<libc::cpu_set_t>(),
            &raw mut set,
        ))?;
        Ok((0..libc::CPU_SETSIZE.cast_unsigned() as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect())
    }
}

/// Keeps this process and its children on these CPUs.
///
/// # Errors
/// What sched_setaffinity(2) answers.
pub(crate) fn keep_on_cpus(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: a zeroed set is a valid value; CPU_SET ignores numbers past its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for cpu in cpus {
            libc::CPU_SET(*cpu, &mut set);
        }
        check_int(libc::sched_setaffinity(
            0,
            size_of::<libc::cpu_set_t>(),
            &raw const set,
        ))?;
    }
    Ok(())
}

/// Marks every descriptor from `first` on to be closed by exec.
///
/// # Errors
/// What close_range(2) answers.
pub(crate) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: integers only.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 4_u32) })?;
    Ok(())
}

/// Closes every descriptor from `first` on.
///
/// # Errors
/// What close_range(2) answers.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: integers only; the caller knows that nothing in this process uses them.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0_u32) })?;
    Ok(())
}

/// Makes `target` a copy of `source`, without close-on-exec.
///
/// # Errors
/// What dup2(2) answers.
pub(crate) fn duplicate_onto(source: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
    if source.as_raw_fd() == target {
        // SAFETY: clears the flags of an open descriptor.
        check_int(unsafe { libc::fcntl(target, libc::F_SETFD, 0) })?;
        return Ok(());
    }
    // SAFETY: only 0, 1 and 2 are replaced, in a process that is about to exec.
    check_int(unsafe { libc::dup2(source.as_raw_fd(), target) })?;
    Ok(())
}

/// Puts /dev/null in the place of standard error.
///
/// # Errors
/// What open(2) and dup2(2) answer.
pub(crate) fn silence_stderr() -> io::Result<()> {
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    duplicate_onto(null.as_fd(), 2)
}

/// A copy of a descriptor above 9, so that 0, 1 and 2 can be replaced without losing it.
///
/// # Errors
/// What fcntl(2) answers.
pub(crate) fn copy_up(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: gives a new descriptor of the same file.
    let raw = check_int(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 10) })?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Every signal back to its default action, none blocked.
pub(crate) fn reset_signals() {
    // SAFETY: plain calls with valid structures; numbers that cannot be changed are refused harmlessly.
    unsafe {
        for number in 1..=64 {
            libc::signal(number, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Blocks SIGCHLD and gives a descriptor that becomes readable when a child ended.
///
/// # Errors
/// What signalfd(2) answers.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: valid structures; the answer is a new descriptor.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check_int(libc::sigprocmask(
            libc::SIG_BLOCK,
            &raw const set,
            std::ptr::null_mut(),
        ))?;
        let fd = check_int(libc::signalfd(
            -1,
            &raw const set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// SIGPIPE, and the signals that a terminal or a service manager sends to a whole group.
const GROUP_SIGNALS: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGPIPE,
    libc::SIGTTOU,
    libc::SIGTTIN,
    libc::SIGTSTP,
];

/// Ignores SIGPIPE and the signals that go to a whole group: they are for the process that owns this one.
pub(crate) fn ignore_group_signals() {
    for number in GROUP_SIGNALS {
        // SAFETY: ignoring a signal runs no code.
        unsafe {
            libc::signal(number, libc::SIG_IGN);
        }
    }
}

/// Takes back what [`ignore_group_signals`] did and unblocks all signals: what exec'd programs expect.
pub(crate) fn restore_signals() {
    // SAFETY: plain calls with valid structures.
    unsafe {
        for number in GROUP_SIGNALS {
            libc::signal(number, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Replaces this process. Returns only if that failed.
pub(crate) fn execute(path: &CString, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| {
        list.iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect::<Vec<_>>()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both lists end with a null pointer, all strings are NUL-terminated and outlive the call.
    unsafe {
        libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
    }
    io::Error::last_os_error()
}

/// Installs a seccomp filter program on this thread.
///
/// # Errors
/// What seccomp(2) answers.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    set_filter(program, 0).map(drop)
}

/// Installs a seccomp filter program on this thread, and gives the descriptor that tells of the calls
/// that wait for an answer.
///
/// # Errors
/// `EINVAL` if the kernel has no such notifications; what seccomp(2) answers.
pub(crate) fn install_listening_filter(program: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let listen = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // A signal does not interrupt a call that is being answered (Linux 5.19): programs do not expect it
    // of these calls.
    let fd = match set_filter(program, listen | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => set_filter(program, listen)?,
        other => other?,
    };
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// As in linux/seccomp.h.
const SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: libc::c_ulong = 1 << 5;

fn set_filter(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<libc::c_long> {
    let length =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let header = libc::sock_fprog {
        len: length,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the header points to `len` instructions that outlive the call; the kernel copies them.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW,
            &raw const header,
        )
    })
}

/// Names the host of this UTS namespace.
///
/// # Errors
/// What sethostname(2) answers.
pub(crate) fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: pointer and length of one string.
    check_int(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) })?;
    Ok(())
}

/// Brings the loopback interface of this network namespace up, with IPv4 and IPv6 addresses.
///
/// # Errors
/// What the ioctl answers.
pub(crate) fn bring_loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: a zeroed ifreq is valid; the name is shorter than the field and NUL-terminated; the
    // two ioctls read and write exactly this structure.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
            *place = byte.cast_signed();
        }
        check_int(libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCGIFFLAGS,
            &raw mut request,
        ))?;
        let up = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0x41);
        request.ifr_ifru.ifru_flags |= up;
        check_int(libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS,
            &raw const request,
        ))?;
    }
    Ok(())
}

/// Closes a descriptor that a forked child has only as a copy, and whose owner in memory will never be
/// dropped there.
pub(crate) fn close_copy(fd: BorrowedFd<'_>) {
    // SAFETY: the child uses the descriptor no more, and ends without running destructors.
    unsafe {
        libc::close(fd.as_raw_fd());
    }
}

/// The version of Landlock's interface.
///
/// # Errors
/// `ENOSYS` or `EOPNOTSUPP` if the kernel has none.
pub(crate) fn landlock_version() -> io::Result<i64> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no ruleset and gives a number.
    check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    })
}
