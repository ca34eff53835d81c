//! `--result-file`: the record as a file that is either whole or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

use rustix::fs::{Access, OFlags, access};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;
use tidemill_core::{Reason, State};
use tidemill_ledger::Snapshot;

use crate::diagnostics::Placed;
use crate::failure::{Failure, FailureKind};

/// Where the record of a run goes.
#[derive(Debug)]
pub(crate) struct ResultFile {
    path: PathBuf,
}

/// What is written when there is no record, because the job could not even be queued. The fields
/// mean what they mean in a record.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NotRecorded<'a> {
    /// The version of this form.
    version: u32,
    /// Always `failed`.
    state: State,
    /// Why nothing was run.
    reason: Reason,
    /// The mistakes that were found, each with its place; none where it was none of the caller's.
    mistakes: &'a [Placed],
}

impl<'a> NotRecorded<'a> {
    /// The record that there would be.
    pub(crate) fn new(failure: &'a Failure) -> Self {
        let mut reason = Reason::new(failure.kind.reason_code(), failure.to_string());
        reason.hint = failure.hints.first().cloned();
        Self {
            version: 1,
            state: State::Failed,
            reason,
            mistakes: &failure.diagnostics,
        }
    }
}

impl ResultFile {
    /// Looks whether the file will be writable, so that a wrong path is told before the job runs and
    /// not after.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let message = format!("cannot write the result to `{}`", path.display());
            Failure::new(FailureKind::Usage, message)
                .because(&error)
                .hint("name a file in a directory that is there and that you may write")
        };
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let to_check = if is_special(path) {
            path
        } else {
            directory_of(path)
        };
        access(to_check, Access::WRITE_OK).map_err(|errno| failed(errno.into()))?;
        let path = std::path::absolute(path).map_err(failed)?;
        Ok(Self { path })
    }

    pub(crate) fn write_record(&self, snapshot: &Snapshot) -> Result<(), Failure> {
        self.write(snapshot)
    }

    pub(crate) fn write_failure(&self, failure: &Failure) -> Result<(), Failure> {
        self.write(&NotRecorded::new(failure))
    }

    fn write(&self, value: &impl Serialize) -> Result<(), Failure> {
        let mut bytes = serde_json::to_vec_pretty(value).map_err(|error| {
            Failure::new(FailureKind::Internal, "cannot write the result as JSON").because(&error)
        })?;
        bytes.push(b'\n');
        replace(&self.path, &bytes).map_err(|error| {
            let message = format!("cannot write the result to `{}`", self.path.display());
            Failure::new(FailureKind::Unable, message).because(&error)
        })
    }
}

/// A pipe or device cannot be replaced by a file, and whoever named it wants the bytes in it.
fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| !found.is_file())
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Writes a file beside the old one, onto the disk, and puts it in its place in one step.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return write_special(path, bytes);
    }
    // A symbolic link stays one: what it leads to is replaced.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut fresh = name.to_owned();
    fresh.push(format!(".{}.new", process::id()));
    let fresh = path.with_file_name(fresh);
    let written = write_new(&fresh, bytes).and_then(|()| fs::rename(&fresh, &path));
    if written.is_err() {
        // The old file is still whole; what is left of the new one helps nobody.
        fs::remove_file(&fresh).ok();
    }
    written
}

/// Writes to a pipe or device that is there. A pipe that nobody reads is an error: to wait for a reader
/// would be to hang after the job has ended.
fn write_special(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut opened = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
        .map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NXIO) => io::Error::new(error.kind(), "nobody reads this pipe"),
            _ => error,
        })?;
    // Whoever opened it to read gets all of it.
    rustix::fs::fcntl_setfl(&opened, OFlags::empty())?;
    opened.write_all(bytes)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::Value;

    use super::*;
    use crate::testing::snapshot;

    fn read(path: &Path) -> Value {
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn the_file_is_replaced_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result.json");
        fs::write(&path, "old").unwrap();
        let link = directory.path().join("link.json");
        symlink("result.json", &link).unwrap();
        let file = ResultFile::new(&link).unwrap();
        file.write_record(&snapshot(1, State::Succeeded)).unwrap();
        assert_eq!(read(&path)["state"], "succeeded");
        assert!(link.is_symlink());
        let failure = Failure::new(FailureKind::Usage, "the job has a mistake").hint("mend it");
        file.write_failure(&failure).unwrap();
        let result = read(&path);
        assert_eq!(result["version"], 1);
        assert_eq!(result["state"], "failed");
        assert_eq!(result["reason"]["code"], "bad_spec");
        assert_eq!(result["reason"]["hint"], "mend it");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_wrong_path_is_told_before_the_job_runs() {
        let directory = tempfile::tempdir().unwrap();
        for wrong in [
            directory.path().to_owned(),
            directory.path().join("gone/result.json"),
        ] {
            let failure = ResultFile::new(&wrong).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Usage, "{}", wrong.display());
        }
        ResultFile::new(Path::new("/dev/null")).unwrap();
    }
}
