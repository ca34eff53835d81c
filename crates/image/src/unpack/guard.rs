//! Bounds of what an archive may become, held while it is read.

use std::io::{self, Read};

use crate::archive::{ArchiveReader, Ended};

/// Bounds of what one archive may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Bytes in all files together, holes counted.
    pub bytes: u64,
    /// Entries, and the directories that they imply.
    pub entries: u64,
    /// Bytes that come out of a compressed archive for each byte of it.
    pub ratio: u64,
    /// Bytes that may come out before the ratio is looked at.
    pub ratio_from: u64,
    /// Bytes of names and extended headers of one entry.
    pub header_bytes: u64,
    /// Bytes of names, link targets and extended attributes together, which are held in memory.
    pub name_bytes: u64,
}

impl Default for UnpackLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            entries: 4_000_000,
            ratio: 200,
            ratio_from: 1 << 30,
            header_bytes: 8 << 20,
            name_bytes: 256 << 20,
        }
    }
}

/// The plain bytes of an archive, with an eye on how many they are.
pub(super) struct Guard {
    inner: ArchiveReader,
    limits: UnpackLimits,
    total: u64,
}

impl Guard {
    pub(super) const fn new(inner: ArchiveReader, limits: UnpackLimits) -> Self {
        Self {
            inner,
            limits,
            total: 0,
        }
    }

    /// What the bytes were, with those behind the archive's end: these are bounded too.
    pub(super) fn into_digest(mut self) -> io::Result<Ended> {
        if self.inner.watches_plain() {
            io::copy(&mut self, &mut io::sink())?;
        }
        self.inner.into_digest()
    }

    fn check(&self) -> io::Result<()> {
        if self.total > self.limits.bytes.saturating_mul(2) {
            return Err(refuse("it is too large", self.limits.bytes));
        }
        if self.total > self.limits.ratio_from
            && let Some(compressed) = self.inner.compressed_bytes()
            && self.total / compressed.max(1) > self.limits.ratio
        {
            return Err(refuse(
                "too many bytes come out for each that goes in",
                self.limits.ratio,
            ));
        }
        Ok(())
    }
}

impl Read for Guard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.total += length as u64;
        self.check()?;
        Ok(length)
    }
}

/// A limit that was reached, on its way as an error of reading.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
struct Refusal {
    what: &'static str,
    max: u64,
}

/// An error that says which limit was reached.
pub(super) fn refuse(what: &'static str, max: u64) -> io::Error {
    io::Error::other(Refusal { what, max })
}

/// What was refused and its limit, if this error says so.
pub(super) fn refusal(error: &io::Error) -> Option<(&'static str, u64)> {
    let Refusal { what, max } = error.get_ref()?.downcast_ref()?;
    Some((what, *max))
}
