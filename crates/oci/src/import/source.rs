//! Where the files of an image are: in a directory or in an archive.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::ImportError;

/// Files by their names.
pub(super) trait Files {
    /// Opens a file; `None` if there is none of that name.
    fn open(&self, name: &str) -> Result<Option<Section>, ImportError>;

    /// The source, for errors.
    fn path(&self) -> &Path;

    /// Reads a whole file of at most `max` bytes.
    fn read_small(&self, name: &str, max: u64) -> Result<Vec<u8>, ImportError> {
        let mut section = self.open(name)?.ok_or_else(|| self.absent(name))?;
        if section.size > max {
            return Err(ImportError::Entry {
                path: self.path().to_owned(),
                entry: name.escape_debug().to_string(),
                problem: format!("has {} bytes, and {max} are read at most", section.size),
            });
        }
        let mut bytes = Vec::new();
        section
            .read_to_end(&mut bytes)
            .map_err(|source| self.failed(name, source))?;
        Ok(bytes)
    }

    /// Says that a file is missing.
    fn absent(&self, name: &str) -> ImportError {
        ImportError::Absent {
            path: self.path().to_owned(),
            entry: name.escape_debug().to_string(),
        }
    }

    /// Says that a file could not be read.
    fn failed(&self, name: &str, source: io::Error) -> ImportError {
        ImportError::Read {
            path: self.path().join(name),
            source,
        }
    }
}

/// A part of a file, read from its beginning.
#[derive(Debug)]
pub(super) struct Section {
    file: File,
    offset: u64,
    left: u64,
    /// Bytes of it.
    pub(super) size: u64,
}

impl Section {
    pub(super) const fn new(file: File, offset: u64, size: u64) -> Self {
        Self {
            file,
            offset,
            left: size,
            size,
        }
    }

    /// The first bytes, without going on.
    pub(super) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        self.file.read_at(&mut buffer[..most], self.offset)
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let length = self.file.read_at(&mut buffer[..most], self.offset)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset += length as u64;
        self.left -= length as u64;
        Ok(length)
    }
}

/// A directory.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }
}

impl Files for Directory {
    fn open(&self, name: &str) -> Result<Option<Section>, ImportError> {
        let path = self.path.join(name);
        // Without waiting for whoever writes, should it be a named pipe.
        let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
        let opened = File::options()
            .read(true)
            .custom_flags(nonblock)
            .open(&path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ImportError::Read { path, source }),
        };
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Some(Section::new(file, 0, metadata.len()))),
            Ok(_) => Err(ImportError::Entry {
                path: self.path.clone(),
                entry: name.to_owned(),
                problem: "is not a file".to_owned(),
            }),
            Err(source) => Err(ImportError::Read { path, source }),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
