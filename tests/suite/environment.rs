//! Trials F2 to F13: what a job finds around it.

use std::process::Command;
use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Mode, World, busybox_root, has_program, skip};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f2_a_job_sees_the_cpus_that_it_has(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "nproc; getconf _NPROCESSORS_ONLN; grep -c ^processor /proc/cpuinfo; \
                python3 -c 'import os; print(len(os.sched_getaffinity(0)))' 2>/dev/null || nproc; \
                echo $CARGO_BUILD_JOBS";
    let done = world.job(text).args(["--cpus", "1"]).run();
    if !world.doctor().has("cgroup-cpu") {
        assert_eq!(done.code, 125, "{done}");
        skip("no cpu cgroup here: the limit was refused instead of kept");
        return;
    }
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "1\n1\n1\n1\n1\n"),
        "{done}"
    );
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

/// Says where the home is in three ways, and tries it.
const HOMES: &str = "echo ~; echo $HOME; getent passwd $(id -u) | cut -d: -f6; \
                     cd && touch .tried && test -w . && echo writable";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f3_home_is_what_the_user_database_says(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for user in [None, Some("0"), Some("1000"), Some("4242")] {
        let flags = user.map(|user| ["--user", user]);
        let done = world.job(HOMES).args(flags.into_iter().flatten()).run();
        assert_eq!(done.code, 0, "{done}");
        assert_one_home(&done);
        if let Some(user) = user {
            let id = world.job("id -u").args(["--user", user]).run();
            assert_eq!(id.out().trim(), user, "{id}");
        }
    }
}

fn assert_one_home(done: &tidemill_tests::Done) {
    let out = done.out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 4, "{done}");
    assert!(lines[0].starts_with('/') && lines[0].len() > 1, "{done}");
    assert_eq!((lines[1], lines[2]), (lines[0], lines[0]), "{done}");
    assert_eq!(lines[3], "writable", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f3_an_image_keeps_its_own_homes(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let root = world.path().join("root");
    if let Err(why) = busybox_root(&root, world.account()) {
        skip(&why);
        return;
    }
    let image = format!("dir:{}", root.display());
    // What getent reads, without getent.
    let text = "echo ~; echo $HOME; grep \"^[^:]*:[^:]*:$(id -u):\" /etc/passwd | \
                while IFS=: read a b c d e home f; do echo $home; done; \
                cd && touch .tried && test -w . && echo writable";
    for (user, home) in [
        ("0", Some("/root")),
        ("1000", Some("/srv/app")),
        ("4242", None),
    ] {
        let flags = ["--image", &image, "--no-workspace", "--user", user];
        let done = world.job(text).args(flags).run();
        assert_eq!(done.code, 0, "{done}");
        assert_one_home(&done);
        if let Some(home) = home {
            assert!(done.out().starts_with(&format!("{home}\n")), "{done}");
        }
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
    let text = "import subprocess; [subprocess.run(['true'], close_fds=True) for _ in range(200)]";
    let loops = world.program(["python3", "-c", text]).run();
    assert_eq!(loops.code, 0, "{loops}");
    assert!(loops.elapsed < Duration::from_secs(20), "{loops}");
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
