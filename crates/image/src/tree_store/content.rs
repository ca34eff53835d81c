//! The digest of a file's content, taken while it is written or read.
//!
//! It is the BLAKE3 of the bytes. Of files from [`BY_BLOCKS_BYTES`] on, which may be almost nothing but
//! holes, it is that of the blocks of [`BLOCK_BYTES`] in which something is not zero, each after its number:
//! so that it takes as long as there are bytes on the disk, and does not depend on where the holes are.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use tidemill_core::Digest;

/// From this size on a file is hashed by blocks.
const BY_BLOCKS_BYTES: u64 = 1 << 30;
/// From this size on it is looked where the holes are.
const HOLES_FROM_BYTES: u64 = 1 << 20;
/// The size of those blocks.
const BLOCK_BYTES: usize = 64 << 10;
/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// True if all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(BLOCK_BYTES)
        .all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// Takes the digest of a content of known size.
#[derive(Debug)]
pub(crate) struct ContentHasher {
    hasher: Box<blake3::Hasher>,
    position: u64,
    /// The block that is not complete yet, if it is done by blocks.
    block: Option<Vec<u8>>,
}

impl ContentHasher {
    pub(crate) fn of_size(size: u64) -> Self {
        Self {
            hasher: Box::default(),
            position: 0,
            block: (size >= BY_BLOCKS_BYTES).then(Vec::new),
        }
    }

    /// Bytes so far.
    pub(crate) const fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        let Some(block) = &mut self.block else {
            self.position += bytes.len() as u64;
            self.hasher.update(bytes);
            return;
        };
        while !bytes.is_empty() {
            let taken = bytes.len().min(BLOCK_BYTES - block.len());
            block.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.position += taken as u64;
            if block.len() == BLOCK_BYTES {
                add_block(&mut self.hasher, self.position, block);
                block.clear();
            }
        }
    }

    /// So many zeros.
    pub(crate) fn skip(&mut self, mut length: u64) {
        while length > 0 {
            let is_whole = self.block.as_ref().is_some_and(Vec::is_empty);
            if is_whole && length >= BLOCK_BYTES as u64 {
                let whole = length - length % BLOCK_BYTES as u64;
                self.position += whole;
                length -= whole;
                continue;
            }
            let piece = length.min(BLOCK_BYTES as u64);
            self.update(&ZEROS[..usize::try_from(piece).unwrap_or(BLOCK_BYTES)]);
            length -= piece;
        }
    }

    pub(crate) fn finish(mut self) -> Digest {
        if let Some(block) = &self.block
            && !block.is_empty()
        {
            add_block(&mut self.hasher, self.position, block);
        }
        Digest::from_bytes(*self.hasher.finalize().as_bytes())
    }
}

/// `end` is where the block ends.
fn add_block(hasher: &mut blake3::Hasher, end: u64, block: &[u8]) {
    if !is_zero(block) {
        hasher.update(&((end - 1) / BLOCK_BYTES as u64).to_le_bytes());
        hasher.update(block);
    }
}

/// Room to read into, made once per thread.
pub(crate) fn read_buffer() -> Vec<u8> {
    vec![0; READ_BYTES]
}

/// True if less of a file is on the disk than it has bytes.
fn has_holes(file: &File, size: u64) -> io::Result<bool> {
    let stat = rustix::fs::fstat(file)?;
    if u64::try_from(stat.st_size) != Ok(size) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(u64::MAX);
    Ok(blocks.saturating_mul(512) < size)
}

/// The digest of a file of this size. Holes of files that are not small are not read, but taken for the zeros
/// that they are; below [`BY_BLOCKS_BYTES`] those are hashed.
///
/// # Errors
/// What the file answers; the end before its time if it is shorter.
pub(crate) fn digest_of_file(file: &File, size: u64, buffer: &mut [u8]) -> io::Result<Digest> {
    let mut hasher = ContentHasher::of_size(size);
    if hasher.block.is_none() && (size < HOLES_FROM_BYTES || !has_holes(file, size)?) {
        let mut file = file.take(size);
        loop {
            match file.read(buffer) {
                Ok(0) => break,
                Ok(count) => hasher.update(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if hasher.position() != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        return Ok(hasher.finish());
    }
    while hasher.position() < size {
        let at = hasher.position();
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data.min(size),
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => size,
            Err(errno) => return Err(errno.into()),
        };
        hasher.skip(data - at);
        if data == size {
            break;
        }
        let hole = rustix::fs::seek(file, SeekFrom::Hole(data))?.min(size);
        while hasher.position() < hole {
            let at = hasher.position();
            let room = usize::try_from(hole - at).unwrap_or(usize::MAX);
            let room = room.min(buffer.len());
            match file.read_at(&mut buffer[..room], at)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => hasher.update(&buffer[..count]),
            }
        }
    }
    Ok(hasher.finish())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn small_files_have_the_plain_digest() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        rustix::fs::seek(&file, SeekFrom::Start(0)).unwrap();
        let mut buffer = read_buffer();
        let digest = digest_of_file(&file, 7, &mut buffer).unwrap();
        assert_eq!(digest, Digest::of(b"content"));
        let short = digest_of_file(&file, 8, &mut buffer).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// A file of this size with a few bytes here and there, some of them written zeros.
    fn sparse(size: u64, pieces: &[(u64, &[u8])]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        for (offset, bytes) in pieces {
            file.write_all_at(bytes, *offset).unwrap();
        }
        file
    }

    #[test]
    fn holes_of_smaller_files_are_hashed_as_zeros() {
        let size = HOLES_FROM_BYTES + 70_000;
        let pieces: &[(u64, &[u8])] = &[(5, b"one"), (size / 2, b"two"), (size - 2, b"x")];
        let mut plain = vec![0; usize::try_from(size).unwrap()];
        for (offset, bytes) in pieces {
            let offset = usize::try_from(*offset).unwrap();
            plain[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        let mut buffer = read_buffer();
        for file in [sparse(size, pieces), sparse(size, &[(0, &plain)])] {
            let digest = digest_of_file(&file, size, &mut buffer).unwrap();
            assert_eq!(digest, Digest::of(&plain));
            let longer = digest_of_file(&file, size + 1, &mut buffer).unwrap_err();
            assert_eq!(longer.kind(), io::ErrorKind::UnexpectedEof);
        }
        let empty = digest_of_file(&sparse(size, &[]), size, &mut buffer).unwrap();
        assert_eq!(empty, Digest::of(&vec![0; plain.len()]));
    }

    #[test]
    fn large_files_have_one_digest_wherever_their_holes_are() {
        let size = BY_BLOCKS_BYTES + 70_000;
        let pieces: &[(u64, &[u8])] = &[(5, b"one"), (size - 2, b"x"), (1 << 20, b"two")];
        let mut buffer = read_buffer();
        let bare = digest_of_file(&sparse(size, pieces), size, &mut buffer).unwrap();
        let zeros = vec![0; 200_000];
        let mut filled = vec![(300_000, &zeros[..])];
        filled.extend(pieces);
        let filled = digest_of_file(&sparse(size, &filled), size, &mut buffer).unwrap();
        assert_eq!(bare, filled);
        // The same piece by piece, as it is while the file is written.
        let mut hasher = ContentHasher::of_size(size);
        hasher.update(&[0; 5]);
        hasher.update(b"one");
        hasher.skip((1 << 20) - 8);
        hasher.update(b"two");
        hasher.skip(size - 2 - (1 << 20) - 3);
        hasher.update(b"x");
        hasher.skip(1);
        assert_eq!(hasher.position(), size);
        assert_eq!(hasher.finish(), bare);
        for other in [(6, &b"one"[..]), (5, b"ono"), ((1 << 20) + 65536, b"two")] {
            let mut others = pieces.to_vec();
            others.retain(|(_, bytes)| *bytes != b"one");
            others.push(other);
            let other = digest_of_file(&sparse(size, &others), size, &mut buffer).unwrap();
            assert_ne!(other, bare);
        }
    }
}
