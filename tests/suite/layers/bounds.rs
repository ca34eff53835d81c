//! Layers that are larger than they may be, and disks that are too small for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use serde_json::Value;
use tidemill_tests::{Mode, World, skip};

/// The trees of the store, as `cache ls` has them.
fn tree_count(world: &World) -> usize {
    let list: Value =
        serde_json::from_slice(&world.ask(["cache", "ls", "--format", "json"])).unwrap();
    list["trees"].as_array().unwrap().len()
}

/// What lies in the directories of the store where trees are made.
fn unfinished(world: &World) -> Vec<String> {
    let made_in = world.state().join("trees/building");
    let Ok(places) = fs::read_dir(made_in) else {
        return Vec::new();
    };
    let names = places.map(|place| place.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_command_that_outgrows_the_disk_limit_of_its_job_leaves_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let endless = "i=0; while :; do i=$((i+1)); ";
    for (disk, script, said) in [
        // Over before anybody looked.
        (
            "20MiB",
            "head -c 60M /dev/zero > file".to_owned(),
            "outgrew the job's disk limit of 20 MiB",
        ),
        // What takes up nothing counts too: it is read to its end.
        (
            "20MiB",
            "truncate -s 1G file".to_owned(),
            "outgrew the job's disk limit of 20 MiB",
        ),
        (
            "20MiB",
            format!("{endless} head -c 1M /dev/zero > file$i; done"),
            "outgrew the job's disk limit of 20 MiB",
        ),
        // Where its owner may not look, and whoever stands there may write.
        (
            "20MiB",
            format!(
                "mkdir -p a/b; cd a/b; chmod 000 ..; {endless} head -c 1M /dev/zero > $i; done"
            ),
            "the job's disk limit of 20 MiB",
        ),
        (
            "8MiB",
            format!("mkdir sub; {endless} : > sub/$i; done"),
            "left more than 4096 files in /layer, too many for the job's disk limit of 8 MiB",
        ),
    ] {
        let layer = format!("command:{script}");
        let trial = world.job("true");
        let done = trial
            .args(["--no-workspace", "--disk", disk, "--layer", &layer])
            .run();
        assert_eq!(done.code, 125, "{done}");
        assert_eq!(done.record().reason(), "layer", "{done}");
        for part in [said, "hint: "] {
            assert!(done.err().contains(part), "no {part}: {done}");
        }
    }
    assert_eq!((tree_count(&world), unfinished(&world)), (0, Vec::new()));
    // What fits is a layer, and the limit is no part of what it is.
    let layer = "command:head -c 10M /dev/urandom > file";
    let sum = |disk: &str| {
        let trial = world.job("sha256sum /file");
        let done = trial
            .args(["--no-workspace", "--disk", disk, "--layer", layer])
            .run();
        assert_eq!(done.code, 0, "{done}");
        done.out()
    };
    assert_eq!(sum("20MiB"), sum("10GiB"));
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn room_that_nothing_is_written_to_is_not_given_to_a_command(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let layer = "command:fallocate -l 4G file 2> said; ls -s file > size; rm file";
    let done = world
        .job("cat /said /size")
        .args(["--no-workspace", "--layer", layer])
        .run();
    assert_eq!(done.code, 0, "{done}");
    assert!(done.out().contains("not supported"), "{done}");
    assert!(done.out().ends_with("\n0 file\n"), "{done}");
}

/// A state directory on a small disk of its own.
fn small_disk(world: &World, size: &str) -> Option<String> {
    if !Mode::suite_is_root() {
        skip("only root can mount a small file system for another process");
        return None;
    }
    let (state, account) = (world.state(), world.account());
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    world.give(&state);
    let state = state.display();
    // What is left in the store is told behind what the job says.
    Some(format!(
        "mount -t tmpfs -o mode=700,uid={},gid={},size={size} none {state}
         code=0; \"$@\" || code=$?
         find {state}/trees -size +100k >&2
         echo \"used $(du -sk {state}/trees | cut -f1)\" >&2
         exit $code",
        account.uid, account.gid,
    ))
}

/// The kibibytes that the store takes up, as [`small_disk`] tells them.
fn used(said: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix("used "));
    line.unwrap().parse().unwrap()
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_command_does_not_fill_a_disk_even_with_a_file_that_has_no_name(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(script) = small_disk(&world, "64m") else {
        return;
    };
    for writes in [
        "exec 3> gone; rm gone; while head -c 1M /dev/zero >&3; do :; done; while :; do :; done",
        "i=0; while i=$((i+1)); do head -c 1M /dev/zero > $i || :; done",
    ] {
        let layer = format!("command:{writes}");
        let done = world
            .job("true")
            .args(["--no-workspace", "--layer", &layer])
            .inside(script.clone())
            .run();
        assert_eq!(done.code, 125, "{done}");
        let said = done.err();
        assert!(said.contains("was almost full"), "{done}");
        assert!(said.contains("cache prune"), "{done}");
        assert!(used(&said) < 1024, "{done}");
    }
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn what_a_command_left_and_its_copy_never_take_the_room_of_two(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(script) = small_disk(&world, "64m") else {
        return;
    };
    let layer = "command:for i in 1 2 3 4 5 6 7 8; do head -c 5M /dev/urandom > file$i; done";
    let done = world
        .job("cat /file? | wc -c")
        .args(["--no-workspace", "--layer", layer])
        .inside(script)
        .run();
    assert_eq!(
        (done.code, done.out().as_str()),
        (0, "41943040\n"),
        "{done}"
    );
    assert!((40 << 10..48 << 10).contains(&used(&done.err())), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_copy_that_does_not_fit_on_the_disk_leaves_nothing(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(script) = small_disk(&world, "24m") else {
        return;
    };
    for name in ["a", "b", "c", "d"] {
        world.write(format!("large/{name}"), name.repeat(10 << 20));
    }
    for layer in ["dir,canonical:large=/l", "glob,mtime=1:large/*=/l"] {
        let done = world
            .job("true")
            .args(["--no-workspace", "--layer", layer])
            .inside(script.clone())
            .run();
        assert_eq!(done.code, 125, "{done}");
        assert_eq!(done.record().reason(), "layer", "{done}");
        let said = done.err();
        for part in ["No space left on device", "make room on the disk", "large"] {
            assert!(said.contains(part), "no {part}: {done}");
        }
        assert!(used(&said) < 1024, "{done}");
    }
}
