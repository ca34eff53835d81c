//! What a sandbox leaves on the host while it runs, so that a later process can remove it if the
//! launcher never came to it: a directory `sandboxes/NAME` with a note of its cgroups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::{group_name, remove_group};
use crate::sys::process;

/// The file in a sandbox's directory that names its cgroups, one path a line.
const CGROUPS: &str = "cgroups";

/// Something that a sweep removed or could not remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepNote {
    /// What it was.
    pub path: PathBuf,
    /// Why it is still there, if it is.
    pub error: Option<String>,
}

/// The directory of one sandbox below the state directory.
pub(crate) fn directory(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join("sandboxes").join(name)
}

pub(crate) fn note_cgroups(state_dir: &Path, name: &str, paths: &[PathBuf]) -> io::Result<()> {
    let directory = directory(state_dir, name);
    fs::create_dir_all(&directory)?;
    let text: String = paths
        .iter()
        .flat_map(|path| [path.to_string_lossy(), "\n".into()])
        .collect();
    fs::write(directory.join(CGROUPS), text)
}

/// Removes a sandbox's directory with all that is in it, whatever permissions a job has set there.
pub(crate) fn remove_scratch(state_dir: &Path, name: &str) {
    let directory = directory(state_dir, name);
    if let Err(error) = remove_tree(&directory) {
        tracing::warn!(path = %directory.display(), %error, "scratch was not removed");
    }
}

/// Removes what a dead attempt left: its processes, its cgroups, its scratch directory. Harmless if
/// nothing is there.
pub fn sweep(state_dir: &Path, name: &str) -> Vec<SweepNote> {
    let directory = directory(state_dir, name);
    let mut notes = Vec::new();
    let listed = fs::read_to_string(directory.join(CGROUPS)).unwrap_or_default();
    for path in listed.lines().map(PathBuf::from) {
        // Never a directory that is not one of ours, whatever the note says.
        if path
            .file_name()
            .is_none_or(|leaf| leaf != group_name(name).as_str())
            || !path.exists()
        {
            continue;
        }
        let killed = fs::write(path.join("cgroup.kill"), "1").is_ok();
        if !killed {
            for pid in fs::read_to_string(path.join("cgroup.procs"))
                .unwrap_or_default()
                .lines()
            {
                if let Ok(pid) = pid.parse() {
                    // It may have ended by itself.
                    process::kill(pid, libc::SIGKILL).ok();
                }
            }
        }
        let error = remove_group(&path).err().map(|error| error.to_string());
        notes.push(SweepNote { path, error });
    }
    if directory.exists() {
        let error = remove_tree(&directory).err().map(|error| error.to_string());
        notes.push(SweepNote {
            path: directory,
            error,
        });
    }
    notes
}

/// Removes a tree without recursion in the call stack and without trusting its permissions.
fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_up(path);
            fs::remove_dir_all(path)
        }
        other => other,
    }
}

/// Makes every directory of a tree writable for its owner, which is us or whom we map.
fn open_up(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mut waiting = vec![path.to_owned()];
    while let Some(directory) = waiting.pop() {
        // What cannot be opened up is reported by the removal that follows.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).ok();
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        waiting.extend(
            entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path()),
        );
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_tree_with_locked_directories_is_removed() {
        let state = tempfile::tempdir().unwrap();
        note_cgroups(state.path(), "a", &[]).unwrap();
        let deep = directory(state.path(), "a").join("x/y");
        fs::create_dir_all(&deep).unwrap();
        fs::set_permissions(&deep, fs::Permissions::from_mode(0o000)).unwrap();
        let notes = sweep(state.path(), "a");
        assert_eq!(notes.len(), 1);
        assert_eq!(notes[0].error, None);
        assert!(!directory(state.path(), "a").exists());
        assert_eq!(sweep(state.path(), "a"), Vec::new());
    }

    #[test]
    fn a_note_cannot_make_the_sweep_remove_something_else() {
        let state = tempfile::tempdir().unwrap();
        let other = state.path().join("precious");
        fs::create_dir(&other).unwrap();
        note_cgroups(state.path(), "a", std::slice::from_ref(&other)).unwrap();
        sweep(state.path(), "a");
        assert!(other.exists());
    }
}
