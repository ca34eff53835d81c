//! How much there is in a tree.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Bytes of a path that are opened in one call: less than the kernel takes.
const STEP_BYTES: usize = 3072;

/// What is in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Measured {
    /// Bytes on disk, as stat(2) counts them. A file with several names counts for each.
    pub bytes: u64,
    /// Files, directories and all else.
    pub entries: u64,
}

/// Adds up all below a directory, but for names in it that `is_part` says no to. Stops when there are
/// more entries than `entries_max`. Links are not followed, and what changes or vanishes meanwhile is
/// counted as it is met.
///
/// # Errors
/// If the directory itself cannot be listed.
pub fn measure(
    top: BorrowedFd<'_>,
    entries_max: u64,
    is_part: impl Fn(&[u8]) -> bool,
) -> io::Result<Measured> {
    let mut total = Measured::default();
    // Paths below the top. The top itself has none.
    let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
    while let Some(path) = waiting.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match open_below(top, &path, flags) {
            Ok(directory) => directory,
            Err(error) if path.is_empty() => return Err(error),
            Err(_) => continue,
        };
        let mut entries = Dir::read_from(&directory)?;
        while let Some(Ok(entry)) = entries.read() {
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || path.is_empty() && !is_part(name) {
                continue;
            }
            total.entries += 1;
            if total.entries > entries_max {
                return Ok(total);
            }
            let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(stat) = stat else { continue };
            const BLOCK: u64 = 512;
            total.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let mut below = path.clone();
                if !below.is_empty() {
                    below.push(b'/');
                }
                below.extend_from_slice(name);
                waiting.push(below);
            }
        }
    }
    Ok(total)
}

/// Opens what is at a path below a directory, however long the path is. No symbolic link is followed.
///
/// # Errors
/// What the kernel answers.
pub fn open_below(top: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    if path.is_empty() {
        return Ok(rustix::fs::openat(top, ".", flags, Mode::empty())?);
    }
    let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let step = match rest.get(..STEP_BYTES) {
            // Up to the last whole name that fits; one name alone always does.
            Some(part) => part
                .iter()
                .rposition(|byte| *byte == b'/')
                .unwrap_or(part.len()),
            None => rest.len(),
        };
        let is_last = step == rest.len();
        let flags = if is_last { flags } else { on_the_way };
        let from = at.as_ref().map_or(top, AsFd::as_fd);
        let opened =
            retry(|| rustix::fs::openat2(from, &rest[..step], flags, Mode::empty(), resolve))?;
        if is_last {
            return Ok(opened);
        }
        at = Some(opened);
        rest = &rest[step + 1..];
    }
}

/// openat2(2) may ask to be called again when something was renamed meanwhile.
fn retry(mut open: impl FnMut() -> rustix::io::Result<OwnedFd>) -> io::Result<OwnedFd> {
    const TRIES: usize = 8;
    for _ in 1..TRIES {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
    Ok(open()?)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn bytes_and_entries_are_counted_and_links_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::create_dir_all(top.join("other")).unwrap();
        fs::write(top.join("a/b/file"), vec![1; 100_000]).unwrap();
        fs::write(top.join("other/file"), vec![1; 100_000]).unwrap();
        fs::write(base.path().join("outside"), vec![1; 1_000_000]).unwrap();
        symlink(base.path(), top.join("a/link")).unwrap();
        let opened = File::open(&top).unwrap();
        let measured = measure(opened.as_fd(), 100, |name| name == b"a").unwrap();
        assert_eq!(measured.entries, 4);
        assert!((100_000..200_000).contains(&measured.bytes), "{measured:?}");
    }

    #[test]
    fn it_stops_at_the_most_entries() {
        let base = tempfile::tempdir().unwrap();
        for number in 0..50 {
            fs::write(base.path().join(number.to_string()), "").unwrap();
        }
        let opened = File::open(base.path()).unwrap();
        let measured = measure(opened.as_fd(), 10, |_| true).unwrap();
        assert_eq!(measured.entries, 11);
    }

    #[test]
    fn depth_beyond_the_length_of_paths_is_measured() {
        const DEPTH: u64 = 300;
        let base = tempfile::tempdir().unwrap();
        let name = "d".repeat(200);
        let mut at: OwnedFd = File::open(base.path()).unwrap().into();
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            at = rustix::fs::openat(&at, &name, flags, Mode::empty()).unwrap();
        }
        let opened = File::open(base.path()).unwrap();
        let measured = measure(opened.as_fd(), u64::MAX, |_| true).unwrap();
        assert_eq!(measured.entries, DEPTH);
        crate::remove_tree(base.path()).unwrap();
    }
}
