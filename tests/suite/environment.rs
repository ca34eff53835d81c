//! Trials F2 and F4 to F13: what a job finds around it.

use std::process::Command;
use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Mode, World, busybox_root, has_program, skip};

/// Programs that say how many CPUs there are, and what runs each of them.
const CPU_COUNTERS: &[(&str, &str)] = &[
    ("nproc", "nproc"),
    ("getconf", "getconf _NPROCESSORS_ONLN"),
    ("grep", "grep -c ^processor /proc/cpuinfo"),
    ("grep", "grep -c '^cpu[0-9]' /proc/stat"),
    ("python3", "python3 -c 'import os; print(os.cpu_count())'"),
    (
        "python3",
        "python3 -c 'import os; print(len(os.sched_getaffinity(0)))'",
    ),
    ("node", "node -p 'require(\"os\").cpus().length'"),
];

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f2_a_job_sees_the_cpus_that_it_has(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let (there, missing): (Vec<_>, Vec<_>) = CPU_COUNTERS
        .iter()
        .partition(|(program, _)| has_program(program));
    for (program, _) in missing {
        skip(&format!("{program} is missing"));
    }
    let texts: Vec<&str> = there.iter().map(|(_, text)| *text).collect();
    let text = texts.join("; ");
    let all_say = |count: &str, lines: usize| format!("{count}\n").repeat(lines);
    // Without a limit these are the CPUs that the caller may use.
    let outside = Command::new("nproc").output().unwrap().stdout;
    let count = String::from_utf8(outside).unwrap();
    let expected = all_say(count.trim(), texts.len());
    let whole = world.job(&text).run();
    assert_eq!((whole.code, whole.out()), (0, expected), "{whole}");
    // And this is how build tools learn of a limit that look at neither.
    let expected = all_say("1", texts.len() + 1);
    let text = format!("{text}; echo $CARGO_BUILD_JOBS");
    let limited = world.job(&text).args(["--cpus", "1"]).run();
    if !world.doctor().has("cgroup-cpu") {
        assert_eq!(limited.code, 125, "{limited}");
        skip("no cpu cgroup here: the limit was refused instead of kept");
        return;
    }
    assert_eq!((limited.code, &limited.out()), (0, &expected), "{limited}");
    // A part of a CPU is a whole one to programs that count.
    let parts = world.job(&text).args(["--cpus", "0.5"]).run();
    assert_eq!((parts.code, parts.out()), (0, expected), "{parts}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f2_a_job_sees_the_memory_that_it_has(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo; free -m | awk '/^Mem/ {print $2}'";
    let done = world.job(text).args(["--memory", "256MiB"]).run();
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    let mut lines = out.lines();
    assert_eq!(lines.next(), Some("262144"), "{done}");
    if has_program("free") {
        assert_eq!(lines.next(), Some("256"), "{done}");
    } else {
        skip("free is missing");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f4_locked_left_overs_do_not_disturb_the_next_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "for d in . /tmp ~; do mkdir -p $d/a/b; touch $d/a/b/c; chattr +i $d/a/b/c; \
                chmod 0 $d/a/b $d/a; done 2>/dev/null; echo ready; sleep 600";
    let job = world.job(text).start();
    job.await_output("ready").cancel();
    assert_eq!(job.wait().record().state(), "cancelled");
    let text = "for d in . /tmp ~; do test -e $d/a && echo left; mkdir $d/a && touch $d/a/c; done";
    let next = world.job(text).run();
    assert_eq!((next.code, next.out().as_str()), (0, ""), "{next}");
    assert!(!world.work().join("a").exists());
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f6_shared_memory_is_half_of_the_jobs_memory(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "df -m /dev/shm | awk 'NR == 2 {print $2}'; \
                dd if=/dev/zero of=/dev/shm/x bs=1M count=200 2>/dev/null && echo written";
    let done = world.job(text).args(["--memory", "512MiB"]).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "256\nwritten\n"),
        "{done}"
    );
    // What does not fit there is an error of the write, and counts as memory.
    let done = world.job(text).args(["--memory", "64MiB"]).run();
    assert!(
        done.out().starts_with("32\n") && !done.out().contains("written"),
        "{done}"
    );
    let without = world.job(text).run();
    assert!(without.out().ends_with("written\n"), "{without}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f6_shared_memory_counts_as_memory(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("python3") {
        skip("python3 is missing");
        return;
    }
    // Each fits for itself.
    let shared = "open('/dev/shm/x', 'wb', 0).write(bytes(30 << 20))";
    let own = "b = bytes(40 << 20); b = [b[at] for at in range(0, len(b), 4096)]";
    let flags = ["--memory", "64MiB"];
    for fitting in [shared, own] {
        let done = world.program(["python3", "-c", fitting]).args(flags).run();
        assert_eq!(done.code, 0, "{done}");
    }
    // What is watched 20 times a second has to be there for a while.
    let both = format!(
        "import time\n{shared}\nm = bytearray(45 << 20)\nfor at in range(0, len(m), 4096): m[at] = 1\ntime.sleep(30)"
    );
    let done = world.program(["python3", "-c", &both]).args(flags).run();
    let record = done.record();
    assert_eq!(
        (record.state(), record.reason()),
        ("failed", "memory"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f7_loopback_is_up_and_outside_is_unreachable(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("python3") {
        skip("python3 is missing");
        return;
    }
    let text = r"
import errno, socket, time
def serve(family, address):
    server = socket.socket(family)
    server.bind((address, 8000)); server.listen()
    return server
one, two = serve(socket.AF_INET, '127.0.0.1'), serve(socket.AF_INET6, '::1')
for name in ['localhost', '127.0.0.1', '::1']:
    socket.create_connection((name, 8000), 5).close()
    print(name)
print(socket.gethostbyname(socket.gethostname()).startswith('127.'))
for family, address in [(socket.AF_INET, '192.0.2.1'), (socket.AF_INET6, '2001:db8::1')]:
    start = time.time()
    error = socket.socket(family).connect_ex((address, 80))
    print(errno.errorcode[error], time.time() - start < 1)
print([name for _, name in socket.if_nameindex()])
";
    let done = world.program(["python3", "-c", text]).run();
    let expected = "localhost\n127.0.0.1\n::1\nTrue\n\
                    ENETUNREACH True\nENETUNREACH True\n['lo']\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f7_the_name_localhost_is_known_everywhere(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let root = world.path().join("root");
    let image = match busybox_root(&root, world.account()) {
        Ok(()) => format!("dir:{}", root.display()),
        Err(why) => {
            skip(&why);
            "host".to_owned()
        }
    };
    for flags in [
        ["--image", "host", "--net", "none"],
        ["--image", "host", "--net", "host"],
        ["--image", &image, "--net", "none"],
        ["--image", &image, "--net", "host"],
    ] {
        let done = world.job("cat /etc/hosts").args(flags).run();
        let out = done.out();
        let knows = |address: &str| {
            out.lines().any(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some(address) && words.any(|word| word == "localhost")
            })
        };
        assert!(knows("127.0.0.1") && knows("::1"), "{done}");
    }
    if !has_program("python3") {
        skip("python3 is missing");
        return;
    }
    let text =
        "import socket; print(sorted({a[4][0] for a in socket.getaddrinfo('localhost', 1)}))";
    for net in ["none", "host"] {
        let done = world
            .program(["python3", "-c", text])
            .args(["--net", net])
            .run();
        assert_eq!(done.out(), "['127.0.0.1', '::1']\n", "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f7_two_jobs_do_not_share_a_loopback(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("python3") {
        skip("python3 is missing");
        return;
    }
    let listen = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 8001)); s.listen(); \
                  print('ready', flush=True); time.sleep(600)";
    let first = world.program(["python3", "-c", listen]).start();
    first.await_output("ready");
    // The same port is free for another job, and the first one's is not to be reached.
    let other = "import socket; print(socket.socket().connect_ex(('127.0.0.1', 8001))); \
                 s = socket.socket(); s.bind(('127.0.0.1', 8001)); print('bound')";
    let second = world.program(["python3", "-c", other]).run();
    assert_eq!(
        (second.code, second.out().as_str()),
        (0, "111\nbound\n"),
        "{second}"
    );
    first.cancel();
    first.wait();
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f9_open_files_are_enough_and_not_absurd(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.job("ulimit -Sn; ulimit -Hn").run();
    let limits: Vec<u64> = done
        .out()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!((1024..=65_536).contains(&limits[0]), "{done}");
    assert!((limits[0]..=1 << 20).contains(&limits[1]), "{done}");
    // Not inherited, where the caller may raise what was lowered.
    let lowered = "ulimit -n 200; exec \"$@\"";
    let few = world.job("ulimit -Sn; ulimit -Hn").through(lowered).run();
    let may_raise = Command::new("sh")
        .args(["-c", "ulimit -Hn 200 && ulimit -Hn 4096"])
        .output();
    if mode == Mode::Root && may_raise.unwrap().status.success() {
        assert_eq!(few.out(), done.out(), "{few}");
    } else {
        skip("nobody may raise a hard limit here");
        assert_eq!((few.code, few.out().as_str()), (0, "200\n200\n"), "{few}");
    }
    let job =
        r#"{ "program": "sh", "args": ["-c", "ulimit -Sn"], "limits": { "open_files": 2048 } }"#;
    let set = world.bare_run(["--file", "-"]).input(job).run();
    assert_eq!(set.out(), "2048\n", "{set}");
    if !has_program("python3") {
        skip("python3 is missing");
        return;
    }
    // Where the limit is absurd, a program that closes all that could be open needs minutes for this.
    let text = "import subprocess; [subprocess.run(['true'], close_fds=True) for _ in range(200)]";
    let loops = world.program(["python3", "-c", text]).run();
    assert_eq!(loops.code, 0, "{loops}");
    assert!(loops.elapsed < Duration::from_secs(20), "{loops}");
    // So does one that does it by hand.
    let text =
        "import os, resource; os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])";
    let closes = world.program(["python3", "-c", text]).run();
    assert_eq!(closes.code, 0, "{closes}");
    assert!(closes.elapsed < Duration::from_secs(10), "{closes}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f12_one_big_variable_fits_or_is_refused_by_name(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let job = |value: &str| {
        serde_json::json!({
            "program": "sh", "args": ["-c", "printf %s \"$BIG\" | wc -c"], "env": { "BIG": value }
        })
        .to_string()
    };
    for size in [131_060, 131_067] {
        let done = world
            .bare_run(["--file", "-"])
            .input(job(&"x".repeat(size)))
            .run();
        assert_eq!(
            (done.code, done.out().trim()),
            (0, size.to_string().as_str()),
            "{done}"
        );
    }
    for size in [131_072, 1 << 20] {
        let done = world
            .bare_run(["--file", "-"])
            .input(job(&"x".repeat(size)))
            .run();
        assert_eq!(done.code, 2, "{done}");
        for part in ["BIG", "131071", "file"] {
            assert!(done.err().contains(part), "{part}: {done}");
        }
    }
    assert_eq!(world.list(&[]).len(), 2, "what was refused left a record");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f12_one_big_argument_fits_or_is_refused_by_number(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let run = |size: usize| {
        let text = "printf %s \"$1\" | wc -c";
        let args = ["-c", text, "sh", &"x".repeat(size)];
        let job = serde_json::json!({ "program": "sh", "args": args });
        world.bare_run(["--file", "-"]).input(job.to_string()).run()
    };
    for size in [131_060, 131_071] {
        let done = run(size);
        let size = size.to_string();
        assert_eq!((done.code, done.out().trim()), (0, &*size), "{done}");
    }
    for size in [131_072, 1 << 20] {
        let done = run(size);
        assert_eq!(done.code, 2, "{done}");
        for part in ["argument 4", "131071", "file"] {
            assert!(done.err().contains(part), "{part}: {done}");
        }
    }
    assert_eq!(world.list(&[]).len(), 2, "what was refused left a record");
}

/// Each of them fits, and all of them together are more than the kernel takes.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f12_too_many_big_variables_are_refused_with_the_limit(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let run = |count: usize| {
        let env: std::collections::BTreeMap<String, String> = (0..count)
            .map(|number| (format!("V{number}"), "x".repeat(100_000)))
            .collect();
        let job = serde_json::json!({ "program": "sh", "args": ["-c", "echo ran"], "env": env });
        world.bare_run(["--file", "-"]).input(job.to_string()).run()
    };
    let fits = run(20);
    assert_eq!((fits.code, fits.out().as_str()), (0, "ran\n"), "{fits}");
    let refused = run(40);
    assert_eq!((refused.code, refused.out().as_str()), (2, ""), "{refused}");
    for part in ["4000", "is the limit", "file"] {
        assert!(refused.err().contains(part), "{part}: {refused}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f12_many_and_odd_variables_arrive_as_they_are(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let mut env: std::collections::BTreeMap<String, String> = (0..3000)
        .map(|number| (format!("V{number}"), format!("value {number}")))
        .collect();
    env.insert("ODD".into(), "a\nb=c \"d\" 'e' $f \\ é\t".into());
    env.insert("EMPTY".into(), String::new());
    let text = "env | grep -c ^V; printf '%s' \"$ODD\"; printf '[%s]' \"${EMPTY-unset}\"";
    let job = serde_json::json!({ "program": "sh", "args": ["-c", text], "env": env });
    let done = world.bare_run(["--file", "-"]).input(job.to_string()).run();
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(done.out(), "3000\na\nb=c \"d\" 'e' $f \\ é\t[]", "{done}");
    let job = serde_json::json!({ "program": "true", "env": { "NUL": "a\u{0}b" } });
    let done = world.bare_run(["--file", "-"]).input(job.to_string()).run();
    assert_eq!(done.code, 2, "{done}");
    assert!(done.err().contains("NUL"), "{done}");
}

/// Says what a program may ask about its terminal, language and time zone.
const SETTINGS: &str = "test -t 1; echo $?; echo $TERM; echo $LANG; echo $TZ; date +%Z; \
                        locale charmap 2>/dev/null || echo UTF-8";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f13_there_is_no_terminal_unless_asked_for(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.job(SETTINGS).run();
    assert_eq!(done.out(), "1\ndumb\nC.UTF-8\nUTC\nUTC\nUTF-8\n", "{done}");
    let python = world.program(["python3", "-c", "print('é')"]).run();
    if has_program("python3") {
        assert_eq!((python.code, python.out().as_str()), (0, "é\n"), "{python}");
    } else {
        assert_eq!(python.code, 127, "{python}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f13_a_terminal_is_there_where_it_is_asked_for(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = format!("{SETTINGS}; test -t 0 && test -t 2 && (echo direct >/dev/tty)");
    let done = world
        .job(&text)
        .args(["--tty"])
        .variable("TERM", "xterm-256color")
        .run();
    let out = done.out().replace("\r\n", "\n");
    let expected = "0\nxterm-256color\nC.UTF-8\nUTC\nUTC\nUTF-8\n";
    assert_eq!(done.code, 0, "{done}");
    assert!(out.starts_with(expected), "{done}");
    assert!(out.ends_with("direct\n"), "{done}");
    if has_program("python3") {
        let python = world
            .program(["python3", "-c", "print('é')"])
            .args(["--tty"])
            .run();
        assert_eq!(
            (python.code, python.out().as_str()),
            (0, "é\r\n"),
            "{python}"
        );
    } else {
        skip("python3 is missing");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_gets_no_variable_that_it_was_not_given(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let trial = world
        .job("env")
        .variable("SECRET_TOKEN", "hush")
        .variable("WANTED", "yes");
    let done = trial
        .args(["--pass-env", "WANTED", "--env", "GIVEN=1"])
        .run();
    let out = done.out();
    assert!(!out.contains("hush"), "{done}");
    for line in ["WANTED=yes", "GIVEN=1", "GIT_TERMINAL_PROMPT=0"] {
        assert!(out.lines().any(|found| found == line), "{line}: {done}");
    }
    // The record has the name of what was passed on, and never the value.
    assert!(!done.record().to_string().contains("yes"), "{done}");
    assert!(done.record().to_string().contains("WANTED"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_the_caller_has_open_is_not_kept_open_for_a_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let letter = world.write("letter", "dear\n");
    let script = format!("exec 7<{}; exec \"$@\"", letter.display());
    let job = world
        .job("echo ready; exec sleep 600")
        .through(script)
        .start();
    job.await_output("ready");
    let below = tidemill_tests::children_of(i32::try_from(job.pid()).unwrap());
    assert!(
        below.len() >= 3,
        "launcher, process 1 and the job: {below:?}"
    );
    for process in below {
        // Only root may look at all of them.
        let Ok(open) = std::fs::read_dir(format!("/proc/{}/fd", process.pid)) else {
            assert!(!Mode::suite_is_root(), "{process:?}");
            continue;
        };
        for descriptor in open.flatten() {
            let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
            assert_ne!(target, letter, "{process:?}");
        }
    }
    job.cancel();
    job.wait();
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn only_the_three_standard_descriptors_reach_a_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // The fourth is the directory that is listed.
    let done = world.program(["ls", "/proc/self/fd"]).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "0\n1\n2\n3\n"),
        "{done}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn standard_streams_open_again_by_their_names(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "echo out >/dev/stdout && echo err >/dev/stderr && echo own >/proc/self/fd/1";
    for user in [None, Some("0:0"), Some("4242:4242")] {
        let arguments: Vec<&str> = user.map_or_else(Vec::new, |user| vec!["--user", user]);
        let done = world.job(text).args(arguments).run();
        assert_eq!(
            (done.code, done.out().as_str()),
            (0, "out\nown\n"),
            "{done}"
        );
        assert!(done.err().contains("err\n"), "{done}");
    }
    let at_terminal = world.job(&format!("{text}; tty")).args(["--tty"]).run();
    let out = at_terminal.out().replace("\r\n", "\n");
    assert_eq!(out, "out\nerr\nown\n/dev/console\n", "{at_terminal}");
}
