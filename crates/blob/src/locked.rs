//! Files that are being written: each is locked by its writer, so that whoever sweeps the directory can tell
//! what a dead one has left.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// A new file (mode 0600) in a directory, locked alone with flock(2), with a name of its own that begins
/// with `prefix`.
///
/// # Errors
/// What the file system answers.
pub fn new_locked(directory: &Path, prefix: &str) -> io::Result<(PathBuf, File)> {
    loop {
        let (file, path) = tempfile::Builder::new()
            .prefix(prefix)
            .make_in(directory, |path| {
                File::options()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)
            })?
            .keep()
            .map_err(|error| error.error)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // A sweep may have taken it in the moment before the lock.
        if file.metadata()?.nlink() > 0 {
            return Ok((path, file));
        }
    }
}
