use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
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
    assert_eq!(note.lacks, ["1 sockets, FIFOs and devices were left out"]);
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
