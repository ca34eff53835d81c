//! How many sandboxes a machine starts: one after the other, two at a time, beside busy processors, and
//! after very many.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio as ProcessStdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use crate::figures::{Figures, table};
use crate::peers;
use crate::start::{self, Program};

fn now() -> Instant {
    Instant::now()
}

/// A program without a C library that ends at once: an ELF file of one segment whose code is
/// `exit(0)`, see elf(5).
pub(crate) fn static_true() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    // mov eax, 60; xor edi, edi; syscall
    const CODE: [u8; 9] = [0xb8, 0x3c, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
    let size = HEADERS + CODE.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
    file.resize(16, 0);
    file.extend(2_u16.to_le_bytes()); // an executable
    file.extend(62_u16.to_le_bytes()); // for x86-64
    file.extend(1_u32.to_le_bytes());
    file.extend((BASE + HEADERS).to_le_bytes()); // where it begins
    file.extend(64_u64.to_le_bytes()); // where the segments are listed
    file.extend(0_u64.to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    for part in [64_u16, 56, 1, 0, 0, 0] {
        file.extend(part.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes()); // to be loaded
    file.extend(5_u32.to_le_bytes()); // to be read and executed
    for part in [0, BASE, BASE, size, size, 0x1000] {
        file.extend(part.to_le_bytes());
    }
    file.extend(CODE);
    file
}

/// Writes [`static_true`] into a directory that every job can see.
fn write_static_true(directory: &Path) -> anyhow::Result<Program> {
    let host = directory.join("true");
    fs::write(&host, static_true())?;
    fs::set_permissions(&host, fs::Permissions::from_mode(0o755))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    Ok(Program {
        path: host,
        directory: Some(directory.to_owned()),
    })
}

/// Does something again and again for a time with this many workers, and gives how long each took. What
/// is done gets a number that no other has.
fn again(
    workers: usize,
    time: Duration,
    once: impl Fn(usize) -> anyhow::Result<Duration> + Sync,
) -> anyhow::Result<Vec<Duration>> {
    const NUMBERS: usize = 10_000_000;
    let end = now() + time;
    let work = |worker: usize| {
        let mut times = Vec::new();
        while now() < end {
            times.push(once(1 + worker * NUMBERS + times.len())?);
        }
        Ok(times)
    };
    let runs: Vec<anyhow::Result<Vec<Duration>>> = thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
            .collect()
    });
    let mut all = Vec::new();
    for run in runs {
        all.extend(run?);
    }
    Ok(all)
}

/// Sandboxes per second with one and two workers, beside bwrap, in turns of this many seconds.
pub(crate) fn rates(seconds: usize) -> anyhow::Result<String> {
    let time = Duration::from_secs(seconds.max(1) as u64);
    let scratch = tempfile::tempdir()?;
    let bin = tempfile::tempdir()?;
    let launcher = start::launcher(scratch.path())?;
    let fixed = write_static_true(bin.path())?;
    let dynamic = Program::of_the_host();
    let (subjects, _) = peers::installed(&scratch.path().join("bundle"))?;
    let peers = subjects
        .iter()
        .filter(|subject| matches!(subject.name, "bwrap" | "unshare"));
    let mut lines = Vec::new();
    for workers in [1, 2] {
        let plural = if workers == 1 { "" } else { "s" };
        let mut add = |name: &str, samples: Vec<Duration>| {
            let mut figures = Figures::new(format!("{name}, {workers} worker{plural}"));
            figures.samples = samples;
            lines.push(figures);
        };
        for peer in peers.clone() {
            let once = |round| start::timed(peers::command(peer, round));
            add(peer.name, again(workers, time, once)?);
        }
        for (name, program) in [
            ("sandbox, /bin/true", &dynamic),
            ("sandbox, static true", &fixed),
        ] {
            let once = |round| start::one_sandbox(&launcher, program, round);
            add(name, again(workers, time, once)?);
        }
    }
    let mut text = format!(
        "\n### Sandboxes per second, turns of {} s\n\n| subject | per second | p50 | p99 |\n|---|---:|---:|---:|\n",
        time.as_secs()
    );
    for figures in &lines {
        let rate = figures.samples.len() as f64 / time.as_secs_f64();
        writeln!(
            text,
            "| {} | {rate:.0} | {:.2} ms | {:.2} ms |",
            figures.name,
            figures.percentile(50).as_secs_f64() * 1000.0,
            figures.percentile(99).as_secs_f64() * 1000.0,
        )
        .context("writing to a string")?;
    }
    Ok(text)
}

/// Two processes that do nothing but keep a processor busy, ended when this is dropped.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start() -> anyhow::Result<Self> {
        let hog = || {
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .stdin(ProcessStdio::null())
                .spawn()
        };
        Ok(Self(vec![hog()?, hog()?]))
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            // It has no way to end before.
            hog.kill().ok();
            hog.wait().ok();
        }
    }
}

/// The time of a sandbox on a quiet machine and beside two processes that are always busy.
pub(crate) fn beside_hogs(rounds: usize) -> anyhow::Result<String> {
    let scratch = tempfile::tempdir()?;
    let bin = tempfile::tempdir()?;
    let launcher = start::launcher(scratch.path())?;
    let fixed = write_static_true(bin.path())?;
    let dynamic = Program::of_the_host();
    let mut subjects = Vec::new();
    for busy in [false, true] {
        let hogs = busy.then(Hogs::start).transpose()?;
        for (name, program) in [("static true", &fixed), ("/bin/true", &dynamic)] {
            let beside = if busy {
                "beside two busy processes"
            } else {
                "quiet"
            };
            let mut figures = Figures::new(format!("{name}, {beside}"));
            for round in 0..rounds {
                figures
                    .samples
                    .push(start::one_sandbox(&launcher, program, round)?);
            }
            subjects.push(figures);
        }
        drop(hogs);
    }
    let title = "A sandbox beside busy processors";
    Ok(table(title, "static true, quiet", &subjects))
}

/// Counts of the kernel's objects, as far as this user may see them.
fn kernel_objects() -> Vec<(String, u64)> {
    let mut counts = Vec::new();
    let slabs = fs::read_to_string("/proc/slabinfo").unwrap_or_default();
    for wanted in [
        "mnt_cache",
        "net_namespace",
        "pid_namespace",
        "user_namespace",
        "nsproxy",
        "cred_jar",
        "task_struct",
        "filp",
    ] {
        let line = slabs
            .lines()
            .find(|line| line.split_whitespace().next() == Some(wanted));
        if let Some(count) = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()) {
            counts.push((format!("slab {wanted}"), count));
        }
    }
    let groups = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    for line in groups.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split_whitespace();
        if let (Some(name @ ("memory" | "pids" | "cpu")), Some(Ok(count))) =
            (fields.next(), fields.nth(1).map(str::parse))
        {
            counts.push((format!("cgroups of {name}"), count));
        }
    }
    counts
}

/// Whether the last of very many sandboxes of one process costs what the first ones did, and what is left
/// in the kernel.
pub(crate) fn growth(rounds: usize) -> anyhow::Result<String> {
    const PART: usize = 1000;
    let scratch = tempfile::tempdir()?;
    let bin = tempfile::tempdir()?;
    let launcher = start::launcher(scratch.path())?;
    let fixed = write_static_true(bin.path())?;
    let (mut first, mut last) = (Figures::new("first 1,000"), Figures::new("last 1,000"));
    let mut before = Vec::new();
    for round in 0..rounds.max(2 * PART) {
        let elapsed = start::one_sandbox(&launcher, &fixed, round)?;
        if round < PART {
            first.samples.push(elapsed);
        } else if round == PART {
            before = kernel_objects();
        }
        if round + PART >= rounds.max(2 * PART) {
            last.samples.push(elapsed);
        }
    }
    let after = kernel_objects();
    let title = format!("{rounds} sandboxes of one process in a row");
    let mut text = table(&title, "first 1,000", &[first, last]);
    text.push_str("\n| kernel objects | after 1,000 | at the end |\n|---|---:|---:|\n");
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        writeln!(text, "| {name} | {before} | {after} |").context("writing to a string")?;
    }
    Ok(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_program_without_a_library_runs() {
        let directory = tempfile::tempdir().unwrap();
        let program = write_static_true(directory.path()).unwrap();
        assert!(Command::new(program.path).status().unwrap().success());
    }
}
