//! Unpacking tar archives that may be hostile.
//!
//! Every name is resolved by the kernel beneath the tree's root (openat2 with `RESOLVE_IN_ROOT`), as a
//! program would whose root directory it is: no absolute path, no `..` and no symbolic link leads
//! out. Sizes, counts and the ratio of compression are bounded.

mod error;
mod guard;
mod pax;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use tar::{Entry, EntryType};
use tidemill_core::Digest;

pub use error::UnpackError;
pub use guard::UnpackLimits;

use crate::archive::{Archive, ArchiveReader};
use crate::beneath::{open_in_root, open_root};
use crate::sparse::{SparseError, SparseMap};
use crate::tree_store::TreeNote;
use guard::{Guard, refusal};
use pax::Pax;
use tidemill_tree::remove_at;

/// The version of how archives become trees: part of each tree's name.
const FORMAT: u32 = 1;

/// The name of the tree of an archive: its content, and whether owners are kept.
pub(crate) fn tree_name(archive: &Archive, owners: ArchiveOwners) -> Digest {
    let owners = match owners {
        ArchiveOwners::Lost => "false",
        ArchiveOwners::Kept => "true",
        ArchiveOwners::SubIds => "sub-ids",
    };
    let text = format!("tar {FORMAT} {} owners={owners}", archive.content());
    Digest::of(text.as_bytes())
}

/// Unpacks an archive into an empty directory.
pub(crate) fn unpack(
    archive: &Archive,
    root: &Path,
    limits: &UnpackLimits,
    owners: ArchiveOwners,
) -> Result<TreeNote, UnpackError> {
    let name = archive.path().to_owned();
    let reader = archive.read().map_err(UnpackError::Archive)?;
    let write = |source| UnpackError::Write {
        archive: name.clone(),
        entry: ".".to_owned(),
        step: "open the tree for",
        source,
    };
    let root = open_root(root).map_err(write)?;
    let mut unpacker = Unpacker {
        archive: name.clone(),
        root,
        limits: *limits,
        owners,
        bytes: 0,
        entries: 0,
        implied: 0,
        parent: None,
        dirs: BTreeMap::new(),
        dir_name_bytes: 0,
        lacks: Lacks::default(),
    };
    let reader = unpacker.unpack_all(Guard::new(reader, *limits))?;
    let digest = reader
        .into_digest()
        .map_err(|source| UnpackError::Damaged {
            archive: name.clone(),
            source,
        })?;
    if digest != *archive.content() {
        return Err(UnpackError::Changed { archive: name });
    }
    Ok(TreeNote {
        from: name,
        entries: unpacker.entries,
        bytes: unpacker.bytes,
        lacks: unpacker.lacks.sentences(),
    })
}

/// What becomes of the owners in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveOwners {
    /// All belongs to the caller: only root can give files away.
    Lost,
    /// Files belong to the ids that the archive names.
    Kept,
    /// Files belong to the caller's sub-ids: the archive's id `n` to id `n + 1` of a user namespace in
    /// which the caller is 0 and the sub-ids follow. Such a tree can only be built in that namespace.
    SubIds,
}

impl ArchiveOwners {
    /// What this process can do.
    pub fn of_this_process() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Kept
        } else {
            Self::Lost
        }
    }

    fn of(self, attributes: &Attributes) -> Option<(Option<Uid>, Option<Gid>)> {
        let shift = match self {
            Self::Lost => return None,
            Self::Kept => 0,
            Self::SubIds => 1,
        };
        let user = uid(attributes.uid.saturating_add(shift));
        let group = gid(attributes.gid.saturating_add(shift));
        Some((Some(user), Some(group)))
    }
}

/// What was left out.
#[derive(Debug, Default)]
struct Lacks {
    devices: u64,
    owners: u64,
    attributes: u64,
}

impl Lacks {
    fn sentences(&self) -> Vec<String> {
        [
            (self.devices, "device nodes were left out: the sandbox has its own /dev"),
            (self.owners, "entries belong to the caller instead of their owners: only root can give files away"),
            (self.attributes, "entries lost their extended attributes"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
    }
}

/// Who owns an entry, what its mode is and when it was changed.
#[derive(Debug, Clone, Copy)]
struct Attributes {
    mode: Mode,
    uid: u32,
    gid: u32,
    mtime: Timespec,
}

struct Unpacker {
    archive: String,
    root: OwnedFd,
    limits: UnpackLimits,
    owners: ArchiveOwners,
    bytes: u64,
    entries: u64,
    /// Directories that were made for entries and have none themselves.
    implied: u64,
    /// The directory of the last entry: the next one is mostly in the same.
    parent: Option<(PathBuf, OwnedFd)>,
    /// Directories get their modes and times when nothing is written into them any more.
    dirs: BTreeMap<PathBuf, Attributes>,
    /// Bytes of their names, which are held in memory until the end.
    dir_name_bytes: u64,
    lacks: Lacks,
}

impl Unpacker {
    fn unpack_all(&mut self, guard: Guard) -> Result<ArchiveReader, UnpackError> {
        let damaged = |archive: &str, source: io::Error| -> UnpackError {
            match refusal(&source) {
                Some((what, max)) => UnpackError::TooLarge {
                    archive: archive.to_owned(),
                    what,
                    max,
                },
                None => UnpackError::Damaged {
                    archive: archive.to_owned(),
                    source,
                },
            }
        };
        let mut tar = tar::Archive::new(guard.clone());
        let mut entries = tar
            .entries()
            .map_err(|source| damaged(&self.archive, source))?;
        loop {
            guard.start_header();
            let Some(entry) = entries.next() else {
                break;
            };
            let mut entry = entry.map_err(|source| {
                // The reader's own words quote the bytes that it stumbled over.
                let is_other_format = self.entries == 0
                    && refusal(&source).is_none()
                    && source.to_string().contains("cksum");
                if is_other_format {
                    return UnpackError::NotTar {
                        archive: self.archive.clone(),
                    };
                }
                damaged(&self.archive, source)
            })?;
            guard.start_content();
            self.entries += 1;
            self.check_count()?;
            self.unpack_entry(&mut entry)?;
            // What was not read of it must not count as a header of the next.
            io::copy(&mut entry, &mut io::sink())
                .map_err(|source| damaged(&self.archive, source))?;
        }
        drop(tar);
        if guard.has_ended() {
            return Err(UnpackError::CutOff {
                archive: self.archive.clone(),
            });
        }
        self.finish_dirs()?;
        Ok(guard
            .into_reader()
            .expect("the archive that held the other handle was dropped"))
    }

    fn unpack_entry<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), UnpackError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) || kind.as_byte() == b'V' {
            return Ok(());
        }
        let pax = Pax::read(entry).map_err(|source| UnpackError::Damaged {
            archive: self.archive.clone(),
            source,
        })?;
        let shown = pax
            .sparse_name
            .clone()
            .unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = String::from_utf8_lossy(&shown).into_owned();
        let path = self.check_name(&shown, &name)?;
        if matches!(kind, EntryType::Char | EntryType::Block) {
            self.lacks.devices += 1;
            return Ok(());
        }
        let attributes = self.attributes(entry, &pax, &name)?;
        if pax.has_attributes {
            self.lacks.attributes += 1;
        }
        match kind {
            EntryType::Directory => return self.make_dir(&path, attributes, &name),
            // Old archives mark a directory by a slash.
            EntryType::Regular if shown.ends_with(b"/") => {
                return self.make_dir(&path, attributes, &name);
            }
            _ => {}
        }
        let (Some(directory), Some(last)) = (path.parent(), path.file_name()) else {
            return Err(self.bad_name(&name, "is the root itself and no directory"));
        };
        let (directory, last) = (directory.to_owned(), last.to_owned());
        self.enter(&directory, &name)?;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.make_file(entry, &pax, &last, attributes, &name)
            }
            EntryType::Symlink => {
                let target = self.link_target(entry, &name)?;
                self.make(&last, &name, "link", |parent, last| {
                    rustix::fs::symlinkat(&target[..], parent, last)
                })?;
                self.dress_link(&last, attributes, &name)
            }
            EntryType::Link => self.make_hard_link(entry, &directory, &last, &name),
            EntryType::Fifo => {
                self.make(&last, &name, "create", |parent, last| {
                    rustix::fs::mknodat(parent, last, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
                })?;
                self.dress_node(&last, attributes, &name)
            }
            other => Err(UnpackError::UnknownKind {
                archive: self.archive.clone(),
                entry: name,
                kind: other.as_byte(),
            }),
        }
    }

    fn make_dir(
        &mut self,
        path: &Path,
        attributes: Attributes,
        name: &str,
    ) -> Result<(), UnpackError> {
        if let (Some(directory), Some(last)) = (path.parent(), path.file_name()) {
            self.enter(directory, name)?;
            let parent = self.parent_fd();
            let existing = rustix::fs::statat(parent, last, AtFlags::SYMLINK_NOFOLLOW);
            let is_dir = existing
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
            if !is_dir {
                let last = last.to_owned();
                self.make(&last, name, "create", |parent, last| {
                    rustix::fs::mkdirat(parent, last, Mode::RWXU)
                })?;
            }
        }
        if self.dirs.insert(path.to_owned(), attributes).is_none() {
            self.dir_name_bytes += path.as_os_str().len() as u64;
        }
        if self.dir_name_bytes > self.limits.dir_name_bytes {
            let what = "the names of its directories are too large together";
            return Err(self.too_large(what, self.limits.dir_name_bytes));
        }
        Ok(())
    }

    fn make_file<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        pax: &Pax,
        last: &OsStr,
        attributes: Attributes,
        name: &str,
    ) -> Result<(), UnpackError> {
        let size = pax.sparse_size.unwrap_or_else(|| entry.size());
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.bytes {
            return Err(self.too_large("its files are too large together", self.limits.bytes));
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = self.make(last, name, "create", |parent, last| {
            rustix::fs::openat(parent, last, flags, Mode::RUSR | Mode::WUSR)
        })?;
        let mut file = File::from(file);
        if pax.is_sparse {
            self.write_sparse(entry, pax, size, &mut file, name)?;
        } else {
            let written = copy_with_holes(entry, &mut file)
                .and_then(|written| file.set_len(written).map(|()| written))
                .map_err(|source| self.read_or_write(source, name))?;
            if written != size {
                let source = io::ErrorKind::UnexpectedEof.into();
                return Err(UnpackError::Damaged {
                    archive: self.archive.clone(),
                    source,
                });
            }
        }
        let dressed = || -> rustix::io::Result<()> {
            if let Some((user, group)) = self.owners.of(&attributes) {
                rustix::fs::fchown(&file, user, group)?;
            }
            rustix::fs::fchmod(&file, attributes.mode)?;
            rustix::fs::futimens(&file, &times(attributes.mtime))
        };
        dressed().map_err(|errno| self.write_error(errno.into(), name, "set the attributes of"))
    }

    fn write_sparse<R: Read>(
        &self,
        entry: &mut Entry<'_, R>,
        pax: &Pax,
        size: u64,
        file: &mut File,
        name: &str,
    ) -> Result<(), UnpackError> {
        let wrong = |source| UnpackError::Sparse {
            archive: self.archive.clone(),
            entry: name.to_owned(),
            source,
        };
        let map = match &pax.sparse_map {
            Some(text) => SparseMap::parse(text, size),
            None => SparseMap::read(entry, size),
        };
        for piece in map.map_err(wrong)?.pieces() {
            file.seek(SeekFrom::Start(piece.offset))
                .map_err(|source| self.write_error(source, name, "write"))?;
            let copied = io::copy(&mut entry.take(piece.length), file)
                .map_err(|source| self.read_or_write(source, name))?;
            if copied != piece.length {
                return Err(wrong(SparseError::Short));
            }
        }
        file.set_len(size)
            .map_err(|source| self.write_error(source, name, "write"))
    }

    fn make_hard_link<R: Read>(
        &mut self,
        entry: &Entry<'_, R>,
        directory: &Path,
        last: &OsStr,
        name: &str,
    ) -> Result<(), UnpackError> {
        let target = self.link_target(entry, name)?;
        let shown = String::from_utf8_lossy(&target).into_owned();
        let bad = |why| UnpackError::BadLink {
            archive: self.archive.clone(),
            entry: name.to_owned(),
            target: shown.clone(),
            why,
        };
        let path = tidy(&target).map_err(bad)?;
        let (Some(from), Some(from_last)) = (path.parent(), path.file_name()) else {
            return Err(bad("is the root itself"));
        };
        if path == directory.join(last) {
            return Ok(());
        }
        let missing = "is not in the archive before it";
        let from = open_dir(&self.root, from).map_err(|_| bad(missing))?;
        let stat = rustix::fs::statat(&from, from_last, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|_| bad(missing))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            return Err(bad("is a directory"));
        }
        let parent = self.parent_fd();
        let there = rustix::fs::statat(parent, last, AtFlags::SYMLINK_NOFOLLOW);
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        self.make(last, name, "link", |parent, last| {
            rustix::fs::linkat(&from, from_last, parent, last, AtFlags::empty())
        })
    }

    fn link_target<R: Read>(
        &self,
        entry: &Entry<'_, R>,
        name: &str,
    ) -> Result<Vec<u8>, UnpackError> {
        match entry.link_name_bytes() {
            Some(target) if !target.is_empty() && !target.contains(&0) => Ok(target.into_owned()),
            _ => Err(self.bad_name(name, "is a link without a target")),
        }
    }

    /// Makes something in the current directory. What an earlier entry put there gives way.
    fn make<T>(
        &mut self,
        last: &OsStr,
        name: &str,
        step: &'static str,
        make: impl Fn(&OwnedFd, &OsStr) -> rustix::io::Result<T>,
    ) -> Result<T, UnpackError> {
        let parent = self.parent_fd();
        let made = match make(parent, last) {
            Err(Errno::EXIST) => {
                let cleared = match rustix::fs::unlinkat(parent, last, AtFlags::empty()) {
                    Err(Errno::ISDIR | Errno::PERM) => remove_at(parent, last.as_bytes()),
                    other => other.map_err(io::Error::from),
                };
                cleared.and_then(|()| make(parent, last).map_err(io::Error::from))
            }
            other => other.map_err(io::Error::from),
        };
        made.map_err(|source| self.write_error(source, name, step))
    }

    /// Goes into the directory of an entry; makes it if the archive has no entry for it.
    fn enter(&mut self, directory: &Path, name: &str) -> Result<(), UnpackError> {
        // A directory that was replaced since is still open here under its old name.
        if let Some((path, fd)) = &self.parent
            && path == directory
            && open_dir(&self.root, directory).is_ok_and(|again| is_same(fd, &again))
        {
            return Ok(());
        }
        let opened = match open_dir(&self.root, directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_dirs(directory, name)?
            }
            other => {
                other.map_err(|source| self.write_error(source, name, "make the directory of"))?
            }
        };
        self.parent = Some((directory.to_owned(), opened));
        Ok(())
    }

    /// Makes a directory and those above it, one by one beneath the root.
    fn make_dirs(&mut self, path: &Path, entry: &str) -> Result<OwnedFd, UnpackError> {
        let failed =
            |unpacker: &Self, source| unpacker.write_error(source, entry, "make the directory of");
        let mut at = PathBuf::new();
        let mut parent = open_dir(&self.root, &at).map_err(|source| failed(self, source))?;
        for name in path {
            at.push(name);
            let found = match open_dir(&self.root, &at) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // One long name is one entry and may be thousands of directories.
                    self.implied += 1;
                    self.check_count()?;
                    rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))
                        .map_err(io::Error::from)
                        .and_then(|()| open_dir(&self.root, &at))
                }
                other => other,
            };
            parent = found.map_err(|source| failed(self, source))?;
        }
        Ok(parent)
    }

    /// Refuses more files and directories than the limit.
    fn check_count(&self) -> Result<(), UnpackError> {
        if self.entries.saturating_add(self.implied) > self.limits.entries {
            return Err(self.too_large("it has too many entries", self.limits.entries));
        }
        Ok(())
    }

    fn parent_fd(&self) -> &OwnedFd {
        self.parent.as_ref().map_or(&self.root, |(_, fd)| fd)
    }

    fn dress_link(
        &self,
        last: &OsStr,
        attributes: Attributes,
        name: &str,
    ) -> Result<(), UnpackError> {
        let parent = self.parent_fd();
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        let dressed = || -> rustix::io::Result<()> {
            if let Some((user, group)) = self.owners.of(&attributes) {
                rustix::fs::chownat(parent, last, user, group, nofollow)?;
            }
            rustix::fs::utimensat(parent, last, &times(attributes.mtime), nofollow)
        };
        dressed().map_err(|errno| self.write_error(errno.into(), name, "set the attributes of"))
    }

    fn dress_node(
        &self,
        last: &OsStr,
        attributes: Attributes,
        name: &str,
    ) -> Result<(), UnpackError> {
        self.dress_link(last, attributes, name)?;
        rustix::fs::chmodat(self.parent_fd(), last, attributes.mode, AtFlags::empty())
            .map_err(|errno| self.write_error(errno.into(), name, "set the attributes of"))
    }

    /// Gives the directories their attributes, the deepest first.
    fn finish_dirs(&mut self) -> Result<(), UnpackError> {
        self.parent = None;
        for (path, attributes) in std::mem::take(&mut self.dirs).iter().rev() {
            let name = path.to_string_lossy();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
            let dir = match open_in_root(&self.root, at_root(path), flags) {
                // A later entry took its place.
                Err(error) if is_gone(&error) => continue,
                other => other.map_err(|source| self.write_error(source, &name, "open"))?,
            };
            let dressed = || -> rustix::io::Result<()> {
                if let Some((user, group)) = self.owners.of(attributes) {
                    rustix::fs::fchown(&dir, user, group)?;
                }
                rustix::fs::fchmod(&dir, attributes.mode)?;
                rustix::fs::futimens(&dir, &times(attributes.mtime))
            };
            dressed()
                .map_err(|errno| self.write_error(errno.into(), &name, "set the attributes of"))?;
        }
        Ok(())
    }

    fn attributes<R: Read>(
        &mut self,
        entry: &Entry<'_, R>,
        pax: &Pax,
        name: &str,
    ) -> Result<Attributes, UnpackError> {
        let header = entry.header();
        let damaged = |source| UnpackError::Damaged {
            archive: self.archive.clone(),
            source,
        };
        let mode = header.mode().map_err(damaged)? & 0o7777;
        let number = |value: u64, what| u32::try_from(value).map_err(|_| self.bad_name(name, what));
        let uid = number(header.uid().map_err(damaged)?, "has a user id out of range")?;
        let gid = number(
            header.gid().map_err(damaged)?,
            "has a group id out of range",
        )?;
        // Times before 1970 are two's complement there.
        let seconds = header.mtime().map_err(damaged)?.cast_signed();
        let mtime = pax.mtime.unwrap_or(Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        });
        let is_callers = uid == rustix::process::geteuid().as_raw()
            && gid == rustix::process::getegid().as_raw();
        if self.owners == ArchiveOwners::Lost && !is_callers {
            self.lacks.owners += 1;
        }
        Ok(Attributes {
            mode: Mode::from_raw_mode(mode),
            uid,
            gid,
            mtime,
        })
    }

    fn check_name(&self, bytes: &[u8], name: &str) -> Result<PathBuf, UnpackError> {
        tidy(bytes).map_err(|why| self.bad_name(name, why))
    }

    fn bad_name(&self, name: &str, why: &'static str) -> UnpackError {
        UnpackError::BadName {
            archive: self.archive.clone(),
            entry: name.to_owned(),
            why,
        }
    }

    fn too_large(&self, what: &'static str, max: u64) -> UnpackError {
        UnpackError::TooLarge {
            archive: self.archive.clone(),
            what,
            max,
        }
    }

    /// An error of a copy: of the archive if that is where it came from.
    fn read_or_write(&self, source: io::Error, name: &str) -> UnpackError {
        if let Some((what, max)) = refusal(&source) {
            return self.too_large(what, max);
        }
        if source.raw_os_error().is_some() {
            return self.write_error(source, name, "write");
        }
        UnpackError::Damaged {
            archive: self.archive.clone(),
            source,
        }
    }

    fn write_error(&self, source: io::Error, name: &str, step: &'static str) -> UnpackError {
        UnpackError::Write {
            archive: self.archive.clone(),
            entry: name.to_owned(),
            step,
            source,
        }
    }
}

/// A name as a relative path without `.`; an error says what is wrong with it.
fn tidy(name: &[u8]) -> Result<PathBuf, &'static str> {
    if name.starts_with(b"/") {
        return Err("has an absolute name");
    }
    if name.contains(&0) {
        return Err("has a NUL in its name");
    }
    let mut path = PathBuf::new();
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err("has `..` in its name"),
            part => path.push(OsStr::from_bytes(part)),
        }
    }
    Ok(path)
}

fn at_root(path: &Path) -> &Path {
    if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    }
}

fn open_dir(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    open_in_root(root, at_root(path), OFlags::PATH | OFlags::DIRECTORY)
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> bool {
    let stat = |fd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((stat(one), stat(other)), (Ok(one), Ok(other)) if one == other)
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
    )
}

const fn times(mtime: Timespec) -> Timestamps {
    Timestamps {
        last_access: mtime,
        last_modification: mtime,
    }
}

fn uid(raw: u32) -> Uid {
    Uid::from_raw(raw)
}

fn gid(raw: u32) -> Gid {
    Gid::from_raw(raw)
}

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 128 << 10;
/// Runs of zeros of this length become holes.
const HOLE_BYTES: usize = 4096;

/// Copies everything, with holes in the file where there are only zeros. Returns the length; the
/// file may be shorter, if it ends with a hole.
fn copy_with_holes(from: &mut impl Read, to: &mut File) -> io::Result<u64> {
    let mut buffer = vec![0; COPY_BYTES];
    let mut length = 0_u64;
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match from.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if filled == 0 {
            return Ok(length);
        }
        for piece in buffer[..filled].chunks(HOLE_BYTES) {
            if piece.len() == HOLE_BYTES && piece.iter().all(|byte| *byte == 0) {
                to.seek(SeekFrom::Current(HOLE_BYTES as i64))?;
            } else {
                to.write_all(piece)?;
            }
        }
        length += filled as u64;
    }
}

#[cfg(test)]
mod tests;
