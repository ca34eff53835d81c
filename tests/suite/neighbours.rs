//! Trial A12: what one job does to the processes of another.

use rstest::rstest;
use tidemill_tests::{Done, Mode, Record, World, has_program, skip};

/// Starts and awaits sixty processes, and says how long the median took and how long nine of ten
/// took, in microseconds.
const LATENCY: &str = r"
use Time::HiRes qw(time sleep);
my @took;
for (1 .. 60) {
    my $start = time;
    system('/bin/true') == 0 or die 'refused';
    push @took, int((time - $start) * 1e6);
    sleep 0.01;
}
@took = sort { $a <=> $b } @took;
print qq($took[30] $took[54]\n);
";

/// Median and ninth decile of the latency that a job measures.
fn latency(done: &Done) -> (u64, u64) {
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    let (median, decile) = out.trim().split_once(' ').unwrap();
    (median.parse().unwrap(), decile.parse().unwrap())
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a12_a_fork_bomb_is_contained_and_named(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("perl") {
        skip("perl is missing");
        return;
    }
    let neighbour = || world.program(["perl", "-e", LATENCY]).run();
    let (quiet, quiet_decile) = latency(&neighbour());
    let text = "echo lit; :(){ :|:& };:; exec sleep 600";
    let flags = ["--pids", "64", "--timeout", "6s"];
    let mut bomb = world.bash(text).args(flags).start();
    bomb.await_output("lit");
    let beside = neighbour();
    assert!(bomb.is_running(), "the bomb was over too early: {beside}");
    let (median, decile) = latency(&beside);
    // A neighbour without its share of the CPUs or of the process table is slower by much more.
    let told = format!(
        "median {quiet} µs, then {median} µs; ninth decile {quiet_decile} µs, then {decile} µs"
    );
    assert!(median < 8 * quiet + 20_000, "{told}");
    assert!(decile < 12 * quiet_decile + 60_000, "{told}");
    let done = bomb.wait();
    let record = done.record();
    assert_eq!(record.state(), "timed_out", "{done}");
    assert!(names_pids(record), "{done}");
    if world.doctor().has("cgroup-pids") {
        let peak = record.number("/usage/peak_pids");
        assert!((60..=64).contains(&peak), "{done}");
    }
}

/// True if the record names the limit of processes: as the reason, or as a warning.
fn names_pids(record: &Record) -> bool {
    record.reason() == "pids" || record.warnings().contains(&"pids")
}

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a12_three_thousand_processes_at_once_fit(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("perl") {
        skip("perl is missing");
        return;
    }
    // Each waits until all are there.
    let text = r"
pipe(my $reader, my $writer) or die;
for (1 .. 3000) {
    my $pid = fork;
    defined $pid or die qq(fork $_: $!);
    if (!$pid) { close $writer; sysread $reader, my $byte, 1; exec '/bin/true' }
}
close $writer;
my $good = 0;
while (wait != -1) { $good++ if $? == 0 }
print qq($good\n);
";
    let program = ["perl", "-e", text];
    let done = world.program(program).run();
    assert_eq!((done.code, done.out().as_str()), (0, "3000\n"), "{done}");
    let record = done.record();
    assert!(!names_pids(record), "{done}");
    if world.doctor().has("cgroup-pids") {
        assert!(record.number("/usage/peak_pids") >= 3000, "{done}");
    }
    // The same build with a smaller limit, which is named with what to do.
    let done = world.program(program).args(["--pids", "1000"]).run();
    assert_ne!(done.code, 0, "{done}");
    let record = done.record();
    assert_eq!(
        (record.state(), record.reason()),
        ("failed", "pids"),
        "{done}"
    );
    for part in ["1000", "--pids"] {
        assert!(record.reason_text().contains(part), "{part}: {done}");
    }
}
