//! An archive whose files are read in any order: it is looked through once, and compressed ones are
//! unpacked beside the store first.

use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use tar::EntryType;

use super::source::{Files, Section};
use super::{BUFFER_BYTES, ImportError};
use crate::content::{Content, ContentError};
use crate::shown::shown;

/// Entries of an archive.
const ENTRIES_MAX: usize = 100_000;
/// Bytes of an entry's headers, which are kept in memory: names and attributes.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Links that lead to links.
const LINKS_MAX: usize = 8;
/// How many times larger than the archive its content may be, beyond what is always fine. Layers that are
/// compressed themselves do not shrink again, and others shrink to a tenth.
const RATIO_MAX: u64 = 200;
const ALWAYS_FINE_BYTES: u64 = 64 << 20;

/// What a tar archive has in its first header, and where (POSIX.1-1988).
const MAGIC: &[u8] = b"ustar";
const MAGIC_OFFSET: u64 = 257;
const GZIP: &[u8] = b"\x1f\x8b";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
/// Compressions that are recognised to be refused with their name.
const FOREIGN: &[(&[u8], &str)] = &[
    (b"\xfd7zXZ\0", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"PK\x03\x04", "zip"),
];

/// Directories of a root file system, at its top (Filesystem Hierarchy Standard 3.0, 3.2). One with a program
/// has two of them or more.
const ROOT_DIRS: [&str; 6] = ["bin", "etc", "lib", "sbin", "usr", "var"];

/// A tar archive and where its files are.
#[derive(Debug)]
pub(super) struct Archive {
    path: PathBuf,
    file: File,
    entries: HashMap<String, Place>,
}

/// What a name leads to.
#[derive(Debug)]
enum Place {
    File {
        offset: u64,
        size: u64,
    },
    /// Another name.
    Link(String),
}

impl Archive {
    pub(super) fn open(path: &Path, content: &Content) -> Result<Self, ImportError> {
        let failed = |source| ImportError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        (&file).take(8).read_to_end(&mut start).map_err(failed)?;
        file.rewind().map_err(failed)?;
        if start.starts_with(GZIP) || start.starts_with(ZSTD) {
            return Self::from_stream(file, content, path);
        }
        Self::read(file, path)
    }

    /// Reads an archive from where it can be read only once, compressed or not.
    pub(super) fn from_stream(
        stream: impl Read,
        content: &Content,
        path: &Path,
    ) -> Result<Self, ImportError> {
        let failed = |source| ImportError::Read {
            path: path.to_owned(),
            source,
        };
        let mut stream = stream;
        let mut start = Vec::new();
        stream
            .by_ref()
            .take(8)
            .read_to_end(&mut start)
            .map_err(failed)?;
        let is_gzip = start.starts_with(GZIP);
        let is_zstd = start.starts_with(ZSTD);
        // The count goes on while the decoder has the reader, so it is shared by a cell.
        let count = Rc::new(Cell::new(0));
        let input = Shared {
            inner: io::Cursor::new(start).chain(stream),
            count: Rc::clone(&count),
        };
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        let mut plain: Box<dyn Read> = if is_gzip {
            Box::new(flate2::bufread::MultiGzDecoder::new(input))
        } else if is_zstd {
            Box::new(zstd::stream::read::Decoder::with_buffer(input).map_err(failed)?)
        } else {
            Box::new(input)
        };
        let mut spool = content.spool()?;
        let mut size = 0;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let length = match plain.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(source) => return Err(failed(source)),
            };
            size += length as u64;
            if size > ALWAYS_FINE_BYTES && size / RATIO_MAX > count.get() {
                return Err(ImportError::NotAnImage {
                    path: path.to_owned(),
                    problem: format!("it becomes more than {RATIO_MAX} times larger when unpacked"),
                });
            }
            spool
                .write_all(&buffer[..length])
                .map_err(|source| ContentError::of("write into", content.base(), source))?;
        }
        spool.rewind().map_err(failed)?;
        Self::read(spool, path)
    }

    fn read(file: File, path: &Path) -> Result<Self, ImportError> {
        let failed = |source| ImportError::Read {
            path: path.to_owned(),
            source,
        };
        let length = file.metadata().map_err(failed)?.len();
        let mut archive = Self {
            path: path.to_owned(),
            file: file.try_clone().map_err(failed)?,
            entries: HashMap::new(),
        };
        // What files hold is skipped, so all that is read is headers.
        let read = Rc::new(Cell::new(0));
        let mut tar = tar::Archive::new(Headers {
            file,
            read: Rc::clone(&read),
        });
        for entry in tar.entries_with_seek().map_err(failed)? {
            let entry = entry.map_err(|error| archive.not_a_tar(&error))?;
            archive.add(&entry, length)?;
            read.set(0);
        }
        Ok(archive)
    }

    /// True if it holds files or links in two of the directories of a root file system.
    pub(super) fn has_root(&self) -> bool {
        let mut names = self.entries.keys().map(String::as_str);
        let has = |top: &str, name: &str| name.split('/').next() == Some(top);
        let first = names.find_map(|name| ROOT_DIRS.into_iter().find(|top| has(top, name)));
        first.is_some_and(|first| {
            names.any(|name| {
                let mut others = ROOT_DIRS.into_iter().filter(|top| *top != first);
                others.any(|top| has(top, name))
            })
        })
    }

    fn not_a_tar(&self, error: &io::Error) -> ImportError {
        let mut start = [0; 8];
        let length = self.file.read_at(&mut start, 0).unwrap_or_default();
        let foreign = FOREIGN
            .iter()
            .find(|(magic, _)| start[..length].starts_with(magic));
        let mut magic = [0; MAGIC.len()];
        let length = self
            .file
            .read_at(&mut magic, MAGIC_OFFSET)
            .unwrap_or_default();
        let problem = match foreign {
            Some((_, name)) => format!("it is compressed with {name}, which is not read"),
            None if self.entries.is_empty() && &magic[..length] != MAGIC => {
                "it is not a tar archive".to_owned()
            }
            None => format!("the archive is damaged: {}", shown(error)),
        };
        ImportError::NotAnImage {
            path: self.path.clone(),
            problem,
        }
    }

    fn add<R: Read>(&mut self, entry: &tar::Entry<'_, R>, length: u64) -> Result<(), ImportError> {
        let raw = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let refused = |problem: &str| ImportError::Entry {
            path: self.path.clone(),
            entry: raw.escape_debug().to_string(),
            problem: problem.to_owned(),
        };
        if self.entries.len() >= ENTRIES_MAX {
            return Err(refused("is one entry more than are read"));
        }
        let name = inside(&raw).ok_or_else(|| refused("leads out of the archive"))?;
        let place = match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                let (offset, size) = (entry.raw_file_position(), entry.size());
                if offset.checked_add(size).is_none_or(|end| end > length) {
                    return Err(refused("is cut off: the archive is not whole"));
                }
                Place::File { offset, size }
            }
            EntryType::Link | EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default();
                let target = String::from_utf8_lossy(&target).into_owned();
                // A hard link's target counts from the top, a symbolic link's from where it is.
                let base = match (entry.header().entry_type(), name.rsplit_once('/')) {
                    (EntryType::Symlink, Some((parent, _))) => format!("{parent}/{target}"),
                    _ => target,
                };
                let target = resolve(&base).ok_or_else(|| refused("links out of the archive"))?;
                Place::Link(target)
            }
            EntryType::GNUSparse => return Err(refused("is a sparse file, which no image has")),
            _ => return Ok(()),
        };
        self.entries.insert(name, place);
        Ok(())
    }
}

impl Files for Archive {
    fn open(&self, name: &str) -> Result<Option<Section>, ImportError> {
        let mut name = name.to_owned();
        for _ in 0..LINKS_MAX {
            match self.entries.get(&name) {
                None => return Ok(None),
                Some(Place::Link(target)) => name.clone_from(target),
                Some(Place::File { offset, size }) => {
                    let file = self
                        .file
                        .try_clone()
                        .map_err(|source| self.failed(&name, source))?;
                    return Ok(Some(Section::new(file, *offset, *size)));
                }
            }
        }
        Err(ImportError::Entry {
            path: self.path.clone(),
            entry: name,
            problem: "is a link that leads in a circle".to_owned(),
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The name of an entry without `./`; `None` if it leads anywhere else.
pub(super) fn inside(name: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// The target of a link, counted from the top of the archive; `None` if it leads out of it.
fn resolve(target: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in Path::new(target).components() {
        match part {
            Component::Normal(part) => parts.push(part.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

/// Reads the headers of an archive, and no more of them than there should be.
struct Headers {
    file: File,
    /// Since the last entry.
    read: Rc<Cell<u64>>,
}

impl Read for Headers {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.read.set(self.read.get() + length as u64);
        if self.read.get() > HEADER_BYTES_MAX {
            let message = format!("an entry has more than {HEADER_BYTES_MAX} bytes of headers");
            return Err(io::Error::other(message));
        }
        Ok(length)
    }
}

impl Seek for Headers {
    fn seek(&mut self, position: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(position)
    }
}

/// Reads, and counts how much.
struct Shared<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Shared<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count.set(self.count.get() + length as u64);
        Ok(length)
    }
}
