//! The system calls that a job may make: an allow-list, a short list that is refused by policy, and
//! ENOSYS for all the rest, so that programs fall back as on an older kernel.
//!
//! Foreign ABIs are shut: another architecture's entry ends the process, and the x32 numbers are
//! unknown numbers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// The calls that every program may make. What a call can reach is decided by the other walls.
const ALLOWED: &[i64] = &[
    // Files and directories.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_open,
    libc::SYS_close,
    libc::SYS_stat,
    libc::SYS_fstat,
    libc::SYS_lstat,
    libc::SYS_poll,
    libc::SYS_lseek,
    libc::SYS_ioctl,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_access,
    libc::SYS_pipe,
    libc::SYS_select,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_sendfile,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_getdents,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_rmdir,
    libc::SYS_creat,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_umask,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_utimensat,
    libc::SYS_futimesat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_sync,
    libc::SYS_syncfs,
    libc::SYS_sync_file_range,
    libc::SYS_readahead,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_statx,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_vmsplice,
    libc::SYS_copy_file_range,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_chroot,
    libc::SYS_close_range,
    libc::SYS_pipe2,
    libc::SYS_pselect6,
    libc::SYS_ppoll,
    libc::SYS_memfd_create,
    // Waiting for events.
    libc::SYS_epoll_create,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd,
    libc::SYS_eventfd2,
    libc::SYS_signalfd,
    libc::SYS_signalfd4,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_rm_watch,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    libc::SYS_mlockall,
    libc::SYS_munlockall,
    libc::SYS_membarrier,
    libc::SYS_pkey_mprotect,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_process_madvise,
    libc::SYS_remap_file_pages,
    462,
    /* mseal */ 453, /* map_shadow_stack */
    // Processes and threads.
    libc::SYS_clone,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_getpgrp,
    libc::SYS_setpgid,
    libc::SYS_getsid,
    libc::SYS_setsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getgroups,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_prctl,
    libc::SYS_arch_prctl,
    libc::SYS_set_tid_address,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_rseq,
    libc::SYS_set_thread_area,
    libc::SYS_get_thread_area,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_restart_syscall,
    libc::SYS_seccomp,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_sched_yield,
    libc::SYS_sched_setparam,
    libc::SYS_sched_getparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getattr,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_ioprio_get,
    libc::SYS_ioprio_set,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_personality,
    libc::SYS_unshare,
    libc::SYS_setns,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_pause,
    libc::SYS_alarm,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    // Time.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    // Talking to each other.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_setsockopt,
    libc::SYS_getsockopt,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_semtimedop,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
    libc::SYS_getrandom,
];

/// The calls that are refused with EPERM whatever their arguments, as a job without privileges would
/// be refused by an ordinary kernel: programs know this answer.
const REFUSED: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_vhangup,
    libc::SYS_modify_ldt,
    libc::SYS_lookup_dcookie,
];

/// Clone flags that make a namespace.
const NAMESPACE_FLAGS: u64 = 0x0200_0000 // NEWCGROUP
    | 0x0400_0000 // NEWUTS
    | 0x0800_0000 // NEWIPC
    | 0x1000_0000 // NEWUSER
    | 0x2000_0000 // NEWPID
    | 0x4000_0000 // NEWNET
    | 0x0002_0000 // NEWNS
    | 0x0000_0080; // NEWTIME

const PERSONALITY_LINUX: u64 = 0;
const PERSONALITY_QUERY: u64 = 0xffff_ffff;

/// The three programs of the filter, in the order in which they are installed.
#[derive(Debug)]
pub(crate) struct Filter {
    pub(crate) programs: Vec<Vec<libc::sock_filter>>,
}

impl Filter {
    /// The filter of the syscall tier, compiled once per process.
    pub(crate) fn standard() -> &'static Self {
        static FILTER: OnceLock<Filter> = OnceLock::new();
        FILTER.get_or_init(|| Self {
            programs: vec![families(), refusals(), unknowns()],
        })
    }

    /// What is added where a job writes to the host's own files: no file gets a set-user-id or
    /// set-group-id bit. Such a file belongs to the caller, who may be root, and would outlive the
    /// job for everybody on the host to execute. In a private layer the bits are harmless, and
    /// installers need them.
    pub(crate) fn set_ids() -> &'static Self {
        static FILTER: OnceLock<Filter> = OnceLock::new();
        FILTER.get_or_init(|| Self {
            programs: vec![set_ids(), modes_out_of_sight()],
        })
    }
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Vec<libc::sock_filter> {
    let filter = SeccompFilter::new(rules, otherwise, matched, TargetArch::x86_64)
        .expect("the two actions differ");
    let program: BpfProgram = filter
        .try_into()
        .expect("the table has fewer instructions than the kernel's limit");
    program
        .into_iter()
        .map(|line| libc::sock_filter {
            code: line.code,
            jt: line.jt,
            jf: line.jf,
            k: line.k,
        })
        .collect()
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.cast_unsigned())
}

fn condition(argument: u8, wide: bool, operator: SeccompCmpOp, value: u64) -> SeccompCondition {
    let length = if wide {
        SeccompCmpArgLen::Qword
    } else {
        SeccompCmpArgLen::Dword
    };
    SeccompCondition::new(argument, length, operator, value).expect("an argument number below six")
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("at least one condition")
}

/// Calls that are in no list: ENOSYS.
fn unknowns() -> Vec<libc::sock_filter> {
    let rules = ALLOWED
        .iter()
        .chain(REFUSED)
        .map(|number| (*number, Vec::new()))
        .collect();
    compile(rules, errno(libc::ENOSYS), SeccompAction::Allow)
}

/// Calls and arguments that policy denies: EPERM.
fn refusals() -> Vec<libc::sock_filter> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    // A namespace by clone or unshare. The kernel reads the flags of clone as 64 bits and ignores
    // the upper half; a bit set in the lower half is what counts. One rule per flag: conditions of
    // one rule must all hold.
    let flag_rules = |bits: Range<u32>| -> Vec<SeccompRule> {
        bits.map(|bit| 1_u64 << bit)
            .filter(|flag| NAMESPACE_FLAGS & flag != 0)
            .map(|flag| {
                rule(vec![condition(
                    0,
                    false,
                    SeccompCmpOp::MaskedEq(flag),
                    flag,
                )])
            })
            .collect()
    };
    // CLONE_NEWTIME shares its bit with the exit signal of clone, where it means nothing.
    rules.insert(libc::SYS_clone, flag_rules(8..32));
    rules.insert(libc::SYS_unshare, flag_rules(0..32));
    rules.insert(libc::SYS_setns, Vec::new());
    rules.insert(libc::SYS_chroot, Vec::new());
    // Typing into a terminal on somebody's behalf. The kernel reads the request as 32 bits.
    let requests = [
        libc::TIOCSTI,
        libc::TIOCLINUX,
        libc::TIOCSETD,
        libc::TIOCCONS,
    ];
    rules.insert(
        libc::SYS_ioctl,
        requests
            .into_iter()
            .map(|request| rule(vec![condition(1, false, SeccompCmpOp::Eq, request)]))
            .collect(),
    );
    // Only the default execution domain, and asking which one it is.
    rules.insert(
        libc::SYS_personality,
        vec![rule(vec![
            condition(0, false, SeccompCmpOp::Ne, PERSONALITY_LINUX),
            condition(0, false, SeccompCmpOp::Ne, PERSONALITY_QUERY),
        ])],
    );
    compile(rules, SeccompAction::Allow, errno(libc::EPERM))
}

/// Modes with a set-id bit: EPERM. A mode given without making a file is not looked at, because the
/// kernel does not either.
fn set_ids() -> Vec<libc::sock_filter> {
    let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
    let making = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY]
        .map(|flag| u64::from(flag.cast_unsigned()));
    let has = |argument, bit| condition(argument, false, SeccompCmpOp::MaskedEq(bit), bit);
    let mut rules = BTreeMap::new();
    for (call, mode) in [
        (libc::SYS_chmod, 1),
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (libc::SYS_fchmodat2, 2),
        (libc::SYS_creat, 1),
        (libc::SYS_mknod, 1),
        (libc::SYS_mknodat, 2),
    ] {
        rules.insert(call, bits.map(|bit| rule(vec![has(mode, bit)])).to_vec());
    }
    for (call, flags, mode) in [(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)] {
        let table = making
            .iter()
            .flat_map(|flag| bits.map(|bit| rule(vec![has(flags, *flag), has(mode, bit)])))
            .collect();
        rules.insert(call, table);
    }
    compile(rules, SeccompAction::Allow, errno(libc::EPERM))
}

/// The one call that makes files with a mode that a filter cannot see: ENOSYS, so that programs fall
/// back to openat.
fn modes_out_of_sight() -> Vec<libc::sock_filter> {
    let rules = [(libc::SYS_openat2, Vec::new())].into_iter().collect();
    compile(rules, SeccompAction::Allow, errno(libc::ENOSYS))
}

/// Socket families beyond UNIX, INET, INET6 and route netlink: EAFNOSUPPORT, as on a kernel that was
/// built without them.
fn families() -> Vec<libc::sock_filter> {
    let not = |family: i32| {
        condition(
            0,
            false,
            SeccompCmpOp::Ne,
            u64::from(family.cast_unsigned()),
        )
    };
    let unknown_family = || {
        rule(vec![
            not(libc::AF_UNIX),
            not(libc::AF_INET),
            not(libc::AF_INET6),
            not(libc::AF_NETLINK),
        ])
    };
    let other_netlink = || {
        rule(vec![
            condition(
                0,
                false,
                SeccompCmpOp::Eq,
                u64::from(libc::AF_NETLINK.cast_unsigned()),
            ),
            condition(
                2,
                false,
                SeccompCmpOp::Ne,
                u64::from(libc::NETLINK_ROUTE.cast_unsigned()),
            ),
        ])
    };
    let rules = [libc::SYS_socket, libc::SYS_socketpair]
        .into_iter()
        .map(|call| (call, vec![unknown_family(), other_netlink()]))
        .collect();
    compile(rules, SeccompAction::Allow, errno(libc::EAFNOSUPPORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_in_both_lists_and_none_twice() {
        let mut all: Vec<i64> = ALLOWED.iter().chain(REFUSED).copied().collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn the_programs_fit_the_kernel() {
        let filters = [Filter::standard(), Filter::set_ids()];
        for program in filters.iter().flat_map(|filter| &filter.programs) {
            assert!(program.len() < 4096, "{} instructions", program.len());
        }
    }

    #[test]
    fn what_programs_probe_and_fall_back_from_is_unknown() {
        for number in [libc::SYS_clone3, libc::SYS_io_uring_setup] {
            assert!(!ALLOWED.contains(&number) && !REFUSED.contains(&number));
        }
    }
}
