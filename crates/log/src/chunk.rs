//! A chunk of a log that is open for reading: a spool's segment or a sealed log's frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::piece::PieceCursor;
use crate::segment::{ChunkHead, HEAD_BYTES, OFFSET_MAX};

/// Bytes at rest: a file that may still grow, or memory.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// A file of the spool.
    File(File),
    /// A frame that was decompressed.
    Memory(Vec<u8>),
}

impl Bytes {
    /// How many there are now.
    pub(crate) fn length(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Reads some of them; 0 at the end.
    pub(crate) fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        match self {
            Self::File(file) => loop {
                match file.read_at(buffer, place) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => return other,
                }
            },
            Self::Memory(bytes) => {
                let start = usize::try_from(place).map_or(bytes.len(), |at| at.min(bytes.len()));
                let count = buffer.len().min(bytes.len() - start);
                buffer[..count].copy_from_slice(&bytes[start..start + count]);
                Ok(count)
            }
        }
    }
}

/// A chunk that is open for reading. It stays readable when the spool drops it.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) head: ChunkHead,
    pub(crate) data: Bytes,
    pub(crate) index: Bytes,
    /// Where the first entry stands in `index`.
    pub(crate) index_place: u64,
}

impl Chunk {
    /// A spool's segment; `None` if the head of its index is not there yet.
    pub(crate) fn of_segment(data: File, index: File) -> io::Result<Option<Self>> {
        let index = Bytes::File(index);
        let mut bytes = [0; HEAD_BYTES];
        let mut filled = 0;
        while filled < HEAD_BYTES {
            match index.read_at(&mut bytes[filled..], filled as u64)? {
                0 => return Ok(None),
                count => filled += count,
            }
        }
        let head = ChunkHead::decode(&bytes).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the index has an unknown format",
            )
        })?;
        Ok(Some(Self {
            head,
            data: Bytes::File(data),
            index,
            index_place: HEAD_BYTES as u64,
        }))
    }

    /// A cursor before the first piece.
    pub(crate) const fn pieces(&self) -> PieceCursor {
        PieceCursor::new(self.index_place, self.head.offset, self.head.at)
    }

    /// The position in the log behind the chunk's last byte.
    pub(crate) fn end(&self) -> io::Result<u64> {
        let end = self.head.offset.checked_add(self.data.length()?);
        end.filter(|end| *end <= OFFSET_MAX).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "the chunk ends behind all that a log can hold",
            )
        })
    }
}
