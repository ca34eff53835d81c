//! Everything that has to pass, in one command: what a developer types and what CI runs.

mod totals;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{cargo, tidy};
use totals::Totals;

/// The file that tests append to when they cannot run on this machine, one line each: the test's
/// name, a colon, and what is missing. Skips are counted and named, never silent.
const SKIPS_VARIABLE: &str = "TIDEMILL_TEST_SKIPS";

/// The binary that the black-box suite tries.
const BINARY_VARIABLE: &str = "TIDEMILL_BIN";

type Step = fn(&Checker) -> Result<Outcome>;

/// All steps, the quick ones first.
const STEPS: &[(&str, Step)] = &[
    ("fmt", |checker| {
        let names_only = ["fmt", "--all", "--", "--check", "--files-with-diff"];
        checker.component("fmt", "rustup component add rustfmt", &names_only)
    }),
    ("tidy", |checker| Ok(Outcome::of(tidy::run(&checker.root)?))),
    ("clippy", |checker| {
        let all = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-Dwarnings",
        ];
        checker.component("clippy", "rustup component add clippy", &all)
    }),
    ("tests", Checker::tests),
    ("doctests", |checker| {
        checker.cargo(&["test", "--workspace", "--doc", "--locked"])
    }),
    ("docs", Checker::docs),
    ("deny", |checker| {
        let offline = [
            "deny",
            "--workspace",
            "check",
            "bans",
            "licenses",
            "sources",
        ];
        checker.component("deny", "cargo install cargo-deny", &offline)
    }),
];

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

impl Outcome {
    const fn of(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}

/// Runs the named steps, all of them if none is named, and prints a summary. True if none failed.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<bool> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !STEPS.iter().any(|(step, _)| step == *name))
    {
        bail!("there is no step `{unknown}`\n{}", crate::USAGE);
    }
    let checker = Checker::new(root)?;
    let mut ended = Vec::new();
    for (name, step) in STEPS {
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        println!("── {name}");
        let start = Instant::now();
        let outcome = step(&checker)?;
        ended.push((*name, outcome, start.elapsed()));
    }
    checker.summarise(&ended)
}

struct Checker {
    root: PathBuf,
    target: PathBuf,
    totals: Cell<Totals>,
}

impl Checker {
    fn new(root: &Path) -> Result<Self> {
        let metadata = cargo::metadata(root)?;
        let target = metadata
            .get("target_directory")
            .and_then(Value::as_str)
            .context("cargo metadata does not say where it builds")?;
        Ok(Self {
            root: root.to_path_buf(),
            target: PathBuf::from(target),
            totals: Cell::new(Totals::default()),
        })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        cargo::command(&self.root, arguments)
    }

    fn cargo(&self, arguments: &[&str]) -> Result<Outcome> {
        let status = self
            .command(arguments)
            .status()
            .with_context(|| format!("failed to start cargo {}", arguments.join(" ")))?;
        Ok(Outcome::of(status.success()))
    }

    /// Runs a part of cargo that may be missing on a fresh machine; then the step is skipped, by
    /// name.
    fn component(&self, subcommand: &str, install: &str, arguments: &[&str]) -> Result<Outcome> {
        if self.has(subcommand) {
            self.cargo(arguments)
        } else {
            let why = format!("there is no cargo {subcommand}; get it with `{install}`");
            Ok(Outcome::Skipped(why))
        }
    }

    /// Whether cargo has this subcommand.
    fn has(&self, subcommand: &str) -> bool {
        let mut command = self.command(&[subcommand, "--version"]);
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// The tests, with nextest if it is there. Both take the same packages, targets and features as
    /// the build before them, so that nothing is built twice.
    fn tests(&self) -> Result<Outcome> {
        let targets = ["--workspace", "--lib", "--bins", "--tests", "--locked"];
        // Test runners build a binary only for the tests of its own package.
        let build: Vec<_> = ["build"].into_iter().chain(targets).collect();
        if self.cargo(&build)? == Outcome::Failed {
            return Ok(Outcome::Failed);
        }
        let runner: &[&str] = if self.has("nextest") {
            &["nextest", "run"]
        } else {
            println!("cargo-nextest is not installed: cargo test runs the tests");
            &["test"]
        };
        let arguments: Vec<_> = runner
            .iter()
            .copied()
            .chain(targets)
            .chain(["--no-fail-fast"])
            .collect();
        // Tests append to it.
        let skips = self.skips();
        fs::write(&skips, "").with_context(|| format!("failed to empty {}", skips.display()))?;
        let mut child = self
            .command(&arguments)
            .env(SKIPS_VARIABLE, skips)
            .env(BINARY_VARIABLE, self.target.join("debug/tidemill"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("failed to start the tests")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let stderr = child.stderr.take().context("stderr is piped")?;
        let (from_stdout, from_stderr) = thread::scope(|scope| {
            let stderr = scope.spawn(|| tee(stderr, std::io::stderr()));
            let stdout = tee(stdout, std::io::stdout());
            (stdout, stderr.join().expect("copying lines does not panic"))
        });
        self.totals.set(from_stdout?.merge(from_stderr?));
        let status = child.wait().context("failed to wait for the tests")?;
        Ok(Outcome::of(status.success()))
    }

    fn skips(&self) -> PathBuf {
        self.target.join("test-skips.txt")
    }

    fn docs(&self) -> Result<Outcome> {
        let status = self
            .command(&[
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
                "--locked",
            ])
            .env("RUSTDOCFLAGS", "-Dwarnings")
            .status()
            .context("failed to start cargo doc")?;
        Ok(Outcome::of(status.success()))
    }

    fn summarise(&self, ended: &[(&str, Outcome, Duration)]) -> Result<bool> {
        println!("── summary");
        for (name, outcome, took) in ended {
            let how = match outcome {
                Outcome::Passed => "passed".to_owned(),
                Outcome::Failed => "FAILED".to_owned(),
                Outcome::Skipped(why) => format!("skipped: {why}"),
            };
            println!("{name:<9} {:>7.1} s  {how}", took.as_secs_f64());
        }
        if ended.iter().any(|(name, ..)| *name == "tests") {
            let totals = self.totals.get();
            println!("{totals}");
            // What tests noted that ran earlier says nothing of this run.
            if totals.is_counted() {
                let skips = fs::read_to_string(self.skips()).unwrap_or_default();
                print!("{}", totals::skips(&skips));
            }
        }
        Ok(!ended
            .iter()
            .any(|(_, outcome, _)| *outcome == Outcome::Failed))
    }
}

/// Copies lines as they come, and counts what test runners say in them.
fn tee(from: impl Read, mut to: impl Write) -> Result<Totals> {
    let mut totals = Totals::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = from
            .read_until(b'\n', &mut line)
            .context("failed to read a test's output")?;
        if length == 0 {
            return Ok(totals);
        }
        to.write_all(&line)
            .context("failed to print a test's output")?;
        totals.read_line(&String::from_utf8_lossy(&line));
    }
}
