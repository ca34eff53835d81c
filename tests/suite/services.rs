//! Trials A2 and A14 with a real service: a database that a job starts, and what of it is left.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use rstest::rstest;
use rustix::process::Signal;
use tidemill_tests::{Mode, PATIENCE, World, skip, tree, until};

/// Where PostgreSQL's own programs are. `None` if they are not installed, which was said then.
pub(crate) fn postgres_programs() -> Option<String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let found = versions
        .flatten()
        .map(|version| version.path().join("bin"))
        .find(|directory| {
            ["initdb", "pg_ctl", "psql"]
                .iter()
                .all(|name| directory.join(name).is_file())
        });
    if found.is_none() {
        skip("PostgreSQL is not installed");
    }
    found.and_then(|directory| directory.to_str().map(str::to_owned))
}

/// Makes a database in the directory, starts its server in the background, and asks it something.
fn database(bin: &str, port: u16) -> String {
    format!(
        "set -e; PATH={bin}:$PATH; initdb -D db -A trust -N -U me >/dev/null; \
         pg_ctl -D db -l db/log -w start \
         -o '-p {port} -h 127.0.0.1 -k /tmp -c fsync=off' >/dev/null; \
         psql -h 127.0.0.1 -p {port} -U me -At -c 'select 6 * 7' postgres; echo started"
    )
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a2_a_database_that_was_started_and_forgotten_does_not_keep_the_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(bin) = postgres_programs() else {
        return;
    };
    // A server refuses to be root, so the job is somebody else where it would be.
    let text = format!("{}; exit 5", database(&bin, 5432));
    let done = world.job(&text).args(["--user", "1000:1000"]).run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (5, "42\nstarted\n"),
        "{done}"
    );
    let record = done.record();
    assert!(record.warnings().contains(&"left_overs"), "{done}");
    // The server and its helpers.
    assert!(record.number("/killed_processes") >= 3, "{done}");
    assert!(done.elapsed < Duration::from_secs(60), "{done}");
}

/// How a local run is brought to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    OneInterrupt,
    TwoInterrupts,
    Killed,
}

#[rstest]
#[case::root_one(Mode::Root, End::OneInterrupt)]
#[case::root_two(Mode::Root, End::TwoInterrupts)]
#[case::root_killed(Mode::Root, End::Killed)]
#[case::rootless_one(Mode::Rootless, End::OneInterrupt)]
#[case::rootless_two(Mode::Rootless, End::TwoInterrupts)]
#[case::rootless_killed(Mode::Rootless, End::Killed)]
fn a14_nothing_is_left_of_a_database(#[case] mode: Mode, #[case] end: End) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(bin) = postgres_programs() else {
        return;
    };
    world.write("source", "code\n");
    let before = tree(&world.work());
    let port = free_port();
    // Deaf to the polite signal where that must not be enough; else it stops its server itself.
    let ending = match end {
        End::OneInterrupt => {
            "trap 'pg_ctl -D db -m fast -w stop >/dev/null; echo stopped; exit 3' TERM"
        }
        End::TwoInterrupts | End::Killed => "trap 'echo asked' TERM",
    };
    let text = format!(
        "{}; set +e; {ending}; echo ready; while :; do sleep 0.1; done",
        database(&bin, port)
    );
    // On the host's own network, so that a port that stays open is seen from here.
    let flags = ["--user", "1000:1000", "--net", "host", "--grace", "60s"];
    let mut job = world.job(&text).args(flags).start();
    let id = job.await_output("ready\n").id();
    assert!(is_open(port), "the database does not listen");
    match end {
        End::OneInterrupt => {
            job.signal_group(Signal::INT);
        }
        End::TwoInterrupts => {
            job.signal_group(Signal::INT).await_output("asked");
            assert!(job.is_running(), "one interrupt was enough to kill it");
            job.signal_group(Signal::INT);
        }
        End::Killed => {
            job.signal(Signal::KILL);
        }
    }
    let done = job.wait();
    if end == End::Killed {
        assert_eq!(done.code, -9, "{done}");
        // Before any other command could sweep it up.
        until("the database has died with its owner", PATIENCE, || {
            (world.job_processes().is_empty() && !is_open(port)).then_some(())
        });
    } else {
        assert_eq!(done.code, 130, "{done}");
        assert!(done.elapsed < Duration::from_secs(50), "{done}");
        let left = world.job_processes();
        assert!(left.is_empty(), "{left:#?}");
    }
    assert!(!is_open(port), "the database's port is still open");
    let record = world.show(&id);
    let expected = match end {
        End::OneInterrupt => ("cancelled", "cancelled", Some(3)),
        End::TwoInterrupts => ("cancelled", "cancelled", None),
        End::Killed => ("failed", "lost", None),
    };
    assert_eq!(
        (record.state(), record.reason(), record.exit_code()),
        expected,
        "{record}\n{done}"
    );
    if end == End::OneInterrupt {
        assert!(done.out().ends_with("ready\nstopped\n"), "{done}");
    }
    assert!(tree(&world.work()) == before, "the real directory changed");
    assert!(!Path::new(&format!("/tmp/.s.PGSQL.{port}")).exists());
    // Dropping the world looks for mounts, processes, control groups and files.
}

/// A job's own network is nowhere to be found once the job is gone.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a14_no_network_namespace_is_left(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let networks = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let kept = mounts.lines().filter(|line| line.contains("net:["));
        let named = std::fs::read_dir("/run/netns").into_iter().flatten();
        kept.count() + named.count()
    };
    let before = networks();
    let text = "readlink /proc/self/ns/net; echo ready; exec sleep 600";
    let job = world.job(text).start();
    job.await_output("ready");
    let out = String::from_utf8(job.stdout().bytes).unwrap();
    let network = out.lines().next().unwrap().to_owned();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_ne!(own.to_str(), Some(network.as_str()));
    job.signal(Signal::KILL);
    job.wait();
    until("no process is in it", PATIENCE, || {
        let links = tidemill_tests::children_of(1)
            .into_iter()
            .filter_map(|process| std::fs::read_link(format!("/proc/{}/ns/net", process.pid)).ok());
        let mut inside = links.filter(|link| link.to_str() == Some(network.as_str()));
        inside.next().is_none().then_some(())
    });
    assert_eq!(networks(), before, "a network namespace was kept by name");
    // The next command sweeps what of the run is left in the state directory.
    assert_eq!(world.show("last").reason(), "lost");
}

/// A port that nobody has now.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

fn is_open(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}
