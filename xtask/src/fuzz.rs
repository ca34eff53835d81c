//! Runs the fuzz targets under libFuzzer, built by the stable compiler: what instruments the code is a
//! pass of LLVM that it has too.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo;

/// What libFuzzer needs to see which way an input takes.
const INSTRUMENTATION: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Memory, time and length of one input are bounded: an input that needs more is a fault.
const BOUNDS: &[&str] = &[
    "-rss_limit_mb=512",
    "-malloc_limit_mb=256",
    "-timeout=10",
    "-max_len=16384",
    "-print_final_stats=1",
];

/// Seconds for each target, unless it is said.
const SECONDS: u64 = 60;
/// Files in memory are quick.
const IN_MEMORY: &str = "/dev/shm";

/// Runs the named targets, all of them if none is named. True if none found a fault.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<bool> {
    let all = targets(root)?;
    let mut seconds = SECONDS;
    let mut wanted = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if *word == "--seconds" {
            let number = words.next().and_then(|number| number.parse().ok());
            seconds = number.context("--seconds wants a number")?;
        } else if all.iter().any(|target| target == word) {
            wanted.push((*word).to_owned());
        } else {
            bail!("there is no target `{word}`; there are: {}", all.join(", "));
        }
    }
    let wanted = if wanted.is_empty() { all } else { wanted };
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    build(root, &triple, &wanted)?;
    let mut faulty = Vec::new();
    for target in wanted {
        println!("── {target}");
        if !fuzz(root, &triple, &target, seconds)? {
            faulty.push(target);
        }
    }
    if !faulty.is_empty() {
        println!(
            "faults in: {}; the inputs are in fuzz/artifacts",
            faulty.join(", ")
        );
    }
    Ok(faulty.is_empty())
}

/// Each target has a folder of seeds.
fn targets(root: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(root.join("fuzz/seeds")).context("failed to list fuzz/seeds")?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.context("failed to list fuzz/seeds")?.file_name();
        names.extend(name.into_string());
    }
    names.sort();
    Ok(names)
}

fn build(root: &Path, triple: &str, targets: &[String]) -> Result<()> {
    // With a triple, the flags are not for what runs while it is built.
    let mut command = cargo::command(root, &["build", "--manifest-path", "fuzz/Cargo.toml"]);
    command
        .args(["--target-dir", "target/fuzz", "--target"])
        .arg(triple);
    for target in targets {
        command.args(["--bin", target]);
    }
    let status = command
        .env("RUSTFLAGS", INSTRUMENTATION.join(" "))
        .status()
        .context("failed to start cargo build")?;
    if !status.success() {
        bail!("the fuzz targets do not build; they need a C++ compiler");
    }
    Ok(())
}

fn fuzz(root: &Path, triple: &str, target: &str, seconds: u64) -> Result<bool> {
    let fuzz = root.join("fuzz");
    let (corpus, artifacts) = (
        fuzz.join("corpus").join(target),
        fuzz.join("artifacts").join(target),
    );
    for directory in [&corpus, &artifacts] {
        fs::create_dir_all(directory)
            .with_context(|| format!("failed to make {}", directory.display()))?;
    }
    let program = root
        .join("target/fuzz")
        .join(triple)
        .join("debug")
        .join(target);
    let mut command = Command::new(&program);
    command
        .args(BOUNDS)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        // What it finds goes into the first folder.
        .args([corpus, fuzz.join("seeds").join(target)]);
    if Path::new(IN_MEMORY).is_dir() {
        command.env("TMPDIR", IN_MEMORY);
    }
    let status = command
        .status()
        .with_context(|| format!("failed to start {}", program.display()))?;
    Ok(status.success())
}
