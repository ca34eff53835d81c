//! Sparse files in extended tar headers, as GNU tar writes them: formats 0.1 and 1.0.
//! <https://www.gnu.org/software/tar/manual/html_section/Sparse-Formats.html>

use std::io::{self, Read};

/// Pieces of one file at most.
const PIECES_MAX: u64 = 1 << 20;
const BLOCK_BYTES: usize = 512;

/// A piece of a file that is in the archive; between pieces are holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Where the bytes of a sparse file belong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SparseMap {
    pieces: Vec<Piece>,
}

/// What is wrong with a map.
#[derive(Debug, thiserror::Error)]
pub enum SparseError {
    /// It is not a list of numbers.
    #[error("it is not a list of numbers")]
    NotNumbers,
    /// It has more pieces than are read.
    #[error("it has more than {PIECES_MAX} pieces")]
    TooMany,
    /// Its pieces overlap or lie outside of the file.
    #[error("its pieces overlap or lie outside of the file")]
    Overlap,
    /// Less data follows than it says.
    #[error("less data follows than it says")]
    Short,
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[source] io::Error),
}

impl SparseMap {
    /// Format 0.1: the map is a header, `offset,length,offset,length…`.
    pub(crate) fn parse(text: &str, size: u64) -> Result<Self, SparseError> {
        let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
        Self::of(&numbers.map_err(|_| SparseError::NotNumbers)?, size)
    }

    /// Format 1.0: the map stands before the data, one number a line, padded to whole blocks.
    pub(crate) fn read(from: &mut impl Read, size: u64) -> Result<Self, SparseError> {
        let mut block = [0; BLOCK_BYTES];
        let mut at = BLOCK_BYTES;
        let mut next = || -> Result<u64, SparseError> {
            let mut number = 0_u64;
            let mut digits = 0;
            loop {
                if at == BLOCK_BYTES {
                    from.read_exact(&mut block).map_err(SparseError::Read)?;
                    at = 0;
                }
                let byte = block[at];
                at += 1;
                match byte {
                    b'0'..=b'9' => {
                        digits += 1;
                        number = number
                            .checked_mul(10)
                            .and_then(|number| number.checked_add(u64::from(byte - b'0')))
                            .ok_or(SparseError::NotNumbers)?;
                    }
                    b'\n' if digits > 0 => return Ok(number),
                    _ => return Err(SparseError::NotNumbers),
                }
            }
        };
        let count = next()?;
        if count > PIECES_MAX {
            return Err(SparseError::TooMany);
        }
        let numbers: Result<Vec<u64>, _> = (0..count * 2).map(|_| next()).collect();
        Self::of(&numbers?, size)
    }

    /// The map as pieces that came from elsewhere.
    pub(crate) fn checked(pieces: Vec<Piece>, size: u64) -> Result<Self, SparseError> {
        let mut end = 0;
        for piece in &pieces {
            let next = piece
                .offset
                .checked_add(piece.length)
                .filter(|next| *next <= size);
            match next {
                Some(next) if piece.offset >= end => end = next,
                _ => return Err(SparseError::Overlap),
            }
        }
        Ok(Self { pieces })
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.pieces.iter().copied()
    }

    fn of(numbers: &[u64], size: u64) -> Result<Self, SparseError> {
        if !numbers.len().is_multiple_of(2) {
            return Err(SparseError::NotNumbers);
        }
        let pieces = numbers.chunks_exact(2).map(|pair| Piece {
            offset: pair[0],
            length: pair[1],
        });
        Self::checked(pieces.collect(), size)
    }
}
