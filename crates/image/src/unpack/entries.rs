//! From the entries of an archive to records; the bytes of its files go to a [`Contents`].

use std::io;

use tar::EntryType;

use super::Reading;
use super::contents::Contents;
use super::error::UnpackError;
use super::frames::{Frame, FrameError, Frames};
use super::guard::{Guard, UnpackLimits, refusal};
use super::record::{Content, Dress, Record, RecordKind, Time, Xattr};
use crate::archive::{ArchiveReader, Ended};
use crate::sparse::{SparseError, SparseMap};

/// What names mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Each is a file's.
    Plain,
    /// `.wh.` marks what an OCI layer removes.
    Layer,
}

/// What was left out while an archive was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) entries: u64,
    /// In files, holes counted.
    pub(crate) bytes: u64,
    /// Extended attributes that only the kernel's overlay file system may set.
    pub(crate) overlay_xattrs: u64,
    /// Extended attributes that could not be kept.
    pub(crate) lost_xattrs: u64,
}

/// Reads an archive to its end. What it makes goes to `records`, one after the other.
pub(super) fn read_entries(
    reading: &Reading<'_>,
    reader: ArchiveReader,
    contents: &mut Contents<'_>,
    mut records: impl FnMut(Record) -> Result<(), UnpackError>,
) -> Result<(Tally, Ended), UnpackError> {
    let limits = reading.limits;
    let mut entries = Entries {
        known_as: reading.known_as,
        frames: Frames::new(Guard::new(reader, *limits), limits),
        limits: *limits,
        names: reading.names,
        tally: Tally::default(),
    };
    while let Some(frame) = entries.next_frame()? {
        entries.tally.entries += 1;
        if entries.tally.entries > limits.entries {
            return Err(entries.too_large("it has too many entries", limits.entries));
        }
        if let Some(record) = entries.take(frame, contents)? {
            records(record)?;
        }
    }
    let Entries { frames, tally, .. } = entries;
    let ended = frames.into_input().into_digest();
    let ended = ended.map_err(|source| damaged(reading.known_as, source))?;
    Ok((tally, ended))
}

struct Entries<'a> {
    known_as: &'a str,
    frames: Frames,
    limits: UnpackLimits,
    names: Names,
    tally: Tally,
}

/// What a name says.
enum Named {
    Itself(Vec<u8>),
    Whiteout(Vec<u8>),
    Opaque(Vec<u8>),
    Aside(Vec<u8>),
    /// Of no meaning outside of the file system that it was made by.
    Nothing,
}

impl Entries<'_> {
    fn next_frame(&mut self) -> Result<Option<Frame>, UnpackError> {
        let next = self.frames.next();
        // Some tools leave the mark at the end of a layer out. Whether it is whole its digest says.
        if matches!(next, Err(FrameError::CutOff)) && self.names == Names::Layer {
            return Ok(None);
        }
        next.map_err(|error| {
            let archive = self.known_as.to_owned();
            match error {
                FrameError::NotTar => UnpackError::NotTar { archive },
                FrameError::CutOff => UnpackError::CutOff { archive },
                FrameError::Io(source) => damaged(self.known_as, source),
            }
        })
    }

    fn take(
        &mut self,
        mut frame: Frame,
        contents: &mut Contents<'_>,
    ) -> Result<Option<Record>, UnpackError> {
        let shown = String::from_utf8_lossy(&frame.name).into_owned();
        let path = self
            .tidy(&frame.name)
            .map_err(|why| self.bad_name(&shown, why))?;
        let path = match self
            .meaning(path)
            .map_err(|why| self.bad_name(&shown, why))?
        {
            Named::Itself(path) => path,
            Named::Aside(path) => {
                if !is_file(frame.kind) {
                    return Ok(None);
                }
                let dress = self.dress(&frame, &shown)?;
                let content = self.content(&mut frame, &dress, &[], contents, &shown)?;
                return Ok(Some(record(path, RecordKind::Aside(content), dress)));
            }
            Named::Whiteout(path) => {
                return Ok(Some(record(path, RecordKind::Whiteout, Dress::IMPLIED)));
            }
            Named::Opaque(path) => {
                return Ok(Some(record(path, RecordKind::Opaque, Dress::IMPLIED)));
            }
            Named::Nothing => return Ok(None),
        };
        let dress = self.dress(&frame, &shown)?;
        let xattrs = self.xattrs(&mut frame);
        let what = match frame.kind {
            EntryType::Directory => RecordKind::Dir,
            // Old archives mark a directory by a slash.
            EntryType::Regular if frame.name.ends_with(b"/") => RecordKind::Dir,
            kind if is_file(kind) => {
                if path.is_empty() {
                    return Err(self.bad_name(&shown, "is the root itself and no directory"));
                }
                let content = self.content(&mut frame, &dress, &xattrs, contents, &shown)?;
                RecordKind::File(content)
            }
            EntryType::Symlink => RecordKind::Symlink(self.target(frame.link, &shown)?),
            EntryType::Link => {
                let target = self.target(frame.link, &shown)?;
                let tidied = self.tidy(&target).map_err(|why| UnpackError::BadLink {
                    archive: self.known_as.to_owned(),
                    entry: shown.clone(),
                    target: String::from_utf8_lossy(&target).into_owned(),
                    why,
                })?;
                RecordKind::HardLink(tidied)
            }
            EntryType::Fifo => RecordKind::Fifo,
            EntryType::Char | EntryType::Block => RecordKind::Device,
            other => {
                return Err(UnpackError::UnknownKind {
                    archive: self.known_as.to_owned(),
                    entry: shown,
                    kind: other.as_byte(),
                });
            }
        };
        Ok(Some(Record {
            xattrs,
            ..record(path, what, dress)
        }))
    }

    /// A name as a relative path. In a layer, `/` at the beginning is the root of the image; some tools
    /// write it.
    fn tidy(&self, name: &[u8]) -> Result<Vec<u8>, &'static str> {
        let from_root = (name.iter().position(|byte| *byte != b'/')).unwrap_or(name.len());
        match self.names {
            Names::Plain => tidy(name),
            Names::Layer => tidy(&name[from_root..]),
        }
    }

    /// What a name of a layer means.
    fn meaning(&self, path: Vec<u8>) -> Result<Named, &'static str> {
        const MARK: &[u8] = b".wh.";
        const OPAQUE: &[u8] = b".wh..wh..opq";
        const ASIDE: &[u8] = b".wh..wh.plnk";
        const OWN: &[u8] = b".wh..wh.";
        if self.names == Names::Plain || !path.windows(MARK.len()).any(|part| part == MARK) {
            return Ok(Named::Itself(path));
        }
        let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        if parts[0].starts_with(OWN) && parts[0] != OPAQUE {
            return Ok(if parts[0] == ASIDE {
                Named::Aside(path)
            } else {
                Named::Nothing
            });
        }
        let last = parts.pop().unwrap_or_default();
        if parts.iter().any(|part| part.starts_with(MARK)) {
            return Err("lies in what is marked as removed (`.wh.`)");
        }
        if last == OPAQUE {
            return Ok(Named::Opaque(parts.join(&b'/')));
        }
        match last.strip_prefix(MARK) {
            None => Ok(Named::Itself(path)),
            Some(b"" | b"." | b"..") => Err("marks no name as removed"),
            Some(_) if last.starts_with(OWN) => Ok(Named::Nothing),
            Some(name) => {
                parts.push(name);
                Ok(Named::Whiteout(parts.join(&b'/')))
            }
        }
    }

    fn dress(&self, frame: &Frame, name: &str) -> Result<Dress, UnpackError> {
        let damaged = |source| damaged(self.known_as, source);
        let number = |value: u64, why| u32::try_from(value).map_err(|_| self.bad_name(name, why));
        let (header, pax) = (&frame.header, &frame.pax);
        let uid = match pax.uid {
            Some(uid) => uid,
            None => or_zero(&header.as_old().uid, header.uid()).map_err(damaged)?,
        };
        let gid = match pax.gid {
            Some(gid) => gid,
            None => or_zero(&header.as_old().gid, header.gid()).map_err(damaged)?,
        };
        let mtime = match pax.mtime {
            Some(mtime) => mtime,
            None => Time {
                // Times before 1970 are two's complement there.
                seconds: or_zero(&header.as_old().mtime, header.mtime())
                    .map_err(damaged)?
                    .cast_signed(),
                nanos: 0,
            },
        };
        Ok(Dress {
            mode: header.mode().map_err(damaged)? & 0o7777,
            uid: number(uid, "has a user id out of range")?,
            gid: number(gid, "has a group id out of range")?,
            mtime,
        })
    }

    /// The extended attributes that are kept. Those of the overlay file system would be interpreted
    /// by it when the tree is stacked; those that name this machine's rules mean nothing on another.
    fn xattrs(&mut self, frame: &mut Frame) -> Vec<Xattr> {
        self.tally.lost_xattrs += u64::from(frame.pax.foreign_xattrs);
        let mut xattrs = std::mem::take(&mut frame.pax.xattrs);
        xattrs.retain(|name, _| {
            let is_overlays =
                name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.");
            let is_hosts = [&b"security.selinux"[..], b"security.ima", b"security.evm"]
                .contains(&name.as_slice());
            self.tally.overlay_xattrs += u64::from(is_overlays);
            self.tally.lost_xattrs += u64::from(is_hosts);
            !is_overlays && !is_hosts
        });
        // In order of their names: the order that a writer happened to use says nothing.
        xattrs.into_iter().collect()
    }

    fn content(
        &mut self,
        frame: &mut Frame,
        dress: &Dress,
        xattrs: &[Xattr],
        contents: &mut Contents<'_>,
        name: &str,
    ) -> Result<Content, UnpackError> {
        let size = match &frame.old_sparse {
            Some((_, size)) => *size,
            None => frame.pax.sparse.size.unwrap_or(frame.size),
        };
        self.tally.bytes = self.tally.bytes.saturating_add(size);
        if self.tally.bytes > self.limits.bytes {
            return Err(self.too_large("its files are too large together", self.limits.bytes));
        }
        let map = self.sparse_map(frame, size).map_err(|source| {
            let archive = self.known_as.to_owned();
            let entry = name.to_owned();
            UnpackError::Sparse {
                archive,
                entry,
                source,
            }
        })?;
        let content = match map {
            Some(map) => contents.add_sparse(&mut self.frames, &map, size, dress, xattrs),
            None => contents.add(&mut self.frames, size, dress, xattrs),
        };
        content.map_err(|source| self.read_or_write(source, name))
    }

    fn sparse_map(
        &mut self,
        frame: &mut Frame,
        size: u64,
    ) -> Result<Option<SparseMap>, SparseError> {
        let sparse = &mut frame.pax.sparse;
        if let Some((pieces, _)) = frame.old_sparse.take() {
            return SparseMap::checked(pieces, size).map(Some);
        }
        if !sparse.is_some() {
            return Ok(None);
        }
        match &sparse.map {
            Some(text) => SparseMap::parse(text, size).map(Some),
            None if sparse.is_before_data => SparseMap::read(&mut self.frames, size).map(Some),
            None => SparseMap::checked(std::mem::take(&mut sparse.pieces), size).map(Some),
        }
    }

    fn target(&self, target: Vec<u8>, name: &str) -> Result<Vec<u8>, UnpackError> {
        if target.is_empty() || target.contains(&0) {
            return Err(self.bad_name(name, "is a link without a target"));
        }
        Ok(target)
    }

    fn bad_name(&self, name: &str, why: &'static str) -> UnpackError {
        UnpackError::BadName {
            archive: self.known_as.to_owned(),
            entry: name.to_owned(),
            why,
        }
    }

    fn too_large(&self, what: &'static str, max: u64) -> UnpackError {
        UnpackError::TooLarge {
            archive: self.known_as.to_owned(),
            what,
            max,
        }
    }

    /// An error of a copy: of the archive if that is where it came from.
    fn read_or_write(&self, source: io::Error, name: &str) -> UnpackError {
        if source.raw_os_error().is_none() {
            return damaged(self.known_as, source);
        }
        UnpackError::Write {
            archive: self.known_as.to_owned(),
            entry: name.to_owned(),
            step: "write",
            source,
        }
    }
}

/// A number of a header. Some writers leave fields empty that they do not use.
fn or_zero(field: &[u8], read: io::Result<u64>) -> io::Result<u64> {
    let is_empty = field.iter().all(|byte| matches!(byte, 0 | b' '));
    if is_empty { Ok(0) } else { read }
}

fn record(path: Vec<u8>, what: RecordKind, dress: Dress) -> Record {
    Record {
        path,
        what,
        dress,
        xattrs: Vec::new(),
    }
}

const fn is_file(kind: EntryType) -> bool {
    matches!(
        kind,
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse
    )
}

/// An error of reading: a limit, if that is what it says.
fn damaged(known_as: &str, source: io::Error) -> UnpackError {
    let archive = known_as.to_owned();
    match refusal(&source) {
        Some((what, max)) => UnpackError::TooLarge { archive, what, max },
        None => UnpackError::Damaged { archive, source },
    }
}

/// A name as a relative path without `.`; an error says what is wrong with it.
fn tidy(name: &[u8]) -> Result<Vec<u8>, &'static str> {
    if name.starts_with(b"/") {
        return Err("has an absolute name");
    }
    if name.contains(&0) {
        return Err("has a NUL in its name");
    }
    let mut path = Vec::with_capacity(name.len());
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err("has `..` in its name"),
            part => {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(part);
            }
        }
    }
    Ok(path)
}
