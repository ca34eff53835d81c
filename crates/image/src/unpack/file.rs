//! One file of an archive on its way into a tree: its bytes, and then all that makes it what it is.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Timestamps, XattrFlags};

use super::owners::ArchiveOwners;
use super::record::{Dress, Xattr};
use crate::link_xattrs::is_not_taken;
use crate::sparse::SparseMap;
use crate::tree_store::{Added, Building, FileAttributes, NewFile};

/// Bytes that are copied at a time.
const COPY_BYTES: u64 = 128 << 10;

/// Writes files into a tree, from any thread.
#[derive(Debug)]
pub(crate) struct FileWriter<'a> {
    building: &'a Building,
    owners: ArchiveOwners,
    lost_xattrs: AtomicU64,
}

/// Where a file goes, and what it is beside its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a OsStr,
    pub(crate) dress: &'a Dress,
    pub(crate) xattrs: &'a [Xattr],
}

impl<'a> FileWriter<'a> {
    pub(crate) const fn new(building: &'a Building, owners: ArchiveOwners) -> Self {
        Self {
            building,
            owners,
            lost_xattrs: AtomicU64::new(0),
        }
    }

    /// Extended attributes that could not be given to their files.
    pub(crate) fn lost_xattrs(&self) -> u64 {
        self.lost_xattrs.load(Ordering::Relaxed)
    }

    /// Writes a file whose bytes are there.
    pub(crate) fn write(&self, wanted: &Wanted<'_>, bytes: &[u8]) -> io::Result<()> {
        self.dressed(wanted, |attributes| {
            self.building
                .add_file(wanted.dir, wanted.name, bytes, attributes)
        })
    }

    /// Writes a file of this size from a reader.
    pub(crate) fn copy(
        &self,
        wanted: &Wanted<'_>,
        from: &mut impl Read,
        size: u64,
    ) -> io::Result<()> {
        let mut file = self.building.new_file(wanted.dir, wanted.name, size)?;
        copy_exactly(from, &mut file, size)?;
        self.dressed(wanted, |attributes| file.finish(attributes))
    }

    /// Writes a file of which only some pieces are there.
    pub(crate) fn copy_sparse(
        &self,
        wanted: &Wanted<'_>,
        from: &mut impl Read,
        map: &SparseMap,
        size: u64,
    ) -> io::Result<()> {
        let mut file = self.building.new_file(wanted.dir, wanted.name, size)?;
        let mut at = 0;
        for piece in map.pieces() {
            file.skip(piece.offset - at);
            copy_exactly(from, &mut file, piece.length)?;
            at = piece.offset + piece.length;
        }
        file.skip(size - at);
        self.dressed(wanted, |attributes| file.finish(attributes))
    }

    fn dressed(
        &self,
        wanted: &Wanted<'_>,
        add: impl FnOnce(&FileAttributes<'_>) -> io::Result<Added>,
    ) -> io::Result<()> {
        let given = self.owners.xattrs(wanted.xattrs);
        let added = add(&FileAttributes {
            mode: wanted.dress.mode,
            owner: self.owners.ids(wanted.dress),
            mtime: wanted.dress.mtime.timespec(),
            xattrs: &given,
        })?;
        let lost = (wanted.xattrs.len() - given.len()) as u64 + u64::from(added.lost_xattrs);
        self.lost_xattrs.fetch_add(lost, Ordering::Relaxed);
        Ok(())
    }
}

/// Copies so many bytes, in pieces as large as the buffer: a file that is written in whole blocks has holes
/// where they are zero.
fn copy_exactly(from: &mut impl Read, to: &mut NewFile<'_>, mut length: u64) -> io::Result<()> {
    let mut buffer = vec![0; length.min(COPY_BYTES) as usize];
    while length > 0 {
        let piece = &mut buffer[..length.min(COPY_BYTES) as usize];
        from.read_exact(piece)?;
        to.write_all(piece)?;
        length -= piece.len() as u64;
    }
    Ok(())
}

/// Gives extended attributes to an open directory. Returns how many could not be given.
pub(crate) fn set_xattrs(file: &File, owners: ArchiveOwners, xattrs: &[Xattr]) -> io::Result<u64> {
    let given = owners.xattrs(xattrs);
    let mut lost = xattrs.len() - given.len();
    for (name, value) in &given {
        match rustix::fs::fsetxattr(file, name.as_slice(), value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(errno) if is_not_taken(errno) => lost += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lost as u64)
}

pub(crate) const fn times(dress: &Dress) -> Timestamps {
    Timestamps {
        last_access: dress.mtime.timespec(),
        last_modification: dress.mtime.timespec(),
    }
}
