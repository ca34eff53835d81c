//! Why an archive cannot be unpacked, and what to do then.

use std::io;

use crate::archive::ArchiveError;
use crate::sparse::SparseError;

/// Why an archive cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The archive cannot be opened.
    #[error(transparent)]
    Archive(ArchiveError),
    /// It is cut off, damaged, or not an archive.
    #[error("`{archive}` is damaged, or is not a tar archive")]
    Damaged {
        /// The archive.
        archive: String,
        /// Why it could not be read on.
        #[source]
        source: io::Error,
    },
    /// It begins with something else than a tar header.
    #[error("`{archive}` is not a tar archive")]
    NotTar {
        /// The archive.
        archive: String,
    },
    /// The archive ends without the mark that ends an archive.
    #[error("`{archive}` is cut off: it ends without the mark that ends an archive")]
    CutOff {
        /// The archive.
        archive: String,
    },
    /// A name leads out of the tree.
    #[error("the entry `{entry}` of `{archive}` {why}")]
    BadName {
        /// The archive.
        archive: String,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A hard link leads to nothing.
    #[error("the entry `{entry}` of `{archive}` is a hard link to `{target}`, which {why}")]
    BadLink {
        /// The archive.
        archive: String,
        /// The entry.
        entry: String,
        /// What it links to.
        target: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An entry is of a kind that is not unpacked.
    #[error("the entry `{entry}` of `{archive}` is of an unknown kind ({kind})")]
    UnknownKind {
        /// The archive.
        archive: String,
        /// The entry.
        entry: String,
        /// The byte that says what it is.
        kind: u8,
    },
    /// A sparse file has a wrong map.
    #[error("the entry `{entry}` of `{archive}` is a sparse file with a wrong map")]
    Sparse {
        /// The archive.
        archive: String,
        /// The entry.
        entry: String,
        /// What is wrong with it.
        #[source]
        source: SparseError,
    },
    /// A limit was reached.
    #[error("`{archive}` is refused: {what} (the limit is {max})")]
    TooLarge {
        /// The archive.
        archive: String,
        /// What was too much.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// A file cannot be written.
    #[error("failed to {step} `{entry}` of `{archive}`")]
    Write {
        /// The archive.
        archive: String,
        /// The entry.
        entry: String,
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Something on the way to an entry is no directory.
    #[error("the entry `{entry}` of `{archive}` lies below `{place}`, which is no directory")]
    NotADirectory {
        /// The archive.
        archive: String,
        /// The entry.
        entry: String,
        /// What is on its way.
        place: String,
    },
    /// The archive was changed meanwhile.
    #[error("`{archive}` changed while it was unpacked")]
    Changed {
        /// The archive.
        archive: String,
    },
}

/// True if one more hard link was one too many.
fn is_too_many_names(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::MLINK)
}

impl UnpackError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Archive(error) => error.hint(),
            Self::Damaged { .. } | Self::CutOff { .. } => {
                "check it with `tar -tf`, and fetch or make it again"
            }
            Self::BadName { .. }
            | Self::BadLink { .. }
            | Self::NotADirectory { .. }
            | Self::Sparse { .. } => "do not trust this archive; make it again from its directory",
            Self::NotTar { .. } => "name a tar archive: plain, or compressed with gzip, zstd or xz",
            Self::UnknownKind { .. } => "make it again with `tar --format=posix`",
            Self::TooLarge { .. } => "unpack it yourself and use `dir:` if you trust it",
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "make room on the disk of the state directory"
            }
            Self::Write { source, .. } if is_too_many_names(source) => {
                "one file has more names than the file system of the state directory allows (65,000 \
                 on ext4): put the state directory on XFS or btrfs, or make the archive with copies"
            }
            Self::Write { .. } => "check that the state directory is writable",
            Self::Changed { .. } => "run the job again when the archive does not change",
        }
    }
}
