//! Opening files of a tree without ever leaving it, whatever its symbolic links say.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Opens the directory that everything else is beneath of.
pub(crate) fn open_root(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

/// Opens something beneath a root as a program would whose root directory it is: absolute and
/// upward links end at the root.
pub(crate) fn open_in_root(root: &OwnedFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    // A rename elsewhere at the wrong moment makes the kernel give up; it asks to try again.
    for _ in 0..RETRIES_MAX {
        match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
    Err(Errno::AGAIN.into())
}

const RETRIES_MAX: u32 = 64;

/// Reads a regular file beneath a root as text, up to a bound. `None` if there is no such file.
pub(crate) fn read_text(root: &Path, path: &Path, bytes_max: u64) -> io::Result<Option<String>> {
    let root = open_root(root)?;
    // Without NONBLOCK, a FIFO in its place would hold us for ever.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let path = path.strip_prefix("/").unwrap_or(path);
    let file = match open_in_root(&root, path, flags) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    File::from(file)
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "the file is too large",
        ));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
