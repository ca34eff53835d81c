//! The directory of blobs.
//!
//! ```text
//! blobs/ab/cdef…     a blob: the first two and the other 62 hexadecimal digits of its digest
//! blobs/tmp/…        under construction; held with flock by its writer, else a leftover
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tidemill_core::{ByteSize, Digest};

use crate::reader::Reader;
use crate::writer::Writer;

/// Hexadecimal digits of a digest that name the directory: 256 directories.
const SHARD_DIGITS: usize = 2;
/// The directory of unfinished writes.
const TEMPORARY: &str = "tmp";

/// A content-addressed store in a directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    base: PathBuf,
}

/// A blob that is in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Blob {
    /// The digest of its bytes.
    pub digest: Digest,
    /// How many they are.
    pub size: ByteSize,
}

/// Why a blob could not be written, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The blob is not there.
    #[error("there is no blob {digest} in `{base}`")]
    Missing {
        /// Which blob.
        digest: Digest,
        /// The store's directory.
        base: PathBuf,
    },
    /// The bytes on disk are not those that the digest names.
    #[error("the blob {digest} is damaged on disk: its bytes have the digest {found}")]
    Damaged {
        /// Which blob.
        digest: Digest,
        /// The digest of the bytes that are there.
        found: Digest,
    },
    /// The blob is larger than the reader allows.
    #[error("the blob {digest} has {size}, more than the {max} that are read into memory")]
    TooLarge {
        /// Which blob.
        digest: Digest,
        /// Its size.
        size: ByteSize,
        /// The limit.
        max: ByteSize,
    },
    /// The bytes that were written are not those that were announced.
    #[error("the bytes have the digest {found}, and {expected} was expected")]
    Unexpected {
        /// The digest that was announced.
        expected: Digest,
        /// The digest of the bytes.
        found: Digest,
    },
    /// The disk or the quota is full.
    #[error("failed to {step} `{path}`: the disk is full")]
    Full {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The store may not be written.
    #[error("failed to {step} `{path}`: it cannot be written")]
    ReadOnly {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Anything else that the file system refuses.
    #[error("failed to {step} `{path}`")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl BlobError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "it was removed, or never stored here",
            Self::Damaged { .. } => {
                "check the disk; remove the blob so that it can be stored again"
            }
            Self::TooLarge { .. } => "read it as a stream",
            Self::Unexpected { .. } => "the source changed or is damaged; send it again",
            Self::Full { .. } => "make room on the disk of the state directory",
            Self::ReadOnly { .. } => {
                "make the state directory writable, or set TIDEMILL_STATE to one that is"
            }
            Self::Io { .. } => "look at the cause",
        }
    }

    /// Sorts an error of the file system.
    pub(crate) fn of(step: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full { step, path, source },
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
                Self::ReadOnly { step, path, source }
            }
            _ => Self::Io { step, path, source },
        }
    }
}

/// Adds what was tried, and on what, to an error.
pub(crate) fn failed(
    step: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> BlobError + use<> {
    let path = path.to_owned();
    move |source| BlobError::of(step, &path, source)
}

impl Store {
    /// Opens the store in a directory, which is made if missing (mode 0700). Removes what writers
    /// that died have left.
    pub fn open(base: impl Into<PathBuf>) -> Result<Self, BlobError> {
        let store = Self { base: base.into() };
        make_dir(&store.base)?;
        make_dir(&store.temporary())?;
        store.sweep()?;
        Ok(store)
    }

    /// Begins a blob that is written piece by piece.
    pub fn writer(&self) -> Result<Writer, BlobError> {
        Writer::begin(self.clone())
    }

    /// Stores bytes that are all in memory.
    pub fn put(&self, bytes: &[u8]) -> Result<Blob, BlobError> {
        let digest = Digest::of(bytes);
        let length = ByteSize(bytes.len() as u64);
        // A blob of another size is damaged, and is written anew.
        if self.size(&digest)? == Some(length) {
            if let Some(shard) = self.path(&digest).parent() {
                // Whoever put it there may not have come to this point yet.
                sync_dir(shard)?;
            }
            return Ok(Blob {
                digest,
                size: length,
            });
        }
        let mut writer = self.writer()?;
        writer
            .write_all(bytes)
            .map_err(|source| writer.error("write", source))?;
        writer.finish()
    }

    /// Opens a blob. Its bytes are checked when the last of them was read.
    pub fn open_blob(&self, digest: &Digest) -> Result<Reader, BlobError> {
        let path = self.path(digest);
        match File::open(&path) {
            Ok(file) => Reader::new(*digest, file).map_err(failed("open", &path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing(digest)),
            Err(error) => Err(BlobError::of("open", &path, error)),
        }
    }

    /// Reads a whole blob of at most `max` bytes, checked.
    pub fn get(&self, digest: &Digest, max: ByteSize) -> Result<Vec<u8>, BlobError> {
        let mut reader = self.open_blob(digest)?;
        let size = reader.size();
        if size > max {
            return Err(BlobError::TooLarge {
                digest: *digest,
                size,
                max,
            });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size.0).unwrap_or(0));
        reader
            .read_to_end(&mut bytes)
            .map_err(|error| self.read_error(digest, error))?;
        Ok(bytes)
    }

    /// Opens a blob for reading at any place, unchecked: for formats that check their own pieces.
    pub fn open_file(&self, digest: &Digest) -> Result<File, BlobError> {
        self.open_blob(digest).map(Reader::into_file)
    }

    /// Reads all of a blob and says whether it is whole.
    pub fn verify(&self, digest: &Digest) -> Result<Blob, BlobError> {
        let mut reader = self.open_blob(digest)?;
        let size = reader.size();
        io::copy(&mut reader, &mut io::sink()).map_err(|error| self.read_error(digest, error))?;
        Ok(Blob {
            digest: *digest,
            size,
        })
    }

    /// The size of a blob; `None` if it is not there.
    pub fn size(&self, digest: &Digest) -> Result<Option<ByteSize>, BlobError> {
        let path = self.path(digest);
        match fs::metadata(&path) {
            Ok(metadata) => Ok(Some(ByteSize(metadata.len()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(BlobError::of("look at", &path, error)),
        }
    }

    /// Every blob, in no order. Blobs that come or go meanwhile may be missing.
    pub fn list(&self) -> Result<Vec<Blob>, BlobError> {
        let mut blobs = Vec::new();
        for shard in read_dir(&self.base)? {
            let shard = shard.map_err(failed("list", &self.base))?;
            let name = shard.file_name();
            let Some(prefix) = name.to_str().filter(|name| name.len() == SHARD_DIGITS) else {
                continue;
            };
            for entry in read_dir(&shard.path())? {
                let entry = entry.map_err(failed("list", &shard.path()))?;
                let name = entry.file_name();
                let digest = name
                    .to_str()
                    .and_then(|rest| format!("b3:{prefix}{rest}").parse().ok());
                if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
                    blobs.push(Blob {
                        digest,
                        size: ByteSize(metadata.len()),
                    });
                }
            }
        }
        Ok(blobs)
    }

    /// Removes a blob. True if it was there. Who has it open reads on.
    pub fn delete(&self, digest: &Digest) -> Result<bool, BlobError> {
        let path = self.path(digest);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(BlobError::of("remove", &path, error)),
        }
    }

    /// Removes unfinished writes whose writers are gone.
    fn sweep(&self) -> Result<(), BlobError> {
        for entry in read_dir(&self.temporary())? {
            let path = entry.map_err(failed("list", &self.temporary()))?.path();
            let Ok(file) = File::open(&path) else {
                continue;
            };
            // A writer that has not locked its file yet is younger than a few microseconds; it finds out
            // that the file is gone when it has the lock, and begins again.
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::debug!(path = %path.display(), %error, "a leftover could not be removed");
            }
        }
        Ok(())
    }

    pub(crate) fn temporary(&self) -> PathBuf {
        self.base.join(TEMPORARY)
    }

    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_hex();
        let (shard, rest) = hex.split_at(SHARD_DIGITS);
        self.base.join(shard).join(rest)
    }

    /// Makes the directory of a blob, durably.
    pub(crate) fn make_shard(&self, shard: &Path) -> Result<(), BlobError> {
        make_dir(shard)?;
        // Whoever made it before may not have come to this point yet. It costs nothing where nothing changed.
        sync_dir(&self.base)
    }

    fn missing(&self, digest: &Digest) -> BlobError {
        BlobError::Missing {
            digest: *digest,
            base: self.base.clone(),
        }
    }

    fn read_error(&self, digest: &Digest, error: io::Error) -> BlobError {
        match Reader::found(&error) {
            Some(found) => BlobError::Damaged {
                digest: *digest,
                found,
            },
            None => BlobError::of("read", &self.path(digest), error),
        }
    }
}

/// Makes sure that a rename in a directory survives a crash of the machine.
pub(crate) fn sync_dir(path: &Path) -> Result<(), BlobError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(failed("sync", path))
}

fn make_dir(path: &Path) -> Result<(), BlobError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed("create", path))
}

fn read_dir(path: &Path) -> Result<fs::ReadDir, BlobError> {
    fs::read_dir(path).map_err(failed("list", path))
}

#[cfg(test)]
mod tests;
