//! Images that want what is mounted over them to land elsewhere, and what lies below a private layer:
//! hostile cases 20 and 30.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rstest::rstest;
use tidemill_tests::{Mode, World, busybox_root, skip, tree};

use crate::probe::assert_lively;

/// What a job finds, if it starts: its own device, its own processes, and no way to the host's.
const LOOK: &str = r#"
test -c /dev/null || echo hole: /dev/null is no device
test -e /dev/passwd && echo hole: /dev is another directory
test -e /proc/self/status || echo hole: /proc is not mounted
test "$(cat /proc/sys/kernel/hostname)" = tidemill || echo hole: this is not its own name
( : > /proc/sys/kernel/core_pattern ) 2>/dev/null && echo hole: core_pattern opens
echo looked"#;

/// One change of a root: this path becomes a link that leads there.
type Trap = (&'static str, &'static str);

#[rstest]
#[case::dev_to_etc(&[("dev", "/etc")])]
#[case::dev_up(&[("dev", "../../../../etc")])]
#[case::proc_to_root(&[("proc", "/")])]
#[case::proc_to_etc(&[("proc", "etc")])]
#[case::sys_to_proc(&[("sys", "/proc")])]
#[case::tmp_to_etc(&[("tmp", "/etc")])]
#[case::null_to_core_pattern(&[("dev/null", "/proc/sys/kernel/core_pattern")])]
#[case::shm_to_etc(&[("dev/shm", "/etc")])]
#[case::pts_to_etc(&[("dev/pts", "/etc"), ("dev/console", "/etc/passwd")])]
#[case::etc_to_host(&[("etc", "/proc/1/root/etc")])]
#[case::home_to_proc(&[("root", "/proc/self/fd"), ("home", "/proc/1/cwd")])]
#[case::loops(&[("dev", "proc"), ("proc", "dev")])]
fn links_of_an_image_lead_nowhere(
    #[case] traps: &[Trap],
    #[values(Mode::Root, Mode::Rootless)] mode: Mode,
) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let root = world.path().join("image");
    if let Err(why) = busybox_root(&root, world.account()) {
        skip(&why);
        return;
    }
    world.give(&root);
    for (path, target) in traps {
        spring(&root, path, target);
        world.give(&root.join(path));
    }
    let before = tree(&root);
    let image = format!("dir:{}", root.display());
    let done = world
        .job(LOOK)
        .args(["--net", "none", "--image", &image, "--no-workspace"])
        .run();
    // Refused with a reason, or all is where it belongs.
    if done.code == 125 {
        assert!(!done.err().is_empty(), "{done}");
    } else {
        assert!(!done.out().contains("hole"), "{done}");
        let could_not_look = done.code != 0 && done.out().is_empty();
        assert!(could_not_look || done.out() == "looked\n", "{done}");
    }
    assert!(tree(&root) == before, "the image was written: {done}");
    assert_lively(&world);
    fs::remove_dir_all(&root).unwrap();
}

/// A sibling that swaps places of the image while jobs start: each job is refused, or has its own.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn an_image_that_changes_meanwhile_leads_nowhere(#[case] mode: Mode) {
    const JOBS: usize = 60;
    let Some(world) = World::new(mode) else {
        return;
    };
    let root = world.path().join("image");
    if let Err(why) = busybox_root(&root, world.account()) {
        skip(&why);
        return;
    }
    world.give(&root);
    let image = format!("dir:{}", root.display());
    let is_over = AtomicBool::new(false);
    let started = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (path, target) in [
                    ("dev", "/etc"),
                    ("proc", "/"),
                    ("sys", "/proc"),
                    ("tmp", "/etc"),
                ] {
                    spring(&root, path, target);
                }
                for path in ["dev", "proc", "sys", "tmp"] {
                    fs::remove_file(root.join(path)).unwrap();
                    fs::create_dir(root.join(path)).unwrap();
                }
            }
        });
        let started = (0..JOBS).filter(|_| {
            let done = world
                .job(LOOK)
                .args(["--net", "none", "--image", &image, "--no-workspace"])
                .run();
            assert!(!done.out().contains("hole"), "{done}");
            // A start that is refused has a reason.
            assert!(done.code == 0 || !done.err().is_empty(), "{done}");
            done.out() == "looked\n"
        });
        let started = started.count();
        is_over.store(true, Ordering::Relaxed);
        started
    });
    assert!(started > 0, "no job was started at all");
    assert_lively(&world);
    fs::remove_dir_all(&root).unwrap();
}

/// Files of the host below a private layer: a link to one is a copy, and one that changes on the host
/// while a job has it open changes nothing of what the job has written.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn files_below_a_private_layer_are_never_written(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    for name in ["linked", "changed", "renamed/inner"] {
        world.write(name, "host\n");
    }
    let text = "ln linked other; echo job >> other; cat linked; exec 3>> changed; echo job >&3; \
                mv renamed/inner taken; echo ready; until test -e /tmp/never; do read line && break; done; \
                echo more >&3; cat changed taken; rm -r renamed; ls";
    let mut job = world.job(text).args(["--stdin"]).start();
    job.await_output("ready");
    world.write("changed", "host again\n");
    world.write("renamed/inner", "host again\n");
    job.write_input(b"\n");
    job.close_input();
    let done = job.wait();
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    assert!(out.starts_with("host\njob\nready\n"), "{done}");
    assert!(out.contains("host\njob\nmore\n"), "{done}");
    for (name, content) in [
        ("linked", "host\n"),
        ("changed", "host again\n"),
        ("renamed/inner", "host again\n"),
    ] {
        assert_eq!(
            fs::read_to_string(world.work().join(name)).unwrap(),
            content
        );
    }
    assert_eq!(
        fs::metadata(world.work().join("linked")).unwrap().nlink(),
        1
    );
    assert_lively(&world);
}

/// Puts a link where the path is.
fn spring(root: &Path, path: &str, target: &str) {
    let path = root.join(path);
    if fs::remove_dir(&path).is_err() && path.is_dir() {
        fs::remove_dir_all(&path).unwrap();
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(target, &path).unwrap();
}

/// Proves that the look would find something.
#[rstest]
#[case::root(Mode::Root)]
fn a_look_at_the_host_finds_holes(#[case] mode: Mode) {
    let Some(_world) = World::new(mode) else {
        return;
    };
    let output = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c"])
        .arg(format!(
            "mount -t tmpfs probe /dev; touch /dev/null /dev/passwd; {LOOK}"
        ))
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    for hole in ["no device", "another directory", "its own name"] {
        assert!(out.contains(hole), "{out}");
    }
}
