//! Processes that stay, and signals that go out: hostile cases 38, 39, 44 and 50 to 55.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::bait;
use crate::sys::{self, Ending, call};
use crate::verdict::{Findings, Verdict};

/// How long what was left behind lives at most, in beats.
const BEATS_MAX: u32 = 400;
const BEAT: Duration = Duration::from_millis(50);

/// The file that whoever stayed behind writes to.
fn beat_file() -> PathBuf {
    env::var_os("PROBE_BEAT").map_or_else(|| PathBuf::from("beat"), PathBuf::from)
}

/// Writes a growing number for a while.
fn keep_beating(file: &Path) {
    for beat in 0..BEATS_MAX {
        drop(bait::beat(file, &beat.to_string()));
        thread::sleep(BEAT);
    }
}

fn be_deaf() {
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        sys::ignore(signal);
    }
}

/// Leaves a process behind that belongs to nobody, hears nothing and holds no stream.
fn leave_behind(holds_output: bool) -> io::Result<()> {
    let child = sys::fork()?;
    if child > 0 {
        return sys::wait(child).map(drop);
    }
    drop(call!(libc::SYS_setsid));
    be_deaf();
    drop(call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, 0, 0, 0, 0));
    if sys::fork()? > 0 {
        sys::exit_now(0);
    }
    drop(call!(libc::SYS_setsid));
    if !holds_output {
        for descriptor in 0..3 {
            drop(call!(libc::SYS_close, descriptor));
        }
    }
    keep_beating(&beat_file());
    sys::exit_now(0)
}

fn await_beat() -> Verdict {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if fs::read(beat_file()).is_ok_and(|bytes| !bytes.is_empty()) {
            return Verdict::Safe("somebody stays behind and beats".to_owned());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Verdict::Absent("nobody could stay behind".to_owned())
}

pub(crate) fn orphan() -> Verdict {
    match leave_behind(false) {
        Ok(()) => await_beat(),
        Err(error) => Verdict::Absent(format!("nobody could stay behind: {error}")),
    }
}

pub(crate) fn held_output() -> Verdict {
    match leave_behind(true) {
        Ok(()) => await_beat(),
        Err(error) => Verdict::Absent(format!("nobody could stay behind: {error}")),
    }
}

/// Leaves somebody behind, and then waits itself, deaf too.
pub(crate) fn stays() -> Verdict {
    be_deaf();
    drop(call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, 0, 0, 0, 0));
    let verdict = orphan();
    // Whoever waits for this line reads it at once.
    let line = format!("{verdict}\n");
    drop(io::Write::write_all(&mut io::stdout(), line.as_bytes()));
    thread::sleep(BEAT * BEATS_MAX);
    Verdict::Absent("nobody ended it".to_owned())
}

/// Waits in every way that is hard to interrupt: in an open that nobody answers, behind a child by
/// vfork, and deaf.
pub(crate) fn stubborn() -> Verdict {
    be_deaf();
    let pipe = c"never-opened";
    drop(call!(libc::SYS_mknod, pipe, libc::S_IFIFO | 0o600, 0));
    for _ in 0..3 {
        if sys::fork().is_ok_and(|pid| pid == 0) {
            drop(call!(libc::SYS_setsid));
            loop {
                drop(call!(libc::SYS_open, pipe, libc::O_RDONLY));
            }
        }
    }
    // The parent stands still in the kernel until the child is gone.
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    if call!(libc::SYS_clone, flags, 0, 0, 0, 0).is_ok_and(|pid| pid == 0) {
        thread::sleep(Duration::from_secs(60));
        sys::exit_now(0);
    }
    Verdict::Broken("it outlived its limit".to_owned())
}

/// Sends signals to everybody that it can name.
pub(crate) fn signals_to_all() -> Verdict {
    let mut findings = Findings::new();
    let group = call!(libc::SYS_getpgid, 0).unwrap_or(0);
    findings.unless(group == 0, "its process group is somebody else's");
    let session = call!(libc::SYS_getsid, 0).unwrap_or(0);
    findings.unless(session == 0, "its session is somebody else's");
    if group == 0 || session == 0 {
        // Enough is known, and whoever it is is spared.
        return findings.verdict();
    }
    be_deaf();
    for (name, target) in [("its group", 0), ("everybody", -1), ("the first", 1)] {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            match sys::kill(target, signal) {
                Ok(()) => findings.held(format!("{name} was signalled")),
                Err(error) => findings.held(format!("{name}: {error}")),
            }
        }
    }
    // The first process of a namespace is safe from those below it.
    drop(sys::kill(1, libc::SIGKILL));
    drop(sys::kill(1, libc::SIGSTOP));
    findings.verdict()
}

pub(crate) fn signals_out() -> Verdict {
    let mut findings = Findings::new();
    let victim = bait::number("VICTIM");
    let own = std::process::id().cast_signed();
    for pid in [victim, victim + 1, victim - 1] {
        if pid > 2 && pid != own && !is_own_child(pid) {
            findings.attempt(&format!("a signal to {pid}"), || sys::kill(pid, 0));
        }
    }
    let visible = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut count = 0;
    for entry in visible {
        let path = entry.path();
        let Ok(command) = fs::read(path.join("cmdline")) else {
            continue;
        };
        count += 1;
        let is_bait = String::from_utf8_lossy(&command).contains(bait::ARGUMENT_SECRET);
        findings.unless(is_bait, format!("{} is of the host", path.display()));
    }
    findings.held(format!("{count} processes are visible, none of the host"));
    findings.verdict()
}

fn is_own_child(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let own = std::process::id().to_string();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.is_some_and(|parent| parent.trim() == own)
}

pub(crate) fn core_dump() -> Verdict {
    let mut findings = Findings::new();
    let (_, hard) = sys::limit(libc::RLIMIT_CORE).unwrap_or((0, 0));
    drop(sys::set_limit(libc::RLIMIT_CORE, hard, hard));
    // A program of the host that takes core dumps is started whatever the limit is, unless it is 1.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let is_taken = pattern.starts_with('|') && hard != 1;
    findings.unless(
        is_taken,
        format!("a limit of {hard} does not stop {pattern}"),
    );
    let before = names_here();
    for signal in [libc::SIGABRT, libc::SIGILL, libc::SIGQUIT] {
        let ending = sys::fork().and_then(|pid| {
            if pid == 0 {
                drop(sys::kill(std::process::id().cast_signed(), signal));
                sys::exit_now(0);
            }
            sys::wait(pid)
        });
        match ending {
            Ok(Ending::Signalled { dumped, .. }) => {
                findings.unless(dumped, format!("signal {signal} leaves a core dump"));
                findings.held(format!("signal {signal} leaves none"));
            }
            other => findings.absent(format!("{other:?}")),
        }
    }
    let after = names_here();
    findings.unless(before != after, format!("new here: {after:?}"));
    findings.verdict()
}

fn names_here() -> Vec<String> {
    let entries = fs::read_dir(".").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// How many processes or threads must be impossible.
fn bound() -> usize {
    let told = env::var("PROBE_BOUND").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(1024)
}

pub(crate) fn fork_bomb() -> Verdict {
    let mut children = Vec::new();
    let refused = loop {
        if children.len() >= bound() {
            break None;
        }
        match sys::fork() {
            Ok(0) => loop {
                thread::sleep(Duration::from_secs(60));
            },
            Ok(pid) => children.push(pid),
            Err(error) => break Some(error),
        }
    };
    for pid in &children {
        drop(sys::kill(*pid, libc::SIGKILL));
        drop(sys::wait(*pid));
    }
    let count = children.len();
    match refused {
        Some(error) => Verdict::Safe(format!("refused after {count}: {error}")),
        None => Verdict::Broken(format!("{count} processes at one time")),
    }
}

pub(crate) fn thread_bomb() -> Verdict {
    const STACK: usize = 64 << 10;
    let mut count = 0;
    while count < bound() {
        let builder = thread::Builder::new().stack_size(STACK);
        let started = builder.spawn(|| thread::sleep(Duration::from_secs(60)));
        if let Err(error) = started {
            return Verdict::Safe(format!("refused after {count}: {error}"));
        }
        count += 1;
    }
    Verdict::Broken(format!("{count} threads at one time"))
}

/// Forks, each time into a session of its own, and lets the parent go: never the same process twice.
pub(crate) fn session_loop() -> Verdict {
    be_deaf();
    let file = beat_file();
    if sys::fork().is_ok_and(|pid| pid == 0) {
        for generation in 0..200_000_u32 {
            if generation.is_multiple_of(64) {
                drop(bait::beat(&file, &generation.to_string()));
            }
            match sys::fork() {
                Ok(0) => drop(call!(libc::SYS_setsid)),
                Ok(_) => sys::exit_now(0),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        }
        sys::exit_now(0);
    }
    await_beat()
}

/// Burns CPU time in many processes, and measures how much of it there was.
pub(crate) fn cpu_share() -> Verdict {
    const SPINNERS: usize = 4;
    let allowed: u64 = env::var("PROBE_CPU_PERCENT")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    let start = Instant::now();
    let end = start + Duration::from_millis(1500);
    let mut children = Vec::new();
    for _ in 0..SPINNERS {
        match sys::fork() {
            Ok(0) => {
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                sys::exit_now(0)
            }
            Ok(pid) => children.push(pid),
            Err(_) => break,
        }
    }
    for pid in children {
        drop(sys::wait(pid));
    }
    let mut usage = [0_u64; 18];
    const OF_CHILDREN: i32 = -1;
    if let Err(error) = call!(libc::SYS_getrusage, OF_CHILDREN, &mut usage) {
        return Verdict::Absent(format!("the usage is not known: {error}"));
    }
    let used = (usage[0] + usage[2]) * 1_000_000 + usage[1] + usage[3];
    let wall = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let percent = used * 100 / wall.max(1);
    let text = format!("{percent} % of one CPU used, {allowed} % allowed");
    // A period's worth more than allowed is how a quota works.
    if percent > allowed + 10 {
        Verdict::Broken(text)
    } else {
        Verdict::Safe(text)
    }
}
