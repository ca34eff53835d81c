//! Directories of an image that the builder of a sandbox may not write, mirrored into the private layer.
//!
//! Without root, the files of an image on disk may belong to ids that the sandbox does not map. Nothing
//! can be made in their directories, not even a place to mount on. A directory of the same name in the
//! private layer merges with the image's and belongs to the builder.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode};
use tidemill_core::RootPlan;
use tidemill_core::root::Node;

use crate::sys::mount::open_in_root;

/// The id under which owners appear that are not mapped: the kernel's default overflow id.
const OVERFLOW_ID: u32 = 65_534;

/// True if a tree's root belongs to an id that is not mapped here.
///
/// # Errors
/// What fstat(2) answers.
pub(crate) fn is_foreign(tree: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(rustix::fs::fstat(tree)?.st_uid == OVERFLOW_ID)
}

/// The directories that a plan will make something in.
pub(crate) fn wanted(plan: &RootPlan) -> Vec<&str> {
    let mut list: Vec<&str> = vec!["/dev", "/proc", "/tmp", "/var/tmp"];
    list.push(&plan.account.home);
    list.extend(plan.nodes.iter().map(|node| match node {
        Node::Dir { path, .. } => path.as_str(),
        Node::Symlink { path, .. } => above(path),
    }));
    // A file may be mounted too; a directory in its place would be in its way.
    list.extend(plan.mounts.iter().map(|mount| above(&mount.dest)));
    list.extend(plan.files.iter().map(|file| above(&file.path)));
    list
}

/// True if a directory on the way to `path`, or itself, belongs to an id that is not mapped here: with the
/// caller's own files in the job, the sub-id that stands for the job's user in an image is none of the job's.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn leads_through_foreign(trees: &[BorrowedFd<'_>], path: &str) -> io::Result<bool> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
    for end in ends.chain([path.len()]) {
        for tree in trees {
            let way = &path[..end];
            match open_in_root(tree.as_fd(), way, libc::O_PATH | libc::O_NOFOLLOW, 0, true) {
                Ok(found) if is_foreign(found.as_fd())? => return Ok(true),
                // What cannot be looked at is seen by whoever makes something there.
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(false)
}

fn above(path: &str) -> &str {
    path.trim_end_matches('/')
        .rsplit_once('/')
        .map_or("", |(parent, _)| parent)
}

/// Makes `path` in the private layer, as far as the trees (the topmost first) have directories there or
/// nothing at all. Where they have a link, the rest is left to whoever follows it.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn mirror(trees: &[BorrowedFd<'_>], upper: &OwnedFd, path: &str) -> io::Result<()> {
    let mut so_far = String::new();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        so_far.push('/');
        so_far.push_str(name);
        let mode = match look(trees, &so_far)? {
            Some((FileType::Directory, mode)) => mode,
            Some(_) => return Ok(()),
            None => 0o755,
        };
        let relative = so_far.trim_start_matches('/');
        match rustix::fs::mkdirat(upper, relative, Mode::from_raw_mode(mode)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// What the topmost tree that has it says of a path: its type and permission bits.
fn look(trees: &[BorrowedFd<'_>], path: &str) -> io::Result<Option<(FileType, u32)>> {
    for tree in trees {
        match open_in_root(tree.as_fd(), path, libc::O_PATH | libc::O_NOFOLLOW, 0, true) {
            Ok(found) => {
                let stat = rustix::fs::fstat(&found)?;
                let kind = FileType::from_raw_mode(stat.st_mode);
                // A whiteout: deleted in this tree, so the ones below do not count.
                if kind == FileType::CharacterDevice {
                    return Ok(None);
                }
                return Ok(Some((kind, stat.st_mode & 0o1777)));
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {}
            // A link on the way, which the caller has seen already, or a directory closed to us.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EACCES)) => {
                return Ok(Some((FileType::Symlink, 0)));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::OFlags;

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn directories_are_mirrored_up_to_a_link() {
        let scratch = tempfile::tempdir().unwrap();
        let (lower, upper) = (scratch.path().join("lower"), scratch.path().join("upper"));
        std::fs::create_dir_all(lower.join("home")).unwrap();
        std::fs::create_dir_all(lower.join("usr/home")).unwrap();
        std::fs::create_dir(&upper).unwrap();
        std::fs::set_permissions(lower.join("home"), std::fs::Permissions::from_mode(0o700))
            .unwrap();
        symlink("usr/home", lower.join("people")).unwrap();
        let (tree, to) = (open(&lower), open(&upper));
        mirror(&[tree.as_fd()], &to, "/home/me/work").unwrap();
        mirror(&[tree.as_fd()], &to, "/people/me").unwrap();
        assert!(upper.join("home/me/work").is_dir());
        let mode = upper.join("home").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(!upper.join("people").exists());
    }

    #[test]
    fn the_parent_of_a_top_level_file_is_the_root() {
        assert_eq!(above("/etc/passwd"), "/etc");
        assert_eq!(above("/file"), "");
    }
}
