//! Programs and libraries, as far as their libraries are looked for.

use std::cell::OnceCell;
use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tidemill_image::fuzzing;

thread_local! {
    static WORLD: OnceCell<(TempDir, PathBuf)> = const { OnceCell::new() };
}

/// What a file needs is what it says: names that stand in it, and the same each time.
pub fn elf(bytes: &[u8]) {
    WORLD.with(|world| {
        let (_, file) = world.get_or_init(|| {
            let base = tempfile::tempdir().expect("there is a directory for temporary files");
            let real = fs::canonicalize(base.path()).expect("it was just made");
            (base, real.join("file"))
        });
        fs::write(file, bytes).expect("there is room");
        let needed = fuzzing::needed(file);
        assert_eq!(needed, fuzzing::needed(file));
        for name in needed.into_iter().flatten() {
            let is_there = name.is_empty()
                || bytes
                    .windows(name.len())
                    .any(|part| part == name.as_bytes());
            assert!(is_there, "{name:?} does not stand in the file");
        }
    });
}
