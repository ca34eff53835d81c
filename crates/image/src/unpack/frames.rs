//! A tar archive as entries: header, name, size, content.
//!
//! The fields of a header are read by the tar crate. Which headers belong to an entry, and how long its
//! content is, is decided here, as the reference unpackers do: extended headers go before the long names
//! of GNU tar, these before the header itself; and what is no file has no content, whatever size it claims.

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use super::guard::{Guard, UnpackLimits, refuse};
use super::pax::Pax;
use crate::sparse::Piece;

const BLOCK_BYTES: u64 = 512;
/// Pieces of a sparse file in the old format of GNU tar at most.
const PIECES_MAX: usize = 1 << 20;

/// An archive that is read entry by entry. As a reader it gives the content of the last entry.
pub(super) struct Frames {
    input: Guard,
    header_bytes_max: u64,
    /// Bytes of the entry's content that were not read yet.
    rest: u64,
    /// Bytes behind it up to the next header.
    padding: u64,
    is_first: bool,
}

/// An entry without its content.
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) kind: EntryType,
    pub(super) name: Vec<u8>,
    /// Empty for what is no link.
    pub(super) link: Vec<u8>,
    /// Bytes of content in the archive.
    pub(super) size: u64,
    pub(super) pax: Pax,
    /// Where the content belongs, in the old format of GNU tar, and the length of the whole.
    pub(super) old_sparse: Option<(Vec<Piece>, u64)>,
}

/// Why an archive cannot be read on.
#[derive(Debug)]
pub(super) enum FrameError {
    /// It begins with something else.
    NotTar,
    /// It ends where no end was announced.
    CutOff,
    Io(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn damaged(why: &'static str) -> FrameError {
    io::Error::new(io::ErrorKind::InvalidData, why).into()
}

impl Frames {
    pub(super) fn new(input: Guard, limits: &UnpackLimits) -> Self {
        Self {
            input,
            header_bytes_max: limits.header_bytes,
            rest: 0,
            padding: 0,
            is_first: true,
        }
    }

    /// The next entry, after what was left of the last one. None at the end of the archive.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let (mut long_name, mut long_link, mut pax) = (None, None, None);
        let mut header_bytes = 0;
        loop {
            self.skip()?;
            let Some(header) = self.read_header()? else {
                return Ok(None);
            };
            let kind = header.entry_type();
            let slot = match kind {
                EntryType::GNULongName => &mut long_name,
                EntryType::GNULongLink => &mut long_link,
                EntryType::XHeader => &mut pax,
                // A global header says nothing that is wanted, and a label is no entry.
                EntryType::XGlobalHeader => &mut None,
                kind if kind.as_byte() == b'V' => &mut None,
                _ => {
                    let pax = Pax::parse(pax.as_deref().unwrap_or_default());
                    let pax = pax.map_err(|error| {
                        FrameError::Io(io::Error::new(io::ErrorKind::InvalidData, error))
                    })?;
                    return self.frame(header, pax, long_name, long_link).map(Some);
                }
            };
            let size = header.entry_size()?;
            header_bytes += size;
            if header_bytes > self.header_bytes_max {
                let what = "the names and headers of one entry are too large";
                return Err(refuse(what, self.header_bytes_max).into());
            }
            self.start_content(size);
            let mut content = Vec::new();
            self.read_to_end(&mut content)?;
            if content.len() as u64 != size {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            *slot = Some(content);
        }
    }

    fn frame(
        &mut self,
        header: Header,
        mut pax: Pax,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Frame, FrameError> {
        let kind = header.entry_type();
        let name = (pax.sparse.name.take())
            .or_else(|| pax.path.take())
            .or_else(|| long_name.map(until_nul))
            .unwrap_or_else(|| header.path_bytes().into_owned());
        let in_header = || header.link_name_bytes().map(std::borrow::Cow::into_owned);
        let link = (pax.link.take())
            .or_else(|| long_link.map(until_nul))
            .or_else(in_header)
            .unwrap_or_default();
        let has_content = !matches!(
            kind,
            EntryType::Link
                | EntryType::Symlink
                | EntryType::Char
                | EntryType::Block
                | EntryType::Directory
                | EntryType::Fifo
        );
        let size = match pax.size {
            _ if !has_content => 0,
            Some(size) => size,
            None => header.entry_size()?,
        };
        let old_sparse = if kind == EntryType::GNUSparse {
            Some(self.read_old_sparse(&header)?)
        } else {
            None
        };
        self.start_content(size);
        Ok(Frame {
            header,
            kind,
            name,
            link,
            size,
            pax,
            old_sparse,
        })
    }

    /// The next header. None for the mark that ends an archive.
    fn read_header(&mut self) -> Result<Option<Header>, FrameError> {
        let mut header = Header::new_old();
        let block = header.as_mut_bytes();
        let mut filled = 0;
        while filled < block.len() {
            match self.input.read(&mut block[filled..])? {
                0 if filled == 0 => return Err(FrameError::CutOff),
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                length => filled += length,
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum: u32 = (block[..148].iter().chain(&block[156..]))
            .map(|byte| u32::from(*byte))
            .sum::<u32>()
            + 8 * u32::from(b' ');
        if header.cksum().ok() != Some(sum) {
            return Err(if self.is_first {
                FrameError::NotTar
            } else {
                damaged("the checksum of a header is wrong")
            });
        }
        self.is_first = false;
        Ok(Some(header))
    }

    /// The map of a sparse file, part of which may follow the header in blocks of its own.
    fn read_old_sparse(&mut self, header: &Header) -> Result<(Vec<Piece>, u64), FrameError> {
        let Some(gnu) = header.as_gnu() else {
            return Err(damaged("a sparse file has no header of GNU tar"));
        };
        let size = gnu.real_size()?;
        let mut pieces = Vec::new();
        take_pieces(&gnu.sparse, &mut pieces)?;
        let mut is_extended = gnu.is_extended();
        while is_extended {
            let mut more = GnuExtSparseHeader::new();
            self.input.read_exact(more.as_mut_bytes())?;
            take_pieces(more.sparse(), &mut pieces)?;
            is_extended = more.is_extended();
        }
        Ok((pieces, size))
    }

    fn start_content(&mut self, size: u64) {
        self.rest = size;
        self.padding = (BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES;
    }

    /// Goes over what was not read of the last entry.
    fn skip(&mut self) -> io::Result<()> {
        let skipped = self.rest.saturating_add(self.padding);
        let read = io::copy(&mut (&mut self.input).take(skipped), &mut io::sink())?;
        (self.rest, self.padding) = (0, 0);
        if read < skipped {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    pub(super) fn into_input(self) -> Guard {
        self.input
    }
}

impl Read for Frames {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = (&mut self.input).take(self.rest).read(buffer)?;
        self.rest -= length as u64;
        Ok(length)
    }
}

fn take_pieces(from: &[GnuSparseHeader], pieces: &mut Vec<Piece>) -> Result<(), FrameError> {
    for piece in from.iter().filter(|piece| !piece.is_empty()) {
        if pieces.len() == PIECES_MAX {
            return Err(damaged("a sparse file has too many pieces"));
        }
        pieces.push(Piece {
            offset: piece.offset()?,
            length: piece.length()?,
        });
    }
    Ok(())
}

fn until_nul(mut name: Vec<u8>) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == 0);
    name.truncate(end.unwrap_or(name.len()));
    name
}
