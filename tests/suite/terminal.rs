//! At a terminal: a quiet line at the end, keys that reach the job where it has a terminal too, and
//! Ctrl-C as a person types it.

use rstest::rstest;
use tidemill_tests::{Mode, Trial, World, has_program, skip};

/// Runs the binary at a terminal of its own, which it finds as its controlling one.
const AT_A_TERMINAL: &str = r#"
line=
for word; do line="$line '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"; done
exec script -qefc "$line" /dev/null
"#;

/// A trial at a terminal. `None` if there is no program that makes one, which was said then.
fn at_a_terminal(trial: Trial<'_>) -> Option<Trial<'_>> {
    if !has_program("script") {
        skip("script is missing");
        return None;
    }
    Some(
        trial
            .through(AT_A_TERMINAL)
            .variable("TERM", "xterm")
            .variable("SHELL", "/bin/sh"),
    )
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_closing_line_tells_result_time_and_memory(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let Some(job) = at_a_terminal(world.job("test -t 1 || echo plain; exit 3")) else {
        return;
    };
    let done = job.run();
    assert_eq!(done.code, 3, "{done}");
    let out = done.out();
    assert!(out.contains("plain\r\n"), "{done}");
    let closing = out.trim_end().lines().last().unwrap_or_default();
    for part in ["failed", "exit code 3", "ms", "peak memory", "iB ("] {
        assert!(closing.contains(part), "{part}: {done}");
    }
    assert!(out.contains("\u{1b}[31m"), "a bad end is red: {done}");
    let Some(job) = at_a_terminal(world.job("true").variable("NO_COLOR", "1")) else {
        return;
    };
    let plain = job.run();
    assert_eq!(plain.code, 0, "{plain}");
    assert!(
        plain.out().contains("succeeded") && !plain.out().contains("\u{1b}[3"),
        "{plain}"
    );
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a14_ctrl_c_is_answered_with_a_countdown(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let text = r#"trap "echo asked" TERM; echo ready; while :; do sleep 0.1; done"#;
    let Some(job) = at_a_terminal(world.job(text).args(["--grace", "3s"])) else {
        return;
    };
    let mut job = job.start();
    job.await_output("ready");
    job.write_input(b"\x03");
    job.await_output("asked");
    let done = job.wait();
    assert_eq!(done.code, 130, "{done}");
    let out = done.out();
    assert!(
        out.contains("cancelling") && out.contains("Ctrl-C"),
        "{done}"
    );
    // The time that is left is counted down.
    let seen = ["3 s", "2 s", "1 s"]
        .into_iter()
        .filter(|time| out.contains(time))
        .count();
    assert!(seen >= 2, "no countdown: {done}");
    assert_eq!(done.record().state(), "cancelled", "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn keys_reach_a_job_with_a_terminal(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let shell = world.program(["sh"]).args(["--tty", "--env", "PS1=> "]);
    let Some(shell) = at_a_terminal(shell) else {
        return;
    };
    let mut shell = shell.start();
    shell.await_output("> ");
    shell.write_input(b"echo $((6 * 7))\n");
    shell.await_output("42\r\n> ");
    // Ctrl-C belongs to the job here. The two halves of the word are not what is echoed.
    shell.write_input(b"sh -c 'echo run\"\"ning; exec sleep 600'\n");
    shell.await_output("running\r\n");
    shell.write_input(b"\x03");
    // What is typed before the prompt is there may be thrown away with the rest of the line.
    shell.await_output("^C\r\n> ");
    shell.write_input(b"exit 5\n");
    let done = shell.wait();
    assert_eq!(done.code, 5, "{done}");
    assert_eq!(done.record().state(), "failed", "{done}");
}
