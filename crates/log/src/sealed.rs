//! A sealed log: one object of zstd frames that any zstd tool unpacks to the kept bytes.
//!
//! ```text
//! [ frame: the bytes of a chunk ] [ skippable frame: the chunk's index, compressed ]   … per chunk
//! [ skippable frame: the directory, compressed: totals, then one entry per chunk ]
//! [ skippable frame: the footer, of fixed length: where the directory is ]
//! ```
//!
//! A chunk holds a mebibyte at most, so that reading anywhere costs one small frame. Where bytes were
//! left out, the offsets of two chunks do not meet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tidemill_core::LogTotals;

use crate::chunk::{Bytes, Chunk};
use crate::reader::LogError;
use crate::segment::{ChunkHead, HEAD_BYTES};

/// Bytes of one chunk at most.
pub(crate) const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Bytes of one chunk's index at most, before the last entry.
pub(crate) const INDEX_BYTES_MAX: usize = 256 * 1024;
/// What a decompressed index may have.
const INDEX_BYTES_READ_MAX: u64 = INDEX_BYTES_MAX as u64 + 64;
/// Bytes of a directory at most: about as many chunks as 10 TiB of log need.
const DIRECTORY_BYTES_MAX: u64 = 1 << 30;
/// The head of a skippable frame: magic number and length. RFC 8878, section 3.1.2.
pub(crate) const SKIP_BYTES: usize = 8;
const SKIP_MAGIC: u32 = 0x184D_2A5B;
/// The last bytes of a sealed log; the last one is the format's version.
const FOOTER_MAGIC: [u8; 8] = *b"tmlogsl\x01";
/// The whole footer, with its skippable head.
pub(crate) const FOOTER_BYTES: usize = SKIP_BYTES + 3 * 8 + 8;
/// An entry of the directory: the head and five numbers.
const ENTRY_BYTES: usize = HEAD_BYTES + 5 * 8;
/// The totals at the front of the directory.
const TOTALS_BYTES: usize = 4 * 8;

/// Where a chunk stands in a sealed log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) head: ChunkHead,
    /// Where its frame begins.
    pub(crate) place: u64,
    /// Compressed and whole length of its bytes.
    pub(crate) data: Extent,
    /// Compressed and whole length of its index, which follows its bytes.
    pub(crate) index: Extent,
}

/// The lengths of one compressed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) stored: u64,
    pub(crate) whole: u64,
}

/// Where the directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) place: u64,
    pub(crate) directory: Extent,
}

impl Entry {
    /// The position in the log behind the chunk.
    pub(crate) const fn end(&self) -> u64 {
        self.head.offset.saturating_add(self.data.whole)
    }
}

/// The head of a skippable frame with `length` bytes.
pub(crate) fn skip_head(length: u32) -> [u8; SKIP_BYTES] {
    let mut head = [0; SKIP_BYTES];
    head[..4].copy_from_slice(&SKIP_MAGIC.to_le_bytes());
    head[4..].copy_from_slice(&length.to_le_bytes());
    head
}

/// The directory before it is compressed.
pub(crate) fn encode_directory(totals: &LogTotals, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TOTALS_BYTES + entries.len() * ENTRY_BYTES);
    put_words(
        &mut bytes,
        &[
            totals.bytes,
            totals.stdout_bytes,
            totals.stderr_bytes,
            totals.dropped_bytes,
        ],
    );
    for entry in entries {
        bytes.extend_from_slice(&entry.head.encode());
        put_words(
            &mut bytes,
            &[
                entry.place,
                entry.data.stored,
                entry.data.whole,
                entry.index.stored,
                entry.index.whole,
            ],
        );
    }
    bytes
}

fn decode_directory(bytes: &[u8]) -> Option<(LogTotals, Vec<Entry>)> {
    let (totals, rest) = bytes.split_at_checked(TOTALS_BYTES)?;
    let [bytes, stdout_bytes, stderr_bytes, dropped_bytes] = take_words(totals)?;
    let totals = LogTotals {
        bytes,
        stdout_bytes,
        stderr_bytes,
        dropped_bytes,
    };
    if !rest.len().is_multiple_of(ENTRY_BYTES) {
        return None;
    }
    let entries: Option<Vec<Entry>> = rest.chunks_exact(ENTRY_BYTES).map(decode_entry).collect();
    let entries = entries?;
    let in_order = entries
        .windows(2)
        .all(|pair| pair[0].end() <= pair[1].head.offset);
    in_order.then_some((totals, entries))
}

fn decode_entry(bytes: &[u8]) -> Option<Entry> {
    let (head, words) = bytes.split_at_checked(HEAD_BYTES)?;
    let [place, data_stored, data_whole, index_stored, index_whole] = take_words(words)?;
    let entry = Entry {
        head: ChunkHead::decode(head)?,
        place,
        data: Extent {
            stored: data_stored,
            whole: data_whole,
        },
        index: Extent {
            stored: index_stored,
            whole: index_whole,
        },
    };
    let sane = data_whole <= CHUNK_BYTES_MAX as u64 && index_whole <= INDEX_BYTES_READ_MAX;
    sane.then_some(entry)
}

/// The footer with the head of its frame.
pub(crate) fn encode_footer(footer: &Footer) -> Vec<u8> {
    let length = u32::try_from(FOOTER_BYTES - SKIP_BYTES).expect("a few bytes");
    let mut bytes = skip_head(length).to_vec();
    put_words(
        &mut bytes,
        &[
            footer.place,
            footer.directory.stored,
            footer.directory.whole,
        ],
    );
    bytes.extend_from_slice(&FOOTER_MAGIC);
    bytes
}

fn decode_footer(bytes: &[u8]) -> Option<Footer> {
    let words = bytes.get(SKIP_BYTES..)?.strip_suffix(&FOOTER_MAGIC)?;
    let [place, stored, whole] = take_words(words)?;
    (whole <= DIRECTORY_BYTES_MAX).then_some(Footer {
        place,
        directory: Extent { stored, whole },
    })
}

fn put_words(into: &mut Vec<u8>, words: &[u64]) {
    for word in words {
        into.extend_from_slice(&word.to_le_bytes());
    }
}

fn take_words<const COUNT: usize>(bytes: &[u8]) -> Option<[u64; COUNT]> {
    if bytes.len() != COUNT * 8 {
        return None;
    }
    let mut words = [0; COUNT];
    for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(place.try_into().ok()?);
    }
    Some(words)
}

/// A sealed log that is open for reading.
#[derive(Debug)]
pub(crate) struct Sealed {
    file: File,
    /// The file's length.
    length: u64,
    path: PathBuf,
    totals: LogTotals,
    chunks: Vec<Entry>,
}

impl Sealed {
    /// Reads the directory.
    pub(crate) fn open_object(file: File, path: &Path) -> Result<Self, LogError> {
        let read = |error| LogError::read(path, error);
        let bad = || LogError::bad_format(path);
        let length = file.metadata().map_err(read)?.len();
        let place = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(bad)?;
        let mut bytes = [0; FOOTER_BYTES];
        file.read_exact_at(&mut bytes, place).map_err(read)?;
        let footer = decode_footer(&bytes).ok_or_else(bad)?;
        let place = footer.place.saturating_add(SKIP_BYTES as u64);
        let directory = unpack(&file, length, place, footer.directory).map_err(read)?;
        let (totals, chunks) = decode_directory(&directory).ok_or_else(bad)?;
        Ok(Self {
            file,
            length,
            path: path.to_owned(),
            totals,
            chunks,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn totals(&self) -> LogTotals {
        self.totals
    }

    /// All chunks in order.
    pub(crate) fn chunks(&self) -> &[Entry] {
        &self.chunks
    }

    /// Unpacks a chunk.
    pub(crate) fn open(&self, entry: &Entry) -> Result<Chunk, LogError> {
        let read = |error| LogError::read(&self.path, error);
        let unpack = |place, extent| unpack(&self.file, self.length, place, extent).map_err(read);
        let data = unpack(entry.place, entry.data)?;
        let index_place = entry
            .place
            .saturating_add(entry.data.stored)
            .saturating_add(SKIP_BYTES as u64);
        let index = unpack(index_place, entry.index)?;
        Ok(Chunk {
            head: entry.head,
            data: Bytes::Memory(data),
            index: Bytes::Memory(index),
            index_place: 0,
        })
    }
}

/// More bytes than come out of any byte of a zstd frame: a block of 128 KiB takes four bytes.
const RATIO_MAX: u64 = 1 << 16;

/// Reads and decompresses one part of a file, whose whole length was checked to be reasonable. It takes
/// no memory for what the file cannot hold.
fn unpack(file: &File, length: u64, place: u64, extent: Extent) -> io::Result<Vec<u8>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a part does not unpack");
    let whole = usize::try_from(extent.whole).map_err(|_| damaged())?;
    let is_beyond = place
        .checked_add(extent.stored)
        .is_none_or(|end| end > length);
    if is_beyond || extent.whole > extent.stored.saturating_mul(RATIO_MAX) {
        return Err(damaged());
    }
    // A part that did not get smaller is little larger than it was.
    if extent.stored > extent.whole + extent.whole / 64 + 1024 {
        return Err(damaged());
    }
    let mut packed = vec![0; usize::try_from(extent.stored).map_err(|_| damaged())?];
    file.read_exact_at(&mut packed, place)?;
    let bytes = zstd::bulk::decompress(&packed, whole)?;
    if bytes.len() == whole {
        Ok(bytes)
    } else {
        Err(damaged())
    }
}
