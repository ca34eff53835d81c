//! A blob whose digest is known when its last byte has come.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidemill_blob::new_locked;

use super::{Content, ContentError, NEW, failed};
use crate::digest::{Hasher, OciDigest};

/// Writes one blob. Dropped before [`NewBlob::commit`], it leaves nothing.
#[derive(Debug)]
pub struct NewBlob {
    content: Content,
    /// Locked as long as it is open.
    file: File,
    path: PathBuf,
    hasher: Hasher,
    size: u64,
    /// True once the file is no longer at its temporary path.
    is_published: bool,
}

/// A blob that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The digest of its bytes.
    pub digest: OciDigest,
    /// How many they are.
    pub size: u64,
    /// True if it was not there before.
    pub is_new: bool,
}

impl NewBlob {
    pub(super) fn begin(content: Content) -> Result<Self, ContentError> {
        let directory = content.partial_dir();
        let (path, file) =
            new_locked(&directory, NEW).map_err(failed("create a file in", &directory))?;
        Ok(Self {
            content,
            file,
            path,
            hasher: Hasher::default(),
            size: 0,
            is_published: false,
        })
    }

    /// Where it is written, for errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Publishes the blob, and answers what it is. When this returns, the bytes and their name have reached
    /// the disk.
    pub fn commit(mut self) -> Result<Committed, ContentError> {
        let digest = std::mem::take(&mut self.hasher).finish();
        let is_new = self.content.size(&digest)?.is_none();
        self.content.publish(&self.file, &self.path, &digest)?;
        self.is_published = true;
        Ok(Committed {
            digest,
            size: self.size,
            is_new,
        })
    }

    /// Publishes the blob if it is the one that was announced, else nothing.
    pub fn commit_as(mut self, expected: &OciDigest) -> Result<u64, ContentError> {
        let found = std::mem::take(&mut self.hasher).finish();
        if found != *expected {
            return Err(ContentError::WrongDigest {
                expected: *expected,
                found,
            });
        }
        self.content.publish(&self.file, &self.path, &found)?;
        self.is_published = true;
        Ok(self.size)
    }
}

impl Write for NewBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.hasher.update(&bytes[..length]);
        self.size += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewBlob {
    fn drop(&mut self) {
        if !self.is_published
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "an unfinished blob could not be removed");
        }
    }
}
