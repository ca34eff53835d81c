//! Writing a blob piece by piece.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use tidemill_core::{ByteSize, Digest};

use crate::locked::new_locked;
use crate::store::{Blob, BlobError, Store, failed, sync_dir};

/// Writes one blob: hashes what comes, and publishes it when it is finished. A writer that is dropped
/// before leaves nothing.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    /// The temporary file, locked as long as it is open.
    file: File,
    path: PathBuf,
    hasher: Box<blake3::Hasher>,
    size: u64,
    /// True once the file is no longer at its temporary path.
    is_published: bool,
}

impl Writer {
    pub(crate) fn begin(store: Store) -> Result<Self, BlobError> {
        let directory = store.temporary();
        let (path, file) =
            new_locked(&directory, ".tmp").map_err(failed("create a file in", &directory))?;
        Ok(Self {
            store,
            file,
            path,
            hasher: Box::default(),
            size: 0,
            is_published: false,
        })
    }

    /// Bytes that were written so far.
    pub const fn size(&self) -> ByteSize {
        ByteSize(self.size)
    }

    /// Publishes the blob. When this returns, the bytes and their name have reached the disk.
    pub fn finish(self) -> Result<Blob, BlobError> {
        let digest = self.digest();
        self.publish(digest)
    }

    /// Publishes the blob if its bytes are the expected ones, else nothing.
    pub fn finish_as(self, expected: &Digest) -> Result<Blob, BlobError> {
        let found = self.digest();
        if found != *expected {
            return Err(BlobError::Unexpected {
                expected: *expected,
                found,
            });
        }
        self.publish(found)
    }

    /// An error of this writer's file, sorted.
    pub fn error(&self, step: &'static str, source: io::Error) -> BlobError {
        BlobError::of(step, &self.path, source)
    }

    fn digest(&self) -> Digest {
        Digest::from_bytes(*self.hasher.finalize().as_bytes())
    }

    fn publish(mut self, digest: Digest) -> Result<Blob, BlobError> {
        let target = self.store.path(&digest);
        let shard = target
            .parent()
            .expect("a blob's path has its shard before it")
            .to_owned();
        self.file
            .sync_all()
            .map_err(|source| self.error("sync", source))?;
        self.store.make_shard(&shard)?;
        // Over a blob that is there already: the same bytes, and whole even if those were damaged.
        fs::rename(&self.path, &target).map_err(failed("publish", &target))?;
        self.is_published = true;
        sync_dir(&shard)?;
        Ok(Blob {
            digest,
            size: ByteSize(self.size),
        })
    }
}

impl Write for Writer {
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

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.is_published
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "an unfinished blob could not be removed");
        }
    }
}
