//! A file that is written into a tree piece by piece.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::building::{Added, Building, FileAttributes};
use super::content::{ContentHasher, is_zero};

/// Runs of zeros of this length become holes.
const HOLE_BYTES: usize = 4096;

/// A file that is being written into a tree. If it is dropped before it is finished, it is removed.
#[derive(Debug)]
pub struct NewFile<'b> {
    building: &'b Building,
    parent: OwnedFd,
    name: OsString,
    file: File,
    size: u64,
    hasher: ContentHasher,
    is_finished: bool,
}

impl<'b> NewFile<'b> {
    pub(super) fn create(
        building: &'b Building,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        size: u64,
    ) -> io::Result<Self> {
        let parent = parent.try_clone_to_owned()?;
        Ok(Self {
            file: create(parent.as_fd(), name)?,
            parent,
            building,
            name: name.to_owned(),
            size,
            hasher: ContentHasher::of_size(size),
            is_finished: false,
        })
    }

    /// Goes on behind so many zeros, which become a hole.
    pub fn skip(&mut self, length: u64) {
        self.hasher.skip(length);
    }

    /// Gives the file its attributes, and shares it.
    ///
    /// # Errors
    /// `UnexpectedEof` if not as many bytes came as were announced. Else what the file system answers.
    pub fn finish(mut self, attributes: &FileAttributes<'_>) -> io::Result<Added> {
        let hasher = std::mem::replace(&mut self.hasher, ContentHasher::of_size(0));
        if hasher.position() != self.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let building = self.building;
        let offer = building.offer(self.size, hasher.finish(), attributes);
        let parent = self.parent.as_fd();
        let ours = rustix::fs::fstat(&self.file)?;
        let added = match building.take_theirs(&ours, &offer, parent, &self.name) {
            Ok(true) => Ok(Added {
                linked: true,
                lost_xattrs: 0,
            }),
            Ok(false) => self.file.set_len(self.size).and_then(|()| {
                let at = (parent, &*self.name);
                building.complete(&self.file, at, offer, attributes, false)
            }),
            Err(error) => {
                building.withdraw(&offer);
                Err(error)
            }
        };
        self.is_finished = added.is_ok();
        added
    }
}

impl Write for NewFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let position = self.hasher.position();
        if position.saturating_add(bytes.len() as u64) > self.size {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        write_with_holes(&self.file, bytes, position)?;
        self.hasher.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            // Whoever dropped it has an error of his own; the tree is not published.
            rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::empty()).ok();
        }
    }
}

/// Makes a file that was not there.
pub(super) fn create(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(file.into())
}

/// Writes bytes at a place in a new file; whole blocks of zeros are left out. The file may be shorter
/// afterwards than it must be.
pub(super) fn write_with_holes(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let misaligned = usize::try_from(at % HOLE_BYTES as u64).unwrap_or(0);
    let lead = if misaligned == 0 {
        0
    } else {
        bytes.len().min(HOLE_BYTES - misaligned)
    };
    let write = |piece: &[u8], offset: usize| {
        if piece.is_empty() {
            return Ok(());
        }
        file.write_all_at(piece, at + offset as u64)
    };
    write(&bytes[..lead], 0)?;
    let blocks = &bytes[lead..];
    let (mut start, mut end) = (0, 0);
    for block in blocks.chunks(HOLE_BYTES) {
        let next = end + block.len();
        if block.len() == HOLE_BYTES && is_zero(block) {
            write(&blocks[start..end], lead + start)?;
            start = next;
        }
        end = next;
    }
    write(&blocks[start..end], lead + start)
}
