//! System calls that no job needs, and how they are refused: hostile cases 8 to 16, 27 and 29.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;

use crate::attempt::{Answer, attempt};
use crate::sys::{self, call};
use crate::verdict::{Findings, Verdict, errno_name, is_policy};

pub(crate) fn io_uring() -> Verdict {
    let mut findings = Findings::new();
    findings.barred("io_uring_setup", || {
        let mut parameters = [0_u8; 256];
        call!(libc::SYS_io_uring_setup, 4, &mut parameters).map(drop)
    });
    findings.barred("io_uring_enter", || {
        call!(libc::SYS_io_uring_enter, -1, 0, 0, 0, 0, 0).map(drop)
    });
    findings.barred("io_uring_register", || {
        call!(libc::SYS_io_uring_register, -1, 0, 0, 0).map(drop)
    });
    findings.verdict()
}

pub(crate) fn userfaultfd() -> Verdict {
    const USER_MODE_ONLY: i32 = 1;
    let mut findings = Findings::new();
    for flags in [0, USER_MODE_ONLY] {
        findings.barred("userfaultfd", || {
            call!(libc::SYS_userfaultfd, libc::O_CLOEXEC | flags).map(drop)
        });
    }
    findings.attempt("/dev/userfaultfd", || {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .open("/dev/userfaultfd")
            .map(drop)
    });
    findings.verdict()
}

pub(crate) fn bpf() -> Verdict {
    const MAP_CREATE: i32 = 0;
    const PROG_GET_NEXT_ID: i32 = 11;
    let mut findings = Findings::new();
    findings.barred("a map of bpf", || {
        let mut attributes = [0_u32; 32];
        // The smallest array: kind, bytes of a key, bytes of a value, entries.
        attributes[..4].copy_from_slice(&[2, 4, 4, 1]);
        call!(libc::SYS_bpf, MAP_CREATE, &attributes, 128).map(drop)
    });
    findings.barred("a list of the host's bpf programs", || {
        let mut attributes = [0_u32; 32];
        call!(libc::SYS_bpf, PROG_GET_NEXT_ID, &mut attributes, 128).map(drop)
    });
    findings.verdict()
}

pub(crate) fn perf_event() -> Verdict {
    let mut findings = Findings::new();
    findings.barred("perf_event_open", || {
        // A software clock of this process alone, stopped, without the kernel's part.
        let mut attributes = [0_u64; 14];
        attributes[0] = 1 | (112 << 32);
        attributes[5] = 0x61;
        call!(libc::SYS_perf_event_open, &attributes, 0, -1, -1, 0).map(drop)
    });
    findings.verdict()
}

pub(crate) fn keyring() -> Verdict {
    const GET_KEYRING_ID: i32 = 0;
    const OF_PROCESS: i32 = -2;
    const OF_SESSION: i32 = -3;
    const OF_USER: i32 = -4;
    let mut findings = Findings::new();
    for (name, keyring) in [("session", OF_SESSION), ("user", OF_USER)] {
        findings.barred(&format!("the keyring of the {name}"), || {
            call!(libc::SYS_keyctl, GET_KEYRING_ID, keyring, 0).map(drop)
        });
    }
    findings.barred("add_key", || {
        let (kind, name) = (c"user", c"tidemill-probe");
        call!(libc::SYS_add_key, kind, name, c"x", 1, OF_PROCESS).map(drop)
    });
    findings.barred("request_key", || {
        call!(libc::SYS_request_key, c"user", c"tidemill-probe", 0, 0).map(drop)
    });
    findings.verdict()
}

/// Calls with arguments that are wrong for all of them, so that nothing happens where they are let
/// through. `vhangup` takes none, and so is only tried where there is a filter.
const SURFACE: &[(&str, i64)] = &[
    ("kcmp", libc::SYS_kcmp),
    ("move_pages", libc::SYS_move_pages),
    ("migrate_pages", libc::SYS_migrate_pages),
    ("modify_ldt", libc::SYS_modify_ldt),
    ("lookup_dcookie", libc::SYS_lookup_dcookie),
    ("acct", libc::SYS_acct),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("fanotify_mark", libc::SYS_fanotify_mark),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("reboot", libc::SYS_reboot),
    ("iopl", libc::SYS_iopl),
    ("ioperm", libc::SYS_ioperm),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("adjtimex", libc::SYS_adjtimex),
    ("sethostname", libc::SYS_sethostname),
    ("setdomainname", libc::SYS_setdomainname),
    ("quotactl", libc::SYS_quotactl),
    ("quotactl_fd", libc::SYS_quotactl_fd),
    ("syslog", libc::SYS_syslog),
    ("process_mrelease", libc::SYS_process_mrelease),
    ("memfd_secret", libc::SYS_memfd_secret),
    ("set_mempolicy_home_node", libc::SYS_set_mempolicy_home_node),
];

pub(crate) fn kernel_surface() -> Verdict {
    let mut findings = Findings::new();
    for (name, number) in SURFACE {
        findings.barred(name, || call!(*number, -1, -1, -1, -1, -1, -1).map(drop));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.contains("Seccomp:\t2") {
        findings.barred("vhangup", || call!(libc::SYS_vhangup).map(drop));
    }
    findings.verdict()
}

/// Calls that programs probe, and whose refusal they must live through.
const PROBED: &[(&str, i64)] = &[
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("clone3", libc::SYS_clone3),
    ("keyctl", libc::SYS_keyctl),
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("mount", libc::SYS_mount),
    ("setns", libc::SYS_setns),
    ("syslog", libc::SYS_syslog),
];

pub(crate) fn refusals_are_errors() -> Verdict {
    let mut findings = Findings::new();
    for (name, number) in PROBED {
        match attempt(|| call!(*number, 0, 0, 0, 0, 0, 0).map(drop)) {
            Answer::Refused(errno) if is_policy(errno) => {
                findings.held(format!("{name}: {}", errno_name(errno)));
            }
            Answer::Killed(signal) => {
                findings.hole(format!("{name} ends the process (signal {signal})"));
            }
            other => findings.hole(format!("{name} reaches the kernel ({other:?})")),
        }
    }
    findings.verdict()
}

/// The numbers from 440 on that were reviewed and may reach the kernel. All others, those that no
/// kernel has yet among them, are unknown or refused.
const REVIEWED: &[i64] = &[
    libc::SYS_process_madvise,
    libc::SYS_epoll_pwait2,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_futex_waitv,
    libc::SYS_fchmodat2,
    453, // map_shadow_stack
    462, // mseal
];

pub(crate) fn new_numbers() -> Verdict {
    let mut findings = Findings::new();
    let mut refused = 0;
    for number in (440..=600).filter(|number| !REVIEWED.contains(number)) {
        match attempt(|| call!(number, 0, 0, 0, 0, 0, 0).map(drop)) {
            Answer::Refused(errno) if is_policy(errno) => refused += 1,
            other => findings.hole(format!("{number} ({other:?})")),
        }
    }
    findings.held(format!("{refused} numbers are refused"));
    findings.verdict()
}

pub(crate) fn personality() -> Verdict {
    const ADDR_NO_RANDOMIZE: u64 = 0x0004_0000;
    const READ_IMPLIES_EXEC: u64 = 0x0040_0000;
    const PER_LINUX32: u64 = 8;
    let mut findings = Findings::new();
    for (name, value) in [
        ("addresses that are not random", ADDR_NO_RANDOMIZE),
        ("data that can be executed", READ_IMPLIES_EXEC),
        ("both", ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC),
        ("another machine's name", PER_LINUX32),
        (
            "bits above the 32 that count",
            READ_IMPLIES_EXEC | (1 << 32),
        ),
        (
            "the mark of a question, above",
            READ_IMPLIES_EXEC | (0xffff_ffff << 32),
        ),
    ] {
        findings.attempt(name, || call!(libc::SYS_personality, value).map(drop));
    }
    findings.verdict()
}

pub(crate) fn scheduling() -> Verdict {
    const FIFO: i32 = 1;
    const ROUND_ROBIN: i32 = 2;
    const REAL_TIME_IO: i32 = 1 << 13;
    const OF_PROCESS: i32 = 1;
    let mut findings = Findings::new();
    for (name, policy) in [("first in, first out", FIFO), ("round robin", ROUND_ROBIN)] {
        findings.attempt(name, || {
            call!(libc::SYS_sched_setscheduler, 0, policy, &[1_i32]).map(drop)
        });
    }
    findings.attempt("a deadline", || {
        // Size, policy, flags, nice and priority, then runtime, deadline and period in nanoseconds.
        let attributes = [48 | (6_u64 << 32), 0, 0, 1_000_000, 10_000_000, 10_000_000];
        call!(libc::SYS_sched_setattr, 0, &attributes, 0).map(drop)
    });
    findings.attempt("nice -10", || {
        call!(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, -10).map(drop)
    });
    findings.attempt("real-time input and output", || {
        call!(libc::SYS_ioprio_set, OF_PROCESS, 0, REAL_TIME_IO).map(drop)
    });
    for score in ["-1000", "-1"] {
        findings.attempt(&format!("an out-of-memory score of {score}"), || {
            fs::write("/proc/self/oom_score_adj", score)
        });
    }
    findings.verdict()
}

pub(crate) fn file_handles() -> Verdict {
    let mut findings = Findings::new();
    findings.barred("name_to_handle_at", || handle_of_root().map(drop));
    findings.barred("open_by_handle_at", || {
        let handle = handle_of_root().unwrap_or_else(|_| {
            let mut handle = [0_u32; 34];
            // Eight bytes, an inode of 32 bits with its generation: the root of most file systems.
            handle[..4].copy_from_slice(&[8, 1, 2, 0]);
            handle
        });
        let place = call!(libc::SYS_open, c"/", libc::O_RDONLY)?;
        call!(libc::SYS_open_by_handle_at, place, &handle, libc::O_RDONLY).map(drop)
    });
    findings.verdict()
}

fn handle_of_root() -> io::Result<[u32; 34]> {
    let mut handle = [0_u32; 34];
    handle[0] = 128;
    let mut mount = [0_i32; 1];
    call!(
        libc::SYS_name_to_handle_at,
        libc::AT_FDCWD,
        c"/",
        &mut handle,
        &mut mount,
        0
    )?;
    Ok(handle)
}

pub(crate) fn other_root() -> Verdict {
    let mut findings = Findings::new();
    findings.attempt("chroot", || call!(libc::SYS_chroot, c"/tmp").map(drop));
    findings.barred("pivot_root", || {
        call!(libc::SYS_pivot_root, c"/tmp", c"/tmp").map(drop)
    });
    findings.verdict()
}

pub(crate) fn foreign_abi() -> Verdict {
    const X32: i64 = 0x4000_0000;
    const GETPID_32_BIT: u32 = 20;
    const IO_URING_SETUP: u32 = 425;
    const KEYCTL_32_BIT: u32 = 288;
    let mut findings = Findings::new();
    for (name, number) in [
        ("getpid", GETPID_32_BIT),
        ("io_uring_setup", IO_URING_SETUP),
        ("keyctl", KEYCTL_32_BIT),
    ] {
        findings.barred(&format!("{name} of 32-bit programs"), || {
            sys::call_32_bit(number, 0, 0).map(drop)
        });
    }
    for (name, number) in [
        ("getpid", libc::SYS_getpid),
        ("keyctl", libc::SYS_keyctl),
        ("io_uring_setup", libc::SYS_io_uring_setup),
    ] {
        findings.barred(&format!("{name} of x32 programs"), || {
            call!(X32 | number, 0, 0).map(drop)
        });
    }
    // The numbers that only x32 programs have, with their bit and without.
    for number in 512..=547 {
        for bit in [0, X32] {
            findings.barred(&format!("x32 number {}", bit | number), || {
                call!(bit | number, 0, 0, 0, 0, 0, 0).map(drop)
            });
        }
    }
    findings.verdict()
}

pub(crate) fn argument_width() -> Verdict {
    const WIDE: u64 = 1 << 32;
    let mut findings = Findings::new();
    let number = |value: i32| u64::from(value.cast_unsigned());
    let user = number(libc::CLONE_NEWUSER);
    for bits in [WIDE, WIDE << 8, 0xffff_ffff << 32] {
        findings.attempt(&format!("clone with {bits:#x}"), || {
            let flags = user | bits | number(libc::SIGCHLD);
            let pid = call!(libc::SYS_clone, flags, 0, 0, 0, 0)?;
            if pid == 0 {
                sys::exit_now(0);
            }
            Ok(())
        });
        findings.attempt(&format!("unshare with {bits:#x}"), || {
            call!(libc::SYS_unshare, user | bits).map(drop)
        });
        for (name, family, kind, protocol) in [
            ("AF_ALG", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
            ("AF_VSOCK", libc::AF_VSOCK, libc::SOCK_STREAM, 0),
            ("AF_PACKET", libc::AF_PACKET, libc::SOCK_RAW, 0),
            (
                "audit",
                libc::AF_NETLINK,
                libc::SOCK_RAW,
                libc::NETLINK_AUDIT,
            ),
            (
                "netfilter",
                libc::AF_NETLINK,
                libc::SOCK_RAW,
                libc::NETLINK_NETFILTER,
            ),
        ] {
            findings.attempt(&format!("{name} with {bits:#x}"), || {
                let family = number(family) | bits;
                let protocol = number(protocol) | bits;
                call!(libc::SYS_socket, family, kind, protocol).map(drop)
            });
        }
    }
    findings.verdict()
}

/// A terminal of this process's own: the descriptor of its far end.
fn own_terminal() -> io::Result<i64> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let near = call!(libc::SYS_open, c"/dev/ptmx", flags)?;
    call!(libc::SYS_ioctl, near, libc::TIOCSPTLCK, &[0_i32])?;
    let mut number = [0_i32];
    call!(libc::SYS_ioctl, near, libc::TIOCGPTN, &mut number)?;
    let path = CString::new(format!("/dev/pts/{}", number[0]))?;
    // Already the leader of a session in some runs.
    drop(call!(libc::SYS_setsid));
    let far = call!(libc::SYS_open, path.as_c_str(), libc::O_RDWR)?;
    drop(call!(libc::SYS_ioctl, far, libc::TIOCSCTTY, 0));
    Ok(far)
}

pub(crate) fn terminal_injection() -> Verdict {
    let mut findings = Findings::new();
    match attempt(|| own_terminal().map(drop)) {
        Answer::Done => findings.held("a terminal of its own"),
        other => findings.absent(format!("no terminal can be made ({other:?})")),
    }
    for bits in [0_u64, 1 << 32, 1 << 63, 0xffff_ffff << 32] {
        let request = libc::TIOCSTI | bits;
        findings.attempt(&format!("typing with request {request:#x}"), || {
            let terminal = own_terminal()?;
            call!(libc::SYS_ioctl, terminal, request, b"x").map(drop)
        });
        // No descriptor at all: only a filter refuses it before the kernel says EBADF.
        for (name, request) in [
            ("TIOCLINUX", libc::TIOCLINUX),
            ("TIOCSETD", libc::TIOCSETD),
            ("TIOCCONS", libc::TIOCCONS),
            ("TIOCSTI", libc::TIOCSTI),
        ] {
            findings.barred(&format!("{name} with {bits:#x}"), || {
                call!(libc::SYS_ioctl, -1, request | bits, 0).map(drop)
            });
        }
    }
    findings.verdict()
}

pub(crate) fn controlling_terminal() -> Verdict {
    let mut findings = Findings::new();
    for descriptor in 0..3 {
        let what = format!("descriptor {descriptor} is a terminal");
        findings.unless(sys::is_terminal(descriptor), what);
    }
    findings.attempt("/dev/tty opens", || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).open("/dev/tty").map(drop)
    });
    findings.verdict()
}
