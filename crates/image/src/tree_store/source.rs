//! A published tree as a source of files for another one.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use tidemill_core::Digest;
use tidemill_tree::{open_below, split_path};

use super::listing::{Entry, Listing, Node, What};
use super::survey::above;

/// A published tree whose files can be added to another. It stays in use as long as the store is open.
#[derive(Debug)]
pub struct SourceTree {
    id: Digest,
    path: PathBuf,
    root: OwnedFd,
    /// The directory that a file was taken from last: the next one is mostly beside it.
    last: Mutex<Option<Opened>>,
    entries: HashMap<Vec<u8>, What>,
}

/// A directory of the tree, by its path below the root.
type Opened = (Vec<u8>, Arc<OwnedFd>);

impl SourceTree {
    pub(super) fn new(id: Digest, path: PathBuf, listing: Listing) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = listing.entries.into_iter();
        Ok(Self {
            id,
            root: rustix::fs::open(&path, flags, Mode::empty())?,
            path,
            last: Mutex::default(),
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

    /// What the file system says of a file.
    pub(super) fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        let (above, name) = self.above(path)?;
        Ok(rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub(super) fn open(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        open_below(self.root.as_fd(), path, flags)
    }

    pub(super) fn link(&self, path: &[u8], parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let (above, last) = self.above(path)?;
        let flags = AtFlags::empty();
        Ok(rustix::fs::linkat(&above, last, parent, name, flags)?)
    }

    /// The directory that a path leads to, and the name in it.
    fn above<'a>(&self, path: &'a [u8]) -> io::Result<(Arc<OwnedFd>, &'a [u8])> {
        let (parent, name) = split_path(path);
        // What is there is whole at any time.
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, opened)) = &*last()
            && path == parent
        {
            return Ok((Arc::clone(opened), name));
        }
        let (opened, _) = above(self.root.as_fd(), path)?;
        let opened = Arc::new(opened);
        *last() = Some((parent.to_owned(), Arc::clone(&opened)));
        Ok((opened, name))
    }
}
