//! A root of the real world.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::binary::kept;
use crate::host::has_program;
use crate::mode::Mode;

/// An archive of a small Debian system with Python and pip, made once and kept for the next run.
///
/// # Errors
/// Why there is none: it takes root, debootstrap and a mirror.
pub fn debian() -> Result<PathBuf, String> {
    if !Mode::suite_is_root() {
        return Err("only root can make a Debian tree".to_owned());
    }
    if !has_program("debootstrap") {
        return Err("debootstrap is missing".to_owned());
    }
    let (kept, _guard) = kept("debian-bookworm-pip.tar");
    if kept.exists() {
        return Ok(kept);
    }
    let work = tempfile::tempdir().map_err(|error| error.to_string())?;
    let root = work.path().join("root");
    let packages = "--include=python3-minimal,python3-pip,ca-certificates";
    let output = Command::new("timeout")
        .args([
            "300",
            "debootstrap",
            "--variant=minbase",
            packages,
            "bookworm",
        ])
        .arg(&root)
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        let last = said.lines().last().unwrap_or("it said nothing").to_owned();
        return Err(format!(
            "debootstrap failed (is its mirror reachable?): {last}"
        ));
    }
    let draft = kept.with_extension("draft");
    let packed = Command::new("tar")
        .args([
            "--one-file-system",
            "--exclude=./dev/*",
            "--exclude=./var/cache/apt/archives/*.deb",
        ])
        .arg("-cf")
        .arg(&draft)
        .arg("-C")
        .arg(&root)
        .arg(".")
        .status()
        .map_err(|error| error.to_string())?;
    if !packed.success() {
        return Err("tar failed".to_owned());
    }
    fs::rename(&draft, &kept).map_err(|error| error.to_string())?;
    Ok(kept)
}
