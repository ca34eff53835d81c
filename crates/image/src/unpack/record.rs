//! What a tar archive says, entry by entry, without the bytes of its files.

use rustix::fs::Timespec;

/// One entry that makes or removes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// Relative to the root, without `.`, `..` and needless slashes; empty for the root itself.
    pub(crate) path: Vec<u8>,
    pub(crate) what: RecordKind,
    pub(crate) dress: Dress,
    pub(crate) xattrs: Vec<Xattr>,
}

/// A name and a value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// Mode, owner and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dress {
    /// Permission bits, set-id bits and the sticky bit.
    pub(crate) mode: u32,
    /// As the archive says.
    pub(crate) uid: u32,
    /// As the archive says.
    pub(crate) gid: u32,
    pub(crate) mtime: Time,
}

/// Seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

impl Time {
    pub(crate) const fn timespec(self) -> Timespec {
        Timespec {
            tv_sec: self.seconds,
            tv_nsec: self.nanos as _,
        }
    }
}

impl Dress {
    /// What a directory has that no entry is about: the same on every machine and at any time.
    pub(crate) const IMPLIED: Self = Self {
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime: Time {
            seconds: 0,
            nanos: 0,
        },
    };
}

/// What an entry makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Dir,
    File(Content),
    /// A symbolic link to a target that may say anything.
    Symlink(Vec<u8>),
    /// Another name of what is at this path, which is tidy as all paths.
    HardLink(Vec<u8>),
    Fifo,
    /// A device node. It has its place in the tree but is not made.
    Device,
    /// What lower layers have at the path is gone.
    Whiteout,
    /// What lower layers have in this directory is gone.
    Opaque,
    /// A file that has no place in the tree and is there for hard links only (AUFS).
    Aside(Content),
}

/// The bytes of a file, which lie elsewhere under a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) number: u32,
    /// Bytes, holes counted.
    pub(crate) size: u64,
}
