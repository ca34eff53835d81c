//! Which system calls a job may make, which are refused, and why. The one table that both the filter
//! and the documentation are made from.

/// One system call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    name: &'static str,
    pub(super) number: i64,
}

impl Call {
    /// Its name, as in its manual page.
    pub(super) fn name(self) -> &'static str {
        self.name.trim_start_matches("SYS_")
    }
}

/// Calls that are treated alike, for the same reason.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) why: &'static str,
    pub(super) calls: &'static [Call],
}

macro_rules! calls {
    ($($name:ident)*) => {
        &[$(Call { name: stringify!($name), number: libc::$name }),*]
    };
}

/// Calls that every job may make, whatever their arguments.
pub(super) const ALLOWED: &[Group] = &[
    Group {
        why: "Files and directories. What can be reached is decided by the mounts, their flags and \
              Landlock.",
        calls: calls![
            SYS_read SYS_write SYS_open SYS_close SYS_stat SYS_fstat SYS_lstat SYS_poll
            SYS_lseek SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_access SYS_pipe
            SYS_select SYS_dup SYS_dup2 SYS_dup3 SYS_sendfile SYS_fcntl SYS_flock SYS_fsync
            SYS_fdatasync SYS_truncate SYS_ftruncate SYS_getdents SYS_getdents64 SYS_getcwd
            SYS_chdir SYS_fchdir SYS_rename SYS_renameat SYS_renameat2 SYS_mkdir SYS_mkdirat
            SYS_rmdir SYS_creat SYS_link SYS_linkat SYS_unlink SYS_unlinkat SYS_symlink
            SYS_symlinkat SYS_readlink SYS_readlinkat SYS_chmod SYS_fchmod SYS_fchmodat
            SYS_fchmodat2 SYS_chown SYS_fchown SYS_lchown SYS_fchownat SYS_umask SYS_utime
            SYS_utimes SYS_utimensat SYS_futimesat SYS_mknod SYS_mknodat SYS_statfs SYS_fstatfs
            SYS_sync SYS_syncfs SYS_sync_file_range SYS_readahead SYS_fadvise64 SYS_fallocate
            SYS_openat SYS_openat2 SYS_newfstatat SYS_faccessat SYS_faccessat2 SYS_statx
            SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2 SYS_splice SYS_tee SYS_vmsplice
            SYS_copy_file_range SYS_close_range SYS_pipe2 SYS_pselect6 SYS_ppoll
        ],
    },
    Group {
        why: "Extended attributes of the job's own files. Those of the `trusted` and `security` \
              kinds take privileges that no job has.",
        calls: calls![
            SYS_setxattr SYS_lsetxattr SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr
            SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr
            SYS_fremovexattr
        ],
    },
    Group {
        why: "Waiting for descriptors, timers and changes of files that the job can reach.",
        calls: calls![
            SYS_epoll_create SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_wait SYS_epoll_pwait
            SYS_epoll_pwait2 SYS_eventfd SYS_eventfd2 SYS_signalfd SYS_signalfd4
            SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_inotify_init
            SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch
        ],
    },
    Group {
        why: "The memory of the process itself. How much there is, the limits say.",
        calls: calls![
            SYS_mprotect SYS_munmap SYS_brk SYS_mremap SYS_msync SYS_mincore
            SYS_madvise SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall
            SYS_membarrier SYS_pkey_mprotect SYS_pkey_alloc SYS_pkey_free SYS_mbind
            SYS_get_mempolicy SYS_set_mempolicy SYS_process_madvise SYS_remap_file_pages
        ],
    },
    Group {
        why: "Making, ending and waiting for processes; all of them are in the job's own process \
              namespace.",
        calls: calls![
            SYS_fork SYS_vfork SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4
            SYS_waitid SYS_kill SYS_tkill SYS_tgkill SYS_getpid SYS_getppid SYS_gettid
            SYS_getpgid SYS_getpgrp SYS_setpgid SYS_getsid SYS_setsid SYS_prctl SYS_arch_prctl
            SYS_set_tid_address SYS_set_robust_list SYS_get_robust_list SYS_futex
            SYS_futex_waitv SYS_rseq SYS_set_thread_area SYS_get_thread_area SYS_pidfd_open
            SYS_pidfd_send_signal SYS_restart_syscall
        ],
    },
    Group {
        why: "Who a process is. Every set of capabilities is empty, or with `--grant root` has \
              root's rights over the job's own files and ids; the user namespace maps only those, so \
              that nothing of the host is gained.",
        calls: calls![
            SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getresuid SYS_getresgid
            SYS_getgroups SYS_setuid SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid
            SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capget SYS_capset
        ],
    },
    Group {
        why: "Looking into other processes, as debuggers do. Process 1 and all that is outside \
              cannot be reached: another user, another namespace, not dumpable, and Landlock.",
        calls: calls![
            SYS_pidfd_getfd SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev
        ],
    },
    Group {
        why: "More walls, which a job may put around its own processes.",
        calls: calls![
            SYS_seccomp SYS_landlock_create_ruleset SYS_landlock_add_rule
            SYS_landlock_restrict_self
        ],
    },
    Group {
        why: "Scheduling and limits. Raising a priority takes privileges that no job has; limits \
              can only be lowered.",
        calls: calls![
            SYS_sched_yield SYS_sched_setparam SYS_sched_getparam SYS_sched_setscheduler
            SYS_sched_getscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min
            SYS_sched_rr_get_interval SYS_sched_setaffinity SYS_sched_getaffinity
            SYS_sched_setattr SYS_sched_getattr SYS_getcpu SYS_getpriority SYS_setpriority
            SYS_ioprio_get SYS_ioprio_set SYS_getrlimit SYS_setrlimit
            SYS_getrusage SYS_times SYS_uname SYS_sysinfo
        ],
    },
    Group {
        why: "Signals. They reach the job's own processes only.",
        calls: calls![
            SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending
            SYS_rt_sigtimedwait SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_rt_sigsuspend
            SYS_sigaltstack SYS_pause SYS_alarm SYS_getitimer SYS_setitimer
        ],
    },
    Group {
        why: "Clocks and timers.",
        calls: calls![
            SYS_nanosleep SYS_clock_nanosleep SYS_clock_gettime SYS_clock_getres
            SYS_gettimeofday SYS_time SYS_timer_create SYS_timer_settime SYS_timer_gettime
            SYS_timer_getoverrun SYS_timer_delete
        ],
    },
    Group {
        why: "Sockets that are open. What can be reached is decided by the network namespace.",
        calls: calls![
            SYS_connect SYS_accept SYS_accept4 SYS_bind SYS_listen SYS_sendto SYS_recvfrom
            SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg SYS_shutdown SYS_getsockname
            SYS_getpeername SYS_setsockopt SYS_getsockopt
        ],
    },
    Group {
        why: "System V and POSIX objects. They live in the job's own ipc namespace and are gone \
              with it.",
        calls: calls![
            SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semctl
            SYS_semtimedop SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_mq_open SYS_mq_unlink
            SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr
        ],
    },
    Group {
        why: "Random numbers.",
        calls: calls![SYS_getrandom],
    },
    Group {
        why: "Newer calls of the C library about the memory of the process itself.",
        calls: &[
            Call {
                name: "mseal",
                number: 462,
            },
            Call {
                name: "map_shadow_stack",
                number: 453,
            },
        ],
    },
];

/// Calls that are refused too, unless the job may make user namespaces: in one of its own it has the
/// privileges that they take, over nothing but that namespace.
pub(super) const NAMESPACED: &[Group] = &[
    Group {
        why: "Changing what is mounted. A job's root is built by Tidemill and stays as it is.",
        calls: calls![
            SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_open_tree SYS_move_mount
            SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_mount_setattr
        ],
    },
    Group {
        why: "Entering other namespaces.",
        calls: calls![SYS_setns],
    },
    Group {
        why: "The name of the host, which is a namespace's own.",
        calls: calls![SYS_sethostname SYS_setdomainname],
    },
];

/// A namespace of control groups: whoever owns one may mount the groups, and where they belong to the
/// caller, as delegated ones do, lift the job's limits and freeze who watches over it.
const NEW_CGROUP_NAMESPACE: u32 = 0x0200_0000;

/// In the place of [`RULES`] of the same calls, where the job may make user namespaces: nothing is judged.
pub(super) const FREE_NAMESPACE_RULES: &[Rule] = &[
    Rule {
        call: call("clone", libc::SYS_clone),
        why: "All namespaces.",
        cases: &[],
    },
    Rule {
        call: call("unshare", libc::SYS_unshare),
        why: "The same.",
        cases: &[],
    },
];

/// The same, where the job's control groups belong to the caller.
pub(super) const NAMESPACE_RULES: &[Rule] = &[
    Rule {
        call: call("clone", libc::SYS_clone),
        why: "No new namespace of control groups.",
        cases: &[when(&[has(0, NEW_CGROUP_NAMESPACE)], Verdict::Refuse)],
    },
    Rule {
        call: call("unshare", libc::SYS_unshare),
        why: "The same.",
        cases: &[when(&[has(0, NEW_CGROUP_NAMESPACE)], Verdict::Refuse)],
    },
];

/// Calls that are refused whatever their arguments, with the answer that an ordinary kernel gives a
/// program without privileges. Programs know this answer, and the job's log says which call it was.
pub(super) const REFUSED: &[Group] = &[
    Group {
        why: "The kernel's modules, the kernel itself, and programs that run inside it.",
        calls: calls![
            SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load
            SYS_kexec_file_load SYS_bpf
        ],
    },
    Group {
        why: "The state of the whole host: its clock, swap space, quotas, accounting, log \
              and power.",
        calls: calls![
            SYS_reboot SYS_swapon SYS_swapoff SYS_acct
            SYS_quotactl SYS_quotactl_fd SYS_syslog SYS_settimeofday SYS_clock_settime
            SYS_adjtimex SYS_clock_adjtime SYS_vhangup
        ],
    },
    Group {
        why: "Hardware ports and segments.",
        calls: calls![
            SYS_iopl SYS_ioperm SYS_modify_ldt
        ],
    },
    Group {
        why: "Measuring and watching the whole host.",
        calls: calls![
            SYS_perf_event_open SYS_fanotify_init SYS_fanotify_mark SYS_lookup_dcookie SYS_kcmp
        ],
    },
    Group {
        why: "Files by number instead of by name, which knows no root directory.",
        calls: calls![
            SYS_open_by_handle_at SYS_name_to_handle_at
        ],
    },
    Group {
        why: "Keyrings, which are not divided by any namespace that a job has for itself.",
        calls: calls![
            SYS_add_key SYS_request_key SYS_keyctl
        ],
    },
    Group {
        why: "Page faults that a program handles itself, which make races in the kernel easy to \
              win.",
        calls: calls![SYS_userfaultfd],
    },
    Group {
        why: "Moving pages between nodes of the host's memory.",
        calls: calls![
            SYS_move_pages SYS_migrate_pages
        ],
    },
];

/// Calls that are left out of both lists on purpose, as if the kernel were too old to know them:
/// programs fall back to older ones.
pub(super) const LEFT_OUT: &[Group] = &[
    Group {
        why: "Its flags are in memory, where no filter can look at them; `clone` does the same.",
        calls: calls![SYS_clone3],
    },
    Group {
        why: "It makes other calls that the filter would not see, and has been the way into many kernels.",
        calls: calls![SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register],
    },
];

/// A call that is judged by its arguments. The cases are tried in order, and the first that holds
/// decides; what none holds for is allowed.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) call: Call,
    pub(super) why: &'static str,
    pub(super) cases: &'static [Case],
}

/// Tests that must all hold, and what then happens.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) tests: &'static [Test],
    pub(super) verdict: Verdict,
}

/// A test of the lower 32 bits of one argument: the kernel reads no more of the arguments that are
/// tested here, so that bits above them change nothing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Test {
    /// Any of these bits is set.
    Has { argument: u8, bits: u32 },
    /// It is this value.
    Is { argument: u8, value: u32 },
}

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Verdict {
    /// The kernel does it.
    Allow,
    /// The kernel does it, and process 1 knows of it: a network namespace in which there were such
    /// sockets is not kept for the next job.
    Note,
    /// EPERM, and a line in the log.
    Refuse,
    /// ENOMEM, as on a host that has none of what is asked for.
    NoMemory,
    /// EINVAL, as on a kernel that does not know the flag.
    Invalid,
    /// EOPNOTSUPP, as on a file system that cannot do it.
    NotSupported,
    /// EAFNOSUPPORT, as on a kernel that was built without this kind of socket.
    NoSuchFamily,
    /// ENOSYS, as on a kernel that is too old.
    Unknown,
}

/// Clone flags that make a namespace. `CLONE_NEWTIME` is not among them: clone(2) has the exit signal
/// in its place.
const NEW_NAMESPACE: u32 = 0x0200_0000 // NEWCGROUP
    | 0x0400_0000 // NEWUTS
    | 0x0800_0000 // NEWIPC
    | 0x1000_0000 // NEWUSER
    | 0x2000_0000 // NEWPID
    | 0x4000_0000 // NEWNET
    | 0x0002_0000; // NEWNS
const NEW_TIME_NAMESPACE: u32 = 0x80;

const fn call(name: &'static str, number: i64) -> Call {
    Call { name, number }
}

const fn is(argument: u8, value: u32) -> Test {
    Test::Is { argument, value }
}

const fn has(argument: u8, bits: u32) -> Test {
    Test::Has { argument, bits }
}

/// A request of ioctl(2), of which the kernel reads 32 bits.
const fn request(number: libc::c_ulong) -> u32 {
    assert!(number <= 0xFFFF_FFFF, "a request has 32 bits");
    #[expect(clippy::cast_possible_truncation, reason = "checked in the line above")]
    let number = number as u32;
    number
}

const fn when(tests: &'static [Test], verdict: Verdict) -> Case {
    Case { tests, verdict }
}

const FAMILIES: &[Case] = &[
    when(&[is(0, libc::AF_UNIX.cast_unsigned())], Verdict::Allow),
    when(&[is(0, libc::AF_INET.cast_unsigned())], Verdict::Note),
    when(&[is(0, libc::AF_INET6.cast_unsigned())], Verdict::Note),
    when(
        &[
            is(0, libc::AF_NETLINK.cast_unsigned()),
            is(2, libc::NETLINK_ROUTE.cast_unsigned()),
        ],
        Verdict::Note,
    ),
    when(&[], Verdict::NoSuchFamily),
];

const FAMILIES_WHY: &str = "Only local, IPv4, IPv6 and route sockets: the others reach past the \
                            network namespace, or are seldom used and seldom reviewed.";

/// Calls that are judged by their arguments.
pub(super) const RULES: &[Rule] = &[
    Rule {
        call: call("clone", libc::SYS_clone),
        why: "Processes and threads, but no new namespaces: in them a job would have privileges over \
              parts of the kernel that are seldom reviewed.",
        cases: &[when(&[has(0, NEW_NAMESPACE)], Verdict::Refuse)],
    },
    Rule {
        call: call("unshare", libc::SYS_unshare),
        why: "The same.",
        cases: &[when(
            &[has(0, NEW_NAMESPACE | NEW_TIME_NAMESPACE)],
            Verdict::Refuse,
        )],
    },
    Rule {
        call: call("ioctl", libc::SYS_ioctl),
        why: "All requests of the devices that a job has, but those that type into a terminal, take \
              the console or change how a terminal's line is read.",
        cases: &[
            when(&[is(1, request(libc::TIOCSTI))], Verdict::Refuse),
            when(&[is(1, request(libc::TIOCLINUX))], Verdict::Refuse),
            when(&[is(1, request(libc::TIOCSETD))], Verdict::Refuse),
            when(&[is(1, request(libc::TIOCCONS))], Verdict::Refuse),
        ],
    },
    Rule {
        call: call("personality", libc::SYS_personality),
        why: "Asking, and the ordinary one: the others make memory executable or addresses easy to \
              guess.",
        cases: &[
            when(&[is(0, 0)], Verdict::Allow),
            when(&[is(0, u32::MAX)], Verdict::Allow),
            when(&[], Verdict::Refuse),
        ],
    },
    Rule {
        call: call("prlimit64", libc::SYS_prlimit64),
        why: "The limits of the process itself and of others of the job, but not those of process 1, which \
              a job of the same user could else take from it.",
        cases: &[when(&[is(0, 1)], Verdict::Refuse)],
    },
    Rule {
        call: call("mmap", libc::SYS_mmap),
        why: "Memory and files, but no huge pages, which no limit of memory counts: the answer is ENOMEM, as \
              on a host that has reserved none.",
        cases: &[when(&[has(3, HUGE_PAGES)], Verdict::NoMemory)],
    },
    Rule {
        call: call("memfd_create", libc::SYS_memfd_create),
        why: "Files without a name, but none of huge pages: the answer is EINVAL, as on a kernel that does not \
              know them, which is what programs ask this call for.",
        cases: &[when(&[has(1, libc::MFD_HUGETLB)], Verdict::Invalid)],
    },
    Rule {
        call: call("socket", libc::SYS_socket),
        why: FAMILIES_WHY,
        cases: FAMILIES,
    },
    Rule {
        call: call("socketpair", libc::SYS_socketpair),
        why: FAMILIES_WHY,
        cases: FAMILIES,
    },
];

/// Pages of two MiB and more, of which a host has reserved few. No limit of memory counts them.
const HUGE_PAGES: u32 = libc::MAP_HUGETLB.cast_unsigned();

/// Opening makes a file only with one of these flags; without, the kernel does not look at the mode.
const MAKING: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).cast_unsigned();

/// With this flag opening makes nothing, whatever the others are.
const ONLY_A_PATH: u32 = libc::O_PATH.cast_unsigned();

/// Rules by which no file gets one of these bits of its mode.
macro_rules! rules_without_mode {
    ($bits:expr, $why:expr $(, $more:expr)*) => {
        &[
            mode_rule("chmod", libc::SYS_chmod, $why, &[when(&[has(1, $bits)], Verdict::Refuse)]),
            mode_rule("fchmod", libc::SYS_fchmod, $why, &[when(&[has(1, $bits)], Verdict::Refuse)]),
            mode_rule(
                "fchmodat",
                libc::SYS_fchmodat,
                $why,
                &[when(&[has(2, $bits)], Verdict::Refuse)],
            ),
            mode_rule(
                "fchmodat2",
                libc::SYS_fchmodat2,
                $why,
                &[when(&[has(2, $bits)], Verdict::Refuse)],
            ),
            mode_rule("creat", libc::SYS_creat, $why, &[when(&[has(1, $bits)], Verdict::Refuse)]),
            mode_rule("mknod", libc::SYS_mknod, $why, &[when(&[has(1, $bits)], Verdict::Refuse)]),
            mode_rule(
                "mknodat",
                libc::SYS_mknodat,
                $why,
                &[when(&[has(2, $bits)], Verdict::Refuse)],
            ),
            mode_rule(
                "open",
                libc::SYS_open,
                $why,
                &[
                    when(&[has(1, ONLY_A_PATH)], Verdict::Allow),
                    when(&[has(1, MAKING), has(2, $bits)], Verdict::Refuse),
                ],
            ),
            mode_rule(
                "openat",
                libc::SYS_openat,
                $why,
                &[
                    when(&[has(2, ONLY_A_PATH)], Verdict::Allow),
                    when(&[has(2, MAKING), has(3, $bits)], Verdict::Refuse),
                ],
            ),
            $($more),*
        ]
    };
}

const fn mode_rule(
    name: &'static str,
    number: i64,
    why: &'static str,
    cases: &'static [Case],
) -> Rule {
    Rule {
        call: call(name, number),
        why,
        cases,
    }
}

/// What is judged besides where a job writes to the host's own files.
pub(super) const WRITING_RULES: &[Rule] = rules_without_mode!(
    libc::S_ISUID | libc::S_ISGID,
    "No set-user-id or set-group-id bit: such a file would belong to the caller, who may be root, and \
     outlive the job for everybody on the host to execute.",
    Rule {
        call: call("openat2", libc::SYS_openat2),
        why: "Its mode is in memory, where no filter can look at it; `openat` does the same.",
        cases: &[when(&[], Verdict::Unknown)],
    }
);

/// What is judged besides where all that a job writes is its own, unless it is root by name. There
/// openat2 stays, and so do set-group-id bits, which shared directories have.
pub(super) const PRIVATE_RULES: &[Rule] = rules_without_mode!(
    libc::S_ISUID,
    "No set-user-id bit: no mount of a job obeys it, and nobody who takes its files out should have to \
     look for it."
);

/// What is judged besides where a private layer lies on a disk, where it is measured from time to time.
pub(super) const MEASURED_RULES: &[Rule] = &[Rule {
    call: call("fallocate", libc::SYS_fallocate),
    why: "Giving room back. To take more than all of it takes no time, so it answers EOPNOTSUPP, and \
          programs write instead.",
    cases: &[
        when(
            &[is(
                1,
                (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE).cast_unsigned(),
            )],
            Verdict::Allow,
        ),
        when(&[], Verdict::NotSupported),
    ],
}];
