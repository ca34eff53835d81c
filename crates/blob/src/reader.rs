//! Reading a blob and checking it on the way.

use std::fs::File;
use std::io::{self, Read};

use tidemill_core::{ByteSize, Digest};

/// Reads a blob from its beginning. The read that finds its end fails if the bytes were not those
/// that the digest names; whoever stops before that has unchecked bytes.
#[derive(Debug)]
pub struct Reader {
    digest: Digest,
    size: ByteSize,
    file: File,
    hasher: Box<blake3::Hasher>,
}

/// Says that the bytes are wrong, on its way through [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("the blob is damaged on disk: its bytes have the digest {found}")]
struct Damaged {
    found: Digest,
}

impl Reader {
    pub(crate) fn new(digest: Digest, file: File) -> io::Result<Self> {
        let size = ByteSize(file.metadata()?.len());
        Ok(Self {
            digest,
            size,
            file,
            hasher: Box::default(),
        })
    }

    /// The size of the blob.
    pub const fn size(&self) -> ByteSize {
        self.size
    }

    pub(crate) fn into_file(self) -> File {
        self.file
    }

    /// The digest that was found, if this error says that a blob is damaged.
    pub(crate) fn found(error: &io::Error) -> Option<Digest> {
        error
            .get_ref()?
            .downcast_ref::<Damaged>()
            .map(|damaged| damaged.found)
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        if length > 0 {
            self.hasher.update(&buffer[..length]);
        } else if !buffer.is_empty() {
            let found = Digest::from_bytes(*self.hasher.finalize().as_bytes());
            if found != self.digest {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    Damaged { found },
                ));
            }
        }
        Ok(length)
    }
}
