//! Removing a tree whatever its modes, depth and names.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// Directories that are open at one time: far below any limit of descriptors.
const OPEN_MAX: usize = 64;

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A directory that is being emptied, and its name in the one before it.
struct Frame {
    directory: OwnedFd,
    entries: Dir,
    name: Vec<u8>,
}

/// Removes a directory with all that is in it. Never follows a symbolic link, does without the
/// permissions of modes where the caller owns the files, and is bound neither by the length of
/// paths nor by the depth of directories.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let above = rustix::fs::openat(CWD, above, DIRECTORY, Mode::empty())?;
    remove_at(&above, name.as_encoded_bytes())
}

/// The same for a directory by its name in another one.
pub fn remove_at(above: &OwnedFd, name: &[u8]) -> io::Result<()> {
    let mut stack = vec![open_frame(above, name)?];
    let mut lifted = 0_u64;
    while let Some(frame) = stack.last_mut() {
        let Some(entry) = frame.entries.read() else {
            let frame = stack.pop().expect("the loop runs while there is a frame");
            let parent = stack.last().map_or(above, |parent| &parent.directory);
            match rustix::fs::unlinkat(parent, &frame.name[..], AtFlags::REMOVEDIR) {
                // What was lifted into it came after the listing.
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    let again = open_frame(parent, &frame.name)?;
                    stack.push(again);
                }
                other => other?,
            }
            continue;
        };
        let entry = entry?;
        let child = entry.file_name().to_bytes();
        if child == b"." || child == b".." {
            continue;
        }
        match rustix::fs::unlinkat(&frame.directory, child, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            // Linux says the first, POSIX the second, for a directory.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(errno.into()),
        }
        let next = open_frame(&frame.directory, child)?;
        if stack.len() < OPEN_MAX {
            stack.push(next);
        } else {
            lift(&stack, &next.name, &mut lifted)?;
        }
    }
    Ok(())
}

/// Moves a directory that lies too deep up to the top, where it is found again.
fn lift(stack: &[Frame], child: &[u8], count: &mut u64) -> io::Result<()> {
    let (first, last) = (&stack[0], &stack[stack.len() - 1]);
    loop {
        *count += 1;
        let name = format!(".doomed-{count}");
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&last.directory, child, &first.directory, &name, flags) {
            Err(Errno::EXIST) => {}
            other => return Ok(other?),
        }
    }
}

/// Opens a directory for listing and changing, whatever its mode says to its owner.
fn open_frame(parent: &OwnedFd, name: &[u8]) -> io::Result<Frame> {
    let directory = match rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?
        }
        other => other?,
    };
    if rustix::fs::fstat(&directory)?.st_mode & 0o700 != 0o700 {
        rustix::fs::fchmod(&directory, Mode::RWXU)?;
    }
    let entries = Dir::read_from(&directory)?;
    Ok(Frame {
        directory,
        entries,
        name: name.to_vec(),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn removes_closed_directories_and_leaves_what_links_point_to() {
        let base = tempfile::tempdir().unwrap();
        let kept = base.path().join("kept");
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("file"), "kept").unwrap();
        let doomed = base.path().join("doomed");
        fs::create_dir_all(doomed.join("a/b")).unwrap();
        fs::write(doomed.join("a/b/c"), "x").unwrap();
        symlink(&kept, doomed.join("a/link")).unwrap();
        for closed in ["a/b", "a"] {
            fs::set_permissions(doomed.join(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&doomed).unwrap();
        assert!(!doomed.exists());
        assert_eq!(fs::read(kept.join("file")).unwrap(), b"kept");
    }

    #[test]
    fn removes_directories_deeper_than_a_path_can_be() {
        let base = tempfile::tempdir().unwrap();
        let doomed = base.path().join("doomed");
        fs::create_dir(&doomed).unwrap();
        let name = "d".repeat(200);
        let mut at = rustix::fs::openat(CWD, &doomed, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..500 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, &name, DIRECTORY, Mode::empty()).unwrap();
        }
        remove_tree(&doomed).unwrap();
        assert!(!doomed.exists());
    }

    #[test]
    fn says_that_there_is_nothing() {
        let base = tempfile::tempdir().unwrap();
        let error = remove_tree(&base.path().join("missing")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
