//! Archives as bytes: which compression, which digest.

mod pipe;

use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::os::unix::fs::MetadataExt;

use liblzma::stream::{CONCATENATED, Stream};
use tidemill_core::Digest;

use crate::tree_store::TreeStore;
pub(crate) use pipe::{ArchiveReader, Ended, Watch};

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
    Xz,
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
            Self::Compression { .. } => "unpack it and compress it again with gzip, zstd or xz",
        }
    }
}

/// Compressions that are recognised to be refused with their name.
const FOREIGN: &[(&[u8], &str)] = &[
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
const XZ: &[u8] = b"\xfd7zXZ\0";
/// Bytes of memory that reading xz takes at most: `xz -9` needs 65 MiB.
const XZ_MEMORY_MAX: u64 = 256 << 20;

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
        open(&self.path, &self.path, Watch::File)
    }
}

/// Opens a file for unpacking, which errors call `known_as`.
pub(crate) fn open(
    path: &str,
    known_as: &str,
    watch: Watch,
) -> Result<ArchiveReader, ArchiveError> {
    let failed = |source| ArchiveError::Read {
        path: known_as.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let mut source = pipe::Source::new(file, watch);
    let compression = compression(source.fill_buf().map_err(failed)?, known_as)?;
    ArchiveReader::start(source, compression, watch).map_err(failed)
}

fn compression(start: &[u8], known_as: &str) -> Result<Compression, ArchiveError> {
    if start.starts_with(GZIP) {
        return Ok(Compression::Gzip);
    }
    if start.starts_with(ZSTD) || is_skippable_frame(start) {
        return Ok(Compression::Zstd);
    }
    if start.starts_with(XZ) {
        return Ok(Compression::Xz);
    }
    match FOREIGN.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, format)) => Err(ArchiveError::Compression {
            path: known_as.to_owned(),
            format,
        }),
        None => Ok(Compression::None),
    }
}

impl Compression {
    /// The plain bytes.
    fn decoder(self, source: &mut pipe::Source) -> io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Self::None => Box::new(source),
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(source)),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(source)?),
            Self::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(source, stream))
            }
        })
    }
}

/// Zstandard files may begin with a frame that says nothing about data, see RFC 8878, 3.1.2.
fn is_skippable_frame(start: &[u8]) -> bool {
    matches!(start, [first, 0x2a, 0x4d, 0x18, ..] if first & 0xf0 == 0x50)
}
