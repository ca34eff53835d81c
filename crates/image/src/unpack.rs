//! Unpacking tar archives and layers of images that may be hostile.
//!
//! ```text
//! file ─► decompress ─► frames ─► entries ─► records ─► Merged ─► place: the tree
//!         (thread)      (headers)    └─────► contents: files under numbers (threads)
//! ```
//!
//! What an archive says goes into a tree in memory ([`merge`]), where names are resolved as by a program
//! whose root directory it is: no absolute path, no `..` and no symbolic link leads out. Only then is
//! anything put in its place. Sizes, counts and the ratio of compression are bounded while it is read.

mod contents;
mod entries;
mod error;
mod file;
mod frames;
mod guard;
mod lacks;
mod merge;
mod owners;
mod pax;
mod place;
mod record;

use std::fs;
use std::io;
use std::path::Path;
use std::thread;

use tidemill_core::Digest;

pub use error::UnpackError;
pub use guard::UnpackLimits;
pub use owners::ArchiveOwners;

use crate::archive::{Archive, ArchiveReader, Ended};
use crate::beneath::open_root;
use crate::tree_store::{Building, TreeNote};
use contents::Contents;
use entries::read_entries;
pub(crate) use entries::{Names, Tally};
use file::FileWriter;
pub(crate) use lacks::Lacks;
pub(crate) use merge::Merged;
use merge::{MergeError, MergeLimits};
pub(crate) use place::Files;
use place::PlaceError;
pub(crate) use record::{Content, Dress, Record, RecordKind, Time, Xattr};

/// The version of how archives become trees: part of each tree's name.
const FORMAT: u32 = 2;

/// The name of the tree of an archive: its content, and whether owners are kept.
pub(crate) fn tree_name(archive: &Archive, owners: ArchiveOwners) -> Digest {
    let owners = owners.word();
    let text = format!("tar {FORMAT} {} owners={owners}", archive.content());
    Digest::of(text.as_bytes())
}

/// Unpacks an archive into a tree. Beside it, a directory is made for files that have not found their places
/// yet; it is gone afterwards.
pub(crate) fn unpack(
    archive: &Archive,
    building: &Building,
    limits: &UnpackLimits,
    owners: ArchiveOwners,
) -> Result<TreeNote, UnpackError> {
    let (name, root) = (archive.path(), building.root());
    let reader = archive.read().map_err(UnpackError::Archive)?;
    let staging = Staging::beside(root).map_err(write_error(name))?;
    let mut tree = Merged::new(limits.merge());
    tree.start_layer();
    let reading = Reading {
        known_as: name,
        limits,
        names: Names::Plain,
        owners,
        building,
    };
    let apply = |record| apply(&mut tree, record, name);
    let (tally, ended) = reading.run(reader, &staging.0, apply)?;
    if ended != Ended::File(*archive.content()) {
        return Err(UnpackError::Changed {
            archive: name.to_owned(),
        });
    }
    let files = Files::Move(open_root(&staging.0).map_err(write_error(name))?);
    let mut lacks = Lacks::default();
    lacks.read(&tally);
    lacks.add(&place(&tree, root, &files, owners, name)?);
    staging.remove().map_err(write_error(name))?;
    Ok(TreeNote {
        from: name.to_owned(),
        entries: tally.entries,
        bytes: tally.bytes,
        lacks: lacks.sentences(),
    })
}

/// How an archive is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// What errors call it.
    pub(crate) known_as: &'a str,
    pub(crate) limits: &'a UnpackLimits,
    pub(crate) names: Names,
    pub(crate) owners: ArchiveOwners,
    /// The tree that its files go to.
    pub(crate) building: &'a Building,
}

impl Reading<'_> {
    /// Reads an archive to its end. Its files go below an empty directory, under numbers; the records of
    /// what it makes go to `records`, in order.
    pub(crate) fn run(
        &self,
        reader: ArchiveReader,
        files: &Path,
        records: impl FnMut(Record) -> Result<(), UnpackError>,
    ) -> Result<(Tally, Ended), UnpackError> {
        let write_error = || write_error(self.known_as);
        let writer = FileWriter::new(self.building, self.owners);
        let (mut tally, ended) = thread::scope(|scope| {
            let contents = Contents::start(files, &writer, scope);
            let mut contents = contents.map_err(write_error())?;
            let read = read_entries(self, reader, &mut contents, records);
            let finished = contents.finish().map_err(write_error());
            let read = read?;
            finished.map(|()| read)
        })?;
        tally.lost_xattrs += writer.lost_xattrs();
        Ok((tally, ended))
    }
}

impl UnpackLimits {
    pub(crate) const fn merge(&self) -> MergeLimits {
        MergeLimits {
            nodes: self.entries,
            name_bytes: self.name_bytes,
        }
    }
}

/// A directory for files that have not found their places yet.
struct Staging(std::path::PathBuf);

impl Staging {
    fn beside(root: &Path) -> io::Result<Self> {
        let place = root.with_file_name("content");
        fs::create_dir(&place)?;
        Ok(Self(place))
    }

    fn remove(self) -> io::Result<()> {
        tidemill_tree::remove_tree(&self.0)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Whoever removes a tree that failed removes what is beside it too.
        tidemill_tree::remove_tree(&self.0).ok();
    }
}

/// Lays an entry over a tree. An error names the entry.
pub(crate) fn apply(tree: &mut Merged, record: Record, archive: &str) -> Result<(), UnpackError> {
    let path = record.path.clone();
    tree.apply(record).map_err(|error| {
        let archive = archive.to_owned();
        let entry = place::shown(&path);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match error {
            MergeError::BadEntry(why) => UnpackError::BadName {
                archive,
                entry,
                why,
            },
            MergeError::BadLink { target, why } => UnpackError::BadLink {
                archive,
                entry,
                target: text(&target),
                why,
            },
            MergeError::NotADirectory { place } => UnpackError::NotADirectory {
                archive,
                entry,
                place: text(&place),
            },
            MergeError::TooLarge { what, max } => UnpackError::TooLarge { archive, what, max },
        }
    })
}

/// Makes a tree in an empty directory. Says what it lacks.
pub(crate) fn place(
    tree: &Merged,
    root: &Path,
    files: &Files<'_>,
    owners: ArchiveOwners,
    archive: &str,
) -> Result<Lacks, UnpackError> {
    place::place(tree, root, files, owners).map_err(|error: PlaceError| UnpackError::Write {
        archive: archive.to_owned(),
        entry: place::shown(&error.place),
        step: error.step,
        source: error.source,
    })
}

fn write_error(archive: &str) -> impl Fn(io::Error) -> UnpackError {
    move |source| UnpackError::Write {
        archive: archive.to_owned(),
        entry: ".".to_owned(),
        step: "write the files of",
        source,
    }
}

#[cfg(test)]
mod tests;
