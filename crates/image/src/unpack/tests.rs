#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::*;
use crate::tree_store::TreeStore;

/// One entry of an archive that is built byte by byte, so that it can be as wrong as it likes.
#[derive(Debug, Clone)]
struct Item {
    name: String,
    kind: EntryType,
    link: String,
    data: Vec<u8>,
    mode: u32,
    mtime: u64,
}

fn item(name: &str, kind: EntryType) -> Item {
    Item {
        name: name.to_owned(),
        kind,
        link: String::new(),
        data: Vec::new(),
        mode: if kind == EntryType::Directory {
            0o755
        } else {
            0o644
        },
        mtime: 1_700_000_000,
    }
}

fn file(name: &str, data: &str) -> Item {
    Item {
        data: data.as_bytes().to_vec(),
        ..item(name, EntryType::Regular)
    }
}

fn dir(name: &str) -> Item {
    item(name, EntryType::Directory)
}

fn link(name: &str, target: &str) -> Item {
    Item {
        link: target.to_owned(),
        ..item(name, EntryType::Symlink)
    }
}

fn hard(name: &str, target: &str) -> Item {
    Item {
        link: target.to_owned(),
        ..item(name, EntryType::Link)
    }
}

fn archive_of(items: &[Item]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for item in items {
        let mut header = Header::new_gnu();
        // The name goes in as it is: the library's own setter refuses what we want to test.
        let field = &mut header.as_gnu_mut().unwrap().name;
        field[..item.name.len()].copy_from_slice(item.name.as_bytes());
        let field = &mut header.as_gnu_mut().unwrap().linkname;
        field[..item.link.len()].copy_from_slice(item.link.as_bytes());
        header.set_entry_type(item.kind);
        header.set_size(item.data.len() as u64);
        header.set_mode(item.mode);
        header.set_mtime(item.mtime);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        builder.append(&header, &item.data[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

struct World {
    base: TempDir,
    trees: TreeStore,
}

impl World {
    fn new() -> Self {
        let base = tempfile::tempdir().unwrap();
        let trees = TreeStore::open(base.path().join("trees")).unwrap();
        fs::create_dir(base.path().join("root")).unwrap();
        fs::write(base.path().join("canary"), "untouched").unwrap();
        Self { base, trees }
    }

    fn root(&self) -> std::path::PathBuf {
        self.base.path().join("root")
    }

    fn unpack_with(&self, bytes: &[u8], limits: &UnpackLimits) -> Result<TreeNote, UnpackError> {
        let path = self.base.path().join("archive.tar");
        fs::write(&path, bytes).unwrap();
        let archive =
            Archive::open(path.to_str().unwrap(), &self.trees).map_err(UnpackError::Archive)?;
        unpack(
            &archive,
            &self.building(),
            limits,
            ArchiveOwners::of_this_process(),
        )
    }

    fn building(&self) -> Building {
        Building::new(
            self.base.path(),
            self.root(),
            None,
            ArchiveOwners::of_this_process(),
        )
        .unwrap()
    }

    fn unpack(&self, items: &[Item]) -> Result<TreeNote, UnpackError> {
        self.unpack_with(&archive_of(items), &UnpackLimits::default())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap()
    }

    /// Nothing beside the tree was touched.
    fn assert_contained(&self) {
        let mut names: Vec<String> = fs::read_dir(self.base.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["archive.tar", "canary", "root", "trees"]);
        let canary = self.base.path().join("canary");
        assert_eq!(fs::read_to_string(&canary).unwrap(), "untouched");
        assert_eq!(fs::metadata(canary).unwrap().nlink(), 1);
    }
}

/// What a tree shows, for comparing: kind, mode, time, content, and which names are one file.
fn listing(root: &Path) -> BTreeMap<String, String> {
    let mut shown = BTreeMap::new();
    let mut inodes: BTreeMap<u64, String> = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let name = path
            .strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let what = if metadata.is_dir() {
            let mut entries: Vec<_> = fs::read_dir(&path)
                .unwrap()
                .map(|e| e.unwrap().path())
                .collect();
            entries.sort();
            todo.extend(entries.into_iter().rev());
            "directory".to_owned()
        } else if metadata.is_symlink() {
            format!("link to {}", fs::read_link(&path).unwrap().display())
        } else if !metadata.is_file() {
            "special".to_owned()
        } else {
            let first = inodes.entry(metadata.ino()).or_insert_with(|| name.clone());
            format!("file like {first}: {:?}", fs::read(&path).unwrap())
        };
        let mode = metadata.permissions().mode() & 0o7777;
        // Which directory the root of an archive is, and links' times, are set by both the same.
        shown.insert(name, format!("{mode:o} {} {what}", metadata.mtime()));
    }
    shown
}

#[test]
fn unpacks_what_an_archive_holds() {
    let world = World::new();
    let note = world
        .unpack(&[
            Item {
                mode: 0o750,
                mtime: 1_600_000_000,
                ..dir("./")
            },
            Item {
                mode: 0o555,
                ..dir("closed/")
            },
            file("closed/file", "data"),
            Item {
                mode: 0o4755,
                ..file("made/up/by/us", "x")
            },
            link("link", "closed/file"),
            hard("other", "closed/file"),
            item("fifo", EntryType::Fifo),
        ])
        .unwrap();
    let shown = listing(&world.root());
    assert_eq!(shown[""], "750 1600000000 directory");
    assert_eq!(shown["closed"], "555 1700000000 directory");
    assert!(shown["closed/file"].starts_with("644 1700000000 file like closed/file"));
    assert!(shown["other"].contains("file like closed/file"));
    assert!(shown["made/up/by/us"].starts_with("4755 1700000000"));
    assert_eq!(shown["link"], "777 1700000000 link to closed/file");
    assert_eq!((note.entries, note.bytes), (7, 5));
    world.assert_contained();
}

#[test]
fn refuses_names_that_lead_out() {
    for (name, why) in [
        ("/etc/passwd", "has an absolute name"),
        ("../canary", "has `..` in its name"),
        ("a/../../canary", "has `..` in its name"),
        ("a/..", "has `..` in its name"),
        ("..", "has `..` in its name"),
    ] {
        let world = World::new();
        for kind in [EntryType::Regular, EntryType::Directory, EntryType::Symlink] {
            let bad = Item {
                link: "x".to_owned(),
                ..item(name, kind)
            };
            let error = world.unpack(&[bad]).unwrap_err();
            assert!(
                matches!(&error, UnpackError::BadName { entry, why: w, .. } if entry == name && *w == why),
                "{name}: {error}"
            );
        }
        world.assert_contained();
    }
}

#[test]
fn links_never_lead_a_write_out_of_the_tree() {
    let world = World::new();
    let outside = world.base.path().to_str().unwrap().to_owned();
    for target in ["..", "../..", "/", &outside, "../root/..", "/proc/self/cwd"] {
        let world = World::new();
        // Whether the entry is refused or lands somewhere in the tree does not matter here.
        drop(world.unpack(&[link("out", target), file("out/canary", "overwritten")]));
        world.assert_contained();
        let world = World::new();
        drop(world.unpack(&[
            link("out", target),
            dir("out/"),
            file("out/canary", "overwritten"),
        ]));
        world.assert_contained();
        let world = World::new();
        drop(world.unpack(&[
            link("a", "b"),
            link("b", target),
            Item {
                mode: 0o777,
                ..dir("a/")
            },
        ]));
        world.assert_contained();
    }
    assert!(!Path::new("/canary").exists());
}

#[test]
fn a_file_replaces_the_link_of_its_name() {
    let world = World::new();
    let canary = world.base.path().join("canary");
    world
        .unpack(&[
            link("name", canary.to_str().unwrap()),
            file("name", "overwritten"),
        ])
        .unwrap();
    assert_eq!(world.read("name"), "overwritten");
    world.assert_contained();
}

#[test]
fn absolute_links_are_followed_within_the_tree() {
    let world = World::new();
    world
        .unpack(&[
            dir("usr/"),
            dir("usr/lib/"),
            link("lib", "/usr/lib"),
            file("lib/x", "1"),
        ])
        .unwrap();
    assert_eq!(world.read("usr/lib/x"), "1");
    assert!(world.root().join("lib").is_symlink());
}

#[test]
fn a_directory_replaces_a_link() {
    let world = World::new();
    world
        .unpack(&[
            dir("real/"),
            link("name", "real"),
            dir("name/"),
            file("name/x", "1"),
        ])
        .unwrap();
    assert!(!world.root().join("name").is_symlink());
    assert!(!world.root().join("real/x").exists());
}

#[test]
fn later_entries_replace_earlier_ones() {
    let world = World::new();
    world
        .unpack(&[
            file("a", "old"),
            file("a", "new"),
            dir("b/"),
            file("b/inside", "gone"),
            file("b", "a file now"),
            file("c", "gone"),
            dir("c/"),
            file("c/inside", "here"),
        ])
        .unwrap();
    assert_eq!(
        (world.read("a"), world.read("b")),
        ("new".into(), "a file now".into())
    );
    assert_eq!(world.read("c/inside"), "here");
}

#[test]
fn a_replaced_hard_link_leaves_the_other_name_alone() {
    let world = World::new();
    world
        .unpack(&[
            file("a", "bytes"),
            hard("b", "a"),
            file("b", "other"),
            hard("a", "a"),
        ])
        .unwrap();
    assert_eq!(
        (world.read("a"), world.read("b")),
        ("bytes".into(), "other".into())
    );
}

#[test]
fn refuses_hard_links_out_and_to_nothing() {
    for (target, why) in [
        ("/etc/passwd", "has an absolute name"),
        ("../canary", "has `..` in its name"),
        ("missing", "is not in the archive before it"),
        ("name", "is not in the archive before it"),
        ("out/canary", "is not in the archive before it"),
        ("dir", "is a directory"),
    ] {
        let world = World::new();
        let outside = world.base.path().to_str().unwrap().to_owned();
        let error = world
            .unpack(&[dir("dir/"), link("out", &outside), hard("name", target)])
            .unwrap_err();
        assert!(
            matches!(&error, UnpackError::BadLink { why: w, .. } if *w == why),
            "{target}: {error}"
        );
        world.assert_contained();
    }
}

#[test]
fn a_hard_link_to_a_link_does_not_follow_it() {
    let world = World::new();
    let canary = world.base.path().join("canary");
    world
        .unpack(&[link("l", canary.to_str().unwrap()), hard("h", "l")])
        .unwrap();
    assert!(world.root().join("h").is_symlink());
    world.assert_contained();
}

#[test]
fn leaves_devices_out_and_says_so() {
    let world = World::new();
    let note = world
        .unpack(&[
            item("dev/null", EntryType::Char),
            item("dev/sda", EntryType::Block),
        ])
        .unwrap();
    assert_eq!(
        note.lacks,
        ["2 device nodes were left out: the sandbox has its own /dev"]
    );
    assert_eq!(fs::read_dir(world.root().join("dev")).unwrap().count(), 0);
}

#[test]
fn says_what_is_wrong_with_bytes() {
    let text = "some text that is no archive ".repeat(40);
    let error = World::new()
        .unpack_with(text.as_bytes(), &UnpackLimits::default())
        .unwrap_err();
    assert!(matches!(error, UnpackError::NotTar { .. }), "{error}");
    let good = archive_of(&[file("a", &"x".repeat(2000))]);
    for (bytes, is_cut) in [
        (Vec::new(), true),
        (good[..700].to_vec(), false),
        // Up to the mark at the end: no entry is damaged, but more may have followed.
        (good[..512 + 2048].to_vec(), true),
    ] {
        let error = World::new()
            .unpack_with(&bytes, &UnpackLimits::default())
            .unwrap_err();
        match error {
            UnpackError::CutOff { .. } => assert!(is_cut),
            UnpackError::Damaged { .. } => assert!(!is_cut),
            other => panic!("{other}"),
        }
    }
    let error = World::new()
        .unpack_with(b"BZh91AY", &UnpackLimits::default())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("is compressed with bzip2, which is not read"),
        "{error}"
    );
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 6);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn reads_gzip_and_xz_in_pieces_and_zstd() {
    let plain = archive_of(&[file("a", "one"), file("b", "two")]);
    let (first, second) = plain.split_at(700);
    let pieces = [gzip(first), gzip(second)].concat();
    let frames = [
        zstd::encode_all(first, 3).unwrap(),
        b"\x50\x2a\x4d\x18\x02\0\0\0hi".to_vec(),
        zstd::encode_all(second, 3).unwrap(),
    ];
    let skippable_first = [b"\x51\x2a\x4d\x18\0\0\0\0".to_vec(), frames.concat()].concat();
    let streams = [xz(first), xz(second)].concat();
    for bytes in [
        gzip(&plain),
        pieces,
        frames.concat(),
        skippable_first,
        streams,
    ] {
        let world = World::new();
        world.unpack_with(&bytes, &UnpackLimits::default()).unwrap();
        assert_eq!(
            (world.read("a"), world.read("b")),
            ("one".into(), "two".into())
        );
    }
    let cut = gzip(&plain);
    let error = World::new()
        .unpack_with(&cut[..cut.len() / 2], &UnpackLimits::default())
        .unwrap_err();
    assert!(matches!(error, UnpackError::Damaged { .. }), "{error}");
}

#[test]
fn every_limit_names_itself() {
    let small = UnpackLimits {
        bytes: 10_000,
        entries: 3,
        ratio: 50,
        ratio_from: 100_000,
        header_bytes: 8192,
        name_bytes: 100,
    };
    let refused = |bytes: &[u8], limits: &UnpackLimits| match World::new()
        .unpack_with(bytes, limits)
        .unwrap_err()
    {
        UnpackError::TooLarge { what, max, .. } => (what, max),
        other => panic!("{other}"),
    };
    let big = archive_of(&[file("a", &"x".repeat(6000)), file("b", &"x".repeat(6000))]);
    assert_eq!(
        refused(&big, &small),
        ("its files are too large together", 10_000)
    );
    let many: Vec<Item> = (0..4).map(|n| file(&n.to_string(), "")).collect();
    assert_eq!(
        refused(&archive_of(&many), &small),
        ("it has too many entries", 3)
    );
    assert_eq!(
        refused(&archive_of(&[file("a/b/c/d", "")]), &small),
        ("it has too many entries", 3),
        "directories without an entry of their own count too"
    );
    assert_eq!(
        refused(
            &archive_of(&[dir(&"d".repeat(60)), dir(&"e".repeat(60))]),
            &small
        ),
        ("its names are too large together", 100)
    );
    let bomb = gzip(&archive_of(&[file("zeros", &"\0".repeat(1 << 20))]));
    let limits = UnpackLimits {
        bytes: 1 << 30,
        ..small
    };
    assert_eq!(
        refused(&bomb, &limits),
        ("too many bytes come out for each that goes in", 50)
    );
    let long_name = Item {
        data: vec![b'n'; 100_000],
        ..item("././@LongLink", EntryType::GNULongName)
    };
    let limits = UnpackLimits {
        bytes: 1 << 30,
        ..small
    };
    assert_eq!(
        refused(&archive_of(&[long_name, file("x", "")]), &limits),
        ("the names and headers of one entry are too large", 8192)
    );
    // A size that is only claimed does not make us write.
    let mut claimed = archive_of(&[file("a", "x")]);
    let mut header = Header::from_byte_slice(&claimed[..512]).clone();
    header.set_size(1 << 40);
    header.set_cksum();
    claimed[..512].copy_from_slice(header.as_bytes());
    assert_eq!(
        refused(&claimed, &UnpackLimits::default()),
        ("its files are too large together", 64 << 30)
    );
}

#[test]
fn an_archive_that_changes_meanwhile_is_refused() {
    let world = World::new();
    let path = world.base.path().join("archive.tar");
    fs::write(&path, archive_of(&[file("a", "1")])).unwrap();
    let archive = Archive::open(path.to_str().unwrap(), &world.trees).unwrap();
    fs::write(&path, archive_of(&[file("a", "2")])).unwrap();
    let limits = UnpackLimits::default();
    let error = unpack(
        &archive,
        &world.building(),
        &limits,
        ArchiveOwners::of_this_process(),
    )
    .unwrap_err();
    assert!(matches!(error, UnpackError::Changed { .. }), "{error}");
}

#[test]
fn fields_that_a_writer_left_empty_are_zero() {
    let world = World::new();
    let mut bytes = archive_of(&[file("a", "x")]);
    let mut header = Header::from_byte_slice(&bytes[..512]).clone();
    let fields = header.as_old_mut();
    (fields.uid, fields.gid, fields.mtime) = ([0; 8], [b' '; 8], [0; 12]);
    header.set_cksum();
    bytes[..512].copy_from_slice(header.as_bytes());
    world.unpack_with(&bytes, &UnpackLimits::default()).unwrap();
    assert_eq!(fs::metadata(world.root().join("a")).unwrap().mtime(), 0);
}

#[test]
fn odd_times_do_not_stop_anything() {
    for mtime in [0, u64::MAX, u64::MAX / 2, 1 << 40] {
        let world = World::new();
        let odd = Item {
            mtime,
            ..file("a", "x")
        };
        world.unpack(&[Item { mtime, ..dir("d/") }, odd]).unwrap();
        if mtime == u64::MAX {
            let seconds = fs::metadata(world.root().join("a")).unwrap().mtime();
            assert_eq!(seconds, -1);
        }
    }
}

/// Archives that GNU tar makes come out as GNU tar unpacks them.
#[test]
fn agrees_with_gnu_tar_about_sparse_files_long_names_and_links() {
    for format in ["gnu", "posix", "ustar"] {
        let world = World::new();
        let from = world.base.path().join("from");
        let long = "n".repeat(if format == "ustar" { 60 } else { 150 });
        fs::create_dir_all(from.join("d").join(&long)).unwrap();
        fs::write(from.join("d").join(&long).join("file"), "deep").unwrap();
        fs::hard_link(from.join("d").join(&long).join("file"), from.join("again")).unwrap();
        std::os::unix::fs::symlink("d", from.join("link")).unwrap();
        let mut holes = File::create(from.join("holes")).unwrap();
        for at in [0_u64, 1 << 20, 3 << 20] {
            holes.seek(SeekFrom::Start(at)).unwrap();
            holes.write_all(b"island").unwrap();
        }
        holes.set_len(5 << 20).unwrap();
        drop(holes);
        fs::set_permissions(from.join("d"), fs::Permissions::from_mode(0o2711)).unwrap();
        let archive = world.base.path().join("made.tar");
        let made = Command::new("tar")
            .args((format != "ustar").then_some("--sparse"))
            .args([&format!("--format={format}"), "-cf"])
            .arg(&archive)
            .arg("-C")
            .arg(&from)
            .arg(".")
            .status();
        assert!(made.unwrap().success());
        world
            .unpack_with(&fs::read(&archive).unwrap(), &UnpackLimits::default())
            .unwrap();
        assert_eq!(listing(&world.root()), listing(&from), "{format}");
        let blocks = fs::metadata(world.root().join("holes")).unwrap().blocks();
        assert!(
            blocks * 512 < 1 << 20,
            "{format}: the holes were filled ({blocks} blocks)"
        );
    }
}

fn any_item() -> impl Strategy<Value = Item> {
    let name = prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
        .prop_map(|names| names.join("/"));
    let target = prop::sample::select(vec![
        "a",
        "b",
        "../a",
        "/b",
        "c/a",
        "..",
        "/",
        "./c",
        "../../canary",
    ]);
    (name, target, 0..4_u8, 0..1000_u32).prop_map(|(name, target, kind, salt)| match kind {
        0 => dir(&format!("{name}/")),
        1 => link(&name, target),
        2 => hard(&name, target.trim_start_matches(['.', '/'])),
        _ => file(&name, &salt.to_string()),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever an archive says, nothing outside of the tree changes, and the tree can be removed.
    #[test]
    fn no_archive_escapes(items in prop::collection::vec(any_item(), 1..14)) {
        let world = World::new();
        drop(world.unpack(&items));
        world.assert_contained();
        tidemill_tree::remove_tree(&world.root()).unwrap();
    }

    /// Directories and files, in any order and as often as they like, come out as GNU tar has them.
    #[test]
    fn plain_archives_agree_with_gnu_tar(
        items in prop::collection::vec(
            any_item().prop_filter("plain", |item| item.kind == EntryType::Regular), 1..8),
    ) {
        // A name that is a file here and a directory there is where GNU tar gives up.
        let clash = items.iter().any(|one| items.iter().any(|other|
            other.name.starts_with(&format!("{}/", one.name))));
        prop_assume!(!clash);
        let world = World::new();
        world.unpack(&items).unwrap();
        let reference = world.base.path().join("reference");
        fs::create_dir(&reference).unwrap();
        let status = Command::new("tar").arg("-xf").arg(world.base.path().join("archive.tar"))
            .arg("-C").arg(&reference).status().unwrap();
        prop_assert!(status.success());
        let plain = |root: &Path| -> BTreeMap<String, String> {
            listing(root).into_iter().filter(|(_, what)| !what.ends_with("directory")).collect()
        };
        prop_assert_eq!(plain(&world.root()), plain(&reference));
    }
}
