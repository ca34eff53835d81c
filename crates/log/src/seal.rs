//! Sealing: a spool becomes one object, in one pass and with memory for one chunk.

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use tidemill_core::{LogTotals, Stream, Timestamp};

use crate::piece::{PieceEncoder, PieceStart};
use crate::reader::{Current, LogError};
use crate::sealed::{
    CHUNK_BYTES_MAX, Entry, Extent, Footer, INDEX_BYTES_MAX, encode_directory, encode_footer,
    skip_head,
};
use crate::segment::{ChunkHead, Tally};
use crate::source::Source;
use crate::spool::Shares;

/// Fast, and still small on text: the log of a job is compressed while somebody waits.
const LEVEL: i32 = 1;
/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// Says why a log could not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The spool cannot be read.
    #[error("failed to read the log that is to be sealed")]
    Read(#[source] LogError),
    /// The object cannot be written.
    #[error("failed to write the sealed log")]
    Write(#[source] io::Error),
}

/// What is in a sealed log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedLog {
    /// What was written, and how much of it was left out.
    pub totals: LogTotals,
    /// Lines, of both streams together; those that were left out count where that is known.
    pub lines: u64,
}

/// Writes the spool below `dir` as one object. The spool stays; it must not be written any more.
/// `None`, and nothing is written, if nothing was ever written to it. A spool without its mark of the end (its
/// writer was killed) is sealed as far as it goes.
///
/// # Errors
/// If the spool cannot be read or the object cannot be written.
pub fn seal(dir: &Path, object: &mut dyn Write) -> Result<Option<SealedLog>, SealError> {
    let source = Source::Spool(PathBuf::from(dir));
    let told = source.totals().map_err(SealError::Read)?;
    let mut chunk = source.find(0).map_err(SealError::Read)?;
    if chunk.is_none() && told.is_none() {
        return Ok(None);
    }
    let mut sealer = Sealer::new(object, told);
    let mut buffer = vec![0; READ_BYTES];
    while let Some(next) = chunk {
        // Nobody could read chunks that lie over each other.
        if next.head.offset < sealer.tally.total() {
            return Err(SealError::Read(LogError::bad_format(dir)));
        }
        sealer.begin(next.head).map_err(SealError::Write)?;
        let mut position = next.head.offset;
        let mut current = Current::new(next);
        let read = |error| SealError::Read(LogError::read(dir, error));
        while let Some(stretch) = current.stretch(position).map_err(read)? {
            let count = current
                .read(position, &mut buffer, stretch.length)
                .map_err(read)?;
            sealer
                .add(stretch.stream, stretch.at, &buffer[..count])
                .map_err(SealError::Write)?;
            position += count as u64;
        }
        chunk = source.find(position).map_err(SealError::Read)?;
    }
    sealer.end().map(Some).map_err(SealError::Write)
}

/// Builds the object.
struct Sealer<'a> {
    object: &'a mut dyn Write,
    place: u64,
    told: Option<LogTotals>,
    /// What lies between these is left out, so that exactly the limit is kept.
    middle: Range<u64>,
    limit: u64,
    tally: Tally,
    kept: u64,
    head: Option<ChunkHead>,
    encoder: PieceEncoder,
    piece: Option<(Stream, Timestamp)>,
    data: Vec<u8>,
    index: Vec<u8>,
    entries: Vec<Entry>,
}

impl<'a> Sealer<'a> {
    fn new(object: &'a mut dyn Write, told: Option<LogTotals>) -> Self {
        Self {
            object,
            place: 0,
            told,
            middle: 0..0,
            limit: 0,
            tally: Tally::default(),
            kept: 0,
            head: None,
            encoder: PieceEncoder::new(0, Timestamp(0)),
            piece: None,
            data: Vec::with_capacity(CHUNK_BYTES_MAX),
            index: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// A segment of the spool begins.
    fn begin(&mut self, head: ChunkHead) -> io::Result<()> {
        if head.offset != self.tally.total() {
            self.flush()?;
        }
        self.tally = head.tally;
        self.limit = head.limit;
        if let Some(told) = &self.told {
            self.middle = Shares::of(head.limit).middle(told.bytes);
        }
        Ok(())
    }

    fn add(&mut self, stream: Stream, at: Timestamp, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let position = self.tally.total();
            if self.middle.contains(&position) {
                let skipped = prefix(rest, self.middle.end - position);
                self.flush()?;
                self.tally.pass(stream, skipped);
                rest = &rest[skipped.len()..];
                continue;
            }
            let room = CHUNK_BYTES_MAX - self.data.len();
            let mut part = &rest[..rest.len().min(room)];
            if position < self.middle.start {
                part = prefix(part, self.middle.start - position);
            }
            self.keep(stream, at, part);
            rest = &rest[part.len()..];
            if self.data.len() >= CHUNK_BYTES_MAX || self.index.len() >= INDEX_BYTES_MAX {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, stream: Stream, at: Timestamp, bytes: &[u8]) {
        let offset = self.tally.total();
        if self.head.is_none() {
            self.head = Some(ChunkHead {
                limit: self.limit,
                offset,
                at,
                tally: self.tally,
            });
            self.encoder = PieceEncoder::new(offset, at);
            self.piece = None;
        }
        if self.piece != Some((stream, at)) {
            let start = PieceStart { offset, stream, at };
            self.encoder.push(start, &mut self.index);
            self.piece = Some((stream, at));
        }
        self.data.extend_from_slice(bytes);
        self.tally.pass(stream, bytes);
        self.kept += bytes.len() as u64;
    }

    /// Writes the chunk that is being gathered.
    fn flush(&mut self) -> io::Result<()> {
        let Some(head) = self.head.take() else {
            return Ok(());
        };
        let place = self.place;
        let data = pack(&self.data)?;
        self.write(&data)?;
        let index = pack(&self.index)?;
        self.write_skippable(&index)?;
        self.entries.push(Entry {
            head,
            place,
            data: extent(&data, &self.data),
            index: extent(&index, &self.index),
        });
        self.data.clear();
        self.index.clear();
        Ok(())
    }

    fn end(mut self) -> io::Result<SealedLog> {
        self.flush()?;
        let mut totals = self.told.unwrap_or(LogTotals {
            bytes: self.tally.total(),
            stdout_bytes: self.tally.bytes[0],
            stderr_bytes: self.tally.bytes[1],
            dropped_bytes: 0,
        });
        totals.dropped_bytes = totals.bytes.saturating_sub(self.kept);
        let directory = encode_directory(&totals, &self.entries);
        let packed = pack(&directory)?;
        let footer = Footer {
            place: self.place,
            directory: extent(&packed, &directory),
        };
        self.write_skippable(&packed)?;
        self.write(&encode_footer(&footer))?;
        self.object.flush()?;
        Ok(SealedLog {
            totals,
            lines: self.tally.lines_begun(None),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.object.write_all(bytes)?;
        self.place += bytes.len() as u64;
        Ok(())
    }

    fn write_skippable(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the log's index is too large")
        })?;
        self.write(&skip_head(length))?;
        self.write(bytes)
    }
}

fn prefix(bytes: &[u8], length: u64) -> &[u8] {
    &bytes[..usize::try_from(length).map_or(bytes.len(), |length| length.min(bytes.len()))]
}

/// One zstd frame with a checksum.
fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    compressor.compress(bytes)
}

fn extent(stored: &[u8], whole: &[u8]) -> Extent {
    Extent {
        stored: stored.len() as u64,
        whole: whole.len() as u64,
    }
}
