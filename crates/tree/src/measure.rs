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
    /// Directories that this process may not look into, so that nothing below them is counted.
    pub closed: u64,
}

/// Adds up all below a directory, but for names in it that `is_part` says no to. Stops when there are
/// more entries than `entries_max`. Links are not followed, and what changes or vanishes meanwhile is
/// counted as it is met; what is moved about all the time may be left out. Takes as long as there are
/// entries, however deep they lie.
///
/// # Errors
/// If the directory itself cannot be listed.
pub fn measure(
    top: BorrowedFd<'_>,
    entries_max: u64,
    is_part: impl Fn(&[u8]) -> bool,
) -> io::Result<Measured> {
    let mut total = Measured::default();
    let mut descent = Descent {
        top,
        at: open_below(top, b"", DIRECTORY)?,
        levels: Vec::new(),
        returns: 0,
    };
    let first = total.add(&descent.at, entries_max, is_part)?;
    descent
        .levels
        .push(Level::of(&descent.at, Vec::new(), first)?);
    while let Some(level) = descent.levels.last_mut() {
        if total.entries > entries_max {
            break;
        }
        match level.below.pop() {
            None => descent.leave(),
            Some(name) => {
                let opened = rustix::fs::openat(&descent.at, &name[..], DIRECTORY, Mode::empty());
                total.closed += u64::from(matches!(opened, Err(Errno::ACCESS | Errno::PERM)));
                let Ok(child) = opened else {
                    continue;
                };
                let below = total.add(&child, entries_max, |_| true)?;
                descent.levels.push(Level::of(&child, name, below)?);
                descent.at = child;
            }
        }
    }
    Ok(total)
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Measured {
    /// Adds what is in one directory. Gives the names of the directories among it.
    fn add(
        &mut self,
        directory: &OwnedFd,
        entries_max: u64,
        is_part: impl Fn(&[u8]) -> bool,
    ) -> io::Result<Vec<Vec<u8>>> {
        const BLOCK: u64 = 512;
        let mut below = Vec::new();
        let mut entries = Dir::read_from(directory)?;
        while let Some(Ok(entry)) = entries.read() {
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." || !is_part(name) {
                continue;
            }
            self.entries += 1;
            if self.entries > entries_max {
                break;
            }
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            let Ok(stat) = stat else { continue };
            self.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                below.push(name.to_vec());
            }
        }
        Ok(below)
    }
}

/// A directory on the way down: which it is, and what of it is still to be looked at.
struct Level {
    id: (u64, u64),
    name: Vec<u8>,
    below: Vec<Vec<u8>>,
}

impl Level {
    fn of(directory: &OwnedFd, name: Vec<u8>, below: Vec<Vec<u8>>) -> io::Result<Self> {
        let id = id_of(directory)?;
        Ok(Self { id, name, below })
    }
}

fn id_of(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The one directory that is open, and those above it up to the top.
struct Descent<'t> {
    top: BorrowedFd<'t>,
    at: OwnedFd,
    levels: Vec<Level>,
    /// How often the way back up was not the way down.
    returns: u32,
}

impl Descent<'_> {
    /// Goes up one level. Where `..` is another directory by now, because somebody moved this one, the
    /// one above is opened from the top: a few times, since that takes as long as it is deep.
    fn leave(&mut self) {
        const RETURNS_MAX: u32 = 16;
        self.levels.pop();
        while let Some(level) = self.levels.last() {
            let up = rustix::fs::openat(&self.at, "..", DIRECTORY, Mode::empty());
            let is_there = |up: &OwnedFd| id_of(up).is_ok_and(|id| id == level.id);
            if let Some(up) = up.ok().filter(is_there) {
                self.at = up;
                return;
            }
            self.returns += 1;
            if self.returns > RETURNS_MAX {
                self.levels.clear();
                return;
            }
            let names: Vec<&[u8]> = self.levels[1..].iter().map(|at| &at.name[..]).collect();
            let again = open_below(self.top, &names.join(&b'/'), DIRECTORY);
            if let Some(again) = again.ok().filter(is_there) {
                self.at = again;
                return;
            }
            self.levels.pop();
        }
    }
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

    /// What has been counted is not counted again, and what is above the top never.
    #[test]
    fn a_directory_that_was_moved_is_left_by_the_way_that_led_there() {
        let base = tempfile::tempdir().unwrap();
        let top = base.path().join("top");
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::create_dir_all(base.path().join("outside/more")).unwrap();
        for name in ["a/left", "rest"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        let opened = File::open(&top).unwrap();
        let (levels, at) =
            ["", "a", "a/b"]
                .iter()
                .fold((Vec::new(), None), |(mut levels, _), path| {
                    let at = open_below(opened.as_fd(), path.as_bytes(), DIRECTORY).unwrap();
                    let name = path.rsplit('/').next().unwrap().as_bytes().to_vec();
                    levels.push(Level::of(&at, name, Vec::new()).unwrap());
                    (levels, Some(at))
                });
        let mut descent = Descent {
            top: opened.as_fd(),
            at: at.unwrap(),
            levels,
            returns: 0,
        };
        fs::rename(top.join("a/b"), base.path().join("outside/b")).unwrap();
        descent.leave();
        assert_eq!((descent.levels.len(), descent.returns), (2, 1));
        let here = fs::metadata(top.join("a")).unwrap();
        let at = id_of(&descent.at).unwrap();
        assert_eq!(at.1, std::os::unix::fs::MetadataExt::ino(&here));
        // And a directory that is nowhere any more is left for what is above it.
        fs::rename(top.join("a"), base.path().join("outside/a")).unwrap();
        descent.leave();
        assert_eq!((descent.levels.len(), descent.returns), (1, 2));
    }

    #[test]
    fn depth_beyond_the_length_of_paths_is_measured() {
        const DEPTH: u64 = 3_000;
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
