//! Tar archives: plain, gzip, zstd, with extended headers and sparse files.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use tempfile::TempDir;
use tidemill_image::{TreeStore, UnpackLimits, fuzzing};

/// Small bounds, so that they are reached soon.
const LIMITS: UnpackLimits = UnpackLimits {
    bytes: 1 << 20,
    entries: 64,
    ratio: 20,
    ratio_from: 64 << 10,
    header_bytes: 64 << 10,
    name_bytes: 64 << 10,
};
/// The store remembers each archive; it is made anew before that is much.
const USES_MAX: u32 = 256;
const CANARY: &str = "untouched";

/// A directory with the archive, the tree, and a file that no archive may reach.
struct World {
    base: TempDir,
    trees: TreeStore,
    uses: u32,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().expect("there is a directory for temporary files");
        let trees = TreeStore::open(base.path().join("trees")).expect("it is empty and ours");
        fs::write(base.path().join("canary"), CANARY).expect("it is ours");
        Self {
            base,
            trees,
            uses: 0,
        }
    }

    fn try_archive(&mut self, bytes: &[u8]) {
        self.uses += 1;
        let root = self.base.path().join("root");
        let archive = self.base.path().join("archive");
        fs::write(&archive, bytes).expect("there is room");
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&root)
            .expect("the last tree was removed");
        let name = archive.to_str().expect("temporary files have plain names");
        let note = fuzzing::unpack_archive(name, &root, &self.trees, &LIMITS);
        if let Ok(note) = &note {
            assert!(note.entries <= LIMITS.entries && note.bytes <= LIMITS.bytes);
        }
        assert_bounded(&root);
        fuzzing::remove_tree(&root).expect("any tree can be removed");
        self.assert_contained();
    }

    fn assert_contained(&self) {
        let entries = fs::read_dir(self.base.path()).expect("it is still there");
        let names: BTreeSet<_> = entries
            .map(|entry| entry.expect("it is still there").file_name())
            .collect();
        let wanted = ["archive", "canary", "trees"].map(Into::into);
        assert_eq!(names, BTreeSet::from(wanted));
        let canary = self.base.path().join("canary");
        assert_eq!(fs::read(&canary).ok().as_deref(), Some(CANARY.as_bytes()));
        let metadata = fs::symlink_metadata(&canary).expect("it was just read");
        assert_eq!(metadata.nlink(), 1);
    }
}

/// However an archive ends, what it has made is within the bounds.
fn assert_bounded(root: &Path) {
    let (mut entries, mut bytes) = (0, 0);
    let mut seen = BTreeSet::new();
    let mut todo = vec![root.to_owned()];
    while let Some(directory) = todo.pop() {
        // Without root, an archive can close a directory to its owner.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            entries += 1;
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_dir() {
                todo.push(entry.path());
            } else if metadata.is_file() && seen.insert(metadata.ino()) {
                bytes += metadata.len();
            }
        }
    }
    assert!(entries <= LIMITS.entries, "{entries} entries");
    assert!(bytes <= LIMITS.bytes, "{bytes} bytes");
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// The same archive with right checksums in its headers, without which a changed one is not read.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 512;
    const SIZE: Range<usize> = 124..136;
    const CHECKSUM: Range<usize> = 148..156;
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + BLOCK) {
        at += BLOCK;
        if header.iter().all(|byte| *byte == 0) {
            continue;
        }
        header[CHECKSUM].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = header[SIZE].iter().filter(|byte| byte.is_ascii_digit());
        let size = digits.fold(0_usize, |size, digit| {
            size.saturating_mul(8)
                .saturating_add(usize::from(digit - b'0'))
        });
        at = at.saturating_add(size.saturating_add(BLOCK - 1) / BLOCK * BLOCK);
        if at > bytes.len() {
            break;
        }
    }
    bytes
}

/// An archive is unpacked within its bounds or refused, touches nothing outside of its tree, and what it
/// has made can be removed.
pub fn archive(bytes: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        if world.as_ref().is_none_or(|world| world.uses >= USES_MAX) {
            *world = Some(World::new());
        }
        if let Some(world) = world {
            world.try_archive(bytes);
            world.try_archive(&with_checksums(bytes));
        }
    });
}
