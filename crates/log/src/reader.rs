//! Reads a log: whole, from a byte or a line on, its last lines, one stream of it, or following it
//! while it is written.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tidemill_core::{LogTotals, Stream, Timestamp};

use crate::chunk::Chunk;
use crate::piece::{PieceCursor, PieceStart};
use crate::sealed::Sealed;
use crate::segment::slot;
use crate::source::Source;

/// Says why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system refused.
    #[error("failed to read the log at `{path}`")]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is damaged or of a version that this program does not know.
    #[error("the log at `{path}` is damaged, or was written by a newer version")]
    BadFormat {
        /// The file or directory.
        path: PathBuf,
    },
}

impl LogError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read {
            path: path.to_owned(),
            source,
        }
    }

    pub(crate) fn bad_format(path: &Path) -> Self {
        Self::BadFormat {
            path: path.to_owned(),
        }
    }
}

/// What comes next in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Bytes of one stream; they are in the caller's buffer.
    Piece(Piece),
    /// Bytes were left out here.
    Gap(Gap),
    /// Nothing more is there now, and the log is not complete.
    Pending,
    /// The end.
    End,
}

/// Bytes of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The stream.
    pub stream: Stream,
    /// The position of the first byte among all bytes of both streams.
    pub offset: u64,
    /// How many.
    pub length: usize,
    /// When the first byte of the piece that they belong to was written.
    pub at: Timestamp,
}

/// Bytes that the log's limit, or a disk that was full, left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The position of the first missing byte.
    pub offset: u64,
    /// How many bytes of both streams are missing.
    pub length: u64,
    /// How many of stdout.
    pub stdout_bytes: u64,
    /// How many of stderr.
    pub stderr_bytes: u64,
}

/// Reads one log with memory that does not depend on the log's size. It blocks only on the disk.
#[derive(Debug)]
pub struct LogReader {
    source: Source,
    filter: Option<Stream>,
    /// Where the next byte is read.
    position: u64,
    /// Nothing is read from here on.
    stop: u64,
    /// Bytes of each stream before `position`.
    passed: [u64; 2],
    current: Option<Current>,
}

/// The chunk that is being read.
#[derive(Debug)]
pub(crate) struct Current {
    chunk: Chunk,
    pieces: PieceCursor,
    /// The piece that holds the position, or one before it.
    piece: Option<PieceStart>,
    /// The piece behind it, if its entry is there.
    following: Option<PieceStart>,
}

/// A stretch of one stream, found but not read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) stream: Stream,
    pub(crate) at: Timestamp,
    pub(crate) length: u64,
}

impl LogReader {
    /// A reader at the beginning of a spool. A spool that is not there yet is an empty one.
    pub const fn of_spool(dir: PathBuf) -> Self {
        Self::new(Source::Spool(dir))
    }

    /// A reader at the beginning of a sealed log; `path` is for messages only.
    ///
    /// # Errors
    /// If the file is not a sealed log.
    pub fn of_sealed(file: File, path: &Path) -> Result<Self, LogError> {
        Sealed::open_object(file, path).map(|sealed| Self::new(Source::Sealed(sealed)))
    }

    const fn new(source: Source) -> Self {
        Self {
            source,
            filter: None,
            position: 0,
            stop: u64::MAX,
            passed: [0; 2],
            current: None,
        }
    }

    /// Reads one stream only, or both. Positions stay those among all bytes of both streams; lines
    /// are counted in what is read.
    pub const fn select(&mut self, filter: Option<Stream>) {
        self.filter = filter;
    }

    /// Stops before this position.
    pub const fn stop_at(&mut self, offset: u64) {
        self.stop = offset;
    }

    /// The position of the next byte.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The totals, once the log is complete.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn totals(&self) -> Result<Option<LogTotals>, LogError> {
        self.source.totals()
    }

    /// Goes to a position among all bytes of both streams. In bytes that were left out, it goes to
    /// the first of them; behind the end, to the end.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn seek(&mut self, offset: u64) -> Result<(), LogError> {
        self.position = 0;
        self.passed = [0; 2];
        self.current = None;
        if let Some(chunk) = self.source.find_before(offset)? {
            self.enter(chunk);
            self.skip_to(offset)?;
        }
        Ok(())
    }

    /// Goes on in the sealed form of the log that was read as a spool, from the same position.
    ///
    /// # Errors
    /// If the file is not a sealed log.
    pub fn go_on_in(&mut self, file: File, path: &Path) -> Result<(), LogError> {
        self.source = Source::Sealed(Sealed::open_object(file, path)?);
        self.current = None;
        Ok(())
    }

    /// Goes to the beginning of a line, counted from 0 in what is selected. A line whose beginning
    /// was left out is read from the gap on; behind the last line it is the end.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn seek_line(&mut self, line: u64) -> Result<(), LogError> {
        if line == 0 {
            return self.seek(0);
        }
        let Some(chunk) = self.source.find_line(line, self.filter)? else {
            return self.seek(0);
        };
        let mut lines = chunk.head.tally.lines_in(self.filter);
        self.enter(chunk);
        let mut buffer = vec![0; SCAN_BYTES];
        while lines < line {
            let Some((stream, bytes)) = self.scan(&mut buffer)? else {
                break;
            };
            for (index, byte) in bytes.iter().enumerate() {
                lines += u64::from(*byte == b'\n');
                if lines == line {
                    // Back to just behind the line end.
                    let back = (bytes.len() - index - 1) as u64;
                    self.position -= back;
                    self.passed[slot(stream)] -= back;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Goes to the beginning of the last `lines` lines of what is selected. A last line that has not
    /// ended counts. Lines in bytes that were left out at the very end (by a full disk) do not.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn seek_tail(&mut self, lines: u64) -> Result<(), LogError> {
        let Some(chunk) = self.source.last()? else {
            return self.seek(0);
        };
        let mut tally = chunk.head.tally;
        self.enter(chunk);
        let mut buffer = vec![0; SCAN_BYTES];
        while let Some((stream, bytes)) = self.scan(&mut buffer)? {
            tally.pass(stream, bytes);
        }
        if lines == 0 {
            return Ok(());
        }
        let begun = tally.lines_begun(self.filter);
        self.seek_line(begun.saturating_sub(lines))
    }

    /// What comes next. A piece is never longer than the buffer, which should hold 64 KiB.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Next, LogError> {
        loop {
            if self.position >= self.stop {
                return Ok(Next::End);
            }
            let Some(stretch) = self.stretch()? else {
                if let Some(next) = self.move_on()? {
                    return Ok(next);
                }
                continue;
            };
            let length = stretch.length.min(self.stop - self.position);
            if self.filter.is_some_and(|filter| filter != stretch.stream) {
                self.pass(stretch.stream, length);
                continue;
            }
            let offset = self.position;
            let count = self.read(buffer, length)?;
            self.pass(stretch.stream, count as u64);
            return Ok(Next::Piece(Piece {
                stream: stretch.stream,
                offset,
                length: count,
                at: stretch.at,
            }));
        }
    }

    /// Leaves a chunk that has nothing more now: into the next one, over a gap, or to the end.
    /// `None`: go on.
    fn move_on(&mut self) -> Result<Option<Next>, LogError> {
        // The totals come before the chunks: a log that is complete by now has all its chunks.
        let totals = self.source.totals()?;
        let Some(chunk) = self.source.find(self.position)? else {
            let Some(totals) = totals else {
                return Ok(Some(Next::Pending));
            };
            // A spool that was removed meanwhile does not lack these bytes: they are in the sealed log.
            if self.position < totals.bytes && self.source.totals()?.is_none() {
                return Ok(Some(Next::Pending));
            }
            let whole = [totals.stdout_bytes, totals.stderr_bytes];
            return Ok(Some(self.cross(totals.bytes, whole).unwrap_or(Next::End)));
        };
        let head = chunk.head;
        let position = self.position;
        let gap = self.cross(head.offset, head.tally.bytes);
        self.enter(chunk);
        self.skip_to(position)?;
        Ok(gap)
    }

    /// Goes over missing bytes to `end`. `None` if none of what is selected is missing there.
    fn cross(&mut self, end: u64, passed_at_end: [u64; 2]) -> Option<Next> {
        if end <= self.position {
            return None;
        }
        let missing = |slot: usize| passed_at_end[slot].saturating_sub(self.passed[slot]);
        let gap = Gap {
            offset: self.position,
            length: end - self.position,
            stdout_bytes: missing(0),
            stderr_bytes: missing(1),
        };
        self.position = end;
        self.passed = passed_at_end;
        let concerned = match self.filter {
            None => true,
            Some(Stream::Stdout) => gap.stdout_bytes > 0,
            Some(Stream::Stderr) => gap.stderr_bytes > 0,
        };
        concerned.then_some(Next::Gap(gap))
    }

    /// Makes `chunk` the current one, with the position at its beginning.
    fn enter(&mut self, chunk: Chunk) {
        self.position = chunk.head.offset;
        self.passed = chunk.head.tally.bytes;
        self.current = Some(Current::new(chunk));
    }

    /// Goes forward in the current chunk, to its end at most.
    fn skip_to(&mut self, offset: u64) -> Result<(), LogError> {
        while self.position < offset {
            let Some(stretch) = self.stretch()? else {
                break;
            };
            let length = stretch.length.min(offset - self.position);
            self.pass(stretch.stream, length);
        }
        Ok(())
    }

    /// How many bytes of which stream can be read at the position; `None` if the current chunk has
    /// none there now.
    fn stretch(&mut self) -> Result<Option<Stretch>, LogError> {
        let position = self.position;
        let Some(current) = &mut self.current else {
            return Ok(None);
        };
        let found = current.stretch(position);
        found.map_err(|error| self.read_error(error))
    }

    fn pass(&mut self, stream: Stream, length: u64) {
        self.position += length;
        self.passed[slot(stream)] += length;
    }

    /// Reads up to `length` bytes of the current chunk at the position, at least one.
    fn read(&self, buffer: &mut [u8], length: u64) -> Result<usize, LogError> {
        let current = self.current.as_ref().expect("a stretch was found in it");
        let read = current.read(self.position, buffer, length);
        read.map_err(|error| self.read_error(error))
    }

    /// The next selected bytes of the current chunk; `None` at its end.
    fn scan<'b>(&mut self, buffer: &'b mut [u8]) -> Result<Option<(Stream, &'b [u8])>, LogError> {
        while let Some(stretch) = self.stretch()? {
            if self.filter.is_some_and(|filter| filter != stretch.stream) {
                self.pass(stretch.stream, stretch.length);
                continue;
            }
            let count = self.read(buffer, stretch.length)?;
            self.pass(stretch.stream, count as u64);
            return Ok(Some((stretch.stream, &buffer[..count])));
        }
        Ok(None)
    }

    fn read_error(&self, source: io::Error) -> LogError {
        LogError::read(self.source.path(), source)
    }
}

/// Bytes that are searched for line ends at once.
const SCAN_BYTES: usize = 64 * 1024;

impl Current {
    pub(crate) const fn new(chunk: Chunk) -> Self {
        Self {
            pieces: chunk.pieces(),
            chunk,
            piece: None,
            following: None,
        }
    }

    /// Reads up to `length` bytes at `position`, of which a stretch was found there.
    pub(crate) fn read(&self, position: u64, buffer: &mut [u8], length: u64) -> io::Result<usize> {
        let room = usize::try_from(length).unwrap_or(usize::MAX);
        let room = buffer.len().min(room);
        let place = position - self.chunk.head.offset;
        let mut filled = 0;
        while filled < room {
            let part = &mut buffer[filled..room];
            match self.chunk.data.read_at(part, place + filled as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(filled)
    }

    /// What can be read at `position` now. Positions must not go back.
    pub(crate) fn stretch(&mut self, position: u64) -> io::Result<Option<Stretch>> {
        // The length of the data comes before the index: the entry of a piece is written before
        // its first byte, so the piece of every byte below `end` is known.
        let end = self.chunk.end()?;
        if position >= end {
            return Ok(None);
        }
        loop {
            if self.following.is_none() {
                self.following = self.pieces.next(&self.chunk.index)?;
            }
            match self.following {
                Some(following) if following.offset <= position => {
                    self.piece = self.following.take();
                }
                _ => break,
            }
        }
        let Some(piece) = self.piece else {
            // Only damage leaves bytes without an entry.
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the index lacks a piece",
            ));
        };
        let until = self.following.map_or(end, |next| next.offset.min(end));
        Ok(Some(Stretch {
            stream: piece.stream,
            at: piece.at,
            length: until - position,
        }))
    }
}
