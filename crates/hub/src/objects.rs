//! The objects of sealed logs, by digest.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;
use tidemill_core::{ByteSize, Digest};

use crate::state_dir;

/// Why an object is not kept or not given.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{}`", path.display())]
pub struct ObjectError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ObjectError {
    let path = path.to_owned();
    move |source| ObjectError {
        action,
        path,
        source,
    }
}

/// The objects of one state directory.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    dir: PathBuf,
}

/// An object that is being written; nothing is left of it if it is dropped.
#[derive(Debug)]
pub(crate) struct PendingObject {
    dir: PathBuf,
    file: NamedTempFile,
    hasher: Box<blake3::Hasher>,
    size: u64,
}

impl Objects {
    pub(crate) fn open(dir: &Path) -> Result<Self, ObjectError> {
        state_dir::make(dir).map_err(failed("make", dir))?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    pub(crate) fn begin(&self) -> Result<PendingObject, ObjectError> {
        Ok(PendingObject {
            dir: self.dir.clone(),
            file: NamedTempFile::new_in(&self.dir).map_err(failed("write in", &self.dir))?,
            hasher: Box::default(),
            size: 0,
        })
    }

    pub(crate) fn get(&self, digest: &Digest) -> Result<(File, PathBuf), ObjectError> {
        let path = self.dir.join(digest.to_hex());
        let file = File::open(&path).map_err(failed("open", &path))?;
        Ok((file, path))
    }

    pub(crate) fn remove(&self, digest: &Digest) {
        // An object that stays takes space and does no harm.
        fs::remove_file(self.dir.join(digest.to_hex())).ok();
    }
}

impl Write for PendingObject {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl PendingObject {
    /// Keeps what was written.
    pub(crate) fn finish(self) -> Result<(Digest, ByteSize), ObjectError> {
        let digest = Digest::from_bytes(*self.hasher.finalize().as_bytes());
        let path = self.dir.join(digest.to_hex());
        let synced = self.file.as_file().sync_all();
        synced.map_err(failed("write", &path))?;
        let persisted = self.file.persist(&path);
        persisted.map_err(|error| failed("write", &path)(error.error))?;
        Ok((digest, ByteSize(self.size)))
    }
}
