//! Archives as bytes: which compression, which digest.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex};

use tidemill_core::Digest;

use crate::tree_store::TreeStore;

/// An archive with known content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Archive {
    path: String,
    content: Digest,
}

/// How an archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

/// Why an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read.
    #[error("failed to read `{path}`")]
    Read {
        /// The archive.
        path: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The compression is not one that is read.
    #[error("`{path}` is compressed with {format}, which is not read")]
    Compression {
        /// The archive.
        path: String,
        /// What it is.
        format: &'static str,
    },
}

impl ArchiveError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check that the file is there and readable",
            Self::Compression { .. } => "unpack it and compress it again with gzip or zstd",
        }
    }
}

/// Compressions that are recognised to be refused with their name.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\x5d\0\0", "lzma"),
    (b"LZIP", "lzip"),
    (b"\x1f\x9d", "compress"),
    (b"PK\x03\x04", "zip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
];

const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 128 << 10;

impl Archive {
    /// Looks at an archive. Its digest is taken from the store's memory if the file is the one that
    /// was looked at before.
    pub(crate) fn open(path: &str, trees: &TreeStore) -> Result<Self, ArchiveError> {
        let failed = |source| ArchiveError::Read {
            path: path.to_owned(),
            source,
        };
        let metadata = fs::metadata(path).map_err(failed)?;
        let identity = format!(
            "{path}\0{} {} {} {}.{} {}.{}",
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        );
        let memo = Digest::of(identity.as_bytes());
        if let Some(content) = trees.recall(&memo, metadata.ctime().max(metadata.mtime())) {
            return Ok(Self {
                path: path.to_owned(),
                content,
            });
        }
        let mut hasher = blake3::Hasher::new();
        let mut file = File::open(path).map_err(failed)?;
        hasher.update_reader(&mut file).map_err(failed)?;
        let content = Digest::from_bytes(*hasher.finalize().as_bytes());
        trees.remember(&memo, &content);
        Ok(Self {
            path: path.to_owned(),
            content,
        })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) const fn content(&self) -> &Digest {
        &self.content
    }

    /// Opens it for unpacking.
    pub(crate) fn read(&self) -> Result<ArchiveReader, ArchiveError> {
        let failed = |source| ArchiveError::Read {
            path: self.path.clone(),
            source,
        };
        let file = Arc::new(File::open(&self.path).map_err(failed)?);
        let consumed = Arc::new(Mutex::new(Consumed::default()));
        let input = Watched {
            file: Arc::clone(&file),
            consumed: Arc::clone(&consumed),
        };
        let mut input = BufReader::with_capacity(BUFFER_BYTES, input);
        let compression = self.compression(input.fill_buf().map_err(failed)?)?;
        let inner: Box<dyn Read> = match compression {
            Compression::None => Box::new(input),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
            Compression::Zstd => {
                Box::new(zstd::stream::read::Decoder::with_buffer(input).map_err(failed)?)
            }
        };
        let is_compressed = compression != Compression::None;
        Ok(ArchiveReader {
            inner,
            file,
            consumed,
            is_compressed,
        })
    }

    fn compression(&self, start: &[u8]) -> Result<Compression, ArchiveError> {
        if start.starts_with(GZIP) {
            return Ok(Compression::Gzip);
        }
        if start.starts_with(ZSTD) || is_skippable_frame(start) {
            return Ok(Compression::Zstd);
        }
        match FOREIGN.iter().find(|(magic, _)| start.starts_with(magic)) {
            Some((_, format)) => Err(ArchiveError::Compression {
                path: self.path.clone(),
                format,
            }),
            None => Ok(Compression::None),
        }
    }
}

/// Zstandard files may begin with a frame that says nothing about data, see RFC 8878, 3.1.2.
fn is_skippable_frame(start: &[u8]) -> bool {
    matches!(start, [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50)
}

/// The plain bytes of an archive.
pub(crate) struct ArchiveReader {
    inner: Box<dyn Read>,
    file: Arc<File>,
    consumed: Arc<Mutex<Consumed>>,
    is_compressed: bool,
}

/// What was read of the file itself.
#[derive(Default)]
struct Consumed {
    bytes: u64,
    hasher: blake3::Hasher,
}

impl ArchiveReader {
    /// Bytes of the file that were read so far, if it is compressed.
    pub(crate) fn compressed_bytes(&self) -> Option<u64> {
        self.is_compressed
            .then(|| self.consumed.lock().map_or(0, |consumed| consumed.bytes))
    }

    /// The digest of the file as it was read, with what is behind the archive's end.
    pub(crate) fn into_digest(self) -> io::Result<Digest> {
        drop(self.inner);
        let mut rest = Watched {
            file: self.file,
            consumed: Arc::clone(&self.consumed),
        };
        io::copy(&mut rest, &mut io::sink())?;
        let consumed = self.consumed.lock().map_err(|_| io::ErrorKind::Other)?;
        Ok(Digest::from_bytes(*consumed.hasher.finalize().as_bytes()))
    }
}

impl Read for ArchiveReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

/// A file that counts and hashes what is read of it.
struct Watched {
    file: Arc<File>,
    consumed: Arc<Mutex<Consumed>>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = (&*self.file).read(buffer)?;
        let mut consumed = self.consumed.lock().map_err(|_| io::ErrorKind::Other)?;
        consumed.bytes += length as u64;
        consumed.hasher.update(&buffer[..length]);
        Ok(length)
    }
}
