//! Files that a pattern matches, and trees of copies of them.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use rustix::fs::{Timespec, Timestamps};
use tidemill_core::Digest;
use tidemill_core::root::Owners;

use crate::layer::is_state;
use crate::plan::PlanError;
use crate::tree_store::TreeNote;

/// Files and directories that one pattern looks at, at most.
pub const LOOKED_AT_MAX: usize = 1_000_000;

/// A file that a pattern matched, as it was at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    path: PathBuf,
    is_link: bool,
    is_utf8: bool,
    mode: u32,
    uid: u32,
    gid: u32,
    identity: String,
}

impl Match {
    /// The path relative to the pattern's directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// True for a regular file whose name can be written in a plan.
    pub(crate) const fn is_plain(&self) -> bool {
        !self.is_link && self.is_utf8
    }

    pub(crate) const fn owner(&self) -> Owners {
        Owners::Job {
            uid: self.uid,
            gid: self.gid,
        }
    }

    fn new(path: PathBuf, metadata: &Metadata) -> Self {
        Self {
            is_utf8: path.to_str().is_some(),
            path,
            is_link: metadata.is_symlink(),
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            identity: identity(metadata),
        }
    }
}

/// Everything that tells one content of a file from another, short of reading it.
fn identity(metadata: &Metadata) -> String {
    format!(
        "{} {} {} {} {}.{} {}.{}",
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mode(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    )
}

/// The regular files and symbolic links below a directory that fit a pattern, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matches {
    base: String,
    pattern: String,
    owners: Owners,
    files: Vec<Match>,
}

impl Matches {
    /// Looks for files. Links are matched and never followed.
    pub(crate) fn find(
        base: String,
        pattern: &str,
        owners: Owners,
        state_dir: Option<&Path>,
    ) -> Result<Self, PlanError> {
        let matcher = compile(pattern)?;
        let start = plain_start(pattern);
        let top = Path::new(&base).join(&start);
        let mut files = Vec::new();
        let mut looked_at = 0;
        // A pattern without wildcards names one file.
        let mut todo = vec![start];
        let failed = |path: &Path, source| PlanError::Source {
            what: "glob's directory",
            path: path.to_string_lossy().into_owned(),
            source,
        };
        let mut above = top.ancestors().skip(1);
        let is_behind_link = above
            .by_ref()
            .take_while(|above| above.as_os_str().len() > base.len())
            .any(|above| above.is_symlink());
        if is_behind_link || fs::symlink_metadata(&top).is_err() {
            todo.clear();
        }
        while let Some(relative) = todo.pop() {
            looked_at += 1;
            if looked_at > LOOKED_AT_MAX {
                return Err(PlanError::TooManyFiles {
                    pattern: pattern.to_owned(),
                    base,
                    max: LOOKED_AT_MAX,
                });
            }
            let path = Path::new(&base).join(&relative);
            let metadata = match fs::symlink_metadata(&path) {
                // It went away while we looked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|source| failed(&path, source))?,
            };
            if metadata.is_dir() {
                if is_state(&path, state_dir) {
                    continue;
                }
                for entry in fs::read_dir(&path).map_err(|source| failed(&path, source))? {
                    let entry = entry.map_err(|source| failed(&path, source))?;
                    todo.push(relative.join(entry.file_name()));
                }
            } else if (metadata.is_file() || metadata.is_symlink()) && matcher.is_match(&relative) {
                files.push(Match::new(relative, &metadata));
            }
        }
        if files.is_empty() {
            return Err(PlanError::NoMatch {
                pattern: pattern.to_owned(),
                base,
            });
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self {
            base,
            pattern: pattern.to_owned(),
            owners,
            files,
        })
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    pub(crate) const fn owners(&self) -> Owners {
        self.owners
    }

    pub(crate) fn files(&self) -> &[Match] {
        &self.files
    }

    /// The name of the tree of copies: it changes when any of the files does.
    pub(crate) fn tree_name(&self) -> Digest {
        let mut hasher = blake3::Hasher::new();
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(b"glob 1");
        add(self.base.as_bytes());
        for file in &self.files {
            add(file.path.as_os_str().as_encoded_bytes());
            add(file.identity.as_bytes());
        }
        Digest::from_bytes(*hasher.finalize().as_bytes())
    }

    /// Copies the files into an empty directory. They are copied, not hard-linked: a link would
    /// change the original's times, and would change with it.
    pub(crate) fn gather(&self, root: &Path) -> Result<TreeNote, GatherError> {
        let base = Path::new(&self.base);
        let mut note = TreeNote {
            from: format!("{}/{}", self.base, self.pattern),
            ..TreeNote::default()
        };
        for file in &self.files {
            let (from, to) = (base.join(&file.path), root.join(&file.path));
            let failed = |source: io::Error| match source.kind() {
                io::ErrorKind::PermissionDenied if !file.is_link => GatherError::Unreadable {
                    path: from.clone(),
                    uid: file.uid,
                    gid: file.gid,
                    mode: file.mode,
                },
                _ => GatherError::Copy {
                    path: from.clone(),
                    source,
                },
            };
            if let Some(directory) = to.parent() {
                self.make_dirs(root, directory).map_err(failed)?;
            }
            note.entries += 1;
            note.bytes += copy(file, &from, &to).map_err(failed)?;
            let now = fs::symlink_metadata(&from).map_err(failed)?;
            if identity(&now) != file.identity {
                return Err(GatherError::Changed { path: from });
            }
        }
        Ok(note)
    }

    fn make_dirs(&self, root: &Path, directory: &Path) -> io::Result<()> {
        if directory.starts_with(root) && !directory.is_dir() {
            if let Some(above) = directory.parent() {
                self.make_dirs(root, above)?;
            }
            fs::DirBuilder::new().mode(0o755).create(directory)?;
            self.give(directory)?;
        } else if directory == root {
            self.give(directory)?;
        }
        Ok(())
    }

    /// Gives a directory to the owner of the pattern's own directory.
    fn give(&self, directory: &Path) -> io::Result<()> {
        match self.owners {
            Owners::Job { uid, gid } if rustix::process::geteuid().is_root() => {
                lchown(directory, Some(uid), Some(gid))
            }
            _ => Ok(()),
        }
    }
}

fn copy(file: &Match, from: &Path, to: &Path) -> io::Result<u64> {
    let is_root = rustix::process::geteuid().is_root();
    if file.is_link {
        symlink(fs::read_link(from)?, to)?;
        if is_root {
            lchown(to, Some(file.uid), Some(file.gid))?;
        }
        return Ok(0);
    }
    let mut source = open_plain(from)?;
    let metadata = source.metadata()?;
    let mut target = File::create_new(to)?;
    // Shares the blocks where the file system can.
    let length = match rustix::fs::ioctl_ficlone(&target, &source) {
        Ok(()) => metadata.len(),
        Err(_) => io::copy(&mut source, &mut target)?,
    };
    if is_root {
        rustix::fs::fchown(
            &target,
            Some(rustix::fs::Uid::from_raw(file.uid)),
            Some(rustix::fs::Gid::from_raw(file.gid)),
        )?;
    }
    target.set_permissions(fs::Permissions::from_mode(file.mode))?;
    let mtime = Timespec {
        tv_sec: metadata.mtime(),
        tv_nsec: metadata.mtime_nsec(),
    };
    let times = Timestamps {
        last_access: mtime,
        last_modification: mtime,
    };
    rustix::fs::futimens(&target, &times)?;
    Ok(length)
}

/// Opens a file without following a link that took its place, or that of a directory above it, and
/// without waiting for a FIFO.
fn open_plain(path: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?.into())
}

fn compile(pattern: &str) -> Result<GlobMatcher, PlanError> {
    GlobBuilder::new(&without_dots(pattern))
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|source| PlanError::Pattern {
            pattern: pattern.to_owned(),
            source,
        })
}

/// The directories at the beginning of a pattern that have no wildcard: only there is looked.
fn plain_start(pattern: &str) -> PathBuf {
    let mut start = PathBuf::new();
    for name in without_dots(pattern).split('/') {
        if name.is_empty() || name.contains(['*', '?', '[', ']', '{', '}', '\\']) || name == ".." {
            break;
        }
        start.push(name);
    }
    start
}

/// The pattern without `.` as a name, which stands for the directory that it is in.
fn without_dots(pattern: &str) -> String {
    let names: Vec<&str> = pattern.split('/').filter(|name| *name != ".").collect();
    names.join("/")
}

/// Why the matches of a glob cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// A file cannot be copied.
    #[error("failed to copy `{path}`")]
    Copy {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A file may not be read.
    #[error(
        "`{path}` may not be read: it belongs to user {uid} and group {gid}, with mode {mode:03o}"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its permission bits.
        mode: u32,
    },
    /// A file was changed meanwhile.
    #[error("`{path}` changed while it was copied")]
    Changed {
        /// The file.
        path: PathBuf,
    },
}

impl GatherError {
    /// What to do next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => {
                "make it readable for the user that runs Tidemill, or leave it out of the pattern"
            }
            Self::Changed { .. } => "run the job again when the files do not change",
            Self::Copy { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => "run the job again when the files do not change",
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "make room on the disk of the state directory"
                }
                _ => "look at the cause above",
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn found(base: &Path, pattern: &str) -> Vec<String> {
        let owners = Owners::Job { uid: 0, gid: 0 };
        let base = base.to_str().unwrap().to_owned();
        match Matches::find(base, pattern, owners, None) {
            Ok(matches) => (matches.files.iter())
                .map(|file| file.path.to_str().unwrap().to_owned())
                .collect(),
            Err(PlanError::NoMatch { .. }) => Vec::new(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn no_plain_beginning_leads_through_a_link() {
        let world = tempfile::tempdir().unwrap();
        let base = world.path().join("base");
        fs::create_dir_all(base.join("sub")).unwrap();
        fs::create_dir(world.path().join("other")).unwrap();
        fs::write(world.path().join("other/key"), "").unwrap();
        fs::write(base.join("sub/f"), "").unwrap();
        symlink("../other", base.join("out")).unwrap();
        for pattern in ["out/key", "out/./key", "out/./*", "out/*", "out/./**"] {
            assert_eq!(found(&base, pattern), [""; 0], "{pattern}");
        }
        assert_eq!(found(&base, "out"), ["out"]);
        for pattern in ["sub/f", "./sub/./f", "sub/./*", "././sub/*"] {
            assert_eq!(found(&base, pattern), ["sub/f"], "{pattern}");
        }
    }
}
