//! A whole tree as text, for comparing: names, kinds, modes, owners, times, which names are one file,
//! extended attributes and content.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use tidemill_core::Digest;

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) owners: bool,
}

/// One name of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) mode: u32,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) is_dir: bool,
    /// Seconds and nanoseconds.
    pub(super) time: (i64, i64),
    /// Kind and content.
    pub(super) what: String,
    /// The first name of the same file.
    pub(super) same_as: Option<PathBuf>,
    pub(super) xattrs: Vec<String>,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04o} {:?} {:?} {}",
            self.mode, self.owner, self.time, self.what
        )
    }
}

/// All names of a tree.
pub(super) fn portrait(root: &Path, look: Look) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut firsts: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let name = path.strip_prefix(root).unwrap().to_owned();
        let kind = metadata.file_type();
        let what = if kind.is_dir() {
            let mut entries: Vec<_> = fs::read_dir(&path)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            // The first name of a file is the first in order.
            entries.sort_by(|a, b| b.cmp(a));
            todo.extend(entries);
            "directory".to_owned()
        } else if kind.is_symlink() {
            format!("link to {:?}", fs::read_link(&path).unwrap().as_os_str())
        } else if kind.is_fifo() {
            "pipe".to_owned()
        } else {
            let content = Digest::of(&fs::read(&path).unwrap());
            format!("file of {} bytes {content}", metadata.len())
        };
        let first = firsts.entry(metadata.ino()).or_insert_with(|| name.clone());
        let is_first = kind.is_dir() || *first == name;
        let one = Seen {
            mode: metadata.mode() & 0o7777,
            owner: look.owners.then(|| (metadata.uid(), metadata.gid())),
            is_dir: kind.is_dir(),
            time: (metadata.mtime(), metadata.mtime_nsec()),
            what,
            same_as: (!is_first).then(|| first.clone()),
            xattrs: xattrs(&path),
        };
        seen.insert(name, one);
    }
    seen
}

fn xattrs(path: &Path) -> Vec<String> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names).unwrap();
    let mut shown: Vec<String> = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 64 << 10];
            let name = OsStr::from_bytes(name);
            let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
            format!("{}={:?}", name.display(), &value[..length])
        })
        .collect();
    shown.sort();
    shown
}
