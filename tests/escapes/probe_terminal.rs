//! A terminal whose other end does as it likes: hostile case 59.

use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip};

use crate::probe::assert_lively;

/// Runs a command at a terminal and plays the other end of it: what is done stands in `play`, which has
/// the terminal's own descriptor, a way to wait for a text, and one to set its size.
const OTHER_END: &str = r#"
exec python3 -c '
import fcntl, os, pty, select, struct, sys, termios, time
pid, end = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
heard = b""
def hear(seconds):
    global heard
    if select.select([end], [], [], seconds)[0]:
        try:
            heard += os.read(end, 1 << 16)
        except OSError:
            return False
    return True
def wait_for(text):
    deadline = time.monotonic() + 60
    while text not in heard and time.monotonic() < deadline and hear(0.1):
        pass
    assert text in heard, heard[-500:]
def resize(rows, columns):
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
def play():
    exec(os.environ["PLAY"], globals())
play()
while hear(60):
    pass
status = os.waitpid(pid, 0)[1]
sys.stdout.write(heard.decode("utf-8", "replace"))
sys.exit(os.waitstatus_to_exitcode(status) & 255)
' other-end "$@""#;

/// A world for a test with a terminal. `None` if it cannot be tried here, which was said.
fn world(mode: Mode) -> Option<World> {
    if !has_program("python3") {
        skip("python3 is missing");
        return None;
    }
    World::new(mode)
}

/// Thousands of sizes, none and the largest too: the job sees the last one, and lives.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_flood_of_sizes_ends_with_the_last(#[case] mode: Mode) {
    const PLAY: &str = r#"
wait_for(b"ready")
for number in range(3000):
    resize(*((0, 0), (65535, 65535), (1, number), (number, 1))[number % 4])
resize(33, 101)
for _ in range(100):
    if b"33 101" in heard: break
    os.write(end, b"\n"); hear(0.1)
os.write(end, b"end\n")
"#;
    let Some(world) = world(mode) else {
        return;
    };
    let text = r#"trap : WINCH; echo ready; while read line; do
        stty size; test "$line" = end && exit 0; done"#;
    let done = world
        .program(["bash", "-c", text])
        .args(["--tty"])
        .variable("PLAY", PLAY)
        .through(OTHER_END)
        .run();
    assert_eq!(done.code, 0, "{done}");
    assert!(done.out().contains("33 101"), "{done}");
    assert_lively(&world);
}

/// What is pasted arrives whole, however slowly the job reads.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_paste_of_a_mebibyte_arrives_whole(#[case] mode: Mode) {
    const PLAY: &str = r#"
wait_for(b"ready")
left = b"x" * (1 << 20)
while left:
    reading, writing, _ = select.select([end], [end], [], 60)
    assert reading or writing
    if reading: hear(0)
    if writing: left = left[os.write(end, left[:4096]):]
wait_for(b"1048576")
"#;
    let Some(world) = world(mode) else {
        return;
    };
    let text = "stty raw -echo; echo ready; sleep 0.3; head -c 1048576 | wc -c";
    let done = world
        .program(["bash", "-c", text])
        .args(["--tty"])
        .variable("PLAY", PLAY)
        .through(OTHER_END)
        .run();
    assert_eq!(done.code, 0, "{done}");
    assert_lively(&world);
}

/// Whoever leaves in the middle, after any byte, leaves no job behind.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_terminal_that_is_closed_ends_its_job(#[case] mode: Mode) {
    let Some(world) = world(mode) else {
        return;
    };
    for bytes in [0, 1, 2, 7, 4096] {
        let play = format!(
            r#"
wait_for(b"ready")
for _ in range({bytes}): os.write(end, b"x")
os.close(end)
os.waitpid(pid, 0)
os._exit(0)
"#
        );
        let text = "echo ready; trap : HUP; cat; sleep 600";
        let done = world
            .program(["bash", "-c", text])
            .args(["--tty", "--grace", "500ms"])
            .variable("PLAY", play)
            .through(OTHER_END)
            .run();
        assert_eq!(done.code, 0, "after {bytes} bytes: {done}");
        assert!(done.elapsed < Duration::from_secs(30), "{done}");
        assert!(world.job_processes().is_empty(), "after {bytes} bytes");
        assert_eq!(done.record().state(), "cancelled", "{done}");
    }
    assert_lively(&world);
}
