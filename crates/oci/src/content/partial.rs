//! A blob under way: one writer on the machine, and whoever comes after a crash goes on where it ended.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{Content, ContentError, failed, hash_all, open_or_create};
use crate::digest::Hasher;
use crate::manifest::Descriptor;

/// What came of beginning a blob.
#[derive(Debug)]
pub enum Begun {
    /// It is there: it always was, or somebody else has finished it meanwhile.
    Present,
    /// Somebody else on this machine is at it.
    Busy,
    /// It is ours to write.
    Partial(Partial),
}

/// The part of a blob that has come. Dropped before [`Partial::commit`], it stays for the next one.
#[derive(Debug)]
pub struct Partial {
    content: Content,
    descriptor: Descriptor,
    /// Locked as long as it is open.
    file: File,
    path: PathBuf,
    hasher: Box<Hasher>,
    offset: u64,
}

impl Partial {
    pub(super) fn begin(
        content: &Content,
        descriptor: &Descriptor,
        lock: FlockOperation,
    ) -> Result<Begun, ContentError> {
        let path = content.partial_path(&descriptor.digest);
        loop {
            if content.has(descriptor)? {
                return Ok(Begun::Present);
            }
            let file = open_or_create(&path).map_err(failed("open", &path))?;
            match rustix::fs::flock(&file, lock) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(Begun::Busy),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(ContentError::of("lock", &path, error.into())),
            }
            // Whoever had the lock may have moved or removed the file.
            if is_at(&file, &path).map_err(failed("look at", &path))? {
                return Self::resume(content, descriptor, file, path);
            }
        }
    }

    fn resume(
        content: &Content,
        descriptor: &Descriptor,
        file: File,
        path: PathBuf,
    ) -> Result<Begun, ContentError> {
        let mut partial = Self {
            content: content.clone(),
            descriptor: descriptor.clone(),
            file,
            path,
            hasher: Box::default(),
            offset: 0,
        };
        if content.has(descriptor)? {
            partial.remove();
            return Ok(Begun::Present);
        }
        partial.offset = hash_all(&mut partial.file, &mut partial.hasher)
            .map_err(failed("read", &partial.path))?;
        if partial.offset > descriptor.size {
            partial.restart()?;
        }
        Ok(Begun::Partial(partial))
    }

    /// Bytes that are there, and so where the next ones begin.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// What it will be.
    pub const fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Takes the next bytes. More than there should be are refused, and none of them written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ContentError> {
        let end = self.offset.saturating_add(bytes.len() as u64);
        if end > self.descriptor.size {
            return Err(ContentError::WrongSize {
                digest: self.descriptor.digest,
                expected: self.descriptor.size,
                found: end,
            });
        }
        if let Err(error) = self.file.write_all(bytes) {
            // What of them was written is not counted, so it must not stay.
            self.file.set_len(self.offset).ok();
            self.file.seek(io::SeekFrom::Start(self.offset)).ok();
            return Err(ContentError::of("write to", &self.path, error));
        }
        self.hasher.update(bytes);
        self.offset = end;
        Ok(())
    }

    /// Forgets all bytes: they turned out to be wrong, or the source begins anew.
    pub fn restart(&mut self) -> Result<(), ContentError> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .map_err(failed("empty", &self.path))?;
        *self.hasher = Hasher::default();
        self.offset = 0;
        Ok(())
    }

    /// Checks the size and the digest and publishes the blob. When this returns, the bytes and their name
    /// have reached the disk. Bytes with another digest are forgotten; too few stay, to be gone on with.
    pub fn commit(mut self) -> Result<(), ContentError> {
        let Descriptor { digest, size, .. } = self.descriptor;
        if self.offset != size {
            return Err(ContentError::WrongSize {
                digest,
                expected: size,
                found: self.offset,
            });
        }
        let found = std::mem::take(&mut self.hasher).finish();
        if found != digest {
            self.remove();
            return Err(ContentError::WrongDigest {
                expected: digest,
                found,
            });
        }
        self.content.publish(&self.file, &self.path, &digest)
    }

    /// Gives it up, with all bytes that came.
    pub fn discard(self) {
        self.remove();
    }

    /// Removes the file of bytes that nobody needs.
    fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "a partial blob could not be removed");
        }
    }
}

/// True if an open file is still the one at its path.
pub(super) fn is_at(file: &File, path: &std::path::Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok(there.dev() == open.dev() && there.ino() == open.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
