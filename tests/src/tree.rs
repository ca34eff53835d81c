//! A directory as a list that two moments can be compared by.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One entry of a tree, with everything that a program could have changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The path below the tree's root.
    pub path: PathBuf,
    /// Kind and permission bits.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// When the content was changed last: seconds and nanoseconds.
    pub modified: (i64, i64),
    /// When anything of it was changed last: seconds and nanoseconds.
    pub changed: (i64, i64),
    /// The content of a file, the target of a link.
    pub content: Vec<u8>,
}

/// All entries below a directory, and the directory itself, sorted by path.
pub fn tree(root: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let content = if metadata.is_dir() {
            let listed = fs::read_dir(&path).expect("the directory can be read");
            waiting.extend(listed.map(|entry| entry.expect("it can be listed").path()));
            Vec::new()
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).expect("a link has a target");
            target.into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).expect("the file can be read")
        };
        let relative = path.strip_prefix(root).expect("it lies below the root");
        entries.push(Entry {
            path: relative.to_path_buf(),
            mode: metadata.mode(),
            owner: (metadata.uid(), metadata.gid()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            content,
        });
    }
    entries.sort();
    entries
}
