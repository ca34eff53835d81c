//! A disk that others fill while a job runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;
use tidemill_tests::{Mode, PATIENCE, World, skip, until};

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn it_cuts_the_log_with_the_reason_and_nothing_else(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !Mode::suite_is_root() {
        skip("only root can mount a small file system for another process");
        return;
    }
    let (state, account) = (world.state(), world.account());
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    world.give(&state);
    // 16 MiB. When the log has 2 of them, somebody else takes 12 and a half: enough is left for the
    // record, and not for sealing more.
    let filled = world.work().join("filled");
    let script = format!(
        "mount -t tmpfs -o mode=700,uid={},gid={},size=16m none {state}
         ( until [ \"$(du -sk {state} | cut -f1)\" -gt 2048 ]; do sleep 0.05; done
           head -c 13107200 /dev/zero > {state}/filler; : > {filled} ) </dev/null >/dev/null 2>&1 &
         exec \"$@\"",
        account.uid,
        account.gid,
        state = state.display(),
        filled = filled.display(),
    );
    let text =
        "head -c 2M /dev/urandom; read line; head -c 1M /dev/urandom; echo; echo LAST; exit 3";
    let mut running = world
        .job(text)
        .args(["--no-workspace", "--stdin"])
        .inside(script)
        .start();
    until("the disk is full", PATIENCE, || {
        filled.exists().then_some(())
    });
    running.write_input(b"go on\n");
    running.close_input();
    let done = running.wait();
    assert!(done.stdout.ends_with(b"\nLAST\n"), "{done}");
    let record = done.record();
    assert_eq!((done.code, record.exit_code()), (3, Some(3)), "{done}");
    assert_eq!(record.number("/log/bytes"), (3 << 20) + 6, "{done}");
    let dropped = record.number("/log/dropped_bytes");
    assert!((1 << 19..2 << 20).contains(&dropped), "{done}");
    assert!(record.warnings().contains(&"log"), "{done}");
    assert!(done.err().contains("its disk is almost full"), "{done}");
}
