//! Archives that images are imported from: image layouts and what `docker save` writes.

use std::cell::RefCell;
use std::fs;

use tempfile::TempDir;
use tidemill_oci::{Content, ImportOptions, Names, Platform, import};

/// The store is made anew before what it keeps is much.
const USES_MAX: u32 = 256;

/// A store, and a file beside it for the archive.
struct World {
    base: TempDir,
    content: Content,
    uses: u32,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().expect("there is a directory for temporary files");
        let content = Content::open(base.path().join("images")).expect("it is empty and ours");
        Self {
            base,
            content,
            uses: 0,
        }
    }

    fn try_archive(&mut self, bytes: &[u8]) {
        self.uses += 1;
        let source = self.base.path().join("archive");
        fs::write(&source, bytes).expect("there is room");
        let names = Names::new(&self.content);
        let listed = || names.list().expect("names can be listed");
        let blobs = || self.content.list().expect("blobs can be listed");
        let before = (listed(), blobs());
        let options = ImportOptions {
            name: None,
            platform: Platform::new("linux", "amd64", None),
        };
        match import(&self.content, &source, &options) {
            Ok(imported) => {
                for one in &imported {
                    let missing = one.image.missing(&self.content);
                    assert!(missing.is_ok_and(|missing| missing.is_empty()));
                }
                for blob in blobs() {
                    let size = self.content.verify(&blob.digest);
                    assert!(size.is_ok_and(|size| size == blob.size));
                }
            }
            Err(_) => assert_eq!(before, (listed(), blobs()), "the store is as before"),
        }
        let partial = fs::read_dir(self.content.base().join("partial"));
        assert_eq!(partial.expect("it can be listed").count(), 0);
        let beside = fs::read_dir(self.base.path()).expect("it can be listed");
        assert_eq!(beside.count(), 2, "nothing is beside the store");
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Nothing outside of the store is touched; what is imported is whole, and what is refused leaves no trace.
pub fn oci_archive(bytes: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        if world.as_ref().is_some_and(|world| world.uses >= USES_MAX) {
            *world = None;
        }
        world.get_or_insert_with(World::new).try_archive(bytes);
    });
}
