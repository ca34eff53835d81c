//! The spool: the log of an attempt that runs, as files that others read meanwhile.
//!
//! ```text
//! <directory>/00000000000000000000.data    the bytes from position 0 on, nothing else
//! <directory>/00000000000000000000.index   a head of 72 bytes, then one entry per piece
//! <directory>/00000000000004194304.data    the next segment …
//! <directory>/end                          written last: the totals
//! ```
//!
//! **Bounds.** Half of the limit is kept from the beginning and half from the end. The log is cut
//! into segments, and a segment that lies between the two halves is removed, so the disk never holds
//! more than the limit and one segment, and the index at most about twice that.
//!
//! **Reading while it is written.** Files only ever grow at their end. An entry of the index says
//! where a piece begins and is written before the piece's first byte; a segment is made when all
//! bytes of the one before it are written. So a reader that first asks for the length of the data
//! and then reads the index knows the stream of every byte it has seen, and an entry that is half
//! written is cut short, never wrong. A reader that holds a segment which is removed reads it to its
//! end.
//!
//! **A disk that is full** costs bytes of the log, never the job: what could not be written is
//! counted as left out, and writing is tried again, so that the end of the log is kept where it can.
//! The room is measured as the log grows, and a log stops before it takes what sealing it needs.
//!
//! **Durability.** What the spool holds has reached the disk when [`LogSpool::finish`] returns, so
//! that a record which says that a job has ended never stands beside a log that a crash took. Before
//! that, a crash of the machine costs the job too.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidemill_core::{Attempt, ByteSize, ExecutionId, LogTotals, Stream, Timestamp};

use crate::piece::{PIECE_BYTES_MAX, PIECE_MICROS_MAX, PieceEncoder, PieceStart};
use crate::room::Room;
use crate::segment::{ChunkHead, Tally, data_path, index_path};

/// A segment is this part of the kept tail …
const SEGMENTS_PER_TAIL: u64 = 8;
/// … and no smaller than this.
const SEGMENT_BYTES_MIN: u64 = 4 * 1024;
/// After a failed write, the next one is tried after this time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Segments of one spool; failures may leave short ones.
const SEGMENTS_MAX: usize = 1024;

/// Says that bytes of a log could not be kept. They are counted as left out.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} `{path}`")]
pub struct SpoolError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// How a limit is shared out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    limit: u64,
    head: u64,
    tail: u64,
    segment: u64,
}

impl Shares {
    pub(crate) fn of(limit: u64) -> Self {
        let tail = limit / 2;
        Self {
            limit,
            head: limit - tail,
            tail,
            segment: (tail / SEGMENTS_PER_TAIL).max(SEGMENT_BYTES_MIN),
        }
    }

    /// How many bytes fit into a segment that begins here. None spans the end of the head.
    fn room_at(&self, offset: u64) -> u64 {
        if offset < self.head {
            self.segment.min(self.head - offset)
        } else {
            self.segment
        }
    }

    /// The part of a log of `total` bytes that the limit leaves out.
    pub(crate) fn middle(&self, total: u64) -> Range<u64> {
        self.head..total.saturating_sub(self.tail).max(self.head)
    }

    /// How many of the bytes from `start` to `end` are kept of a log of `total` bytes.
    fn kept(&self, start: u64, end: u64, total: u64) -> u64 {
        let middle = self.middle(total);
        let in_head = end.min(middle.start).saturating_sub(start);
        let in_tail = end.saturating_sub(start.max(middle.end));
        in_head + in_tail
    }
}

/// The segment that is being written.
#[derive(Debug)]
struct Open {
    data: File,
    index: File,
    encoder: PieceEncoder,
    piece: PieceStart,
    start: u64,
    end: u64,
    room: u64,
}

/// Writes the log of one attempt into a directory.
#[derive(Debug)]
pub struct LogSpool {
    dir: PathBuf,
    shares: Shares,
    open: Option<Open>,
    /// Beginning and end of each closed segment on disk.
    closed: VecDeque<(u64, u64)>,
    tally: Tally,
    retry_at: Option<Timestamp>,
    room: Room,
}

impl LogSpool {
    /// A spool below `dir` that keeps `limit` bytes. Nothing is made on disk before the first byte.
    pub fn new(dir: PathBuf, limit: ByteSize) -> Self {
        Self {
            dir,
            shares: Shares::of(limit.0),
            open: None,
            closed: VecDeque::new(),
            tally: Tally::default(),
            retry_at: None,
            room: Room::on_disk(),
        }
    }

    /// The same, where something else says how many bytes are free on the disk that a path is on.
    #[must_use]
    pub fn with_free_space(
        mut self,
        ask: impl FnMut(&Path) -> Option<u64> + Send + 'static,
    ) -> Self {
        self.room = Room::asked_of(Box::new(ask));
        self
    }

    /// The directory that the spool is in.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The position behind the last byte that was written to the log, kept or not.
    pub fn position(&self) -> u64 {
        self.tally.total()
    }

    /// Adds bytes that the job wrote at `at`. A reader sees them as soon as this returns.
    ///
    /// # Errors
    /// If they could not all be kept. They are counted, and the spool goes on; the error is told
    /// once per try, not once per call.
    pub fn append(
        &mut self,
        stream: Stream,
        at: Timestamp,
        bytes: &[u8],
    ) -> Result<(), SpoolError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if !self.may_write(at) {
                self.tally.pass(stream, rest);
                return Ok(());
            }
            match self.write_some(stream, at, rest) {
                Ok(count) => {
                    self.tally.pass(stream, &rest[..count]);
                    rest = &rest[count..];
                }
                Err(error) => {
                    self.close_segment();
                    self.retry_at = Some(at.plus(RETRY_AFTER));
                    self.tally.pass(stream, rest);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// What was written so far, and how much of it the limit (or the disk) leaves out.
    pub fn totals(&self) -> LogTotals {
        let total = self.tally.total();
        let kept: u64 = self
            .segments()
            .map(|(start, end)| self.shares.kept(start, end, total))
            .sum();
        LogTotals {
            bytes: total,
            stdout_bytes: self.tally.bytes[0],
            stderr_bytes: self.tally.bytes[1],
            dropped_bytes: total - kept,
        }
    }

    /// Ends the log: readers that follow it come to an end. When this returns, what the spool holds has
    /// reached the disk.
    ///
    /// # Errors
    /// If that failed, or the mark of the end could not be written; for readers, what the spool holds
    /// is as good as before.
    pub fn finish(mut self) -> Result<LogTotals, SpoolError> {
        self.close_segment();
        let totals = self.totals();
        if totals.bytes > 0 {
            self.write_end(&totals)?;
            self.sync()?;
        }
        Ok(totals)
    }

    /// Beginning and end of each segment on disk.
    fn segments(&self) -> impl Iterator<Item = (u64, u64)> {
        let open = self.open.as_ref().map(|open| (open.start, open.end));
        self.closed.iter().copied().chain(open)
    }

    /// Waits until everything has reached the disk: the files, then the names that lead to them.
    fn sync(&self) -> Result<(), SpoolError> {
        let files = self
            .segments()
            .flat_map(|(start, _)| [data_path(&self.dir, start), index_path(&self.dir, start)]);
        let end = self.dir.join(end_mark::NAME);
        // The directory of the attempt, that of its execution, and that of all logs.
        let directories = self.dir.ancestors().take(3).map(Path::to_path_buf);
        for path in files.chain([end]).chain(directories) {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.map_err(|source| failed("sync", path, source))?;
        }
        Ok(())
    }

    fn may_write(&mut self, now: Timestamp) -> bool {
        if self.shares.limit == 0 || self.closed.len() >= SEGMENTS_MAX {
            return false;
        }
        if self.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        self.retry_at = None;
        true
    }

    /// Writes as many of `bytes` as the segment has room for.
    fn write_some(
        &mut self,
        stream: Stream,
        at: Timestamp,
        bytes: &[u8],
    ) -> Result<usize, SpoolError> {
        if self.open.as_ref().is_some_and(|open| open.room == 0) {
            self.close_segment();
        }
        let offset = self.position();
        if self.room.is_due(offset) {
            let on_disk = self.segments().map(|(start, end)| end - start).sum();
            let measured = self.room.measure(&self.dir, offset, on_disk);
            measured
                .map_err(|source| failed("keep more of the log in", self.dir.clone(), source))?;
        }
        let piece = PieceStart { offset, stream, at };
        match &mut self.open {
            None => self.open = Some(self.open_segment(piece)?),
            Some(open) => {
                let goes_on = open.piece.stream == stream
                    && offset - open.piece.offset < PIECE_BYTES_MAX
                    && at.0.saturating_sub(open.piece.at.0) < PIECE_MICROS_MAX;
                if !goes_on {
                    let mut entry = Vec::with_capacity(16);
                    open.encoder.push(piece, &mut entry);
                    open.index.write_all(&entry).map_err(|source| {
                        failed("write", index_path(&self.dir, open.start), source)
                    })?;
                    open.piece = piece;
                }
            }
        }
        let open = self.open.as_mut().expect("a segment was opened above");
        let room = usize::try_from(open.room).unwrap_or(usize::MAX);
        let count = loop {
            match open.data.write(&bytes[..bytes.len().min(room)]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        }
        .map_err(|source| failed("write", data_path(&self.dir, open.start), source))?;
        open.end += count as u64;
        open.room -= count as u64;
        self.drop_middle();
        Ok(count)
    }

    fn open_segment(&mut self, piece: PieceStart) -> Result<Open, SpoolError> {
        if self.closed.is_empty() {
            self.make_dir()?;
        }
        let start = piece.offset;
        let data = create(data_path(&self.dir, start))?;
        let mut index = create(index_path(&self.dir, start))?;
        let head = ChunkHead {
            limit: self.shares.limit,
            offset: start,
            at: piece.at,
            tally: self.tally,
        };
        let mut bytes = head.encode().to_vec();
        let mut encoder = PieceEncoder::new(start, piece.at);
        encoder.push(piece, &mut bytes);
        if let Err(source) = index.write_all(&bytes) {
            let path = index_path(&self.dir, start);
            // Nothing is in them; if they stay, readers pass over a segment without a head.
            fs::remove_file(&path).ok();
            fs::remove_file(data_path(&self.dir, start)).ok();
            return Err(failed("write", path, source));
        }
        Ok(Open {
            data,
            index,
            encoder,
            piece,
            start,
            end: start,
            room: self.shares.room_at(start),
        })
    }

    fn make_dir(&self) -> Result<(), SpoolError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.dir)
            .map_err(|source| failed("create", self.dir.clone(), source))
    }

    fn close_segment(&mut self) {
        if let Some(open) = self.open.take() {
            self.closed.push_back((open.start, open.end));
        }
    }

    /// Removes segments that lie wholly between the kept head and the kept tail.
    fn drop_middle(&mut self) {
        let end = self.open.as_ref().map_or(0, |open| open.end);
        let tail = end.saturating_sub(self.shares.tail);
        let first = self
            .closed
            .partition_point(|(start, _)| *start < self.shares.head);
        while let Some((start, end)) = self.closed.get(first).copied()
            && end <= tail
        {
            // A file that cannot be removed stays until the spool is; readers still find their way.
            fs::remove_file(index_path(&self.dir, start)).ok();
            fs::remove_file(data_path(&self.dir, start)).ok();
            self.closed.remove(first);
        }
    }

    /// Writes the mark of the end whole: under another name first.
    fn write_end(&self, totals: &LogTotals) -> Result<(), SpoolError> {
        if self.closed.is_empty() {
            self.make_dir()?;
        }
        let fresh = self.dir.join("end.new");
        let mut file = create(fresh.clone())?;
        file.write_all(end_mark::encode(totals).as_bytes())
            .and_then(|()| fs::rename(&fresh, self.dir.join(end_mark::NAME)))
            .map_err(|source| failed("write", fresh, source))
    }
}

/// The directory of one attempt's spool, below the directory of all logs.
pub fn dir_of(logs: &Path, execution: ExecutionId, attempt: Attempt) -> PathBuf {
    logs.join(execution.to_string()).join(attempt.to_string())
}

/// What a directory is called while it is being removed; what is found under such a name may go.
pub const GONE: &str = "gone";

/// Removes a spool that was sealed, or a directory of several. For a reader it vanishes at once, so
/// that it never takes a spool that is half removed for one that lacks bytes.
///
/// # Errors
/// If something of it stays. A spool that is not there is fine.
pub fn remove(dir: &Path) -> Result<(), SpoolError> {
    let gone = dir.with_added_extension(GONE);
    let removed = match fs::rename(dir, &gone) {
        // Somebody was stopped in the middle of removing the one before it.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            fs::remove_dir_all(&gone).and_then(|()| fs::rename(dir, &gone))
        }
        other => other,
    }
    .and_then(|()| fs::remove_dir_all(&gone));
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed("remove", dir.to_owned(), error))
        }
        _ => Ok(()),
    }
}

fn failed(action: &'static str, path: PathBuf, source: io::Error) -> SpoolError {
    SpoolError {
        action,
        path,
        source,
    }
}

fn create(path: PathBuf) -> Result<File, SpoolError> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(|source| failed("create", path, source))
}

/// The file that says that a spool is complete: four numbers in text.
pub(crate) mod end_mark {
    use tidemill_core::LogTotals;

    pub(crate) const NAME: &str = "end";

    pub(crate) fn encode(totals: &LogTotals) -> String {
        let LogTotals {
            bytes,
            stdout_bytes,
            stderr_bytes,
            dropped_bytes,
        } = totals;
        format!("1 {bytes} {stdout_bytes} {stderr_bytes} {dropped_bytes}\n")
    }

    pub(crate) fn decode(text: &str) -> Option<LogTotals> {
        let mut words = text.strip_prefix("1 ")?.split_ascii_whitespace();
        let mut number = || words.next()?.parse().ok();
        Some(LogTotals {
            bytes: number()?,
            stdout_bytes: number()?,
            stderr_bytes: number()?,
            dropped_bytes: number()?,
        })
    }
}
