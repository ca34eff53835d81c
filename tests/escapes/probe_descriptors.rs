//! What is open at the start, where a job stands, and limits of descriptors.

use rstest::rstest;
use tidemill_tests::{Mode, World};

use crate::bait::Bait;
use crate::cases;
use crate::probe::{Probe, assert_lively};

/// Opens a directory, a file, a socket and something with a high number, and lets them be inherited.
const CARELESS: &str = r#"exec bash -euc '
exec 7</proc 9</ 10<>/dev/udp/127.0.0.1/9 11</etc/passwd 251>/dev/null; exec "$@"' bash "$@""#;

/// Stands in a directory that is in no tree any more.
const NOWHERE: &str = r#"mount -t tmpfs probe /mnt; cd /mnt; umount -l /mnt; exec "$@""#;

/// A root of its own, with a way out of it.
const WITH_A_WAY_OUT: &str = r#"
exec 9</
mount -t tmpfs probe /mnt
for place in /usr /proc /dev "${TMPDIR:-/tmp}"; do
    mkdir -p "/mnt$place"
    mount --rbind "$place" "/mnt$place"
done
for name in bin sbin lib lib64; do ln -s "usr/$name" "/mnt/$name"; done
exec chroot /mnt "$@""#;

cases! {
    leaked_descriptors => |probe| probe.around(super::CARELESS);
    working_directory => |probe| probe.loose(super::NOWHERE);
    parent_walk => |probe| probe.around(super::CARELESS).loose(super::WITH_A_WAY_OUT);
    self_interpreter;
    descriptor_bomb => |probe| probe.loose(r#"PROBE_BOUND=1000 exec "$@""#);
    hard_limits;
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_job_starts_in_no_directory_of_the_launcher(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    std::os::unix::fs::symlink("/proc/self/fd/9", world.work().join("leads-out")).unwrap();
    let bait = Bait::lay(&world);
    for place in [
        "/proc/self/fd/7",
        "/proc/self/fd/9",
        "/proc/1/cwd",
        "/proc/1/root",
        "leads-out",
        "../bait",
    ] {
        let probe = Probe::new("working_directory").around(CARELESS);
        let done = probe.trial(&world, &bait).args(["--workdir", place]).run();
        // Refused, or somewhere inside.
        if done.code != 125 && done.code != 2 {
            probe.assert_held(&done);
        }
    }
    assert_lively(&world);
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_program_that_names_the_runtime_does_not_run_it(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for interpreter in ["/proc/self/exe", "/proc/1/exe", "/proc/self/fd/3"] {
        let script = world.write("entry", format!("#!{interpreter} --version\n"));
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).unwrap();
        let layer = format!("file:{}=/entry", script.display());
        let done = world.program(["/entry"]).args(["--layer", &layer]).run();
        // The runtime would have said its version.
        assert_eq!(done.out(), "", "{interpreter}: {done}");
        assert_ne!(done.code, 0, "{interpreter}: {done}");
    }
    assert_lively(&world);
}
