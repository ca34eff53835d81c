//! One segment of a spool: its names on disk and the head of its index file.

use std::path::{Path, PathBuf};

use memchr::memchr_iter;
use tidemill_core::{Stream, Timestamp};

/// The first bytes of every index file; the last one is the format's version.
const MAGIC: [u8; 8] = *b"tmlogix\x01";
/// No log is longer: what files can hold.
pub(crate) const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();
/// The length of an encoded [`ChunkHead`].
pub(crate) const HEAD_BYTES: usize = 72;

/// Where a chunk of the log begins: everything that a reader must know to start there without
/// having read what is before it. A spool's segment has one, and so has a chunk of a sealed log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ChunkHead {
    /// The log's limit: half of it is kept from the beginning, half from the end.
    pub(crate) limit: u64,
    /// The position of the chunk's first byte among all bytes of both streams.
    pub(crate) offset: u64,
    /// When its first byte was written.
    pub(crate) at: Timestamp,
    /// Where the streams stand at its first byte.
    pub(crate) tally: Tally,
}

/// How much of each stream lies before a position of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Bytes per stream.
    pub(crate) bytes: [u64; 2],
    /// Line ends per stream.
    pub(crate) lines: [u64; 2],
    /// True per stream if its last byte was not a line end.
    pub(crate) open: [bool; 2],
    /// True if the last byte of both streams together was not a line end.
    pub(crate) open_any: bool,
}

/// The place of a stream in arrays of two.
pub(crate) const fn slot(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// The stream at a place in arrays of two.
pub(crate) const fn stream_of(bit: u64) -> Stream {
    if bit & 1 == 0 {
        Stream::Stdout
    } else {
        Stream::Stderr
    }
}

impl Tally {
    /// Moves the tally behind `bytes` of one stream.
    pub(crate) fn pass(&mut self, stream: Stream, bytes: &[u8]) {
        let Some(last) = bytes.last() else { return };
        let slot = slot(stream);
        self.bytes[slot] += bytes.len() as u64;
        self.lines[slot] += line_ends(bytes);
        self.open[slot] = *last != b'\n';
        self.open_any = *last != b'\n';
    }

    /// Bytes of both streams.
    pub(crate) const fn total(&self) -> u64 {
        self.bytes[0] + self.bytes[1]
    }

    /// Line ends in one stream, or in both.
    pub(crate) fn lines_in(&self, filter: Option<Stream>) -> u64 {
        filter.map_or(self.lines[0] + self.lines[1], |stream| {
            self.lines[slot(stream)]
        })
    }

    /// Lines in one stream, or in both; one that has not ended yet counts.
    pub(crate) fn lines_begun(&self, filter: Option<Stream>) -> u64 {
        let open = filter.map_or(self.open_any, |stream| self.open[slot(stream)]);
        self.lines_in(filter) + u64::from(open)
    }
}

/// How many line ends there are in `bytes`.
pub(crate) fn line_ends(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

impl ChunkHead {
    /// The head as it stands in a file.
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        let tally = &self.tally;
        let flags = u64::from(tally.open[0])
            | u64::from(tally.open[1]) << 1
            | u64::from(tally.open_any) << 2;
        let words = [
            self.limit,
            self.offset,
            self.at.0.cast_unsigned(),
            tally.bytes[0],
            tally.bytes[1],
            tally.lines[0],
            tally.lines[1],
            flags,
        ];
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        for (place, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads a head; `None` if it is cut short, not one of this version, or damaged: its numbers
    /// contradict each other, or are larger than any log.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let words = bytes.get(..HEAD_BYTES)?.strip_prefix(&MAGIC)?;
        let word = |index: usize| {
            let place = &words[index * 8..][..8];
            u64::from_le_bytes(place.try_into().expect("a slice of eight bytes"))
        };
        let flags = word(7);
        let head = Self {
            limit: word(0),
            offset: word(1),
            at: Timestamp(word(2).cast_signed()),
            tally: Tally {
                bytes: [word(3), word(4)],
                lines: [word(5), word(6)],
                open: [flags & 1 != 0, flags & 2 != 0],
                open_any: flags & 4 != 0,
            },
        };
        head.is_sound().then_some(head)
    }

    /// True if the numbers fit together, so that nothing that is counted on from here overflows.
    fn is_sound(&self) -> bool {
        let Tally { bytes, lines, .. } = &self.tally;
        let sum = bytes[0].checked_add(bytes[1]);
        let has_room = self.offset <= OFFSET_MAX;
        has_room && sum == Some(self.offset) && lines[0] <= bytes[0] && lines[1] <= bytes[1]
    }
}

/// The file with the bytes of the segment that begins at `offset`.
pub(crate) fn data_path(dir: &Path, offset: u64) -> PathBuf {
    dir.join(format!("{offset:020}.data"))
}

/// The file with the index of the segment that begins at `offset`.
pub(crate) fn index_path(dir: &Path, offset: u64) -> PathBuf {
    dir.join(format!("{offset:020}.index"))
}

/// The offset in the name of an index file.
pub(crate) fn index_offset(name: &str) -> Option<u64> {
    name.strip_suffix(".index")
        .filter(|digits| digits.len() == 20)?
        .parse()
        .ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn head() -> ChunkHead {
        ChunkHead {
            limit: 1 << 20,
            offset: 77,
            at: Timestamp(1_700_000_000_000_001),
            tally: Tally {
                bytes: [70, 7],
                lines: [3, 1],
                open: [true, false],
                open_any: true,
            },
        }
    }

    #[test]
    fn a_head_comes_back_as_it_was() {
        assert_eq!(ChunkHead::decode(&head().encode()).unwrap(), head());
    }

    #[test]
    fn the_format_of_version_1_stays_as_it_is() {
        let hex: String = head()
            .encode()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            hex,
            "746d6c6f67697801\
             0000100000000000\
             4d00000000000000\
             01401e18240a0600\
             4600000000000000\
             0700000000000000\
             0300000000000000\
             0100000000000000\
             0500000000000000"
        );
    }

    #[test]
    fn a_cut_head_and_another_version_are_not_heads() {
        let bytes = head().encode();
        assert_eq!(ChunkHead::decode(&bytes[..HEAD_BYTES - 1]), None);
        let mut other = bytes;
        other[7] = 2;
        assert_eq!(ChunkHead::decode(&other), None);
    }

    #[test]
    fn a_head_whose_numbers_contradict_each_other_is_none() {
        let damaged = |change: &dyn Fn(&mut ChunkHead)| {
            let mut head = head();
            change(&mut head);
            ChunkHead::decode(&head.encode())
        };
        assert_eq!(damaged(&|head| head.offset += 1), None);
        assert_eq!(damaged(&|head| head.tally.bytes = [u64::MAX, 78]), None);
        assert_eq!(damaged(&|head| head.tally.lines[1] = 8), None);
        let last = damaged(&|head| {
            head.offset = u64::MAX;
            head.tally.bytes = [u64::MAX, 0];
        });
        assert_eq!(last, None);
    }

    #[test]
    fn line_ends_are_counted_across_the_width_of_a_register() {
        for length in [0, 1, 254, 255, 256, 1000] {
            assert_eq!(line_ends(&vec![b'\n'; length]), length as u64);
            assert_eq!(line_ends(&vec![b'x'; length]), 0);
        }
    }

    #[test]
    fn only_index_files_have_an_offset() {
        assert_eq!(index_offset("00000000000000000042.index"), Some(42));
        assert_eq!(index_offset("42.index"), None);
        assert_eq!(index_offset("00000000000000000042.data"), None);
    }
}
