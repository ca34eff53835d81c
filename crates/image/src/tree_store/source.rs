//! A published tree as a source of files for another one.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use tidemill_core::Digest;
use tidemill_tree::open_below;

use super::listing::{Entry, Listing, Node, What};
use super::survey::above;

/// A published tree whose files can be added to another. It stays in use as long as the store is open.
#[derive(Debug)]
pub struct SourceTree {
    id: Digest,
    path: PathBuf,
    root: OwnedFd,
    entries: HashMap<Vec<u8>, What>,
}

impl SourceTree {
    pub(super) fn new(id: Digest, path: PathBuf, listing: Listing) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = listing.entries.into_iter();
        Ok(Self {
            id,
            root: rustix::fs::open(&path, flags, Mode::empty())?,
            path,
            entries: entries.map(|Entry { path, what }| (path, what)).collect(),
        })
    }

    /// The digest of the whole tree.
    pub const fn id(&self) -> Digest {
        self.id
    }

    /// The tree's root.
    pub fn root(&self) -> &Path {
        &self.path
    }

    /// True if the tree has a file at this path below its root.
    pub fn has_file(&self, path: &[u8]) -> bool {
        self.node(path)
            .is_some_and(|node| matches!(node.kind, super::listing::Kind::File { .. }))
    }

    pub(super) fn node(&self, path: &[u8]) -> Option<&Node> {
        match self.entries.get(path)? {
            What::Node(node) => Some(node),
            What::Again(first) => match self.entries.get(first)? {
                What::Node(node) => Some(node),
                What::Again(_) => None,
            },
        }
    }

    pub(super) fn open(&self, path: &[u8]) -> io::Result<(OwnedFd, Stat)> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open_below(self.root.as_fd(), path, flags)?;
        let stat = rustix::fs::fstat(&file)?;
        Ok((file, stat))
    }

    pub(super) fn link(&self, path: &[u8], parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let (from, last) = above(self.root.as_fd(), path)?;
        let last = OsStr::from_bytes(last);
        Ok(rustix::fs::linkat(
            &from,
            last,
            parent,
            name,
            AtFlags::empty(),
        )?)
    }
}
