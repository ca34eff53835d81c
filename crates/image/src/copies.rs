//! Copies of files of the host as trees, with the owners, modes and times that a layer asks for.
//!
//! A tree of copies is named by what tells one state of its sources from another, short of reading them:
//! it changes when any of the files does. Files are copied, not hard-linked: a link would change the
//! original's times, and would change with it.

mod xattrs;

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use tidemill_core::limits::disk_reserve;
use tidemill_core::root::Owners;
use tidemill_core::{Attributes, ByteSize, Digest};

use self::xattrs::{Kept, Xattrs};
use crate::glob::{LOOKED_AT_MAX, Matches, content_identity, identity, open_plain};
use crate::layer::is_state;
use crate::link_xattrs;
use crate::plan::PlanError;
use crate::tree_store::{Building, FileAttributes, TreeNote};
use crate::unpack::{ArchiveOwners, UnpackLimits};

/// Bytes that are copied at a time.
const BUFFER_BYTES: usize = 128 << 10;
/// Bytes that are written between two looks at the room on the disk.
const LOOK_BYTES: usize = 1 << 20;
/// The mode of directories that are in nobody's list.
const DIR_MODE: u32 = 0o755;

/// Files of the host that become a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copies {
    /// The kind of layer that they are, and what they are copied from, for people.
    kind: &'static str,
    from: String,
    /// Sorted by path, so that a directory comes before what is in it.
    entries: Vec<Copied>,
    attributes: Attributes,
    /// True if owners that the layer does not name are those of the sources; else they are the
    /// builder's where only root could give files away.
    keeps_owners: bool,
    /// Who owns directories that are in nobody's list.
    implied_owner: Option<(u32, u32)>,
    /// Whether the rights of programs are taken off.
    forgets_privileges: bool,
    /// True if a file may go when its copy is there.
    are_spent: bool,
    /// Sockets and devices, which are left out.
    left_out: u64,
}

/// One of them, as it was at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copied {
    /// Relative to the tree's root, which is the empty path.
    to: PathBuf,
    from: PathBuf,
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    identity: String,
    content_identity: String,
    links: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dir,
    File { size: u64 },
    Link,
    Fifo,
}

impl Copied {
    /// `None` for what cannot be copied.
    fn new(to: PathBuf, from: PathBuf, metadata: &Metadata) -> Option<Self> {
        let kind = if metadata.is_dir() {
            Kind::Dir
        } else if metadata.is_symlink() {
            Kind::Link
        } else if metadata.is_file() {
            Kind::File {
                size: metadata.len(),
            }
        } else if metadata.file_type().is_fifo() {
            Kind::Fifo
        } else {
            return None;
        };
        Some(Self {
            to,
            from,
            kind,
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            identity: identity(metadata),
            content_identity: content_identity(metadata),
            links: metadata.nlink(),
        })
    }
}

impl Copied {
    /// True if what is there now is what was there. Another name for a file, which the store may give it for
    /// somebody else meanwhile, is no change of it but of the time of its last change.
    fn is_still(&self, now: &Metadata) -> bool {
        let is_linked = now.is_file() && now.nlink() != self.links;
        identity(now) == self.identity
            || is_linked && content_identity(now) == self.content_identity
    }
}

impl Copies {
    fn new(kind: &'static str, from: String, attributes: Attributes) -> Self {
        Self {
            kind,
            from,
            entries: Vec::new(),
            attributes,
            keeps_owners: rustix::process::geteuid().is_root(),
            implied_owner: None,
            forgets_privileges: false,
            are_spent: false,
            left_out: 0,
        }
    }

    /// A directory with all that is in it.
    pub(crate) fn of_dir(
        top: &Path,
        attributes: Attributes,
        state_dir: Option<&Path>,
    ) -> Result<Self, PlanError> {
        let base = top.to_string_lossy().into_owned();
        let failed = |path: &Path, source| PlanError::Source {
            what: "layer",
            path: path.to_string_lossy().into_owned(),
            source,
        };
        let mut copies = Self::new("dir", base.clone(), attributes);
        let mut todo = vec![PathBuf::new()];
        while let Some(relative) = todo.pop() {
            if copies.entries.len() >= LOOKED_AT_MAX {
                return Err(PlanError::TooManyFiles {
                    pattern: "**".to_owned(),
                    base,
                    max: LOOKED_AT_MAX,
                });
            }
            let path = top.join(&relative);
            let metadata = match fs::symlink_metadata(&path) {
                // It went away while we looked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|source| failed(&path, source))?,
            };
            if metadata.is_dir() {
                if is_state(&path, state_dir) {
                    continue;
                }
                for entry in fs::read_dir(&path).map_err(|source| failed(&path, source))? {
                    let entry = entry.map_err(|source| failed(&path, source))?;
                    todo.push(relative.join(entry.file_name()));
                }
            }
            match Copied::new(relative, path, &metadata) {
                Some(entry) => copies.entries.push(entry),
                None => copies.left_out += 1,
            }
        }
        copies.entries.sort_by(|one, other| one.to.cmp(&other.to));
        Ok(copies)
    }

    /// Some files and links, each with its path in the tree.
    pub(crate) fn of_files(
        kind: &'static str,
        from: String,
        files: impl IntoIterator<Item = (PathBuf, PathBuf)>,
        attributes: Attributes,
    ) -> Result<Self, PlanError> {
        let mut copies = Self::new(kind, from, attributes);
        for (from, to) in files {
            let metadata = fs::symlink_metadata(&from).map_err(|source| PlanError::Source {
                what: "layer",
                path: from.to_string_lossy().into_owned(),
                source,
            })?;
            match Copied::new(to, from, &metadata) {
                Some(entry) => copies.entries.push(entry),
                None => copies.left_out += 1,
            }
        }
        copies.entries.sort_by(|one, other| one.to.cmp(&other.to));
        Ok(copies)
    }

    /// What patterns matched.
    pub(crate) fn of_matches(matches: &Matches, attributes: Attributes) -> Result<Self, PlanError> {
        let base = Path::new(matches.base());
        let files = matches.files().iter();
        let files = files.map(|file| (base.join(file.path()), file.appears().to_owned()));
        let from = format!("{}/{}", matches.base(), matches.pattern());
        let mut copies = Self::of_files("glob", from, files, attributes)?;
        if let Owners::Job { uid, gid } = matches.owners()
            && attributes.owner.is_none()
        {
            copies.implied_owner = Some((uid, gid));
        }
        Ok(copies)
    }

    /// The same, of a tree whose owners are those that its files shall have.
    pub(crate) fn with_their_owners(mut self, owners: ArchiveOwners) -> Self {
        self.keeps_owners = owners != ArchiveOwners::Lost;
        self
    }

    /// Takes set-user-ID, set-group-ID and capabilities off the files: whoever made them is not to be trusted with the
    /// rights of others.
    pub(crate) fn forget_privileges(&mut self) {
        self.forgets_privileges = true;
        for entry in &mut self.entries {
            if matches!(entry.kind, Kind::File { .. }) {
                entry.mode &= !0o6000;
            }
        }
    }

    /// Lets each file go when its copy is there, so that both together never take the room of two trees.
    pub(crate) const fn spend(&mut self) {
        self.are_spent = true;
    }

    /// Bytes in all files together, holes counted.
    pub(crate) fn bytes(&self) -> u64 {
        let sizes = self.entries.iter().map(|entry| match entry.kind {
            Kind::File { size } => size,
            Kind::Dir | Kind::Link | Kind::Fifo => 0,
        });
        sizes.fold(0, u64::saturating_add)
    }

    /// Files, links and directories.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The kind of layer that they are.
    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    /// What they are copied from, for people.
    pub(crate) fn from(&self) -> &str {
        &self.from
    }

    /// The attributes that they get.
    pub(crate) const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The name of the tree: it changes when any of the files does.
    pub(crate) fn tree_name(&self, owners: ArchiveOwners) -> Digest {
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(b"copies 2");
        add(format!("{owners:?} {:?} {:?}", self.attributes, self.implied_owner).as_bytes());
        for entry in &self.entries {
            add(entry.to.as_os_str().as_encoded_bytes());
            add(entry.identity.as_bytes());
        }
        Digest::from_bytes(*hasher.finalize().as_bytes())
    }

    /// Copies them into an empty directory.
    pub(crate) fn build(
        &self,
        building: &Building,
        owners: ArchiveOwners,
    ) -> Result<TreeNote, GatherError> {
        let failed = |source| GatherError::Copy {
            path: PathBuf::from(&self.from),
            source,
        };
        let bytes_max = UnpackLimits::default().bytes;
        if self.bytes() > bytes_max {
            return Err(GatherError::TooLarge {
                path: PathBuf::from(&self.from),
                bytes: ByteSize(self.bytes()),
                max: ByteSize(bytes_max),
            });
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(building.root(), flags, Mode::empty())
            .map_err(|errno| failed(errno.into()))?;
        let kept = if self.attributes.are_all_given() {
            Kept::None
        } else if self.forgets_privileges {
            Kept::Unprivileged
        } else {
            Kept::All
        };
        let room = Room::of(&root).map_err(failed)?;
        let mut maker = Maker {
            copies: self,
            room,
            xattrs: Xattrs::new(kept, owners).map_err(failed)?,
            building,
            root,
            owners,
            dirs: BTreeMap::new(),
            parent: None,
            note: TreeNote {
                from: self.from.clone(),
                ..TreeNote::default()
            },
        };
        for entry in &self.entries {
            maker.make(entry).map_err(|source| match source.kind() {
                io::ErrorKind::PermissionDenied if entry.kind != Kind::Link => {
                    GatherError::Unreadable {
                        path: entry.from.clone(),
                        uid: entry.owner.0,
                        gid: entry.owner.1,
                        mode: entry.mode,
                    }
                }
                _ => GatherError::Copy {
                    path: entry.from.clone(),
                    source,
                },
            })?;
            let now = fs::symlink_metadata(&entry.from);
            let now = now.ok().filter(|now| entry.is_still(now));
            let Some(now) = now else {
                return Err(GatherError::Changed {
                    path: entry.from.clone(),
                });
            };
            // One with other names would change these.
            if self.are_spent && now.is_file() && now.nlink() == 1 {
                // What cannot go now goes with all the rest.
                fs::remove_file(&entry.from).ok();
            }
        }
        maker.finish().map_err(failed)
    }
}

/// What a directory gets when nothing is written into it any more.
#[derive(Debug, Clone, Copy)]
struct Look {
    mode: u32,
    owner: Option<(u32, u32)>,
    mtime: Timespec,
}

/// The room that there is on a disk.
struct Room {
    /// Bytes that stay free, so that others can go on.
    reserve: u64,
    /// Bytes that were written since somebody looked.
    written: usize,
}

impl Room {
    fn of(root: &OwnedFd) -> io::Result<Self> {
        let space = rustix::fs::fstatvfs(root)?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
        Ok(Self {
            reserve: disk_reserve(bytes(space.f_blocks), bytes(space.f_bavail)),
            written: 0,
        })
    }

    /// Notes that something was written.
    ///
    /// # Errors
    /// `ENOSPC` if what is left is needed.
    fn take(&mut self, root: &OwnedFd, bytes: usize) -> io::Result<()> {
        self.written += bytes;
        if self.written < LOOK_BYTES {
            return Ok(());
        }
        self.written = 0;
        let space = rustix::fs::fstatvfs(root)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < self.reserve {
            return Err(Errno::NOSPC.into());
        }
        Ok(())
    }
}

/// A tree of copies on its way.
struct Maker<'a> {
    copies: &'a Copies,
    building: &'a Building,
    root: OwnedFd,
    owners: ArchiveOwners,
    xattrs: Xattrs,
    room: Room,
    dirs: BTreeMap<PathBuf, Look>,
    /// The directory of the last entry: the next one is mostly in the same.
    parent: Option<(PathBuf, OwnedFd)>,
    note: TreeNote,
}

impl Maker<'_> {
    fn make(&mut self, entry: &Copied) -> io::Result<()> {
        self.note.entries += 1;
        let attributes = self.copies.attributes;
        let (seconds, nanoseconds) = entry.mtime;
        let mtime = match attributes.mtime {
            Some(seconds) => time(seconds, 0),
            None => time(seconds, nanoseconds),
        };
        let owner = self.owner(Some(entry.owner).filter(|_| self.copies.keeps_owners));
        if entry.kind == Kind::Dir {
            let mode = attributes.mode.map_or(entry.mode, |rule| rule.of_dir());
            let look = Look { mode, owner, mtime };
            self.make_dirs(&entry.to, Some(look))?;
            let xattrs = self.xattrs.of(&entry.from)?;
            let name = Path::new(".").join(&entry.to);
            let lost = link_xattrs::set(self.root.as_fd(), name.as_os_str().as_bytes(), &xattrs)?;
            self.xattrs.lost(lost);
            return Ok(());
        }
        let xattrs = self.xattrs.of(&entry.from)?;
        let (Some(directory), Some(name)) = (entry.to.parent(), entry.to.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.enter(directory)?;
        let (_, parent) = self.parent.as_ref().expect("it was entered a line before");
        let parent = parent.as_fd();
        let mode = attributes.mode;
        let mode = mode.map_or(entry.mode, |rule| rule.of_file(entry.mode));
        if matches!(entry.kind, Kind::Link | Kind::Fifo) {
            if entry.kind == Kind::Link {
                rustix::fs::symlinkat(fs::read_link(&entry.from)?, parent, name)?;
            } else {
                rustix::fs::mknodat(parent, name, FileType::Fifo, Mode::RUSR, 0)?;
            }
            if let Some((uid, gid)) = owner {
                let (uid, gid) = ids(uid, gid);
                rustix::fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            if entry.kind == Kind::Fifo {
                let mode = Mode::from_raw_mode(mode);
                rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
            }
            let lost = link_xattrs::set(parent, name.as_bytes(), &xattrs)?;
            self.xattrs.lost(lost);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            return Ok(rustix::fs::utimensat(parent, name, &times(mtime), flags)?);
        }
        let mut source = open_plain(&entry.from)?;
        let size = source.metadata()?.len();
        if (Kind::File { size }) != entry.kind {
            return Err(io::Error::other("its size changed while it was copied"));
        }
        let mut target = self.building.new_file(parent, name, size)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = source.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            target.write_all(&buffer[..length])?;
            self.room.take(&self.root, length)?;
        }
        self.note.bytes += size;
        let added = target.finish(&FileAttributes {
            mode,
            owner,
            mtime,
            xattrs: &xattrs,
        })?;
        self.xattrs.lost(u64::from(added.lost_xattrs));
        Ok(())
    }

    /// The owner that something gets, as chown(2) takes it here.
    fn owner(&self, found: Option<(u32, u32)>) -> Option<(u32, u32)> {
        match (self.copies.attributes.owner, self.owners) {
            (_, ArchiveOwners::Lost) => None,
            (None, _) => found,
            (Some(user), ArchiveOwners::Kept) => Some((user.uid, user.gid)),
            (Some(user), ArchiveOwners::SubIds) => Some((user.uid + 1, user.gid + 1)),
        }
    }

    /// Makes a directory and those above it, and notes what they get in the end.
    fn make_dirs(&mut self, path: &Path, look: Option<Look>) -> io::Result<()> {
        if !self.dirs.contains_key(path) {
            if let Some(above) = path.parent() {
                self.make_dirs(above, None)?;
                rustix::fs::mkdirat(&self.root, path, Mode::RWXU)?;
            }
            let attributes = self.copies.attributes;
            let implied = Look {
                mode: attributes.mode.map_or(DIR_MODE, |rule| rule.of_dir()),
                owner: self.owner(
                    self.copies
                        .implied_owner
                        .filter(|_| self.copies.keeps_owners),
                ),
                mtime: time(attributes.mtime.unwrap_or(0), 0),
            };
            self.dirs.insert(path.to_owned(), implied);
        }
        if let Some(look) = look {
            self.dirs.insert(path.to_owned(), look);
        }
        Ok(())
    }

    /// Opens the directory of an entry.
    fn enter(&mut self, path: &Path) -> io::Result<()> {
        if self.parent.as_ref().is_some_and(|(at, _)| at == path) {
            return Ok(());
        }
        self.make_dirs(path, None)?;
        let opened = self.open_dir(path)?;
        self.parent = Some((path.to_owned(), opened));
        Ok(())
    }

    fn open_dir(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.root, path, flags, Mode::empty())?)
    }

    /// Gives the directories what they get, the deepest first.
    fn finish(mut self) -> io::Result<TreeNote> {
        self.make_dirs(Path::new(""), None)?;
        for (path, look) in self.dirs.iter().rev() {
            let dir = self.open_dir(path)?;
            if let Some((uid, gid)) = look.owner {
                let (uid, gid) = ids(uid, gid);
                rustix::fs::fchown(&dir, uid, gid)?;
            }
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(look.mode))?;
            rustix::fs::futimens(&dir, &times(look.mtime))?;
        }
        if self.copies.left_out > 0 {
            let what = "sockets and devices were left out";
            self.note
                .lacks
                .push(format!("{} {what}", self.copies.left_out));
        }
        self.note.lacks.extend(self.xattrs.sentences());
        Ok(self.note)
    }
}

const fn time(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    }
}

const fn times(mtime: Timespec) -> Timestamps {
    Timestamps {
        last_access: mtime,
        last_modification: mtime,
    }
}

fn ids(uid: u32, gid: u32) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

/// Why files of the host cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// A file cannot be copied.
    #[error("failed to copy `{path}`")]
    Copy {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file may not be read.
    #[error(
        "`{path}` may not be read: it belongs to user {uid} and group {gid}, with mode {mode:03o}"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// There is more than a layer may have.
    #[error("the files of `{path}` have {bytes}, and a layer may have {max}")]
    TooLarge {
        /// Where they are.
        path: PathBuf,
        /// How many bytes they have, holes counted.
        bytes: ByteSize,
        /// The limit.
        max: ByteSize,
    },
    /// A file was changed meanwhile.
    #[error("`{path}` changed while it was copied")]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl GatherError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => {
                "make it readable for the user that runs Tidemill, or leave it out of the layer"
            }
            Self::TooLarge { .. } => {
                "leave the owner, mode and time of its files as they are, so that it is used where it \
                 is, or name a smaller directory"
            }
            Self::Changed { .. } => "run the job again when the files do not change",
            Self::Copy { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "run the job again when the files do not change",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room on the disk of the state directory"
                }
                _ => "look at the cause above",
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
