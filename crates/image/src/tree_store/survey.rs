//! Looking at a whole tree with all cores: from files to a list.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tidemill_core::Digest;
use tidemill_tree::{Walk, WalkError, all_cores, map_all, open_below, split_path};

use super::content::{digest_of_file, read_buffer};
use super::listing::{Entry, Kind, Listing, Node, What};
use crate::link_xattrs;
use crate::unpack::ArchiveOwners;

/// Attributes that the host gives to files by itself, and that say nothing of their content.
const HOSTS_OWN: &[&[u8]] = &[b"security.selinux", b"security.ima", b"security.evm"];
/// The most that the kernel gives for the names or one value, see xattr(7).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// The part of a file that has to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inside {
    pub(crate) content: Digest,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What is known of a tree's files before it is looked at.
pub(crate) trait Knowledge: Sync {
    /// What is in a file, if it need not be read.
    fn known(&self, stat: &Stat) -> Option<Inside>;

    /// A file was read.
    fn learn(&self, stat: &Stat, inside: &Inside);

    /// What is in a file that may not be read, as far as one can tell.
    fn assumed(&self, path: &[u8]) -> Option<Inside>;
}

/// How ids become owners in a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owned {
    pub(crate) owners: ArchiveOwners,
    /// The user and group of who builds.
    pub(crate) builder: (u32, u32),
}

impl Owned {
    pub(crate) fn user(self, raw: u32) -> i64 {
        self.recorded(raw, self.builder.0)
    }

    pub(crate) fn group(self, raw: u32) -> i64 {
        self.recorded(raw, self.builder.1)
    }

    fn recorded(self, raw: u32, builder: u32) -> i64 {
        match self.owners {
            ArchiveOwners::Kept => i64::from(raw),
            // Among the sub-ids who builds is 0; outside of them it is some other number, which must not be
            // taken for a sub-id.
            ArchiveOwners::SubIds | ArchiveOwners::Lost if raw == builder => -1,
            ArchiveOwners::SubIds => i64::from(raw) - 1,
            ArchiveOwners::Lost => i64::from(raw),
        }
    }
}

/// How a tree is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Survey {
    pub(crate) owned: Owned,
    /// Modes may be changed for a moment, where they close something to its owner: nobody else sees the
    /// tree yet.
    pub(crate) is_private: bool,
}

/// A tree that was looked at.
#[derive(Debug)]
pub(crate) struct Surveyed {
    pub(crate) listing: Listing,
    /// One for each entry.
    pub(crate) stats: Vec<Stat>,
    /// Paths of files that could not be read.
    pub(crate) unread: Vec<Vec<u8>>,
}

struct Item {
    path: Vec<u8>,
    stat: Stat,
    target: Vec<u8>,
}

impl Survey {
    /// Lists a tree, and reads what is not known of it.
    ///
    /// # Errors
    /// What could not be looked at, and why.
    pub(crate) fn of(
        self,
        root: BorrowedFd<'_>,
        knowledge: &impl Knowledge,
    ) -> Result<Surveyed, WalkError> {
        let mut items = self.items(root)?;
        items.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let firsts = first_names(&items);
        let insides = map_all(&items, all_cores(), read_buffer, |buffer, item| {
            if firsts
                .get(&item.stat.st_ino)
                .is_some_and(|first| *first != item.path)
            {
                return Ok(None);
            }
            self.inside(root, item, buffer, knowledge)
        });
        let mut surveyed = Surveyed {
            listing: Listing::default(),
            stats: Vec::with_capacity(items.len()),
            unread: Vec::new(),
        };
        for (item, inside) in items.iter().zip(insides) {
            let inside = match inside {
                Err(error) if is_denied(&error) => {
                    surveyed.unread.push(item.path.clone());
                    Some(knowledge.assumed(&item.path).unwrap_or_else(nothing))
                }
                other => other?,
            };
            let first = firsts.get(&item.stat.st_ino);
            let what = match first.filter(|first| **first != item.path) {
                Some(first) => What::Again(first.clone()),
                None => What::Node(self.node(item, inside)),
            };
            surveyed.stats.push(item.stat);
            surveyed.listing.entries.push(Entry {
                path: item.path.clone(),
                what,
            });
        }
        Ok(surveyed)
    }

    fn items(self, root: BorrowedFd<'_>) -> Result<Vec<Item>, WalkError> {
        let walk = Walk {
            opens_closed: self.is_private,
            ..Walk::all_cores()
        };
        let top = rustix::fs::fstat(root).map_err(|errno| failed("look at", b".", errno))?;
        let mut items = walk.run(root, |visit| {
            let is_link = FileType::from_raw_mode(visit.stat.st_mode) == FileType::Symlink;
            let target = if is_link {
                rustix::fs::readlinkat(visit.directory, visit.name, Vec::new())
                    .map_err(|errno| failed("read the link", visit.path, errno))?
                    .into_bytes()
            } else {
                Vec::new()
            };
            Ok::<_, WalkError>(Item {
                path: visit.path.to_owned(),
                stat: *visit.stat,
                target,
            })
        })?;
        items.push(Item {
            path: Vec::new(),
            stat: top,
            target: Vec::new(),
        });
        Ok(items)
    }

    /// What has to be read of an entry.
    fn inside(
        self,
        root: BorrowedFd<'_>,
        item: &Item,
        buffer: &mut [u8],
        knowledge: &impl Knowledge,
    ) -> Result<Option<Inside>, WalkError> {
        match FileType::from_raw_mode(item.stat.st_mode) {
            FileType::RegularFile => {
                if let Some(known) = knowledge.known(&item.stat) {
                    return Ok(Some(known));
                }
                let size = u64::try_from(item.stat.st_size).unwrap_or(0);
                let file = self.open(root, &item.path, item.stat.st_mode)?;
                let file = File::from(file);
                let inside = digest_of_file(&file, size, buffer)
                    .and_then(|content| {
                        let xattrs = xattrs_of(file.as_fd())?;
                        Ok(Inside { content, xattrs })
                    })
                    .map_err(|source| error("read", &item.path, source))?;
                knowledge.learn(&item.stat, &inside);
                Ok(Some(inside))
            }
            FileType::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let xattrs = match open_below(root, &item.path, flags) {
                    // One that is closed to its owner has none in any list.
                    Err(source) if source.kind() == io::ErrorKind::PermissionDenied => Vec::new(),
                    opened => opened
                        .and_then(|directory| xattrs_of(directory.as_fd()))
                        .map_err(|source| error("read the attributes of", &item.path, source))?,
                };
                Ok(Some(Inside {
                    xattrs,
                    ..nothing()
                }))
            }
            // Nobody else may set any.
            FileType::Symlink | FileType::Fifo if self.owned.owners == ArchiveOwners::Kept => {
                let xattrs = above(root, &item.path)
                    .and_then(|(parent, name)| link_xattrs::of(parent.as_fd(), name))
                    .map_err(|source| error("read the attributes of", &item.path, source))?;
                let xattrs = without_hosts_own(xattrs);
                Ok(Some(Inside {
                    xattrs,
                    ..nothing()
                }))
            }
            _ => Ok(None),
        }
    }

    /// Opens a file for reading, also one that is closed to its owner if the tree is still private.
    fn open(self, root: BorrowedFd<'_>, path: &[u8], mode: u32) -> Result<OwnedFd, WalkError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = open_below(root, path, flags);
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if !self.is_private || !opened.as_ref().is_err_and(is_denied) {
            return opened.map_err(|source| error("open", path, source));
        }
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let opened = above(root, path).and_then(|(parent, name)| {
            let set = |mode| rustix::fs::chmodat(&parent, name, mode, AtFlags::empty());
            set(mode | Mode::RUSR)?;
            let opened = rustix::fs::openat(&parent, name, flags, Mode::empty());
            set(mode)?;
            Ok(opened?)
        });
        opened.map_err(|source| error("open", path, source))
    }

    fn node(self, item: &Item, inside: Option<Inside>) -> Node {
        let inside = inside.unwrap_or_else(nothing);
        let stat = &item.stat;
        let numbers = || {
            let device = stat.st_rdev;
            (rustix::fs::major(device), rustix::fs::minor(device))
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink(item.target.clone()),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::Character(numbers().0, numbers().1),
            FileType::BlockDevice => Kind::Block(numbers().0, numbers().1),
            _ => Kind::File {
                size: u64::try_from(stat.st_size).unwrap_or(0),
                content: inside.content,
            },
        };
        Node {
            kind,
            mode: stat.st_mode & 0o7777,
            user: self.owned.user(stat.st_uid),
            group: self.owned.group(stat.st_gid),
            mtime: (
                stat.st_mtime,
                u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
            xattrs: inside.xattrs,
        }
    }
}

fn without_hosts_own(mut xattrs: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    xattrs.retain(|(name, _)| !HOSTS_OWN.contains(&name.as_slice()));
    xattrs
}

/// The first path of everything that may have several names. The items are sorted.
fn first_names(items: &[Item]) -> HashMap<u64, Vec<u8>> {
    let mut firsts = HashMap::new();
    for item in items {
        let is_directory = FileType::from_raw_mode(item.stat.st_mode) == FileType::Directory;
        if item.stat.st_nlink > 1 && !is_directory {
            firsts
                .entry(item.stat.st_ino)
                .or_insert_with(|| item.path.clone());
        }
    }
    firsts
}

fn nothing() -> Inside {
    Inside {
        content: Digest::from_bytes([0; 32]),
        xattrs: Vec::new(),
    }
}

/// The directory above a path, opened, and the last name.
pub(crate) fn above<'a>(root: BorrowedFd<'_>, path: &'a [u8]) -> io::Result<(OwnedFd, &'a [u8])> {
    let (parent, name) = split_path(path);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((open_below(root, parent, flags)?, name))
}

fn is_denied(error: &WalkError) -> bool {
    error.step == "open" && error.source.kind() == io::ErrorKind::PermissionDenied
}

fn failed(step: &'static str, path: &[u8], errno: Errno) -> WalkError {
    error(step, path, errno.into())
}

fn error(step: &'static str, path: &[u8], source: io::Error) -> WalkError {
    let path = if path.is_empty() { b"." } else { path };
    WalkError {
        step,
        path: path.to_owned(),
        source,
    }
}

/// The extended attributes of something open, sorted, but for those that are the host's own.
///
/// # Errors
/// What the kernel answers, but for that there can be none.
fn xattrs_of(fd: BorrowedFd<'_>) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut few = [0_u8; 256];
    let names = match rustix::fs::flistxattr(fd, &mut few[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(length) => few[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut many = vec![0; XATTR_BYTES_MAX];
            let length = rustix::fs::flistxattr(fd, &mut many[..])?;
            many.truncate(length);
            many
        }
        Err(errno) => return Err(errno.into()),
    };
    let mut xattrs = Vec::new();
    let mut value = vec![0; XATTR_BYTES_MAX];
    for name in names.split(|byte| *byte == 0) {
        if name.is_empty() || HOSTS_OWN.contains(&name) {
            continue;
        }
        match rustix::fs::fgetxattr(fd, name, &mut value[..]) {
            Ok(length) => xattrs.push((name.to_owned(), value[..length].to_owned())),
            // It went meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    xattrs.sort();
    Ok(xattrs)
}
