//! What this host can do, as `tidemill doctor` tells it, and which programs are installed.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

/// True if a program is installed where the tests' jobs look for it.
pub fn has_program(name: &str) -> bool {
    program_directories().any(|directory| {
        fs::metadata(directory.join(name))
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// The PATH that the tests give to the binary: the system's programs, and nobody's own.
pub(crate) const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn program_directories() -> impl Iterator<Item = std::path::PathBuf> {
    env::split_paths(SYSTEM_PATH)
}

/// The answer of `tidemill doctor --format json`.
#[derive(Debug, Clone)]
pub struct Doctor(pub Value);

impl Doctor {
    /// The check with this name.
    pub fn check(&self, name: &str) -> Option<&Value> {
        self.0["checks"]
            .as_array()?
            .iter()
            .find(|check| check["name"] == name)
    }

    /// True if all is there that this check looks for.
    pub fn has(&self, name: &str) -> bool {
        self.check(name).is_some_and(|check| check["state"] == "ok")
    }
}

/// True if a path is there for everybody to read.
pub(crate) fn is_file(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file())
}
