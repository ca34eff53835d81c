//! Languages that are compiled: C, Rust, Go, Java.

use std::env;
use std::process::Command;

use rstest::rstest;
use tidemill_tests::{Mode, Trial, World, skip};

use super::{assert_works, warnings, world_with};

const C_SUM: &str = r#"
#include <pthread.h>
#include <stdio.h>
int square(int n);
static void *run(void *n) { *(int *)n = square(*(int *)n); return NULL; }
int main(void) {
    pthread_t threads[8];
    int numbers[8], sum = 0;
    for (int i = 0; i < 8; i++) {
        numbers[i] = i + 1;
        if (pthread_create(&threads[i], NULL, run, &numbers[i])) return 1;
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        sum += numbers[i];
    }
    printf("sum %d\n", sum);
    return 0;
}
"#;

const MAKEFILE: &str = "\
all: libsquare.a
\t$(MAKE) sum
\t./sum
libsquare.a: square.o
\tar rc $@ $^
sum: sum.o libsquare.a
\tgcc -pthread -o $@ $^
%.o: %.c
\tgcc -O1 -c -o $@ $<
";

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn make_and_gcc_build_a_library_and_a_program(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["make", "gcc", "ar"]) else {
        return;
    };
    world.write("sum.c", C_SUM);
    world.write("square.c", "int square(int n) { return n * n; }\n");
    world.write("Makefile", MAKEFILE);
    // The inner make takes its share of the four from the outer one, through a pipe or a fifo.
    let text = "make -j4 -s --no-print-directory && make -q libsquare.a && echo nothing to do";
    assert_works(world.job(text), "sum 204\nnothing to do\n");
}

/// The leak checker stops the program's other threads with ptrace(2) from a task of its own.
#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn gccs_sanitizers_find_a_leak_and_a_race(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["gcc"]) else {
        return;
    };
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
static int count;
static void *run(void *unused) { for (int i = 0; i < 1000; i++) count++; return unused; }
int main(void) {
    pthread_t one, other;
    pthread_create(&one, NULL, run, NULL);
    pthread_create(&other, NULL, run, NULL);
    pthread_join(one, NULL);
    pthread_join(other, NULL);
    char *volatile lost = malloc(10);
    lost = NULL;
    return lost != NULL;
}
"#;
    world.write("bad.c", source);
    let text = "for kind in address thread; do \
                    gcc -g -fsanitize=$kind -pthread -o bad bad.c || exit 9; \
                    ./bad 2>&1 | grep -o -e 'detected memory leaks' -e 'data race' | uniq; \
                done";
    let done = world.job(text).args(["--net", "none"]).run();
    let has_no_runtime = done.code == 9 && done.err().contains("cannot find");
    if has_no_runtime {
        skip("gcc's sanitizers are not installed");
        return;
    }
    // On a kernel with many random bits older versions cannot place their own memory anywhere.
    if done.err().contains("unexpected memory mapping") {
        skip("this version of gcc's sanitizers does not run on this kernel");
        return;
    }
    let expected = "detected memory leaks\ndata race\n";
    assert_eq!((done.code, done.out().as_str()), (0, expected), "{done}");
    assert!(warnings(&done).is_empty(), "{done}");
}

const RUST_SUM: &str = r#"
use std::process::Command;
use std::sync::mpsc;
use std::thread;

fn main() {
    let (sender, receiver) = mpsc::channel();
    for number in 1..=8_u32 {
        let sender = sender.clone();
        thread::spawn(move || sender.send(number * number).unwrap());
    }
    drop(sender);
    println!("sum {}", receiver.iter().sum::<u32>());
    let child = Command::new("echo").arg("child").output().unwrap();
    print!("{}", String::from_utf8(child.stdout).unwrap());
}

#[test]
fn adds_up() {
    assert_eq!(1 + 1, 2);
}
"#;

const CRATE: &str =
    "[package]\nname = \"sum\"\nversion = \"1.0.0\"\nedition = \"2021\"\n[workspace]\n";

/// The variables by which cargo and rustc find themselves where rustup has put them.
const OF_RUSTUP: &[&str] = &[
    "PATH",
    "HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
];

/// The directory of the compiler that the suite was built with.
fn sysroot() -> Option<String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let path = String::from_utf8(output.ok()?.stdout).ok()?;
    let path = path.trim();
    (!path.is_empty()).then(|| path.to_owned())
}

/// Lets a trial find cargo: as its user finds it, or another user's toolchain in a place of the world.
fn with_rust<'w>(world: &World, trial: Trial<'w>, sysroot: &str) -> Trial<'w> {
    if world.account().uid == rustix::process::geteuid().as_raw() {
        let own = OF_RUSTUP
            .iter()
            .filter_map(|name| env::var_os(name).map(|value| (name, value)));
        return own.fold(trial, |trial, (name, value)| trial.variable(name, value));
    }
    world.make_dir("../rust");
    let place = world.path().join("rust");
    let place = place.to_str().expect("the world's paths are text");
    let path = format!("{place}/bin:/usr/bin:/bin");
    let script = format!("mount --bind '{sysroot}' '{place}'; exec \"$@\"");
    trial.inside(script).variable("PATH", path)
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn cargo_builds_runs_and_tests_a_crate(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["cc"]) else {
        return;
    };
    let Some(sysroot) = sysroot() else {
        skip("rustc is missing");
        return;
    };
    world.write("Cargo.toml", CRATE);
    world.write("src/main.rs", RUST_SUM);
    let text = "cargo run --quiet --offline && cargo test --quiet --offline >tested && \
                grep -o '1 passed' tested";
    let trial = with_rust(&world, world.job(text), &sysroot);
    assert_works(trial, "sum 204\nchild\n1 passed\n");
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn rustc_compiles_a_program(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["cc"]) else {
        return;
    };
    let Some(sysroot) = sysroot() else {
        skip("rustc is missing");
        return;
    };
    world.write("sum.rs", RUST_SUM);
    let text = "rustc --edition 2021 -O -o sum sum.rs && ./sum";
    let trial = with_rust(&world, world.job(text), &sysroot);
    assert_works(trial, "sum 204\nchild\n");
}

const GO_SUM: &str = r#"package main

import (
    "fmt"
    "io"
    "net"
    "os/exec"
)

func sum(last int) int {
    squares := make(chan int)
    for n := 1; n <= last; n++ {
        go func(n int) { squares <- n * n }(n)
    }
    total := 0
    for n := 1; n <= last; n++ {
        total += <-squares
    }
    return total
}

func main() {
    fmt.Println("sum", sum(8))
    listener, err := net.Listen("tcp", "localhost:0")
    if err != nil {
        panic(err)
    }
    go func() {
        connection, _ := listener.Accept()
        fmt.Fprintln(connection, "served")
        connection.Close()
    }()
    connection, err := net.Dial("tcp", listener.Addr().String())
    if err != nil {
        panic(err)
    }
    text, _ := io.ReadAll(connection)
    fmt.Print(string(text))
    child, _ := exec.Command("echo", "child").Output()
    fmt.Print(string(child))
}
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn go_builds_and_runs_a_program_with_goroutines(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["go"]) else {
        return;
    };
    world.write("go.mod", "module sum\n\ngo 1.18\n");
    world.write("main.go", GO_SUM);
    let text = "go build -o program . && ./program";
    // Its newer versions compile their whole library first.
    let trial = world.job(text).args(["--env", "CGO_ENABLED=0"]);
    assert_works(trial, "sum 204\nserved\nchild\n");
}

const JAVA_SUM: &str = r#"
import java.util.ArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

public class Sum {
    public static void main(String[] arguments) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        ArrayList<Future<Integer>> squares = new ArrayList<>();
        for (int i = 1; i <= 8; i++) {
            int n = i;
            squares.add(threads.submit(() -> n * n));
        }
        int sum = 0;
        for (Future<Integer> square : squares) {
            sum += square.get();
        }
        threads.shutdown();
        System.out.println("sum " + sum);
        Process child = new ProcessBuilder("echo", "child").start();
        System.out.print(new String(child.getInputStream().readAllBytes()));
    }
}
"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn javac_compiles_and_java_runs_threads_and_a_child(#[case] mode: Mode) {
    let Some(world) = world_with(mode, &["java", "javac"]) else {
        return;
    };
    world.write("Sum.java", JAVA_SUM);
    let text = "javac Sum.java && java Sum";
    assert_works(world.job(text), "sum 204\nchild\n");
}
