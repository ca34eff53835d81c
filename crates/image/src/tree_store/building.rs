//! A tree under construction, and how its files come to be shared with other trees.
//!
//! Whoever builds a tree hands its files over while it writes them: each is hashed once, on its way, and if
//! the pool has the same file already, a link takes the place of all other work. What was put into the tree
//! without asking is read and linked at the end, in `finish`.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use tidemill_core::Digest;

use super::content::ContentHasher;
use super::listing::{Kind, Node};
use super::new_file::{NewFile, create, write_with_holes};
use super::pool::{Linked, Look, Pool};
use super::source::SourceTree;
use super::survey::{Inside, Owned};
use crate::link_xattrs::is_not_taken;
use crate::unpack::ArchiveOwners;

/// Smaller files are not shared: an empty one takes no room but for its inode.
const SHARED_BYTES_MIN: u64 = 1;

/// What a file gets beside its content.
#[derive(Debug, Clone, Copy)]
pub struct FileAttributes<'a> {
    /// The lower twelve bits of the mode.
    pub mode: u32,
    /// User and group, as chown(2) takes them here; without, the file belongs to who builds.
    pub owner: Option<(u32, u32)>,
    /// When it was changed.
    pub mtime: Timespec,
    /// Extended attributes: names and values.
    pub xattrs: &'a [(Vec<u8>, Vec<u8>)],
}

/// What became of a file that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    /// True if it is one that other trees have, false if it was written.
    pub linked: bool,
    /// Extended attributes that the file system, or the rights of this process, refuse.
    pub lost_xattrs: u32,
}

/// A tree under construction. Several threads may add files to it at the same time.
///
/// A file that was added may be shared with other trees: it must never be written or given other attributes.
/// To change it, unlink it and add another.
#[derive(Debug)]
pub struct Building {
    pub(super) root: PathBuf,
    pub(super) opened: OwnedFd,
    /// The directory above the root, where links are made before they take the place of files.
    pub(super) place: OwnedFd,
    pub(super) pool: Option<Pool>,
    pub(super) owned: Owned,
    books: Mutex<Books>,
    /// For names that nobody has.
    count: AtomicU64,
}

/// What is known of the files that were added.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// By inode.
    pub(super) known: HashMap<u64, Known>,
    /// Which of several equal files are taken, by the key of the first.
    ordinals: HashMap<Digest, Ordinals>,
    /// What was linked from other trees: the tree and the inode there, and the inode here.
    linked_from: HashMap<(Digest, u64), u64>,
}

/// Numbers of equal files. A tree may have very many of them, so none is looked for among the taken.
#[derive(Debug, Default)]
struct Ordinals {
    /// None from here on is taken.
    next: u32,
    /// Of those before it, the ones that are not.
    free: BTreeSet<u32>,
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) inside: Inside,
    pub(super) look: Look,
    pub(super) key: Option<Digest>,
    /// True if the file was there before.
    pub(super) is_linked: bool,
}

/// A file on its way into a tree.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) node: Node,
    pub(super) look: Look,
    /// Its name in the pool.
    pub(super) key: Option<Claim>,
}

/// A key that no other file of the tree has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    pub(super) key: Digest,
    /// The key of the first of its equals.
    first: Digest,
    ordinal: u32,
}

impl Building {
    pub(crate) fn new(
        place: &Path,
        root: PathBuf,
        pool: Option<Pool>,
        owners: ArchiveOwners,
    ) -> io::Result<Self> {
        let open = |path: &Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
        };
        let opened = open(&root)?;
        let stat = rustix::fs::fstat(&opened)?;
        Ok(Self {
            place: open(place)?,
            root,
            pool,
            owned: Owned {
                owners,
                builder: (stat.st_uid, stat.st_gid),
            },
            opened,
            books: Mutex::default(),
            count: AtomicU64::new(0),
        })
    }

    /// The tree's root: a directory that is empty at the beginning.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The root, opened.
    pub(super) fn opened(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }

    /// Adds a file whose content is all in memory.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken: then nothing was changed. Else what the file system answers.
    pub fn add_file(
        &self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        content: &[u8],
        attributes: &FileAttributes<'_>,
    ) -> io::Result<Added> {
        let size = content.len() as u64;
        let mut hasher = ContentHasher::of_size(size);
        hasher.update(content);
        let offer = self.offer(size, hasher.finish(), attributes);
        let looked = match self.link_offer(&offer, parent, name) {
            Ok(Linked::Yes(stat)) => {
                self.know(&stat, &offer, true);
                return Ok(Added::linked());
            }
            Ok(looked) => looked,
            Err(error) => {
                self.withdraw(&offer);
                return Err(error);
            }
        };
        let file = match create(parent, name) {
            Ok(file) => file,
            Err(error) => {
                self.withdraw(&offer);
                return Err(error);
            }
        };
        let is_full = matches!(looked, Linked::Full);
        let added = write_with_holes(&file, content, 0)
            .and_then(|()| {
                // A hole at the end is not there yet.
                let is_short = content.last() == Some(&0);
                if is_short { file.set_len(size) } else { Ok(()) }
            })
            .and_then(|()| self.complete(&file, (parent, name), offer, attributes, is_full));
        if added.is_err() {
            // The error is what the caller hears of; the tree is not published.
            rustix::fs::unlinkat(parent, name, AtFlags::empty()).ok();
        }
        added
    }

    /// Begins a file of known size that is written piece by piece.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken. Else what the file system answers.
    pub fn new_file(
        &self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        size: u64,
    ) -> io::Result<NewFile<'_>> {
        NewFile::create(self, parent, name, size)
    }

    /// Adds a file of another tree, without reading it. Two names of one file there are two names of one
    /// file here.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken, `ENOENT` if the other tree has no such file. Else what the file system
    /// answers.
    pub fn add_link(
        &self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        source: &SourceTree,
        path: &[u8],
    ) -> io::Result<Added> {
        let stat = source.stat(path)?;
        let node = source.node(path).ok_or(io::ErrorKind::NotFound)?;
        let Kind::File { size, content } = node.kind else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let look = Look::of(&stat);
        if (look.size, look.mode, look.mtime) != (size, node.mode, node.mtime) {
            let why = "the file was changed since its tree was built; try again";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let from = (source.id(), stat.st_ino);
        let mut books = self.books();
        let is_taken = books.known.contains_key(&stat.st_ino);
        let here = books.linked_from.get(&from).copied();
        if here.unwrap_or(stat.st_ino) == stat.st_ino && (here.is_some() || !is_taken) {
            books.linked_from.insert(from, stat.st_ino);
            let claim = (here.is_none() && size >= SHARED_BYTES_MIN)
                .then(|| books.claim(node, self.owned.owners.tag()));
            books.known.entry(stat.st_ino).or_insert_with(|| Known {
                inside: Inside {
                    content,
                    xattrs: node.xattrs.clone(),
                },
                look,
                key: claim.map(|claim| claim.key),
                is_linked: true,
            });
            drop(books);
            source.link(path, parent, name)?;
            return Ok(Added::linked());
        }
        drop(books);
        // Another tree gave this inode already, as another file.
        let attributes = FileAttributes {
            mode: node.mode,
            owner: Some((stat.st_uid, stat.st_gid)),
            mtime: Timespec {
                tv_sec: stat.st_mtime,
                tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
            xattrs: &node.xattrs,
        };
        let mut copy = self.new_file(parent, name, size)?;
        io::copy(&mut File::from(source.open(path)?), &mut copy)?;
        copy.finish(&attributes)
    }

    /// The keys of all files of the tree, for whoever gives it up.
    pub(super) fn keys(&self) -> Vec<Digest> {
        let books = self.books();
        books.known.values().filter_map(|known| known.key).collect()
    }

    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        // Books are whole at any time.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A name in the place that nobody has.
    pub(super) fn spare_name(&self) -> String {
        format!("link-{}", self.count.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn offer(
        &self,
        size: u64,
        content: Digest,
        attributes: &FileAttributes<'_>,
    ) -> Offer {
        let (user, group) = attributes.owner.unwrap_or(self.owned.builder);
        let nanos = u32::try_from(attributes.mtime.tv_nsec).unwrap_or(0);
        let look = Look {
            size,
            mode: attributes.mode & 0o7777,
            user,
            group,
            mtime: (attributes.mtime.tv_sec, nanos),
        };
        let mut xattrs = attributes.xattrs.to_vec();
        xattrs.sort();
        let node = Node {
            kind: Kind::File { size, content },
            mode: look.mode,
            user: self.owned.user(look.user),
            group: self.owned.group(look.group),
            mtime: look.mtime,
            xattrs,
        };
        let key = self.claim(&node);
        Offer { node, look, key }
    }

    /// Takes a key for a file, if it is worth sharing.
    pub(super) fn claim(&self, node: &Node) -> Option<Claim> {
        let Kind::File { size, .. } = node.kind else {
            return None;
        };
        let is_shared = size >= SHARED_BYTES_MIN && self.pool.is_some();
        is_shared.then(|| self.books().claim(node, self.owned.owners.tag()))
    }

    pub(super) fn withdraw(&self, offer: &Offer) {
        if let Some(claim) = offer.key
            && let Some(taken) = self.books().ordinals.get_mut(&claim.first)
        {
            taken.free.insert(claim.ordinal);
        }
    }

    pub(super) fn link_offer(
        &self,
        offer: &Offer,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<Linked> {
        match (&self.pool, offer.key) {
            (Some(pool), Some(claim)) => pool.link(&claim.key, &offer.look, parent, name),
            _ => Ok(Linked::No),
        }
    }

    pub(super) fn know(&self, stat: &Stat, offer: &Offer, is_linked: bool) {
        let Kind::File { content, .. } = offer.node.kind else {
            return;
        };
        let known = Known {
            inside: Inside {
                content,
                xattrs: offer.node.xattrs.clone(),
            },
            look: offer.look,
            key: offer.key.map(|claim| claim.key),
            is_linked,
        };
        self.books().known.insert(stat.st_ino, known);
    }

    /// Gives a file that was written, up to its end, its attributes and puts it into the pool.
    pub(super) fn complete(
        &self,
        file: &File,
        (parent, name): (BorrowedFd<'_>, &OsStr),
        mut offer: Offer,
        attributes: &FileAttributes<'_>,
        is_full: bool,
    ) -> io::Result<Added> {
        let kept = match self.dress(file, offer.look.mode, attributes) {
            Ok(kept) => kept,
            Err(error) => {
                self.withdraw(&offer);
                return Err(error);
            }
        };
        let lost = attributes.xattrs.len() - kept.len();
        let lost_xattrs = u32::try_from(lost).unwrap_or(u32::MAX);
        if lost > 0 {
            self.withdraw(&offer);
            offer.node.xattrs = kept;
            offer.key = self.claim(&offer.node);
        }
        let stat = rustix::fs::fstat(file)?;
        let linked = |linked| Added {
            linked,
            lost_xattrs,
        };
        if Look::of(&stat) != offer.look {
            // The file system does not keep what it was given, so its files are not shared.
            tracing::debug!(?name, "a file does not look as it was made");
            self.withdraw(&offer);
            return Ok(linked(false));
        }
        self.know(&stat, &offer, false);
        let (Some(pool), Some(claim)) = (&self.pool, offer.key) else {
            return Ok(linked(false));
        };
        let shared = if is_full {
            pool.replace(&claim.key, parent, name).map(|()| true)
        } else {
            pool.add(&claim.key, parent, name)
        };
        match shared {
            Ok(true) => Ok(linked(false)),
            // Somebody else who builds the same at the same time was faster, or it came without
            // attributes that are lost here.
            Ok(false) => {
                let is_theirs = self.take_theirs(&stat, &offer, parent, name)?;
                if !is_theirs {
                    self.forget(&stat);
                }
                Ok(linked(is_theirs))
            }
            Err(error) => {
                tracing::debug!(?name, %error, "a file is not shared");
                self.forget(&stat);
                Ok(linked(false))
            }
        }
    }

    /// A file that is not in the pool: its inode can become another file's when it is unlinked, so it is
    /// read at the end.
    fn forget(&self, stat: &Stat) {
        self.books().known.remove(&stat.st_ino);
    }

    /// Gives a file its attributes. Tells which extended ones it has, sorted.
    fn dress(
        &self,
        file: &File,
        mode: u32,
        attributes: &FileAttributes<'_>,
    ) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        if let Some((user, group)) = attributes.owner
            && (user, group) != self.owned.builder
        {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::fchown(file, Some(user), Some(group))?;
        }
        let mut kept = Vec::new();
        for (name, value) in attributes.xattrs {
            let flags = rustix::fs::XattrFlags::empty();
            match rustix::fs::fsetxattr(file, &name[..], value, flags) {
                Ok(()) => kept.push((name.clone(), value.clone())),
                Err(errno) if is_not_taken(errno) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        kept.sort();
        // Only now: without root, attributes go on files that their owner may write.
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
        rustix::fs::futimens(file, &times(attributes.mtime))?;
        Ok(kept)
    }

    /// Puts the pool's file in the place of one that was written. False if it has none.
    pub(super) fn take_theirs(
        &self,
        ours: &Stat,
        offer: &Offer,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<bool> {
        let spare = self.spare_name();
        let linked = self.link_offer(offer, self.place.as_fd(), spare.as_ref())?;
        let Linked::Yes(stat) = linked else {
            return Ok(false);
        };
        rustix::fs::renameat(&self.place, &spare, parent, name)?;
        self.books().known.remove(&ours.st_ino);
        self.know(&stat, offer, true);
        Ok(true)
    }
}

impl Books {
    /// Takes a key for a file that no other file of this tree has.
    fn claim(&mut self, node: &Node, owners: &str) -> Claim {
        let first = node.key(owners, 0);
        let taken = self.ordinals.entry(first).or_default();
        let ordinal = taken.free.pop_first().unwrap_or_else(|| {
            taken.next += 1;
            taken.next - 1
        });
        let key = if ordinal == 0 {
            first
        } else {
            node.key(owners, ordinal)
        };
        Claim {
            key,
            first,
            ordinal,
        }
    }
}

impl Added {
    const fn linked() -> Self {
        Self {
            linked: true,
            lost_xattrs: 0,
        }
    }
}

pub(super) const fn times(mtime: Timespec) -> Timestamps {
    Timestamps {
        last_access: mtime,
        last_modification: mtime,
    }
}

#[cfg(test)]
mod tests;
