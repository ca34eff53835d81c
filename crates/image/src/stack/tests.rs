#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// What a path shows, for comparing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shown {
    Dir,
    File(String),
    Link(String),
}

type Shows = BTreeMap<String, Shown>;

/// Lays one directory of the host over what is shown at `at`, as overlayfs does.
fn lay(shows: &mut Shows, at: &str, host: &Path) {
    let metadata = fs::symlink_metadata(host).unwrap();
    if metadata.is_dir() {
        if !matches!(shows.get(at), Some(Shown::Dir)) {
            clear(shows, at);
            shows.insert(at.to_owned(), Shown::Dir);
        }
        for entry in fs::read_dir(host).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            lay(
                shows,
                &format!("{}/{name}", at.trim_end_matches('/')),
                &host.join(name.clone()),
            );
        }
    } else {
        clear(shows, at);
        let shown = if metadata.is_symlink() {
            Shown::Link(fs::read_link(host).unwrap().to_str().unwrap().to_owned())
        } else {
            Shown::File(fs::read_to_string(host).unwrap())
        };
        shows.insert(at.to_owned(), shown);
    }
}

fn clear(shows: &mut Shows, at: &str) {
    shows.retain(|path, _| path != at && below(path, at).is_none());
}

/// Makes the directories above a path, as the sandbox does for mounts.
fn make_way_to(shows: &mut Shows, at: &str, may_make: bool) {
    let mut path = String::new();
    let list: Vec<&str> = names(at).collect();
    for name in &list[..list.len().saturating_sub(1)] {
        path = format!("{path}/{name}");
        match shows.get(&path) {
            Some(Shown::Dir) => {}
            None if may_make => {
                shows.insert(path.clone(), Shown::Dir);
            }
            other => panic!("no way to {at}: {path} is {other:?}"),
        }
    }
}

/// Builds a root in memory the way the sandbox builds it, and checks that every mount has a place.
fn build(stack: &Stack) -> Shows {
    let mut shows = Shows::from([("/".to_owned(), Shown::Dir)]);
    for tree in &stack.trees {
        lay(&mut shows, "/", Path::new(&tree.path));
    }
    for node in &stack.nodes {
        make_way_to(&mut shows, node_path(node), true);
        match node {
            Node::Dir { path, .. } => {
                shows.insert(path.clone(), Shown::Dir);
            }
            Node::Symlink { path, target } => {
                clear(&mut shows, path);
                shows.insert(path.clone(), Shown::Link(target.clone()));
            }
        }
    }
    let mut mounted: Vec<&RootMount> = Vec::new();
    for mount in &stack.mounts {
        let may_make = !mounted
            .iter()
            .any(|other| below(&mount.dest, &other.dest).is_some());
        make_way_to(&mut shows, &mount.dest, may_make);
        let is_dir = Path::new(&mount.source).is_dir();
        match shows.get(&mount.dest) {
            None => assert!(may_make, "{} has no place to stand on", mount.dest),
            Some(Shown::Dir) => {
                assert!(is_dir, "a file is mounted on the directory {}", mount.dest)
            }
            Some(_) => assert!(!is_dir, "a directory is mounted on the file {}", mount.dest),
        }
        clear(&mut shows, &mount.dest);
        for tree in layers_of(mount) {
            lay(&mut shows, &mount.dest, Path::new(&tree.path));
        }
        for hidden in &mount.hidden {
            clear(&mut shows, &format!("{}/{hidden}", mount.dest));
        }
        mounted.push(mount);
    }
    shows
}

struct World {
    base: TempDir,
    trees: TreeStore,
}

const JOB: Owners = Owners::Job { uid: 7, gid: 7 };

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let trees = TreeStore::open(base.path().join("trees")).unwrap();
        Self { base, trees }
    }

    /// A directory with these files: `path=content`, `path->target`, or `path/`.
    fn dir(&self, name: &str, files: &[&str]) -> String {
        let root = self.base.path().join(name);
        fs::create_dir_all(&root).unwrap();
        for file in files {
            if let Some((path, target)) = file.split_once("->") {
                fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                symlink(target, root.join(path)).unwrap();
            } else if let Some((path, content)) = file.split_once('=') {
                fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
                fs::write(root.join(path), content).unwrap();
            } else {
                fs::create_dir_all(root.join(file)).unwrap();
            }
        }
        root.to_str().unwrap().to_owned()
    }

    fn source(&self, name: &str, files: &[&str]) -> Source {
        let path = self.dir(name, files);
        Source {
            known_as: path.clone(),
            path,
            owners: JOB,
            why: "a layer".to_owned(),
        }
    }

    fn file(&self, name: &str, content: &str) -> Source {
        let path = self.base.path().join(name);
        fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap().to_owned();
        Source {
            known_as: path.clone(),
            path,
            owners: JOB,
            why: "a layer".to_owned(),
        }
    }

    fn mount(&self, dest: &str, access: PathAccess, owners: Owners, files: &[&str]) -> RootMount {
        RootMount {
            source: self.dir(&format!("mount-{}", dest.replace('/', "-")), files),
            dest: dest.to_owned(),
            over: Vec::new(),
            access,
            owners,
            hidden: Vec::new(),
            why: "the image".to_owned(),
        }
    }
}

fn content(shows: &Shows, path: &str) -> Option<String> {
    match shows.get(path) {
        Some(Shown::File(content)) => Some(content.clone()),
        _ => None,
    }
}

/// A root as the `host` image has it, small.
fn host_like(world: &World) -> Stack {
    let mut stack = Stack::new(false);
    stack.add_node(Node::Symlink {
        path: "/bin".into(),
        target: "usr/bin".into(),
    });
    let mut etc = world.mount(
        "/etc",
        PathAccess::CopyOnWrite,
        Owners::AsIs,
        &["passwd=p", "shadow=s"],
    );
    etc.hidden = vec!["shadow".to_owned()];
    stack.add_mount(etc);
    let usr = &["bin/sh=host", "lib/a=host", "share/doc/x=host"];
    stack.add_mount(world.mount("/usr", PathAccess::ReadOnly, Owners::AsIs, usr));
    stack
}

#[test]
fn a_lone_directory_is_mounted_as_it_is() {
    let world = World::new();
    let mut stack = host_like(&world);
    let source = world.source("data", &["x=1"]);
    stack.add_dir(&source, "/data", &world.trees).unwrap();
    let mount = stack.mounts.last().unwrap();
    assert_eq!(
        (mount.source.as_str(), mount.over.len()),
        (source.path.as_str(), 0)
    );
    assert_eq!(mount.access, PathAccess::ReadOnly);
    assert_eq!(content(&build(&stack), "/data/x").unwrap(), "1");
    assert!(stack.trees.is_empty());
}

#[test]
fn a_directory_merges_with_what_the_host_has_there() {
    let world = World::new();
    let mut stack = host_like(&world);
    stack
        .add_dir(
            &world.source("l", &["new=1", "a=2"]),
            "/usr/lib",
            &world.trees,
        )
        .unwrap();
    let shows = build(&stack);
    assert_eq!(content(&shows, "/usr/lib/new").unwrap(), "1");
    assert_eq!(content(&shows, "/usr/lib/a").unwrap(), "2");
    assert_eq!(content(&shows, "/usr/bin/sh").unwrap(), "host");
}

#[test]
fn a_new_directory_below_a_read_only_mount_gets_a_place() {
    let world = World::new();
    let mut stack = host_like(&world);
    stack
        .add_dir(
            &world.source("l", &["x=1"]),
            "/usr/local/deep/er",
            &world.trees,
        )
        .unwrap();
    let shows = build(&stack);
    assert_eq!(content(&shows, "/usr/local/deep/er/x").unwrap(), "1");
    assert_eq!(content(&shows, "/usr/lib/a").unwrap(), "host");
}

#[test]
fn files_go_over_files_into_directories_and_through_links() {
    let world = World::new();
    let mut stack = host_like(&world);
    let file = world.file("f", "mine");
    for dest in [
        "/usr/bin/sh",
        "/usr/bin/new",
        "/bin/linked",
        "/etc/passwd",
        "/etc/deep/conf",
        "/top/f",
    ] {
        stack.add_file(&file, dest, &world.trees).unwrap();
    }
    let shows = build(&stack);
    for path in [
        "/usr/bin/sh",
        "/usr/bin/new",
        "/usr/bin/linked",
        "/etc/passwd",
        "/etc/deep/conf",
        "/top/f",
    ] {
        assert_eq!(content(&shows, path).as_deref(), Some("mine"), "{path}");
    }
}

#[test]
fn a_whole_root_reaches_into_every_mount() {
    let world = World::new();
    let mut stack = host_like(&world);
    let files = ["usr/lib/b=2", "bin/tool=3", "etc/shadow=given", "srv/x=4"];
    stack
        .add_dir(&world.source("root", &files), "/", &world.trees)
        .unwrap();
    let shows = build(&stack);
    for (path, expected) in [
        ("/usr/lib/a", "host"),
        ("/usr/lib/b", "2"),
        ("/usr/bin/sh", "host"),
        ("/usr/bin/tool", "3"),
        ("/srv/x", "4"),
        // Hidden was the host's; this one was asked for.
        ("/etc/shadow", "given"),
    ] {
        assert_eq!(content(&shows, path).as_deref(), Some(expected), "{path}");
    }
    assert_eq!(shows["/bin"], Shown::Link("usr/bin".into()));
}

#[test]
fn secrets_stay_hidden_in_a_part_of_a_mount() {
    let world = World::new();
    let mut stack = Stack::new(false);
    let mut etc = world.mount(
        "/etc",
        PathAccess::CopyOnWrite,
        Owners::AsIs,
        &["ssl/private/k=secret", "ssl/c=1"],
    );
    etc.hidden = vec!["ssl/private".to_owned()];
    stack.add_mount(etc);
    stack
        .add_dir(&world.source("l", &["mine=2"]), "/etc/ssl", &world.trees)
        .unwrap();
    let shows = build(&stack);
    assert_eq!(content(&shows, "/etc/ssl/private/k"), None);
    assert_eq!(content(&shows, "/etc/ssl/mine").unwrap(), "2");
}

#[test]
fn destinations_that_cannot_be_are_refused_with_a_reason() {
    let world = World::new();
    let mut stack = host_like(&world);
    let dir = world.source("d", &["x=1"]);
    let file = world.file("f", "1");
    let trees = &world.trees;
    let error = stack.add_dir(&dir, "/usr/bin/sh", trees).unwrap_err();
    assert!(matches!(error, PlanError::DestIsFile { .. }), "{error}");
    let error = stack.add_file(&file, "/usr/bin", trees).unwrap_err();
    assert!(matches!(error, PlanError::DestIsDir { .. }), "{error}");
    let error = stack.add_file(&file, "/usr/bin/sh/x", trees).unwrap_err();
    assert!(matches!(error, PlanError::NotADirectory { .. }), "{error}");
    for dest in ["/proc", "/proc/1", "/dev/null", "/sys/x", "/tmp"] {
        let error = stack.add_dir(&dir, dest, trees).unwrap_err();
        assert!(
            matches!(error, PlanError::DestIsSandbox { .. }),
            "{dest}: {error}"
        );
    }
    stack.add_node(Node::Symlink {
        path: "/loop".into(),
        target: "/loop".into(),
    });
    let error = stack.add_dir(&dir, "/loop/x", trees).unwrap_err();
    assert!(matches!(error, PlanError::TooManyLinks { .. }), "{error}");
    let error = stack
        .add_dir(&world.source("e", &["etc=a file"]), "/", trees)
        .unwrap_err();
    assert!(matches!(error, PlanError::CoversMount { .. }), "{error}");
}

#[test]
fn nothing_is_laid_over_a_workspace_that_is_written_for_real() {
    let world = World::new();
    let trees = &world.trees;
    for dest in ["/ws", "/ws/sub", "/ws/new", "/"] {
        let mut stack = Stack::new(false);
        stack.add_mount(world.mount("/ws", PathAccess::Write, JOB, &["sub/x=1"]));
        let source = world.source(&format!("l{}", dest.len()), &["ws/y=1"]);
        let error = stack.add_dir(&source, dest, trees).unwrap_err();
        assert!(
            matches!(error, PlanError::LayerInWritableWorkspace { .. }),
            "{dest}: {error}"
        );
    }
    let mut stack = Stack::new(false);
    stack.add_mount(world.mount("/ws", PathAccess::Write, JOB, &["sub/x=1"]));
    for dest in ["/ws/sub/x", "/ws/new"] {
        let error = stack
            .add_file(&world.file("f", "1"), dest, trees)
            .unwrap_err();
        assert!(
            matches!(error, PlanError::LayerInWritableWorkspace { .. }),
            "{dest}: {error}"
        );
    }
}

#[test]
fn links_are_followed_as_the_job_would() {
    let world = World::new();
    let mut stack = Stack::new(true);
    let files = [
        "usr/lib/x=1",
        "lib->/usr/lib",
        "up->../../../usr",
        "chain->lib",
        "dangling->nowhere/at/all",
    ];
    stack.add_image_tree(&world.source("image", &files));
    for (path, expected) in [
        ("/lib/x", "/usr/lib/x"),
        ("/up/lib", "/usr/lib"),
        ("/chain/x", "/usr/lib/x"),
        ("/chain/../bin", "/usr/bin"),
        ("/dangling/f", "/nowhere/at/all/f"),
        ("/../..", "/"),
        ("//lib/./x", "/usr/lib/x"),
    ] {
        assert_eq!(stack.resolve(path).unwrap().path, expected, "{path}");
    }
}

#[test]
fn the_home_stays_writable_below_a_layer() {
    let world = World::new();
    let mut stack = host_like(&world);
    stack
        .add_dir(
            &world.source("homes", &["other/x=1"]),
            "/home",
            &world.trees,
        )
        .unwrap();
    stack.open_home("/home/me", &world.trees).unwrap();
    let mount = stack
        .mounts
        .iter()
        .find(|mount| mount.dest == "/home")
        .unwrap();
    assert_eq!(mount.access, PathAccess::CopyOnWrite);
    assert_eq!(build(&stack)["/home/me"], Shown::Dir);
}

/// A layer of the property test.
#[derive(Debug, Clone)]
enum Put {
    Dir(String, Vec<String>),
    File(String),
}

fn any_path(depth: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..=depth)
        .prop_map(|names| names.join("/"))
}

fn any_files() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any_path(3), 0..5)
}

fn any_put() -> impl Strategy<Value = Put> {
    let dest = prop_oneof![
        Just("/".to_owned()),
        any_path(3).prop_map(|path| format!("/{path}"))
    ];
    prop_oneof![
        3 => (dest, any_files()).prop_map(|(dest, files)| Put::Dir(dest, files)),
        1 => any_path(3).prop_map(|path| Put::File(format!("/{path}"))),
    ]
}

/// Paths of which none goes through another one's file.
fn without_clashes(paths: &[String], salt: &str) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for path in paths {
        let clash = kept.iter().any(|other| {
            other == path || below(path, other).is_some() || below(other, path).is_some()
        });
        if !clash {
            kept.push(path.clone());
        }
    }
    kept.into_iter()
        .map(|path| format!("{path}={salt}-{path}"))
        .collect()
}

/// True for an error that says that a file and a directory meet at a destination.
fn is_clash(error: &PlanError) -> bool {
    matches!(
        error,
        PlanError::DestIsFile { .. }
            | PlanError::DestIsDir { .. }
            | PlanError::NotADirectory { .. }
            | PlanError::CoversMount { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// However layers lie over each other, the root shows what laying them down one after the
    /// other in one directory would show.
    #[test]
    fn merging_is_laying_down_in_order(
        image in any_files(),
        mounts in prop::collection::vec((any_path(2), any_files(), any::<bool>()), 0..3),
        puts in prop::collection::vec(any_put(), 0..6),
        root_writable in any::<bool>(),
    ) {
        let world = World::new();
        let mut stack = Stack::new(root_writable);
        let mut expected = Shows::from([("/".to_owned(), Shown::Dir)]);
        let as_strs = |files: &[String]| files.to_vec();
        if root_writable {
            let files = without_clashes(&image, "image");
            let source = world.source("image", &as_strs(&files).iter().map(String::as_str).collect::<Vec<_>>());
            stack.add_image_tree(&source);
        }
        for (number, (dest, files, is_shared)) in mounts.iter().enumerate() {
            let dest = format!("/{dest}");
            // Mounts of an image do not lie on its files.
            let free = stack.mounts.iter().all(|mount| {
                mount.dest != dest && below(&mount.dest, &dest).is_none() && below(&dest, &mount.dest).is_none()
            }) && !stack.resolve(&dest).is_ok_and(|there| matches!(there.found, Found::File(_)))
                && stack.resolve(&dest).is_ok();
            if !free {
                continue;
            }
            let files = without_clashes(files, &format!("mount{number}"));
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let mount = if *is_shared {
                world.mount(&dest, PathAccess::ReadOnly, Owners::AsIs, &files)
            } else {
                world.mount(&dest, PathAccess::CopyOnWrite, JOB, &files)
            };
            stack.add_mount(mount);
        }
        expected.extend(build(&stack));
        for (number, put) in puts.iter().enumerate() {
            let name = format!("layer{number}");
            let (dest, result, host) = match put {
                Put::Dir(dest, files) => {
                    let files = without_clashes(files, &name);
                    let source = world.source(&name, &files.iter().map(String::as_str).collect::<Vec<_>>());
                    (dest, stack.add_dir(&source, dest, &world.trees), source.path)
                }
                Put::File(dest) => {
                    let source = world.file(&name, &name);
                    (dest, stack.add_file(&source, dest, &world.trees), source.path)
                }
            };
            if let Err(error) = result {
                prop_assert!(is_clash(&error), "{}", error);
                return Ok(());
            }
            make_way_to(&mut expected, dest, true);
            lay(&mut expected, dest, Path::new(&host));
        }
        prop_assert_eq!(build(&stack), expected);
    }
}
