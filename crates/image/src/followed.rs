//! From a path as somebody wrote it to what it names, in one walk that remembers its symbolic links.
//!
//! Whatever is decided about the links is decided about the path that came out: the sandbox opens that
//! path and follows none. A link that somebody puts there after the walk makes the start fail.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::host_view::HostView;

/// Symbolic links on one path at most, as in the kernel.
const LINKS_MAX: usize = 40;
/// Directories whose own links come with the system: `/bin`, `/var/run`. They are nobody's workspace.
const OF_THE_SYSTEM: [&str; 3] = ["/", "/usr", "/var"];

/// What a path names.
#[derive(Debug)]
pub(crate) struct Followed {
    /// The path without symbolic links.
    pub(crate) path: PathBuf,
    /// What is there.
    pub(crate) metadata: Metadata,
    /// The links on the way that a job may have made, each by its path without links before it.
    pub(crate) planted: Vec<PathBuf>,
}

/// Follows an absolute path.
pub(crate) fn follow(path: &Path) -> io::Result<Followed> {
    let root = rustix::fs::openat(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let mut walk = Walk {
        opened: vec![root],
        path: PathBuf::from("/"),
        links: 0,
        planted: Vec::new(),
    };
    let mut todo = Vec::new();
    push(path, &mut todo);
    while let Some(step) = todo.pop() {
        if let Some(target) = walk.step(step)? {
            push(&target, &mut todo);
        }
    }
    walk.end()
}

/// The same for somebody who stands in a directory: what is below it is reached from there, and the
/// links by which its name leads there are no part of the way.
pub(crate) fn follow_from_cwd(path: &Path, host: &HostView) -> io::Result<Followed> {
    let below = host
        .cwd
        .as_ref()
        .zip(host.stands_in.as_ref())
        .and_then(|(named, real)| Some(real.join(path.strip_prefix(named).ok()?)));
    follow(below.as_deref().unwrap_or(path))
}

#[derive(Debug)]
enum Step {
    Root,
    Up,
    Name(OsString),
}

/// Puts the steps of a path on top of those that are left.
fn push(path: &Path, todo: &mut Vec<Step>) {
    todo.extend(
        path.components()
            .rev()
            .filter_map(|component| match component {
                Component::RootDir => Some(Step::Root),
                Component::ParentDir => Some(Step::Up),
                Component::Normal(name) => Some(Step::Name(name.to_owned())),
                Component::CurDir | Component::Prefix(_) => None,
            }),
    );
}

struct Walk {
    /// The root, then everything down to where the walk is.
    opened: Vec<OwnedFd>,
    path: PathBuf,
    links: usize,
    planted: Vec<PathBuf>,
}

impl Walk {
    /// Goes one step. Returns where a link leads, which is to be gone next.
    fn step(&mut self, step: Step) -> io::Result<Option<PathBuf>> {
        match step {
            Step::Root => {
                self.opened.truncate(1);
                self.path = PathBuf::from("/");
            }
            Step::Up => {
                if file_type(&rustix::fs::fstat(self.here())?) != FileType::Directory {
                    return Err(Errno::NOTDIR.into());
                }
                if self.opened.len() > 1 {
                    self.opened.pop();
                    self.path.pop();
                }
            }
            Step::Name(name) => {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let found = rustix::fs::openat(self.here(), &name, flags, Mode::empty())?;
                self.path.push(name);
                if file_type(&rustix::fs::fstat(&found)?) == FileType::Symlink {
                    return self.link(&found).map(Some);
                }
                self.opened.push(found);
            }
        }
        Ok(None)
    }

    fn link(&mut self, link: &OwnedFd) -> io::Result<PathBuf> {
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let at = self.path.clone();
        self.path.pop();
        if !is_hosts_own(&self.path, &rustix::fs::fstat(self.here())?) {
            self.planted.push(at);
        }
        let target = rustix::fs::readlinkat(link, "", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn here(&self) -> &OwnedFd {
        self.opened.last().expect("the root is never closed")
    }

    fn end(mut self) -> io::Result<Followed> {
        let last = self.opened.pop().expect("the root is never closed");
        Ok(Followed {
            path: self.path,
            metadata: File::from(last).metadata()?,
            planted: self.planted,
        })
    }
}

/// True for a directory in which no job can have made a link: one of the system, or one that only
/// root may write while the caller, for whom jobs write, is not root.
fn is_hosts_own(path: &Path, stat: &Stat) -> bool {
    let is_of_system = OF_THE_SYSTEM.iter().any(|own| path == Path::new(own));
    let is_roots = stat.st_uid == 0 && stat.st_mode & 0o022 == 0;
    is_of_system || (is_roots && !rustix::process::geteuid().is_root())
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_leads_where_the_kernel_says() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        let at = |path: &str| base.join(path);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/file"), "").unwrap();
        for (target, link) in [
            ("a", "short"),
            ("b/../../short/b", "a/winding"),
            ("/../usr", "absolute"),
            ("loop", "loop"),
            ("nowhere", "dangling"),
            ("/proc/self/cwd", "magic"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        for path in [
            "a/b",
            "./a//b/.",
            "short/b/..",
            "short/winding",
            "short/../a/file",
            "a/winding/../..",
            "absolute",
            "magic",
            "loop",
            "dangling",
            "dangling/..",
            "a/file/x",
            "a/file/..",
            "../../../../../../../../../../usr",
        ] {
            let expected = fs::canonicalize(at(path));
            match (follow(&at(path)), expected) {
                (Ok(followed), Ok(expected)) => assert_eq!(followed.path, expected, "{path}"),
                (Err(error), Err(expected)) => assert_eq!(error.kind(), expected.kind(), "{path}"),
                (followed, expected) => panic!("{path}: {followed:?}, {expected:?}"),
            }
        }
        let planted = |path: &str| follow(&at(path)).unwrap().planted;
        assert_eq!(planted("a/b"), [""; 0].map(PathBuf::from));
        assert_eq!(
            planted("short/winding"),
            [at("short"), at("a/winding"), at("short")]
        );
    }

    #[test]
    fn links_of_the_system_are_no_jobs() {
        for link in ["/bin", "/var/run", "/var/lock"] {
            if Path::new(link).is_symlink() {
                let followed = follow(Path::new(link)).unwrap();
                assert!(followed.planted.is_empty(), "{followed:?}");
            }
        }
    }
}
