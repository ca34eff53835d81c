//! Extended attributes of symbolic links and named pipes, which cannot be opened for that.
//!
//! The calls take a path and follow no link at its end, and an open directory has the path
//! `/proc/self/fd/N`. The kernel takes `trusted.*` and `security.*` from root; `user.*` it takes for files and
//! directories alone, see xattr(7).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// The most that the kernel gives for the names or one value, see xattr(7).
const BYTES_MAX: usize = 64 << 10;

/// A name and a value.
type Xattr = (Vec<u8>, Vec<u8>);

fn path(directory: BorrowedFd<'_>, name: &[u8]) -> PathBuf {
    let directory = format!("/proc/self/fd/{}", directory.as_raw_fd());
    Path::new(&directory).join(OsStr::from_bytes(name))
}

/// True if an attribute is not ours to set, unknown to the file system, or too large for it.
pub(crate) const fn is_not_taken(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::NOTSUP
            | Errno::NOSPC
            | Errno::TOOBIG
            | Errno::RANGE
            | Errno::INVAL
    )
}

/// Sets them. Gives how many the kernel or the file system does not take.
///
/// # Errors
/// What else the kernel answers.
pub(crate) fn set(directory: BorrowedFd<'_>, name: &[u8], xattrs: &[Xattr]) -> io::Result<u64> {
    let mut lost = 0;
    for (key, value) in xattrs {
        let path = path(directory, name);
        match rustix::fs::lsetxattr(&path, key.as_slice(), value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(errno) if is_not_taken(errno) => lost += 1,
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(lost)
}

/// Reads them, sorted.
///
/// # Errors
/// What the kernel answers, but for that there can be none.
pub(crate) fn of(directory: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<Xattr>> {
    let path = path(directory, name);
    let mut few = [0_u8; 256];
    let names = match rustix::fs::llistxattr(&path, &mut few[..]) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(length) => few[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut many = vec![0; BYTES_MAX];
            let length = rustix::fs::llistxattr(&path, &mut many[..])?;
            many.truncate(length);
            many
        }
        Err(errno) => return Err(errno.into()),
    };
    let mut xattrs = Vec::new();
    let mut value = vec![0; BYTES_MAX];
    for key in names.split(|byte| *byte == 0).filter(|key| !key.is_empty()) {
        match rustix::fs::lgetxattr(&path, key, &mut value[..]) {
            Ok(length) => xattrs.push((key.to_owned(), value[..length].to_owned())),
            // It went meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_the_kernel_takes_for_a_link_is_read_back_and_the_rest_is_counted() {
        let base = tempfile::tempdir().unwrap();
        symlink("nowhere", base.path().join("link")).unwrap();
        let directory = File::open(base.path()).unwrap();
        let directory = directory.as_fd();
        assert_eq!(of(directory, b"link").unwrap(), []);
        let user = (b"user.note".to_vec(), b"x".to_vec());
        let trusted = (b"trusted.note".to_vec(), b"y".to_vec());
        let lost = set(directory, b"link", &[user, trusted.clone()]).unwrap();
        let kept = of(directory, b"link").unwrap();
        if rustix::process::geteuid().is_root() && lost == 1 {
            assert_eq!(kept, [trusted]);
        } else {
            assert_eq!((lost, kept.len()), (2, 0));
        }
        let missing = of(directory, b"missing").unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
