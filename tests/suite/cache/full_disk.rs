//! Making room on a disk that has none.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use serde_json::Value;
use tidemill_tests::{Mode, TarEntry, World, has_program, skip};

use super::{archive, run};

/// What the state directory is put on.
#[derive(Debug, Clone, Copy)]
enum Disk {
    Memory,
    Ext4,
}

impl Disk {
    /// A line of shell that mounts it.
    fn mount(self, world: &World) -> Option<String> {
        let state = world.state().display().to_string();
        let account = world.account();
        match self {
            Self::Memory => Some(format!(
                "mount -t tmpfs -o mode=700,uid={},gid={},size=24m none {state}",
                account.uid, account.gid
            )),
            Self::Ext4 => {
                if !has_program("mkfs.ext4") || !has_program("losetup") {
                    skip("mkfs.ext4 and losetup are missing");
                    return None;
                }
                let image = world.path().join("disk.img").display().to_string();
                // Nothing is reserved for root, so that full is full for everybody.
                Some(format!(
                    "truncate -s 32M {image} && mkfs.ext4 -q -m 0 {image} && \
                     mount -o loop {image} {state} && chown {}:{} {state} && chmod 700 {state}",
                    account.uid, account.gid
                ))
            }
        }
    }

    /// Takes the state away from where it is. Lines of shell that mount this disk there, and put it back on that.
    fn moved_onto(self, world: &World) -> Option<String> {
        let (state, kept) = (world.state(), world.path().join("kept"));
        fs::rename(&state, &kept).unwrap();
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        world.give(&state);
        let mount = self.mount(world)?;
        let (kept, state) = (kept.display(), state.display());
        Some(format!("{mount}\ncp -a {kept}/. {state}/"))
    }
}

#[rstest]
#[case::root_memory(Mode::Root, Disk::Memory)]
#[case::rootless_memory(Mode::Rootless, Disk::Memory)]
#[case::root_ext4(Mode::Root, Disk::Ext4)]
#[case::rootless_ext4(Mode::Rootless, Disk::Ext4)]
fn looking_and_pruning_need_no_room(#[case] mode: Mode, #[case] disk: Disk) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount a small file system for another process");
        return;
    }
    let closed = TarEntry::dir("closed").mode(0o700).owner(77, 78);
    let file = TarEntry::file("closed/file", vec![b'x'; 4 << 20]).owner(77, 78);
    let layer = archive(&world, "large", &[closed, file]);
    run(&world, &layer, "true");
    let Some(moved) = disk.moved_onto(&world) else {
        return;
    };
    let state = world.state().display().to_string();
    // Filled up to the last byte, and to the last inode where these run out first.
    let script = format!(
        "set -e
         exec 3>&1 1>&2
         {moved}
         head -c 100M /dev/zero > {state}/filler || true
         for number in $(seq 2000); do echo full > {state}/filler-$number || break; done 2>/dev/null
         [ $(df --output=avail -B1 {state} | tail -1) = 0 ]
         exec 1>&3 3>&-
         \"$@\"
         ls {state}/trees/ready | wc -l >&2
         head -c 3M /dev/zero > {state}/fits",
    );
    let ask = |words: &[&str], script: &str| {
        let done = world
            .command([&["cache"], words, &["--format", "json"]].concat())
            .inside(script)
            .run();
        assert_eq!(done.code, 0, "{done}");
        serde_json::from_slice::<Value>(&done.stdout).unwrap()
    };
    let looking = script.replace(&format!("head -c 3M /dev/zero > {state}/fits"), "");
    let list = ask(&["ls"], &looking);
    assert!(super::tree_of(&list, "large.tar").is_some(), "{list}");
    assert_eq!(ask(&["verify"], &looking)["whole"], true);
    assert!(ask(&["du"], &looking)["total_bytes"].as_u64().unwrap() >= 4 << 20);
    let pruned = ask(&["prune", "--all"], &script);
    assert!(super::tree_of(&pruned, "large.tar").is_some(), "{pruned}");
    assert!(
        pruned["freed_bytes"].as_u64().unwrap() >= 4 << 20,
        "{pruned}"
    );
}

#[rstest]
#[case::root_memory(Mode::Root, Disk::Memory)]
#[case::root_ext4(Mode::Root, Disk::Ext4)]
#[case::rootless_ext4(Mode::Rootless, Disk::Ext4)]
fn idle_trees_make_room_before_another_is_built(#[case] mode: Mode, #[case] disk: Disk) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount a small file system for another process");
        return;
    }
    let layers = ["first", "second", "third"].map(|name| {
        let bytes = name.as_bytes().repeat((4 << 20) / name.len());
        archive(&world, name, &[TarEntry::file("file", bytes)])
    });
    let [first, second, third] = &layers;
    run(&world, first, "true");
    run(&world, second, "true");
    let Some(moved) = disk.moved_onto(&world) else {
        return;
    };
    let state = world.state().display().to_string();
    // Less than a twentieth is free.
    let script = format!(
        "set -e
         exec 3>&1 1>&2
         {moved}
         free=$(df --output=avail -B1 {state} | tail -1)
         head -c $((free - 1048576)) /dev/zero > {state}/filler
         exec 1>&3 3>&-
         \"$@\"
         ls {state}/trees/ready | wc -l >&2",
    );
    let done = world
        .job("wc -c < /taken/file")
        .args(["--layer", third, "--no-workspace", "--cache-size", "all"])
        .inside(&script)
        .run();
    assert_eq!(
        (done.code, done.out().trim()),
        (0, "4194300"),
        "there was room to be made: {done}"
    );
}
