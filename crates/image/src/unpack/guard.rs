//! Bounds of what an archive may become, held while it is read.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;

use crate::archive::ArchiveReader;

/// Bounds of what one archive may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Bytes in all files together, holes counted.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Bytes that come out of a compressed archive for each byte of it.
    pub ratio: u64,
    /// Bytes that may come out before the ratio is looked at.
    pub ratio_from: u64,
    /// Bytes of names and extended headers of one entry.
    pub header_bytes: u64,
    /// Bytes of the paths of all directories together, which are held in memory.
    pub dir_name_bytes: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            entries: 4_000_000,
            ratio: 200,
            ratio_from: 1 << 30,
            header_bytes: 8 << 20,
            dir_name_bytes: 256 << 20,
        }
    }
}

/// The plain bytes of an archive, with an eye on how many they are. A handle: the tar reader has one,
/// and whoever tells what is read has another.
#[derive(Clone)]
pub(super) struct Guard(Rc<RefCell<Watch>>);

struct Watch {
    inner: ArchiveReader,
    limits: UnpackLimits,
    total: u64,
    /// Bytes since the last change between header and content.
    phase: u64,
    is_header: bool,
    /// True if the input was read to its end.
    has_ended: bool,
}

impl Guard {
    pub(super) fn new(inner: ArchiveReader, limits: UnpackLimits) -> Self {
        Self(Rc::new(RefCell::new(Watch {
            inner,
            limits,
            total: 0,
            phase: 0,
            is_header: true,
            has_ended: false,
        })))
    }

    /// From here on, names and headers are read.
    pub(super) fn start_header(&self) {
        let mut watch = self.0.borrow_mut();
        watch.is_header = true;
        watch.phase = 0;
    }

    /// From here on, the content of an entry is read.
    pub(super) fn start_content(&self) {
        self.0.borrow_mut().is_header = false;
    }

    /// True if the input was read to its end.
    pub(super) fn has_ended(&self) -> bool {
        self.0.borrow().has_ended
    }

    /// The reader itself, for the last handle.
    pub(super) fn into_reader(self) -> Option<ArchiveReader> {
        Rc::into_inner(self.0).map(|watch| watch.into_inner().inner)
    }
}

impl Read for Guard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut watch = self.0.borrow_mut();
        let length = watch.inner.read(buffer)?;
        watch.total += length as u64;
        watch.phase += length as u64;
        watch.has_ended |= length == 0 && !buffer.is_empty();
        watch.check()?;
        Ok(length)
    }
}

/// A limit that was reached, on its way through the tar reader.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Refusal {
    what: &'static str,
    max: u64,
}

/// What was refused and its limit, if this error says so.
pub(super) fn refusal(error: &io::Error) -> Option<(&'static str, u64)> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> =
        error.get_ref().map(|error| error as _);
    while let Some(error) = cause {
        if let Some(Refusal { what, max }) = error.downcast_ref() {
            return Some((what, *max));
        }
        cause = match error.downcast_ref::<io::Error>() {
            Some(wrapped) => wrapped.get_ref().map(|error| error as _),
            None => error.source(),
        };
    }
    None
}

impl Watch {
    fn check(&self) -> io::Result<()> {
        let refuse = |what, max| Err(io::Error::other(Refusal { what, max }));
        if self.is_header && self.phase > self.limits.header_bytes {
            return refuse(
                "the names and headers of one entry are too large",
                self.limits.header_bytes,
            );
        }
        if self.total > self.limits.bytes.saturating_mul(2) {
            return refuse("it is too large", self.limits.bytes);
        }
        if self.total > self.limits.ratio_from
            && let Some(compressed) = self.inner.compressed_bytes()
            && self.total / compressed.max(1) > self.limits.ratio
        {
            return refuse(
                "too many bytes come out for each that goes in",
                self.limits.ratio,
            );
        }
        Ok(())
    }
}
