use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, XattrFlags, lsetxattr, mknodat};
use tempfile::TempDir;
use tidemill_core::root::{Node, Owners, RootMount};
use tidemill_core::{ReasonCode, grant::PathAccess};

use super::*;

/// Directories of a host, and a root of some of them.
struct World {
    base: TempDir,
    stack: Stack,
}

impl World {
    fn new() -> Self {
        Self {
            base: tempfile::tempdir().unwrap(),
            stack: Stack::new(true),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.base.path().join(path)
    }

    /// A file, with the directories above it.
    fn file(&self, path: &str) -> PathBuf {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    fn whiteout(&self, path: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Everybody may make this one device.
        mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR, 0).unwrap();
    }

    fn mark(&self, path: &str, name: &str) {
        let path = self.path(path);
        lsetxattr(&path, name, b"y", XattrFlags::empty()).unwrap();
    }

    fn source(&self, path: &str) -> Source {
        let path = self.path(path).to_str().unwrap().to_owned();
        Source {
            known_as: path.clone(),
            path,
            owners: Owners::AsIs,
            why: "a test".to_owned(),
        }
    }

    /// What is said of a layer: the path in it, and what is wrong.
    fn fault(&self, layer: &str, dest: &str) -> Option<(String, String)> {
        match refuse(&self.stack, &self.source(layer), dest) {
            Ok(()) => None,
            Err(PlanError::Layer(fault @ LayerFault::Mark { .. })) => {
                assert_eq!(fault.code(), ReasonCode::Layer);
                let LayerFault::Mark { path, mark } = fault else {
                    unreachable!("it was looked at");
                };
                let top = self.path(layer);
                let inside = Path::new(&path).strip_prefix(top).unwrap();
                Some((inside.to_string_lossy().into_owned(), mark))
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn marks_are_found_where_directories_are_merged() {
    let mut world = World::new();
    world.file("image/etc/sub/a");
    world.stack.add_image_tree(&world.source("image"));
    for (name, attribute) in [
        ("opaque", OBEYED[0]),
        ("whiteout", OBEYED[1]),
        ("redirect", OBEYED[2]),
        ("metacopy", OBEYED[3]),
    ] {
        let file = format!("{name}/etc/sub/a");
        world.file(&file);
        let marked = match name {
            "opaque" | "redirect" => "etc/sub",
            _ => "etc/sub/a",
        };
        world.mark(&format!("{name}/{marked}"), attribute);
        let expected = (marked.to_owned(), format!("has the attribute {attribute}"));
        assert_eq!(world.fault(name, "/"), Some(expected), "{name}");
        // The same a level deeper, and at a place of its own.
        let sub = format!("{name}/etc");
        assert!(world.fault(&sub, "/etc").is_some(), "{name}");
        assert_eq!(world.fault(name, "/own/place"), None, "{name}");
    }
    world.whiteout("device/etc/sub/a");
    let expected = (
        "etc/sub/a".to_owned(),
        "is a character device 0:0".to_owned(),
    );
    assert_eq!(world.fault("device", "/"), Some(expected));
}

#[test]
fn what_overlayfs_does_not_obey_is_no_mark() {
    let mut world = World::new();
    world.file("image/etc/a");
    world.stack.add_image_tree(&world.source("image"));
    world.file("layer/etc/a");
    world.mark("layer/etc/a", "user.overlay.origin");
    world.mark("layer/etc", "user.comment");
    // Nothing is below these, so that they hide nothing.
    world.whiteout("layer/other/gone");
    world.file("layer/other/sub/file");
    world.mark("layer/other/sub", "user.overlay.opaque");
    assert_eq!(world.fault("layer", "/"), None);
    // Until something is.
    world.file("second/other/gone");
    let second = world.source("second");
    world.stack.trees.insert(0, tree_of(&second));
    assert_eq!(world.fault("layer", "/").unwrap().0, "other/gone");
}

fn tree_of(source: &Source) -> Tree {
    Tree {
        path: source.path.clone(),
        owners: source.owners,
    }
}

#[test]
fn among_many_files_those_that_cover_something_are_looked_at() {
    let mut world = World::new();
    world.file("image/etc/covered");
    world.file("host");
    world.stack.add_image_tree(&world.source("image"));
    world.stack.add_mount(RootMount {
        source: world.source("host").path,
        dest: "/etc/mounted".to_owned(),
        over: Vec::new(),
        access: PathAccess::ReadOnly,
        owners: Owners::AsIs,
        hidden: Vec::new(),
        why: "a test".to_owned(),
    });
    for number in 0..NAMES_FROM {
        world.file(&format!("layer/etc/{number}"));
    }
    world.mark("layer/etc/1", OBEYED[1]);
    assert_eq!(world.fault("layer", "/"), None, "nothing is below it");
    for name in ["covered", "mounted"] {
        let file = world.file(&format!("layer/etc/{name}"));
        assert_eq!(world.fault("layer", "/"), None);
        world.mark(&format!("layer/etc/{name}"), OBEYED[1]);
        assert_eq!(world.fault("layer", "/").unwrap().0, format!("etc/{name}"));
        fs::remove_file(file).unwrap();
    }
    world.whiteout("layer/etc/device");
    assert_eq!(world.fault("layer", "/").unwrap().0, "etc/device");
}

#[test]
fn mounts_and_links_of_the_root_are_merged_with_too() {
    let mut world = World::new();
    world.file("host/bin/sh");
    let host = world.source("host");
    world.stack.add_node(Node::Symlink {
        path: "/bin".to_owned(),
        target: "usr/bin".to_owned(),
    });
    world.stack.add_mount(RootMount {
        source: host.path.clone(),
        dest: "/usr".to_owned(),
        over: Vec::new(),
        access: PathAccess::ReadOnly,
        owners: Owners::AsIs,
        hidden: Vec::new(),
        why: "a test".to_owned(),
    });
    world.whiteout("layer/usr/bin/sh");
    assert_eq!(world.fault("layer", "/").unwrap().0, "usr/bin/sh");
    world.whiteout("linked/bin/sh");
    assert_eq!(world.fault("linked", "/").unwrap().0, "bin/sh");
    // A link of the layer itself is nothing to be looked behind.
    symlink(
        world.path("linked/bin"),
        world.file("plain/x").with_file_name("bin"),
    )
    .unwrap();
    assert_eq!(world.fault("plain", "/"), None);
}

#[test]
fn a_name_that_is_no_text_hides_no_mark() {
    let mut world = World::new();
    let odd = OsStr::from_bytes(b"odd\xff");
    for top in ["image", "layer"] {
        fs::create_dir_all(world.path(top).join(odd).join("sub")).unwrap();
    }
    world.stack.add_image_tree(&world.source("image"));
    assert_eq!(world.fault("layer", "/"), None);
    let sub = world.path("layer").join(odd).join("sub");
    lsetxattr(&sub, OBEYED[0], b"y", XattrFlags::empty()).unwrap();
    assert!(world.fault("layer", "/").unwrap().0.ends_with("/sub"));
}
