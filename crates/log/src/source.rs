//! Where a reader finds chunks: in the directory of a spool, or in a sealed object.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tidemill_core::{LogTotals, Stream};

use crate::chunk::Chunk;
use crate::reader::LogError;
use crate::sealed::Sealed;
use crate::segment::{data_path, index_offset, index_path};
use crate::spool::end_mark;

/// Where a reader finds chunks.
#[derive(Debug)]
pub(crate) enum Source {
    /// The directory of a spool that may still be written.
    Spool(PathBuf),
    /// A sealed log.
    Sealed(Sealed),
}

impl Source {
    /// The chunk that holds the byte at `offset`, or the first one behind it. `None`: there is none
    /// (yet).
    pub(crate) fn find(&self, offset: u64) -> Result<Option<Chunk>, LogError> {
        match self {
            Self::Spool(dir) => find_segment(dir, offset),
            Self::Sealed(sealed) => {
                let chunks = sealed.chunks();
                let next = chunks.partition_point(|chunk| chunk.end() <= offset);
                chunks.get(next).map(|entry| sealed.open(entry)).transpose()
            }
        }
    }

    /// The last chunk that begins at `offset` or before.
    pub(crate) fn find_before(&self, offset: u64) -> Result<Option<Chunk>, LogError> {
        match self {
            Self::Spool(dir) => {
                let starts = segments(dir)?;
                let after = starts.partition_point(|start| *start <= offset);
                for start in starts[..after].iter().rev() {
                    if let Some(chunk) = open_segment(dir, *start)? {
                        return Ok(Some(chunk));
                    }
                }
                Ok(None)
            }
            Self::Sealed(sealed) => {
                let chunks = sealed.chunks();
                let after = chunks.partition_point(|chunk| chunk.head.offset <= offset);
                let entry = after.checked_sub(1).map(|index| &chunks[index]);
                entry.map(|entry| sealed.open(entry)).transpose()
            }
        }
    }

    /// The last chunk that begins where line number `line` (from 0) does, or before; so the line
    /// begins in it, or in the gap behind it, if it is there at all.
    pub(crate) fn find_line(
        &self,
        line: u64,
        filter: Option<Stream>,
    ) -> Result<Option<Chunk>, LogError> {
        match self {
            Self::Spool(dir) => {
                let mut found = None;
                for start in segments(dir)? {
                    let Some(chunk) = open_segment(dir, start)? else {
                        continue;
                    };
                    if found.is_some() && chunk.head.tally.lines_begun(filter) > line {
                        break;
                    }
                    found = Some(chunk);
                }
                Ok(found)
            }
            Self::Sealed(sealed) => {
                let chunks = sealed.chunks();
                let next = chunks
                    .partition_point(|chunk| chunk.head.tally.lines_begun(filter) <= line)
                    .max(1);
                let entry = chunks.get(next - 1);
                entry.map(|entry| sealed.open(entry)).transpose()
            }
        }
    }

    /// The last chunk.
    pub(crate) fn last(&self) -> Result<Option<Chunk>, LogError> {
        match self {
            Self::Spool(dir) => {
                for start in segments(dir)?.into_iter().rev() {
                    if let Some(chunk) = open_segment(dir, start)? {
                        return Ok(Some(chunk));
                    }
                }
                Ok(None)
            }
            Self::Sealed(sealed) => {
                let entry = sealed.chunks().last();
                entry.map(|entry| sealed.open(entry)).transpose()
            }
        }
    }

    /// Where it is, for messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Spool(dir) => dir,
            Self::Sealed(sealed) => sealed.path(),
        }
    }

    /// The totals, once the log is complete.
    pub(crate) fn totals(&self) -> Result<Option<LogTotals>, LogError> {
        match self {
            Self::Spool(dir) => {
                let path = dir.join(end_mark::NAME);
                match fs::read_to_string(&path) {
                    Ok(text) => end_mark::decode(&text)
                        .map(Some)
                        .ok_or_else(|| LogError::bad_format(&path)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(LogError::read(&path, error)),
                }
            }
            Self::Sealed(sealed) => Ok(Some(sealed.totals())),
        }
    }
}

/// The segment that holds the byte at `offset`, or the first one behind it.
fn find_segment(dir: &Path, offset: u64) -> Result<Option<Chunk>, LogError> {
    // The list comes first and the length of a segment after it: a segment with a follower in the
    // list is complete, so a byte that is not in it is not anywhere before the follower.
    let starts = segments(dir)?;
    let after = starts.partition_point(|start| *start <= offset);
    for start in &starts[after.saturating_sub(1)..] {
        let Some(chunk) = open_segment(dir, *start)? else {
            continue;
        };
        let end = chunk.end().map_err(|error| LogError::read(dir, error))?;
        if offset < end {
            return Ok(Some(chunk));
        }
    }
    Ok(None)
}

/// Where the segments begin that are on disk now, in order.
fn segments(dir: &Path) -> Result<Vec<u64>, LogError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LogError::read(dir, error)),
    };
    let mut starts = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| LogError::read(dir, error))?;
        starts.extend(entry.file_name().to_str().and_then(index_offset));
    }
    starts.sort_unstable();
    Ok(starts)
}

/// Opens a segment; `None` if it was removed meanwhile or its head is not there yet.
fn open_segment(dir: &Path, start: u64) -> Result<Option<Chunk>, LogError> {
    let open = |path: PathBuf| match File::open(&path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::read(&path, error)),
    };
    let index = index_path(dir, start);
    let (Some(index_file), Some(data)) = (open(index.clone())?, open(data_path(dir, start))?)
    else {
        return Ok(None);
    };
    Chunk::of_segment(data, index_file).map_err(|error| LogError::read(&index, error))
}
