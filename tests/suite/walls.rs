//! Trial F1, and what `doctor` says: which rule of a host blocks what, and the exact fix.

use rstest::rstest;
use tidemill_tests::{Mode, World, tree};

/// Forbids user namespaces below a user namespace of its own, so that the host is not touched.
const FORBIDDEN: &str = r#"exec unshare --user --map-root-user sh -euc 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"' sh "$@""#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f1_a_host_that_forbids_user_namespaces_is_named_with_the_fix(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let doctor = world.command(["doctor"]).through(FORBIDDEN).run();
    assert_ne!(doctor.code, 0, "{doctor}");
    let out = doctor.out();
    assert!(out.contains("user.max_user_namespaces"), "{doctor}");
    assert!(
        out.contains("sysctl -w user.max_user_namespaces="),
        "{doctor}"
    );
    let run = world.job("echo ran").through(FORBIDDEN).run();
    assert_eq!((run.code, run.out().as_str()), (125, ""), "{run}");
    let said = run.err();
    assert!(said.contains("user.max_user_namespaces"), "{run}");
    assert!(said.contains("doctor") || said.contains("sysctl"), "{run}");
    if run.has_record() {
        let record = run.record();
        assert_eq!(
            (record.state(), record.reason()),
            ("failed", "sandbox"),
            "{run}"
        );
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f1_doctor_names_every_wall(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let doctor = world.doctor();
    assert_eq!(doctor.0["version"], 1, "{:#}", doctor.0);
    for name in [
        "kernel",
        "user-namespaces",
        "sub-ids",
        "overlay",
        "cgroup-memory",
        "cgroup-pids",
        "cgroup-cpu",
        "landlock",
        "seccomp",
        "kvm",
        "fuse",
    ] {
        let check = doctor
            .check(name)
            .unwrap_or_else(|| panic!("{name}: {:#}", doctor.0));
        if check["state"] != "ok" {
            // What is not there says which rule blocks it, and what to do.
            assert!(check["blocked_by"].is_string(), "{check:#}");
            assert!(check["fix"].is_string(), "{check:#}");
        }
    }
    let text = world.call(["doctor"]);
    assert_eq!(text.code, 0, "{text}");
    assert!(text.out().contains("user-namespaces"), "{text}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_missing_wall_is_in_the_record_and_told_to_whoever_asked_for_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let done = world.job("true").run();
    let grants = done.record().0["grants"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let missing: Vec<&str> = grants
        .iter()
        .filter(|grant| grant["kind"] == "missing")
        .filter_map(|grant| grant["wall"].as_str())
        .collect();
    assert_eq!(done.err(), "", "nobody asked for a limit: {done}");
    let doctor = world.doctor();
    let explained = world.call(["explain", "--", "true"]);
    for (check, wall, limit) in [
        ("cgroup-memory", "cgroup.memory", ["--memory", "256MiB"]),
        ("cgroup-pids", "cgroup.pids", ["--pids", "50"]),
    ] {
        let has = doctor.has(check);
        assert_eq!(has, !missing.contains(&wall), "{wall}: {done}");
        assert_eq!(has, !explained.out().contains(check), "{explained}");
        let asked = world.job("true").args(limit).run();
        assert_eq!(has, !asked.err().contains(limit[0]), "{asked}");
        let weakened = asked.record().warnings().contains(&"weakened");
        assert!(has || weakened, "{asked}");
    }
    for name in ["user-namespaces", "overlay", "seccomp"] {
        assert!(doctor.has(name), "the suite needs {name}: {:#}", doctor.0);
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_job_is_behind_its_walls(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapPrm|CapBnd|CapInh|CapAmb):' \
                /proc/self/status | tr -s '\\t ' ' '; ls /sys 2>/dev/null | wc -l; hostname; \
                ls /proc | grep -c '^[0-9]'";
    let done = world.job(text).run();
    let out = done.out();
    for line in [
        "NoNewPrivs: 1",
        "Seccomp: 2",
        "CapEff: 0000000000000000",
        "CapPrm: 0000000000000000",
        "CapBnd: 0000000000000000",
        "CapInh: 0000000000000000",
        "CapAmb: 0000000000000000",
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {done}");
    }
    let tail: Vec<&str> = out.lines().skip(7).collect();
    assert_eq!(tail[..2], ["0", "tidemill"], "{done}");
    let processes: u32 = tail[2].parse().unwrap();
    assert!(processes < 10, "the host's processes are visible: {done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_process_writes_its_own_entries_of_proc(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    // As programs do that open a file to write it anew.
    let text = "echo 500 > /proc/self/oom_score_adj && cat /proc/self/oom_score_adj; \
                echo other > /proc/self/comm && cat /proc/self/comm";
    let done = world.job(text).run();
    assert_eq!(done.out(), "500\ncat\n", "{done}");
    assert_eq!((done.code, done.err().as_str()), (0, ""), "{done}");
}

#[rstest]
#[case::nobody(Mode::Nobody)]
fn a_user_without_sub_ids_runs_jobs_too(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let doctor = world.doctor();
    let check = doctor.check("sub-ids").unwrap();
    assert_eq!(check["state"], "limited", "{check:#}");
    assert!(check["fix"].is_string(), "{check:#}");
    world.write("file", "there\n");
    let before = tree(&world.work());
    let text = "cat file; echo changed > file; touch made ~/made /tmp/made; id -u; exit 6";
    let done = world.job(text).run();
    let uid = world.account().uid;
    assert_eq!(
        (done.code, done.out()),
        (6, format!("there\n{uid}\n")),
        "{done}"
    );
    assert!(tree(&world.work()) == before, "the real directory changed");
    // It can be somebody else inside, or root, and is the same user outside.
    for user in ["0", "1000"] {
        let flags = ["--user", user, "--write"];
        let done = world.job("id -u; echo x > written").args(flags).run();
        assert_eq!((done.code, done.out().trim()), (0, user), "{done}");
        let written = std::fs::metadata(world.work().join("written")).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&written), uid);
    }
    let job = world.job("echo ready; exec sleep 600").start();
    job.await_output("ready").cancel();
    assert_eq!(job.wait().record().state(), "cancelled");
}

#[rstest]
#[case::root(Mode::Root)]
fn the_job_is_never_the_hosts_root(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for user in ["0", "1000"] {
        let job = world
            .job("echo ready; sleep 600")
            .args(["--user", user])
            .start();
        job.await_output("ready");
        let of_job: Vec<i32> = world
            .job_processes()
            .iter()
            .map(|process| process.pid)
            .collect();
        assert!(!of_job.is_empty());
        for pid in of_job {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let ids = status
                .lines()
                .find(|line| line.starts_with("Uid:"))
                .unwrap();
            assert!(!ids.split_whitespace().skip(1).any(|id| id == "0"), "{ids}");
        }
        job.cancel();
        job.wait();
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn secrets_of_the_host_are_not_there(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let home = world.home();
    for (path, content) in [
        (".ssh/id_ed25519", "private"),
        (".aws/credentials", "private"),
        (".netrc", "private"),
        (".config/gh/hosts.yml", "private"),
        (".cargo/credentials.toml", "private"),
        (".bash_history", "private"),
    ] {
        world.write(home.join(path), content);
    }
    let text = "cat /etc/shadow /etc/gshadow /etc/ssh/*_key 2>/dev/null; \
                grep -rs private \"$REAL_HOME\" ~ 2>/dev/null; ls -a \"$REAL_HOME\" 2>/dev/null; \
                ls \"$STATE\" 2>/dev/null; echo end";
    let real_home = format!("REAL_HOME={}", home.display());
    let state = format!("STATE={}", world.state().display());
    let done = world
        .job(text)
        .args(["--env", &real_home, "--env", &state])
        .run();
    assert_eq!(done.code, 0, "{done}");
    assert!(
        !done.out().contains("private") && !done.out().contains("root:"),
        "{done}"
    );
    assert!(!done.out().contains("tidemill.db"), "{done}");
}
