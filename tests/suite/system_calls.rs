//! Trial F10: what each system call number answers in the sandbox.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip};

const EPERM: i64 = 1;
const ENOSYS: i64 = 38;

/// Calls every number in a child of its own, with arguments that are wrong for all of them, and says
/// `NUMBER ERRNO` (0 for success) or `NUMBER signal`. `sync` (162) has all the time that it needs, as
/// it waits for the host's disks.
const CALL_EACH: &str = r#"
$| = 1;
for my $number (@ARGV ? @ARGV : (0 .. 600)) {
    pipe(my $reader, my $writer) or die;
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        close $reader;
        open STDIN, "<", "/dev/null"; open STDOUT, ">", "/dev/null"; open STDERR, ">", "/dev/null";
        alarm 3 unless $number == 162;
        $! = 0;
        my $result = syscall($number, -1, -1, -1, -1, -1, -1);
        my $error = $result == -1 ? $! + 0 : 0;
        syswrite $writer, "$number $error\n";
        syscall(231, 0);
    }
    close $writer;
    my $line = <$reader>;
    kill 9, $pid unless defined $line;
    waitpid $pid, 0;
    print defined $line ? $line : "$number signal\n";
}
"#;

/// Numbers that must reach the kernel: what programs of every kind use. By their names in
/// asm/unistd_64.h.
const NEEDED: &[(i64, &str)] = &[
    (0, "read"),
    (1, "write"),
    (9, "mmap"),
    (13, "rt_sigaction"),
    (16, "ioctl"),
    (41, "socket"),
    (59, "execve"),
    (101, "ptrace"),
    (162, "sync"),
    (228, "clock_gettime"),
    (257, "openat"),
    (302, "prlimit64"),
    (317, "seccomp"),
    (318, "getrandom"),
    (319, "memfd_create"),
    (332, "statx"),
    (334, "rseq"),
    (424, "pidfd_send_signal"),
    (434, "pidfd_open"),
    (436, "close_range"),
    (437, "openat2"),
    (439, "faccessat2"),
    (441, "epoll_pwait2"),
    (444, "landlock_create_ruleset"),
    (449, "futex_waitv"),
];

/// Numbers that policy denies: EPERM, as an ordinary kernel says to a program without privileges.
const DENIED: &[(i64, &str)] = &[
    (103, "syslog"),
    (155, "pivot_root"),
    (161, "chroot"),
    (163, "acct"),
    (164, "settimeofday"),
    (165, "mount"),
    (166, "umount2"),
    (167, "swapon"),
    (169, "reboot"),
    (170, "sethostname"),
    (175, "init_module"),
    (176, "delete_module"),
    (246, "kexec_load"),
    (248, "add_key"),
    (250, "keyctl"),
    (298, "perf_event_open"),
    (300, "fanotify_init"),
    (303, "name_to_handle_at"),
    (304, "open_by_handle_at"),
    (308, "setns"),
    (313, "finit_module"),
    (320, "kexec_file_load"),
    (321, "bpf"),
    (323, "userfaultfd"),
    (428, "open_tree"),
    (430, "fsopen"),
    (442, "mount_setattr"),
];

/// Numbers that programs probe and fall back from: ENOSYS, as an older kernel says.
const UNKNOWN: &[(i64, &str)] = &[
    (425, "io_uring_setup"),
    (426, "io_uring_enter"),
    (427, "io_uring_register"),
    (435, "clone3"),
];

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f10_every_number_answers_as_it_should(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("perl") {
        skip("perl is missing");
        return;
    }
    let done = world.program(["perl", "-e", CALL_EACH]).run();
    assert_eq!(done.code, 0, "{done}");
    let answers: BTreeMap<i64, Option<i64>> = done
        .out()
        .lines()
        .map(|line| {
            let (number, answer) = line.split_once(' ').unwrap();
            (number.parse().unwrap(), answer.parse().ok())
        })
        .collect();
    assert_eq!(answers.len(), 601, "{done}");
    let answer = |number: &i64| answers[number];
    for (number, name) in NEEDED {
        let errno = answer(number);
        assert!(
            ![Some(EPERM), Some(ENOSYS)].contains(&errno),
            "{name}: {errno:?}"
        );
    }
    for (number, name) in DENIED {
        assert_eq!(answer(number), Some(EPERM), "{name}");
    }
    for (number, name) in UNKNOWN {
        assert_eq!(answer(number), Some(ENOSYS), "{name}");
    }
    // What nobody knows is unknown: the gap in the table, and all that is newer than this list. 335
    // and 336 belong to the kernel's own probes, and pass every filter of this kind.
    let unknown = (337..=423).chain(470..=600);
    let known: Vec<i64> = unknown
        .filter(|number| answer(number) != Some(ENOSYS))
        .collect();
    assert!(
        known.is_empty(),
        "unknown numbers that are let through: {known:?}"
    );
    // And what is let through is a list that only grows on purpose.
    let through: BTreeSet<i64> = answers
        .iter()
        .filter(|(_, errno)| ![Some(EPERM), Some(ENOSYS)].contains(errno))
        .map(|(number, _)| *number)
        .collect();
    let surprising: Vec<i64> = through
        .iter()
        .filter(|number| !is_expected(**number))
        .copied()
        .collect();
    assert!(
        surprising.is_empty(),
        "let through and not expected: {surprising:?}"
    );
}

/// True for the numbers that may reach the kernel. All others are refused.
fn is_expected(number: i64) -> bool {
    // The first 335 are what every program is made of, but for these.
    const REFUSED_OF_OLD: &[i64] = &[
        134, 136, 139, 153, 154, 155, 156, 159, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171,
        172, 173, 174, 175, 176, 177, 178, 179, 180, 181, 182, 183, 184, 185, 212, 236, 246, 248,
        249, 250, 256, 279, 298, 300, 301, 303, 304, 305, 308, 312, 313, 320, 321, 323,
    ];
    const NEWER: &[i64] = &[
        424, 434, 436, 437, 438, 439, 440, 441, 444, 445, 446, 449, 452, 453, 462,
    ];
    (number <= 336 && !REFUSED_OF_OLD.contains(&number)) || NEWER.contains(&number)
}

/// What is denied by policy is told with its name, once, and what programs only probe is not.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f10_denied_calls_are_named_in_one_line(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("perl") {
        skip("perl is missing");
        return;
    }
    // mount, three times; bpf; io_uring_setup, clone3 and a number that nobody knows.
    let text = "for (165, 165, 321, 425, 435, 500, 165) { syscall($_, -1, -1, -1, -1, -1) }";
    let done = world.program(["perl", "-e", text]).run();
    assert_eq!(done.code, 0, "{done}");
    let said = done.err();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("mount")).collect();
    assert_eq!(lines.len(), 1, "{done}");
    assert!(
        lines[0].contains("policy") && lines[0].contains("bpf"),
        "{done}"
    );
    for optional in ["io_uring", "clone3", "500"] {
        assert!(!said.contains(optional), "{optional}: {done}");
    }
    let warnings = done.record().warnings();
    let of_calls = warnings.iter().filter(|code| **code == "refused");
    assert_eq!(of_calls.count(), 1, "{done}");
    let quiet = world.program(["perl", "-e", "syscall(435, -1, -1)"]).run();
    assert_eq!((quiet.code, quiet.err().as_str()), (0, ""), "{quiet}");
}

/// What programs of each kind do by themselves: probe, and fall back.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f10_runtimes_of_every_kind_start(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for (program, text) in [
        ("java", "java -version"),
        (
            "node",
            "node -e 'require(\"fs\").readFile(\"/etc/passwd\", e => process.exit(e ? 1 : 0))'",
        ),
        (
            "python3",
            "python3 -c 'import threading; t = threading.Thread(target=print); t.start(); t.join()'",
        ),
        ("go", "go version"),
        ("busybox", "busybox true"),
    ] {
        if !has_program(program) {
            skip(&format!("{program} is missing"));
            continue;
        }
        let done = world.job(text).run();
        assert_eq!(done.code, 0, "{done}");
        assert!(!done.record().warnings().contains(&"refused"), "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f10_a_namespace_of_its_own_is_denied_and_so_is_the_other_abi(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("perl") {
        skip("perl is missing");
        return;
    }
    // unshare(CLONE_NEWUSER), clone(CLONE_NEWUSER | SIGCHLD), socket(AF_VSOCK), socket(AF_PACKET),
    // socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT), getpid by the x32 number.
    let text = r#"
for my $call ([272, 0x10000000], [56, 0x10000011, 0, 0, 0, 0], [41, 40, 1, 0], [41, 17, 3, 0],
              [41, 16, 3, 9], [0x40000000 + 39]) {
    $! = 0;
    my $result = syscall($call->[0], @{$call}[1 .. $#$call]);
    exit 9 if $call->[0] == 56 && $result == 0;
    print $result == -1 ? $! + 0 : "through", "\n";
}
"#;
    let done = world.program(["perl", "-e", text]).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "1\n1\n97\n97\n97\n38\n"),
        "{done}"
    );
}
