//! The index of a chunk: which stream its bytes belong to, and when they were written.
//!
//! An entry says where a piece *begins*; it ends where the next one begins, or where the data end.
//! Two variable-length numbers: the distance from the last beginning shifted left by one, with the
//! stream in the lowest bit; then the milliseconds since the last beginning. Two streams that
//! alternate byte by byte cost two bytes of index per byte of log, and nothing costs more as long as
//! bytes come faster than eight per second.

use std::io;

use tidemill_core::{Stream, Timestamp};

use crate::chunk::Bytes;
use crate::segment::{slot, stream_of};

/// A piece goes on while its stream does, for this long at most.
pub(crate) const PIECE_MICROS_MAX: i64 = 100_000;
/// A piece goes on while its stream does, up to this many bytes at most.
pub(crate) const PIECE_BYTES_MAX: u64 = 64 * 1024;

/// Where a piece begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceStart {
    /// Its first byte's position in the log.
    pub(crate) offset: u64,
    /// Its stream.
    pub(crate) stream: Stream,
    /// When its first byte was written, to the millisecond.
    pub(crate) at: Timestamp,
}

/// Writes the entries of one chunk's index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceEncoder {
    offset: u64,
    at: Timestamp,
}

impl PieceEncoder {
    /// An encoder for the index of the chunk that begins here.
    pub(crate) const fn new(offset: u64, at: Timestamp) -> Self {
        Self { offset, at }
    }

    /// Appends the entry for a piece that begins here.
    pub(crate) fn push(&mut self, start: PieceStart, into: &mut Vec<u8>) {
        let distance = start.offset - self.offset;
        let millis = start.at.since(self.at).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        put_number(into, distance << 1 | slot(start.stream) as u64);
        put_number(into, millis);
        self.offset = start.offset;
        // The rest of a millisecond is carried on, so that times do not drift.
        let micros = i64::try_from(millis.saturating_mul(1000)).unwrap_or(i64::MAX);
        self.at = Timestamp(self.at.0.saturating_add(micros));
    }
}

/// Reads the entries of one chunk's index, from a file that may still grow.
#[derive(Debug)]
pub(crate) struct PieceCursor {
    /// Where the next entry stands in the index.
    place: u64,
    offset: u64,
    at: Timestamp,
    buffer: Vec<u8>,
    used: usize,
}

/// Bytes of an index that are read at once.
const BUFFER_BYTES: usize = 4096;
/// The longest entry: two numbers of ten bytes.
const ENTRY_BYTES_MAX: usize = 20;

impl PieceCursor {
    /// A cursor before the first entry of an index whose entries begin at `place`.
    pub(crate) const fn new(place: u64, offset: u64, at: Timestamp) -> Self {
        Self {
            place,
            offset,
            at,
            buffer: Vec::new(),
            used: 0,
        }
    }

    /// The next entry; `None` if no whole one is there yet. Asking again later is fine.
    pub(crate) fn next(&mut self, index: &Bytes) -> io::Result<Option<PieceStart>> {
        if self.buffer.len() - self.used < ENTRY_BYTES_MAX {
            self.refill(index)?;
        }
        let mut rest = &self.buffer[self.used..];
        let before = rest.len();
        let (Some(tag), Some(millis)) = (take_number(&mut rest), take_number(&mut rest)) else {
            return Ok(None);
        };
        let length = before - rest.len();
        self.used += length;
        self.place += length as u64;
        self.offset = self.offset.saturating_add(tag >> 1);
        let micros = i64::try_from(millis.saturating_mul(1000)).unwrap_or(i64::MAX);
        self.at = Timestamp(self.at.0.saturating_add(micros));
        Ok(Some(PieceStart {
            offset: self.offset,
            stream: stream_of(tag),
            at: self.at,
        }))
    }

    fn refill(&mut self, index: &Bytes) -> io::Result<()> {
        self.buffer.resize(BUFFER_BYTES, 0);
        self.used = 0;
        let mut filled = 0;
        while filled < BUFFER_BYTES {
            match index.read_at(&mut self.buffer[filled..], self.place + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}

/// Appends a number, seven bits per byte, the lowest first.
fn put_number(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    into.push(number.to_le_bytes()[0]);
}

/// Takes a number off the front; `None` if it is cut short or does not fit.
fn take_number(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for (index, byte) in from.iter().take(10).enumerate() {
        let shift = 7 * u32::try_from(index).ok()?;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            *from = &from[index + 1..];
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn starts() -> impl Strategy<Value = Vec<PieceStart>> {
        proptest::collection::vec((0..5_000_u64, any::<bool>(), 0..400_000_i64), 0..300).prop_map(
            |steps| {
                let (mut offset, mut at) = (1000, 5_000_000);
                steps
                    .into_iter()
                    .map(|(distance, err, micros)| {
                        offset += distance;
                        at += micros;
                        PieceStart {
                            offset,
                            stream: stream_of(u64::from(err)),
                            at: Timestamp(at),
                        }
                    })
                    .collect()
            },
        )
    }

    proptest! {
        #[test]
        fn entries_come_back_and_times_do_not_drift(starts in starts(), cut in 0..30_usize) {
            let mut encoder = PieceEncoder::new(1000, Timestamp(5_000_000));
            let mut bytes = Vec::new();
            for start in &starts {
                encoder.push(*start, &mut bytes);
            }
            // A reader that comes in the middle of a write sees a prefix, and never a wrong entry.
            let cut = bytes.len().saturating_sub(cut);
            let mut cursor = PieceCursor::new(0, 1000, Timestamp(5_000_000));
            let prefix = Bytes::Memory(bytes[..cut].to_vec());
            let whole = Bytes::Memory(bytes);
            let mut seen = Vec::new();
            while let Some(start) = cursor.next(&prefix).unwrap() {
                seen.push(start);
            }
            while let Some(start) = cursor.next(&whole).unwrap() {
                seen.push(start);
            }
            prop_assert_eq!(seen.len(), starts.len());
            for (seen, start) in seen.iter().zip(&starts) {
                prop_assert_eq!((seen.offset, seen.stream), (start.offset, start.stream));
                prop_assert!((0..1000).contains(&(start.at.0 - seen.at.0)));
            }
        }

        #[test]
        fn numbers_come_back(number in any::<u64>()) {
            let mut bytes = Vec::new();
            put_number(&mut bytes, number);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take_number(&mut rest), Some(number));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_refused() {
        let mut too_large: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(take_number(&mut too_large), None);
        let mut cut: &[u8] = &[0x80, 0x80];
        assert_eq!(take_number(&mut cut), None);
    }
}
