use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use rustix::fs::{CWD, XattrFlags, lgetxattr, lsetxattr, mknodat};
use tempfile::TempDir;
use tidemill_core::Modes;

use super::*;
use crate::layer::LayerError;
use crate::tree_store::TreeStore;

struct World {
    _base: TempDir,
    at: PathBuf,
    trees: TreeStore,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let at = fs::canonicalize(base.path()).unwrap();
        Self {
            trees: TreeStore::open(at.join("trees")).unwrap(),
            _base: base,
            at,
        }
    }

    fn make_dir(&self, name: &str) -> PathBuf {
        let dir = self.at.join(name);
        fs::create_dir(&dir).unwrap();
        dir
    }

    fn build(&self, copies: &Copies) -> Result<(PathBuf, Digest), LayerError> {
        let owners = self.trees.owners();
        let name = copies.tree_name(owners);
        let root = self.trees.get_or_build_with(&name, |building| {
            Ok::<_, LayerError>(copies.build(building, owners)?)
        })?;
        Ok((root, self.trees.tree_digest(&name).unwrap()))
    }

    fn copy(&self, dir: &Path, attributes: Attributes) -> (PathBuf, Digest) {
        self.build(&Copies::of_dir(dir, attributes, None).unwrap())
            .unwrap()
    }
}

/// What is in a directory, sorted: path, kind and mode, time, content or target.
fn listing(dir: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let inside = if metadata.is_dir() {
            todo.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            String::new()
        } else if metadata.is_symlink() {
            fs::read_link(&path).unwrap().display().to_string()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        lines.push(format!(
            "{} {:o} {}.{} {inside}",
            path.strip_prefix(dir).unwrap().display(),
            metadata.mode(),
            metadata.mtime(),
            metadata.mtime_nsec(),
        ));
    }
    lines.sort();
    lines
}

fn set_time(path: &Path, seconds: u64) {
    let time = UNIX_EPOCH + Duration::new(seconds, 123);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

#[derive(Debug, Clone)]
enum Made {
    Dir(u32),
    File(u32, String),
    Link(String),
}

fn any_made() -> impl Strategy<Value = Vec<(String, Made)>> {
    let name = prop::collection::vec(prop::sample::select(vec!["a", "b", "ü", ".c"]), 1..4);
    let made = prop_oneof![
        prop::sample::select(vec![0o755, 0o700, 0o1777]).prop_map(Made::Dir),
        (
            prop::sample::select(vec![0o644, 0o600, 0o755]),
            "[a-z]{0,40}"
        )
            .prop_map(|(mode, text)| Made::File(mode, text)),
        "[a-z/.]{1,10}".prop_map(Made::Link),
    ];
    let entry = (name.prop_map(|names| names.join("/")), made);
    prop::collection::vec(entry, 0..12)
}

/// Makes them, those whose place is taken not.
fn make(dir: &Path, all: &[(String, Made)], time: u64) {
    for (name, made) in all {
        let path = dir.join(name);
        let above_is_dir = path.parent().is_some_and(Path::is_dir);
        if !above_is_dir || fs::symlink_metadata(&path).is_ok() {
            continue;
        }
        let mode = match made {
            Made::Dir(mode) => {
                fs::create_dir(&path).unwrap();
                mode
            }
            Made::File(mode, text) => {
                fs::write(&path, text).unwrap();
                mode
            }
            Made::Link(target) => {
                symlink(target, &path).unwrap();
                continue;
            }
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode)).unwrap();
        set_time(&path, time);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_copy_is_like_its_source(all in any_made()) {
        let world = World::new();
        let dir = world.make_dir("dir");
        make(&dir, &all, 1_000_000_000);
        let (copy, _) = world.copy(&dir, Attributes::default());
        prop_assert_eq!(listing(&copy), listing(&dir));
    }

    #[test]
    fn canonical_copies_of_equal_content_are_one_tree(all in any_made(), mask in 0_u32..0o100) {
        let world = World::new();
        let (one, other) = (world.make_dir("one"), world.make_dir("other"));
        make(&one, &all, 1_000_000_000);
        let closed: Vec<_> = all
            .iter()
            .map(|(name, made)| {
                let made = match made {
                    Made::Dir(mode) => Made::Dir(mode & !mask),
                    Made::File(mode, text) => Made::File(mode & !mask, text.clone()),
                    Made::Link(target) => Made::Link(target.clone()),
                };
                (name.clone(), made)
            })
            .collect();
        make(&other, &closed, 5);
        let (root, digest) = world.copy(&one, Attributes::CANONICAL);
        prop_assert_eq!(world.copy(&other, Attributes::CANONICAL).1, digest);
        for line in listing(&root) {
            let is_known = ["40755", "100755", "100644", "120777"]
                .iter()
                .any(|mode| line.contains(&format!(" {mode} 1.0 ")));
            prop_assert!(is_known, "{}", line);
        }
    }
}

#[test]
fn what_is_not_asked_for_stays() {
    let world = World::new();
    let dir = world.make_dir("dir");
    fs::write(dir.join("file"), "x").unwrap();
    fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    set_time(&dir.join("file"), 77);
    let attributes = Attributes {
        mode: Some(Modes::Exact(0o604)),
        ..Attributes::default()
    };
    let (root, _) = world.copy(&dir, attributes);
    assert_eq!(listing(&root)[1], "file 100604 77.123 x");
    let attributes = Attributes {
        mtime: Some(9),
        ..Attributes::default()
    };
    let (root, _) = world.copy(&dir, attributes);
    assert_eq!(listing(&root)[1], "file 100640 9.0 x");
}

#[test]
fn what_changes_while_it_is_copied_makes_no_tree() {
    let world = World::new();
    let dir = world.make_dir("dir");
    fs::write(dir.join("file"), "one").unwrap();
    let copies = Copies::of_dir(&dir, Attributes::default(), None).unwrap();
    fs::write(dir.join("file"), "other").unwrap();
    let error = world.build(&copies).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
    fs::remove_file(dir.join("file")).unwrap();
    fs::write(dir.join("file"), "one").unwrap();
    let error = world.build(&copies).unwrap_err();
    assert!(
        matches!(error, LayerError::Gather(GatherError::Changed { .. })),
        "{error}"
    );
    assert!(!error.hint().is_empty());
    // Another name is no other content; the store gives its files names at any time.
    let copies = Copies::of_dir(&dir, Attributes::default(), None).unwrap();
    fs::hard_link(dir.join("file"), dir.with_file_name("elsewhere")).unwrap();
    world.build(&copies).unwrap();
}

#[test]
fn what_is_no_file_is_left_out_and_counted() {
    let world = World::new();
    let dir = world.make_dir("dir");
    let _socket = UnixListener::bind(dir.join("socket")).unwrap();
    fs::write(dir.join("file"), "x").unwrap();
    let copies = Copies::of_dir(&dir, Attributes::default(), None).unwrap();
    let (root, _) = world.build(&copies).unwrap();
    assert!(root.join("file").exists() && !root.join("socket").exists());
    let note = world
        .trees
        .note(&copies.tree_name(world.trees.owners()))
        .unwrap();
    assert_eq!(note.lacks, ["1 sockets and devices were left out"]);
}

#[test]
fn the_state_directory_is_never_copied() {
    let world = World::new();
    let dir = world.make_dir("dir");
    fs::create_dir(dir.join("state")).unwrap();
    fs::write(dir.join("state/secret"), "x").unwrap();
    let state = dir.join("state");
    let copies = Copies::of_dir(&dir, Attributes::default(), Some(&state)).unwrap();
    let (root, _) = world.build(&copies).unwrap();
    assert!(!root.join("state").exists());
}

#[test]
fn privileges_can_be_taken_off() {
    let world = World::new();
    let dir = world.make_dir("dir");
    fs::write(dir.join("file"), "x").unwrap();
    fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o6755)).unwrap();
    let mut copies = Copies::of_dir(&dir, Attributes::default(), None).unwrap();
    copies.forget_privileges();
    let (root, _) = world.build(&copies).unwrap();
    let mode = fs::metadata(root.join("file")).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

fn mark(path: &Path, name: &str) {
    lsetxattr(path, name, b"x", XattrFlags::empty()).unwrap();
}

fn is_marked(path: &Path, name: &str) -> bool {
    lgetxattr(path, name, &mut [0_u8; 8][..]).is_ok()
}

fn lacks(world: &World, copies: &Copies) -> Vec<String> {
    let name = copies.tree_name(world.trees.owners());
    world.trees.note(&name).unwrap().lacks
}

#[test]
fn extended_attributes_stay_unless_all_else_is_given() {
    let world = World::new();
    let dir = world.make_dir("dir");
    fs::create_dir(dir.join("sub")).unwrap();
    fs::write(dir.join("sub/file"), "x").unwrap();
    let plain = world.copy(&dir, Attributes::CANONICAL).1;
    for path in [&dir, &dir.join("sub"), &dir.join("sub/file")] {
        mark(path, "user.note");
    }
    mark(&dir.join("sub"), "user.overlay.opaque");
    let attributes = Attributes {
        mtime: Some(1),
        ..Attributes::default()
    };
    let copies = Copies::of_dir(&dir, attributes, None).unwrap();
    let (root, digest) = world.build(&copies).unwrap();
    for path in [&root, &root.join("sub"), &root.join("sub/file")] {
        assert!(is_marked(path, "user.note"), "{path:?}");
    }
    assert!(!is_marked(&root.join("sub"), "user.overlay.opaque"));
    let said = "1 extended attributes of overlayfs were left out: they would be interpreted";
    assert_eq!(lacks(&world, &copies), [said]);
    // Another attribute is another tree, and none where everything is given.
    lsetxattr(&dir, "user.note", b"y", XattrFlags::empty()).unwrap();
    assert_ne!(world.copy(&dir, attributes).1, digest);
    let copies = Copies::of_dir(&dir, Attributes::CANONICAL, None).unwrap();
    assert_eq!(world.build(&copies).unwrap().1, plain);
    assert_eq!(lacks(&world, &copies), [""; 0]);
}

#[test]
fn pipes_are_copied_and_what_links_and_pipes_have_stays_where_the_kernel_takes_it() {
    let world = World::new();
    let dir = world.make_dir("dir");
    mknodat(
        CWD,
        dir.join("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    symlink("pipe", dir.join("link")).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let trusted = "trusted.note";
    if is_root {
        mark(&dir.join("pipe"), trusted);
        mark(&dir.join("link"), trusted);
    }
    let attributes = Attributes {
        mtime: Some(1),
        ..Attributes::default()
    };
    let copies = Copies::of_dir(&dir, attributes, None).unwrap();
    let (root, _) = world.build(&copies).unwrap();
    let pipe = fs::symlink_metadata(root.join("pipe")).unwrap();
    assert!(pipe.file_type().is_fifo());
    assert_eq!((pipe.mode() & 0o7777, pipe.mtime()), (0o640, 1));
    for name in ["pipe", "link"] {
        assert_eq!(is_marked(&root.join(name), trusted), is_root, "{name}");
    }
    assert_eq!(lacks(&world, &copies), [""; 0]);
    // Whoever may not set them says how many are missing.
    if is_root {
        let trees = TreeStore::open(world.at.join("others")).unwrap();
        let trees = trees.with_owners(ArchiveOwners::Lost);
        let name = copies.tree_name(ArchiveOwners::Lost);
        let build =
            |building: &Building| Ok::<_, LayerError>(copies.build(building, ArchiveOwners::Lost)?);
        trees.get_or_build_with(&name, build).unwrap();
        let note = trees.note(&name).unwrap();
        assert_eq!(note.lacks, ["2 extended attributes could not be kept"]);
    }
}

#[test]
fn rights_of_programs_go_with_other_privileges() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = World::new();
    let dir = world.make_dir("dir");
    fs::write(dir.join("file"), "x").unwrap();
    // Version 2, effective, CAP_NET_RAW.
    let mut rights = [0_u8; 20];
    rights[..8].copy_from_slice(&[1, 0, 0, 2, 0, 0x20, 0, 0]);
    let name = "security.capability";
    lsetxattr(dir.join("file"), name, &rights, XattrFlags::empty()).unwrap();
    let has = |root: &Path| lgetxattr(root.join("file"), name, &mut [0_u8; 32][..]).is_ok();
    let mut copies = Copies::of_dir(&dir, Attributes::default(), None).unwrap();
    copies.forget_privileges();
    let (root, _) = world.build(&copies).unwrap();
    assert!(!has(&root));
    let attributes = Attributes {
        mtime: Some(1),
        ..Attributes::default()
    };
    assert!(has(&world.copy(&dir, attributes).0));
}

#[test]
fn a_spent_file_is_gone_when_its_copy_is_there() {
    let world = World::new();
    let dir = world.make_dir("dir");
    fs::create_dir(dir.join("sub")).unwrap();
    for name in ["a", "sub/b", "two"] {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::hard_link(dir.join("two"), dir.join("names")).unwrap();
    symlink("a", dir.join("link")).unwrap();
    let mut copies = Copies::of_dir(&dir, Attributes::default(), None).unwrap();
    copies.spend();
    let (root, _) = world.build(&copies).unwrap();
    for (name, content, is_left) in [
        ("a", "a", false),
        ("sub/b", "sub/b", false),
        ("two", "two", true),
        ("names", "two", true),
    ] {
        assert_eq!(fs::read_to_string(root.join(name)).unwrap(), content);
        assert_eq!(dir.join(name).exists(), is_left, "{name}");
    }
    assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("a"));
}
