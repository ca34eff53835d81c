//! What sandboxes leave on the host while they run, so that a later process can remove it if their
//! launcher never came to it: a directory `sandboxes/NAME` for a private layer on disk, and for the
//! control groups of each launcher a directory `sandboxes/launcher-…` with a note of where they are.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use crate::cgroup::{CgroupPlaces, GROUP_PREFIX, remove_groups};

/// What the names of the launchers' directories begin with.
const LAUNCHER_PREFIX: &str = "launcher-";
/// The file in a launcher's directory that names the places of its groups, one path a line. The
/// launcher and its wardens hold a lock on it.
const PLACES: &str = "places";

/// Something that a sweep removed or could not remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepNote {
    /// What it was.
    pub path: PathBuf,
    /// Why it is still there, if it is.
    pub error: Option<String>,
}

/// The note of a launcher that lives.
#[derive(Debug)]
pub(crate) struct LauncherNote {
    /// The launcher's own directory.
    pub(crate) directory: PathBuf,
    /// What the names of its groups begin with.
    pub(crate) group_prefix: String,
    lock: OwnedFd,
}

impl LauncherNote {
    /// Notes where this process is going to make groups.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn write(state_dir: &Path, places: &CgroupPlaces) -> io::Result<Self> {
        let name = own_name();
        let directory = state_dir
            .join("sandboxes")
            .join(format!("{LAUNCHER_PREFIX}{name}"));
        let text: String = places
            .directories()
            .flat_map(|place| [place.to_string_lossy(), "\n".into()])
            .collect();
        let path = directory.join(PLACES);
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        loop {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)?;
            let lock = match rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600)) {
                Ok(lock) => lock,
                Err(rustix::io::Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            flock(&lock, FlockOperation::LockExclusive)?;
            // A sweep that came before the lock took the note for that of a dead one.
            if rustix::fs::fstat(&lock)?.st_nlink == 0 {
                continue;
            }
            rustix::io::write(&lock, text.as_bytes())?;
            return Ok(Self {
                directory,
                group_prefix: format!("{GROUP_PREFIX}{name}-"),
                lock,
            });
        }
    }

    /// Removes the note: no group is left.
    pub(crate) fn remove(self) {
        // With the lock held: nobody sweeps it meanwhile.
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::warn!(path = %self.directory.display(), %error, "a note was not removed");
        }
        drop(self.lock);
    }
}

/// A name that no other process of this host has or had since it was started: process ids come again,
/// but not with the same time of start.
fn own_name() -> String {
    // The 22nd field, and the 20th after the command, which may have spaces in it; see proc_pid_stat(5).
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let start = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19));
    format!("{}-{}", std::process::id(), start.unwrap_or("0"))
}

/// Removes the groups of launchers that are dead.
pub(crate) fn sweep_launchers(state_dir: &Path) -> Vec<SweepNote> {
    let mut notes = Vec::new();
    let entries = fs::read_dir(state_dir.join("sandboxes"));
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(own) = name.strip_prefix(LAUNCHER_PREFIX) else {
            continue;
        };
        let Ok(lock) = rustix::fs::open(
            entry.path().join(PLACES),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        ) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let text = fs::read_to_string(entry.path().join(PLACES)).unwrap_or_default();
        let prefix = format!("{GROUP_PREFIX}{own}-");
        let mut all_gone = true;
        for (path, error) in text
            .lines()
            .flat_map(|place| remove_groups(Path::new(place), &prefix))
        {
            all_gone &= error.is_none();
            let error = error.map(|error| error.to_string());
            notes.push(SweepNote { path, error });
        }
        if all_gone {
            let error = remove_if_there(&entry.path()).err();
            let error = error.map(|error| error.to_string());
            notes.push(SweepNote {
                path: entry.path(),
                error,
            });
        }
    }
    notes
}

/// The directory of one sandbox below the state directory.
pub(crate) fn directory(state_dir: &Path, name: &str) -> PathBuf {
    state_dir.join("sandboxes").join(name)
}

/// Removes a sandbox's directory with all that is in it, whatever permissions a job has set there.
pub(crate) fn remove_scratch(state_dir: &Path, name: &str) {
    let directory = directory(state_dir, name);
    if let Err(error) = remove_if_there(&directory) {
        tracing::warn!(path = %directory.display(), %error, "scratch was not removed");
    }
}

/// Removes what a dead attempt left: its scratch directory, and the processes and groups of launchers
/// that are dead. Harmless if nothing is there.
pub fn sweep(state_dir: &Path, name: &str) -> Vec<SweepNote> {
    let mut notes = sweep_launchers(state_dir);
    let directory = directory(state_dir, name);
    if directory.exists() {
        let error = remove_if_there(&directory).err();
        let error = error.map(|error| error.to_string());
        notes.push(SweepNote {
            path: directory,
            error,
        });
    }
    notes
}

fn remove_if_there(directory: &Path) -> io::Result<()> {
    match tidemill_tree::remove_tree(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
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
    fn a_note_opens_nothing_to_others() {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().join("new");
        let note = LauncherNote::write(&state, &CgroupPlaces::default()).unwrap();
        for made in [&state, &state.join("sandboxes"), &note.directory] {
            let mode = fs::metadata(made).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", made.display());
        }
        note.remove();
    }

    #[test]
    fn only_the_groups_of_a_dead_launcher_are_swept() {
        let state = tempfile::tempdir().unwrap();
        let place = state.path().join("place");
        let places = CgroupPlaces {
            unified: Some((place.clone(), Vec::new())),
            ..CgroupPlaces::default()
        };
        let note = LauncherNote::write(state.path(), &places).unwrap();
        let (own, other) = (
            place.join(format!("{}0-0", note.group_prefix)),
            place.join("tidemill-other"),
        );
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&other).unwrap();
        assert_eq!(sweep_launchers(state.path()), Vec::new());
        let LauncherNote {
            directory, lock, ..
        } = note;
        drop(lock);
        let notes = sweep_launchers(state.path());
        let paths: Vec<_> = notes.iter().map(|note| &note.path).collect();
        assert_eq!(paths, [&own, &directory]);
        assert!(!own.exists() && other.exists() && !directory.exists());
    }
}
