//! A tree among sub-ids once more, for a job that is the caller itself: what is the job's own user's in it lies
//! as the caller, and not as the sub-id of that number.
//!
//! Such a job sees the caller as its own user and has no other id of that number. Files of no interest to that are
//! the same inodes as in the first tree. In the list the caller is -1, so that the digest is another one if
//! anything is.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use tidemill_core::Digest;
use tidemill_core::job::User;
use tidemill_tree::{WalkError, open_below, split_path};

use super::building::{Building, FileAttributes, times};
use super::listing::{Entry, Kind, Listing, Node, What};
use super::publish::in_tree;
use super::source::SourceTree;
use super::survey::above;
use super::{Record, TreeNote, TreeStore, TreeStoreError, failed};
use crate::tree_use::{self, Wanted};

impl TreeStore {
    /// The tree with the name `base` in which what belongs to this user or group belongs to the caller. `None`
    /// if there is no such tree. A tree that has nothing of theirs gets the further name.
    ///
    /// # Errors
    /// If it cannot be read or built.
    pub(crate) fn get_or_shift(
        &self,
        name: &Digest,
        base: &Digest,
        own: User,
    ) -> Result<Option<PathBuf>, TreeStoreError> {
        if let Some(root) = self.find(name) {
            return Ok(Some(root));
        }
        let Some(source) = self.source(base)? else {
            return Ok(None);
        };
        let id = source.id();
        let listing = self.listing(&id)?;
        let is_own = |entry: &Entry| match &entry.what {
            What::Node(node) => is_own(node, own),
            What::Again(_) => false,
        };
        if !listing.entries.iter().any(is_own) {
            let path = self.layout.lock(name);
            // Nobody else points the name elsewhere meanwhile.
            let _alone = tree_use::lock(&path, Wanted::Alone).map_err(failed("lock", &path))?;
            self.point(name, &id)?;
            return Ok(self.find(name));
        }
        let record = Record::read(&self.layout.place(&id));
        let note = TreeNote {
            from: record.from,
            entries: record.entries,
            bytes: record.bytes,
            lacks: record.lacks,
        };
        let shifted = Shifted {
            own,
            source: &source,
        };
        self.get_or_build_with(name, |building| {
            shifted
                .fill(&listing, building)
                .map_err(|error| in_tree(building.root(), error))?;
            Ok(note)
        })
        .map(Some)
    }
}

fn is_own(node: &Node, own: User) -> bool {
    node.user == i64::from(own.uid) || node.group == i64::from(own.gid)
}

struct Shifted<'a> {
    own: User,
    source: &'a SourceTree,
}

impl Shifted<'_> {
    /// Makes all entries of a list in an empty directory.
    fn fill(&self, listing: &Listing, building: &Building) -> Result<(), WalkError> {
        let root = building.opened();
        let mut parent: Option<(Vec<u8>, OwnedFd)> = None;
        for Entry { path, what } in &listing.entries {
            let failed = |step| {
                move |source| WalkError {
                    step,
                    path: path.clone(),
                    source,
                }
            };
            if path.is_empty() {
                continue;
            }
            let (directory, name) = split_path(path);
            if parent.as_ref().is_none_or(|(at, _)| at != directory) {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened = open_below(root, directory, flags).map_err(failed("open"))?;
                parent = Some((directory.to_owned(), opened));
            }
            let (_, directory) = parent.as_ref().expect("it was just opened");
            let name = OsStr::from_bytes(name);
            self.make(building, directory.as_fd(), name, path, what)
                .map_err(failed("make"))?;
        }
        // What is below a directory stands behind it.
        for Entry { path, what } in listing.entries.iter().rev() {
            if let What::Node(node) = what
                && node.kind == Kind::Directory
            {
                self.dress_directory(root, path, node)
                    .map_err(|source| WalkError {
                        step: "set the attributes of",
                        path: path.clone(),
                        source,
                    })?;
            }
        }
        Ok(())
    }

    fn make(
        &self,
        building: &Building,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        path: &[u8],
        what: &What,
    ) -> io::Result<()> {
        let node = match what {
            What::Node(node) => node,
            What::Again(first) => {
                let (from, old) = above(building.opened(), first)?;
                let old = OsStr::from_bytes(old);
                return Ok(rustix::fs::linkat(
                    &from,
                    old,
                    parent,
                    name,
                    AtFlags::empty(),
                )?);
            }
        };
        match &node.kind {
            Kind::Directory => return Ok(rustix::fs::mkdirat(parent, name, Mode::RWXU)?),
            Kind::File { .. } if !is_own(node, self.own) => {
                return building.add_link(parent, name, self.source, path).map(drop);
            }
            Kind::File { size, .. } => {
                let file = self.source.open(path)?;
                let mut copy = building.new_file(parent, name, *size)?;
                io::copy(&mut File::from(file), &mut copy)?;
                let attributes = FileAttributes {
                    mode: node.mode,
                    owner: Some(self.owner(node)),
                    mtime: time(node),
                    xattrs: &node.xattrs,
                };
                return copy.finish(&attributes).map(drop);
            }
            Kind::Symlink(target) => rustix::fs::symlinkat(target.as_slice(), parent, name)?,
            Kind::Fifo => {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(parent, name, FileType::Fifo, mode, 0)?;
            }
            // No tree among sub-ids has one: nobody there may make it.
            Kind::Socket | Kind::Character(..) | Kind::Block(..) => return Ok(()),
        }
        let (user, group) = self.owner(node);
        let ids = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::chownat(parent, name, ids.0, ids.1, AtFlags::SYMLINK_NOFOLLOW)?;
        if node.kind == Kind::Fifo {
            let mode = Mode::from_raw_mode(node.mode);
            rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
        }
        let times: Timestamps = times(time(node));
        Ok(rustix::fs::utimensat(
            parent,
            name,
            &times,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    fn dress_directory(&self, root: BorrowedFd<'_>, path: &[u8], node: &Node) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open_below(root, path, flags)?;
        let (user, group) = self.owner(node);
        let ids = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        rustix::fs::fchown(&directory, ids.0, ids.1)?;
        for (name, value) in &node.xattrs {
            match rustix::fs::fsetxattr(&directory, &name[..], value, XattrFlags::empty()) {
                // The first tree has it, so this is about rights that differ by now.
                Ok(()) | Err(Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(node.mode))?;
        Ok(rustix::fs::futimens(&directory, &times(time(node)))?)
    }

    /// The owner in the namespace where the caller is 0 and the sub-ids follow.
    fn owner(&self, node: &Node) -> (u32, u32) {
        let shifted = |id: i64, own: u32| {
            if id == i64::from(own) {
                return 0;
            }
            // No list has larger ones.
            u32::try_from(id + 1).unwrap_or(0)
        };
        (
            shifted(node.user, self.own.uid),
            shifted(node.group, self.own.gid),
        )
    }
}

fn time(node: &Node) -> Timespec {
    Timespec {
        tv_sec: node.mtime.0,
        tv_nsec: i64::from(node.mtime.1),
    }
}
