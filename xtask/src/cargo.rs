//! The cargo that runs this program, and what it says of the workspace.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A call of cargo in the workspace.
pub(crate) fn command(root: &Path, arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    command
}

/// The packages of the workspace and where they are built, without what they depend on.
pub(crate) fn metadata(root: &Path) -> Result<Value> {
    let output = command(root, &["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("failed to start cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed no JSON")
}
