//! `cargo xtask`: checks that people would otherwise have to remember. Never part of the product.
//!
//! - `cargo xtask tidy`: the rules that no compiler knows; start reading at [`tidy`].
//! - `cargo xtask check [STEP…]`: everything that has to pass; start reading at [`check`].
//! - `cargo xtask fuzz [TARGET…] [--seconds N]`: looks for inputs that break a parser; see `fuzz`.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool talks to its terminal"
)]

mod cargo;
mod check;
mod file_tree;
mod fuzz;
mod rust_source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask tidy | cargo xtask check [STEP...] | \
                     cargo xtask fuzz [TARGET...] [--seconds N]
steps: fmt tidy clippy tests doctests docs deny (all of them, in this order, if none is named)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// True if everything passed.
fn run(arguments: &[String]) -> Result<bool> {
    let root = workspace_root()?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["tidy"] => tidy::run(&root),
        ["check", steps @ ..] => check::run(&root, steps),
        ["fuzz", targets @ ..] => fuzz::run(&root, targets),
        _ => bail!("{USAGE}"),
    }
}

fn workspace_root() -> Result<PathBuf> {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = manifest_dir
        .parent()
        .context("xtask lies in the workspace")?;
    Ok(root.to_path_buf())
}
