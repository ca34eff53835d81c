//! What looks into the job's own other processes: gdb and strace.

use std::fs;

use rstest::rstest;
use tidemill_tests::{Mode, World, skip};

use super::{assert_works, warnings, world_with};

/// Its child says what it was told to and exits with 3; given any argument, it says that it is ready
/// and waits to be ended.
const SOURCE: &str = r#"
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int inner(int n) { return n * 7; }
int outer(int n) { return inner(n) + 1; }
int waiting(void) { puts("ready"); fflush(stdout); for (;;) pause(); }
int main(int count, char **arguments) {
    if (count > 1) return waiting();
    pid_t child = fork();
    if (child == 0) {
        printf("answer %d\n", outer(6));
        fflush(stdout);
        _exit(3);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child exited with %d\n", WEXITSTATUS(status));
    return 0;
}
"#;

/// A world with that source. `None` if a program is missing, which was said then.
fn world_of(mode: Mode, program: &str) -> Option<World> {
    let world = world_with(mode, &["gcc", program])?;
    world.write("program.c", SOURCE);
    Some(world)
}

/// True if a process may trace another one that is not below it. A host can forbid that to all.
fn can_attach() -> bool {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_free = matches!(scope.trim(), "" | "0");
    if !is_free {
        skip("this host lets a process trace only those below it");
    }
    is_free
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn gdb_stops_a_child_and_shows_how_it_got_there(#[case] mode: Mode) {
    let Some(world) = world_of(mode, "gdb") else {
        return;
    };
    let text = "gcc -g -o program program.c && gdb -batch -nx -ex 'set follow-fork-mode child' \
                -ex 'break inner' -ex run -ex backtrace -ex 'print n' -ex 'finish' -ex continue \
                ./program";
    let done = world.job(text).args(["--net", "none"]).run();
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    for shown in [
        "inner (n=6) at program.c:5",
        "in outer (n=6) at program.c:6",
        "$1 = 6",
        "Value returned is $2 = 42",
        "answer 43",
    ] {
        assert!(out.contains(shown), "{shown:?} is not in {done}");
    }
    assert!(out.contains("exited with code 03"), "{done}");
    // It would like the same addresses every time, and goes on without.
    assert_eq!(warnings(&done), ["refused"], "{done}");
    assert!(done.err().contains("policy: personality\n"), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn gdb_attaches_to_another_process_of_the_job(#[case] mode: Mode) {
    let Some(world) = world_of(mode, "gdb") else {
        return;
    };
    if !can_attach() {
        return;
    }
    let text = "gcc -g -o program program.c && mkfifo pipe || exit
                ./program wait >pipe & read -r line <pipe
                gdb -batch -nx -p $! -ex backtrace -ex 'print outer(1)' -ex detach
                kill $!; wait $!; test $? = 143";
    let done = world.job(text).args(["--net", "none"]).run();
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    for shown in ["in waiting () at program.c:7", "$1 = 8", "detached"] {
        assert!(out.contains(shown), "{shown:?} is not in {done}");
    }
    assert!(warnings(&done).is_empty(), "{done}");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn strace_follows_the_calls_of_a_child(#[case] mode: Mode) {
    let Some(world) = world_of(mode, "strace") else {
        return;
    };
    let text = "gcc -o program program.c && \
                strace -f -qq -o trace -e trace=write,exit_group -e signal=none ./program && \
                sed -E 's/^[0-9]+ +//; s/ += .*//' trace";
    let expected = "answer 43\nchild exited with 3\n\
                    write(1, \"answer 43\\n\", 10)\nexit_group(3)\n\
                    write(1, \"child exited with 3\\n\", 20)\nexit_group(0)\n";
    assert_works(world.job(text), expected);
}
