//! Trial F1 on hosts that forbid namespaces by other means than a setting: a container's filter of
//! system calls, a service's, and a security module. `walls.rs` has the setting.

use rstest::rstest;
use tidemill_tests::{Doctor, Mode, Trial, World, has_program, skip};

/// Installs a filter of system calls and becomes the rest of its arguments. The first one lists rules:
/// `NUMBER:ERRNO` refuses a call, `NUMBER?ERRNO` refuses it where its first argument asks for a
/// namespace. As root without `no_new_privs`, as a container's runtime does it.
const FILTER: &str = r#"
my $filter = pack "SCCL", 0x20, 0, 0, 0;
for (split /,/, shift) {
    my ($number, $kind, $errno) = /^(\d+)([:?])(\d+)$/ or die;
    my $refuse = pack "SCCL", 0x06, 0, 0, 0x50000 | $errno;
    $filter .= $kind eq ":" ? pack("SCCL", 0x15, 0, 1, $number) . $refuse
        : pack("SCCL" x 3, 0x15, 0, 4, $number, 0x20, 0, 0, 16, 0x45, 0, 1, 0x7e020080) . $refuse
            . pack("SCCL", 0x20, 0, 0, 0);
}
$filter .= pack "SCCL", 0x06, 0, 0, 0x7fff0000;
my $program = pack "S x6 P", length($filter) / 8, $filter;
syscall(157, 38, 1, 0, 0, 0) if $>;
syscall(157, 22, 2, $program) == 0 or die "seccomp: $!";
exec @ARGV or die "$ARGV[0]: $!";
"#;

/// Docker's default profile in a container without CAP_SYS_ADMIN. Numbers are those of
/// asm/unistd_64.h: clone3 is unknown, and clone with a namespace, unshare, setns, mount, umount2 and
/// pivot_root are refused.
const DOCKER: &str = "435:38,56?1,272:1,308:1,165:1,166:1,155:1";
/// What `RestrictNamespaces=yes` installs.
const SYSTEMD: &str = "435:38,56?1,272?1,308:1";

/// A trial behind a filter. `None` if that cannot be made here, which was said then.
fn behind<'w>(filter: &str, trial: Trial<'w>) -> Option<Trial<'w>> {
    if !has_program("perl") {
        skip("perl is missing");
        return None;
    }
    let script = format!("exec perl -e '{FILTER}' '{filter}' \"$@\"");
    Some(if Mode::suite_is_root() {
        trial.inside(script)
    } else {
        trial.through(script)
    })
}

/// The check of a `doctor --format json` that found that jobs cannot run.
fn refused(done: &tidemill_tests::Done) -> serde_json::Value {
    assert_eq!(done.code, 1, "{done}");
    let doctor = Doctor(serde_json::from_slice(&done.stdout).unwrap());
    let check = doctor.check("user-namespaces").unwrap().clone();
    assert_eq!(check["state"], "missing", "{check:#}");
    // What fails for the same reason gives no other.
    let overlay = doctor.check("overlay").unwrap();
    if overlay["state"] == "missing" {
        assert_eq!(overlay["blocked_by"], check["blocked_by"], "{overlay:#}");
        assert_eq!(overlay["fix"], check["fix"], "{overlay:#}");
    }
    check
}

#[rstest]
#[case::docker_root(DOCKER, Mode::Root)]
#[case::docker_rootless(DOCKER, Mode::Rootless)]
#[case::systemd_root(SYSTEMD, Mode::Root)]
#[case::systemd_rootless(SYSTEMD, Mode::Rootless)]
fn f1_a_filter_that_forbids_namespaces_is_named_with_the_fix(
    #[case] filter: &str,
    #[case] mode: Mode,
) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let json = ["doctor", "--format", "json"];
    let Some(doctor) = behind(filter, world.command(json)) else {
        return;
    };
    let check = refused(&doctor.run());
    let rule = check["blocked_by"].as_str().unwrap();
    assert!(rule.contains("seccomp filter"), "{check:#}");
    let fix = check["fix"].as_str().unwrap();
    for part in ["--security-opt seccomp=unconfined", "RestrictNamespaces="] {
        assert!(fix.contains(part), "{check:#}");
    }
    let Some(job) = behind(filter, world.job("echo ran")) else {
        return;
    };
    assert_refused(&job.run(), &check);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f1_a_security_module_that_forbids_namespaces_is_named_with_the_fix(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() || !has_program("perl") {
        skip("only root, with perl, can make a host that looks like this");
        return;
    }
    // As on Ubuntu 24.04: the setting is there, a namespace can be made, and nothing can be mounted
    // in it (mount and fsopen).
    let script = format!(
        "mount -t tmpfs -o mode=755 none /proc/sys/kernel; cd /proc/sys/kernel; \
         echo 1 > apparmor_restrict_unprivileged_userns; echo 4194304 > pid_max; \
         cd \"$PWD_BEFORE\"; exec perl -e '{FILTER}' '165:13,430:1' \"$@\""
    );
    let work = world.work();
    let inside = |trial: Trial<'_>| {
        let trial = trial.variable("PWD_BEFORE", &work);
        trial.inside(&script).run()
    };
    let check = refused(&inside(world.command(["doctor", "--format", "json"])));
    assert_eq!(
        check["blocked_by"], "kernel.apparmor_restrict_unprivileged_userns = 1",
        "{check:#}"
    );
    let fix = check["fix"].as_str().unwrap();
    for part in ["/etc/apparmor.d/tidemill", "userns,", "apparmor_parser -r"] {
        assert!(fix.contains(part), "{check:#}");
    }
    assert_refused(&inside(world.job("echo ran")), &check);
}

/// What is left of a container's walls when its filter and its module are lifted.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn f1_a_container_that_masks_proc_is_named_with_the_fix(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount something over a part of /proc");
        return;
    }
    let script = "mount --bind /dev/null /proc/timer_list; exec \"$@\"";
    let doctor = world.command(["doctor", "--format", "json"]);
    let check = refused(&doctor.inside(script).run());
    assert!(
        check["blocked_by"].as_str().unwrap().contains("/proc"),
        "{check:#}"
    );
    let fix = "--security-opt systempaths=unconfined";
    assert!(check["fix"].as_str().unwrap().contains(fix), "{check:#}");
    let run = world.job("echo ran").inside(script).run();
    assert_eq!((run.code, run.out().as_str()), (125, ""), "{run}");
    let record = run.record();
    assert_eq!(
        (record.state(), record.reason(), record.exit_code()),
        ("failed", "sandbox", None),
        "{run}"
    );
    for part in ["/proc must not be masked", "tidemill doctor"] {
        assert!(run.err().contains(part), "{run}");
    }
}

/// Nothing ran, with less isolation or with none, and it says by which rule and what to do.
fn assert_refused(run: &tidemill_tests::Done, check: &serde_json::Value) {
    assert_eq!((run.code, run.out().as_str()), (125, ""), "{run}");
    let said = run.err();
    assert!(said.contains("cannot isolate jobs"), "{run}");
    for part in ["blocked_by", "fix"] {
        assert!(
            said.contains(check[part].as_str().unwrap()),
            "{part}: {run}"
        );
    }
    assert!(said.contains("tidemill doctor"), "{run}");
    if run.has_record() {
        let record = run.record();
        assert_eq!(
            (record.state(), record.reason(), record.exit_code()),
            ("failed", "sandbox", None),
            "{run}"
        );
    }
}
