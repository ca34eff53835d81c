//! Trees as `umoci unpack` makes them: for layers made by hand, and for random ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use serde_json::json;

use super::portrait::{Look, portrait};
use super::*;

/// Everything is looked at.
const WHOLE: Look = Look { owners: true };
/// No layer of these tests has a time as late as this: where a directory has, the reference gave it the
/// time of day, because it made the directory without an entry or removed something from it.
const NOW_FROM: i64 = 1_700_000_000;

/// True if there is a reference. If not, that is said.
fn has_reference() -> bool {
    let found = Command::new("umoci").arg("--version").output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    let line = b"skipped: umoci is not installed, so trees are not compared with its\n";
    std::io::stderr().write_all(line).unwrap();
    false
}

impl World {
    /// The image as a layout that others read.
    fn write_layout(&self, image: &ImageLayers) {
        let size = |digest: &OciDigest| fs::metadata(self.blob_path(digest)).unwrap().len();
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": {},
            "rootfs": { "type": "layers",
                "diff_ids": image.layers.iter().map(|layer| layer.diff_id).collect::<Vec<_>>() },
            "history": image.layers.iter().map(|_| json!({})).collect::<Vec<_>>(),
        });
        let config = self.add_blob(&serde_json::to_vec(&config).unwrap());
        let layers: Vec<_> = (image.layers.iter())
            .map(|layer| {
                json!({
                    "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": layer.digest, "size": size(&layer.digest),
                })
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": config, "size": size(&config) },
            "layers": layers,
        });
        let manifest = self.add_blob(&serde_json::to_vec(&manifest).unwrap());
        let index = json!({
            "schemaVersion": 2,
            "manifests": [{ "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": manifest, "size": size(&manifest),
                "annotations": { "org.opencontainers.image.ref.name": "it" } }],
        });
        let layout = self.base.path().join("layout");
        fs::write(layout.join("index.json"), index.to_string()).unwrap();
        let version = json!({ "imageLayoutVersion": "1.0.0" });
        fs::write(layout.join("oci-layout"), version.to_string()).unwrap();
    }

    /// Unpacks an image with the reference.
    fn reference(&self, image: &ImageLayers, flags: &[&str]) -> (PathBuf, Output) {
        self.write_layout(image);
        let bundle = self.base.path().join("bundle");
        if bundle.exists() {
            tidemill_tree::remove_tree(&bundle).unwrap();
        }
        let layout = self.base.path().join("layout");
        let output = Command::new("umoci")
            .args(["unpack", "--image"])
            .arg(format!("{}:it", layout.display()))
            .args(flags)
            .arg(&bundle)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (bundle.join("rootfs"), output)
    }
}

fn assert_same(ours: &Path, theirs: &Path, look: Look, what: &str) {
    let (mut ours, mut theirs) = (portrait(ours, look), portrait(theirs, look));
    for their in theirs.values_mut() {
        // Its own note of the owner that it could not give.
        let is_note = |xattr: &String| xattr.starts_with("user.rootlesscontainers=");
        their.xattrs.retain(|xattr| !is_note(xattr));
    }
    for (path, their) in theirs.iter_mut().filter(|(_, their)| their.is_dir) {
        if their.time.0 >= NOW_FROM
            && let Some(our) = ours.get_mut(path)
        {
            (their.time, our.time) = ((0, 0), (0, 0));
        }
    }
    let paths: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let differing: BTreeMap<_, _> = paths
        .into_iter()
        .map(|path| (path, (ours.get(path), theirs.get(path))))
        .filter(|(_, (ours, theirs))| ours != theirs)
        .collect();
    assert!(
        differing.is_empty(),
        "{what}: ours and theirs: {differing:#?}"
    );
}

/// Layers that have gone wrong elsewhere.
fn nasty() -> Vec<(&'static str, Vec<Vec<Item>>)> {
    let deep = |depth: usize| {
        let names: Vec<String> = (0..depth).map(|n| format!("d{n}")).collect();
        names.join("/")
    };
    let long = "n".repeat(200);
    let base = || {
        vec![
            dir("."),
            dir("d"),
            file("d/old", "old"),
            dir("d/sub"),
            file("d/sub/x", "x").mode(0o600),
            file("f", "f"),
            symlink("l", "d"),
            dir("usr"),
            dir("usr/lib"),
            file("usr/lib/so", "so"),
            symlink("lib", "usr/lib"),
        ]
    };
    let cases: Vec<(&'static str, Vec<Item>)> = vec![
        (
            "opaque, last",
            vec![dir("d"), file("d/new", "new"), file("d/.wh..wh..opq", "")],
        ),
        (
            "opaque, first",
            vec![dir("d"), file("d/.wh..wh..opq", ""), file("d/new", "new")],
        ),
        (
            "opaque root",
            vec![file(".wh..wh..opq", ""), file("only", "this")],
        ),
        ("opaque alone", vec![file("d/.wh..wh..opq", "")]),
        ("whiteout of a file", vec![file(".wh.f", "")]),
        ("whiteout of a directory", vec![file(".wh.d", "")]),
        (
            "whiteout of a link, not its target",
            vec![file(".wh.l", "")],
        ),
        (
            "whiteout of nothing",
            vec![file(".wh.never", ""), file("never2/.wh.there", "")],
        ),
        ("whiteout below a link", vec![file("lib/.wh.so", "")]),
        (
            "whiteout, then the same name",
            vec![file(".wh.f", ""), file("f", "again")],
        ),
        (
            "the same name, then its whiteout",
            vec![file("f", "again"), file(".wh.f", "")],
        ),
        (
            "whiteout of a directory, then it anew",
            vec![
                file(".wh.d", ""),
                dir("d").mode(0o700).at(1_500_000_000),
                file("d/new", "new"),
            ],
        ),
        (
            "a directory anew, then its whiteout",
            vec![
                dir("d").mode(0o700).at(1_500_000_000),
                file("d/new", "new"),
                file(".wh.d", ""),
            ],
        ),
        (
            "whiteouts above and below",
            vec![file("d/sub/.wh.x", ""), file("d/.wh.sub", "")],
        ),
        ("a file for a directory", vec![file("d", "now a file")]),
        ("a directory for a file", vec![dir("f"), file("f/in", "it")]),
        ("a link for a directory", vec![symlink("d", "usr")]),
        ("a directory for a link", vec![dir("l"), file("l/in", "it")]),
        ("a file for a link", vec![file("l", "x")]),
        (
            "a pipe for a file",
            vec![item("f", EntryType::Fifo).mode(0o622)],
        ),
        (
            "a file through a link",
            vec![file("lib/new", "x"), file("l/new", "y")],
        ),
        (
            "a file through a link that leads out",
            vec![
                symlink("out", "../../../.."),
                file("out/inside", "x"),
                symlink("abs", "/usr"),
                file("abs/inside", "y"),
            ],
        ),
        (
            "hard link in a layer",
            vec![
                file("a", "a").mode(0o4711),
                hard("b", "a"),
                hard("d/c", "a"),
            ],
        ),
        (
            "hard link to a lower layer",
            vec![hard("b", "f"), hard("d/c", "d/sub/x")],
        ),
        ("hard link for a file", vec![hard("d/old", "f")]),
        ("hard link to a link", vec![hard("l2", "l")]),
        ("hard link below a link", vec![hard("lib/so2", "lib/so")]),
        ("hard link without parents", vec![hard("made/up/name", "f")]),
        (
            "hard link to what a whiteout removes later",
            vec![hard("kept", "f"), file(".wh.f", "")],
        ),
        (
            "modes of all kinds",
            vec![
                file("suid", "").mode(0o4755),
                file("sgid", "").mode(0o2755),
                file("none", "x").mode(0),
                dir("sticky").mode(0o1777),
                dir("closed").mode(0),
                file("closed/in", "x"),
                dir("setgid").mode(0o2775),
                file("setgid/in", "x"),
            ],
        ),
        (
            "owners",
            vec![
                file("a", "").owner(1000, 1001),
                dir("b").owner(65_534, 65_534),
                symlink("c", "a").owner(33, 33),
                file("suid2", "").owner(7, 8).mode(0o6755),
            ],
        ),
        (
            "times",
            vec![
                file("past", "").at(0),
                dir("t").at(1),
                file("t/x", "").at(1_234_567_890),
                symlink("tl", "t").at(42),
            ],
        ),
        ("a directory's time stays", vec![file("usr/new", "x")]),
        (
            "names",
            vec![
                file(&long, "x"),
                file(&format!("{}/{long}", "m".repeat(120)), "y"),
                file("new\nline", "n"),
                file("sp ace", "s"),
                file("ütf", "u"),
                file("-rf", "r"),
                symlink("to\nline", "new\nline"),
                symlink("tolong", &format!("d/{long}")),
            ],
        ),
        (
            "names from the root",
            vec![
                dir("/"),
                dir("/abs"),
                file("//abs/file", "x"),
                hard("/abs/hard", "/abs/file"),
                file("/.wh.f", ""),
            ],
        ),
        ("deep", vec![file(&format!("{}/x", deep(300)), "x")]),
        (
            "extended attributes",
            vec![
                file("a", "x")
                    .xattr("user.one", b"1\n2\0")
                    .xattr("user.two", b"="),
                dir("b").xattr("user.dir", b"d"),
                file("ping", "x").xattr(
                    "security.capability",
                    &[
                        1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                    ],
                ),
            ],
        ),
        (
            "twice in a layer",
            vec![file("f", "1"), file("f", "2"), dir("f"), file("f", "3")],
        ),
        (
            "empty files",
            vec![file("e1", ""), file("e2", ""), file("e3", "")],
        ),
        ("equal files", vec![file("e1", "same"), file("e2", "same")]),
    ];
    cases
        .into_iter()
        .map(|(what, upper)| (what, vec![base(), upper]))
        .collect()
}

#[test]
fn nasty_layers_come_out_as_the_reference_has_them() {
    if !has_reference() {
        return;
    }
    for (what, layers) in nasty() {
        let world = World::new();
        let root = world
            .build(&layers)
            .unwrap_or_else(|error| panic!("{what}: {}", chain(&error)));
        let (theirs, output) = world.reference(&world.image(&layers), &[]);
        assert!(output.status.success(), "{what}: {output:?}");
        assert_same(&root, &theirs, WHOLE, what);
    }
}

#[test]
fn without_rights_everything_but_owners_comes_out_as_the_reference_has_it() {
    if !has_reference() {
        return;
    }
    let look = Look { owners: false };
    for (what, layers) in nasty() {
        let world = World::with_owners(ArchiveOwners::Lost);
        let layers: Vec<Vec<Item>> = layers
            .into_iter()
            .map(|layer| {
                // The reference has the rights all the same, as far as this process has them.
                let is_plain = |item: &Item| {
                    item.xattrs
                        .iter()
                        .all(|(name, _)| name.starts_with("user."))
                };
                layer.into_iter().filter(is_plain).collect()
            })
            .collect();
        let root = world.build(&layers).unwrap();
        let (theirs, output) = world.reference(&world.image(&layers), &["--rootless"]);
        assert!(output.status.success(), "{what}: {output:?}");
        assert_same(&root, &theirs, look, what);
    }
}

fn any_item() -> impl Strategy<Value = Item> {
    let name = prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4);
    let target = prop::sample::select(vec!["a", "b", "../a", "/b", "a/b", "..", "./c", "nowhere"]);
    (name, target, 0..12_u8, 0..4_u32).prop_map(|(names, target, kind, salt)| {
        let name = names.join("/");
        let (last, above) = names.split_last().unwrap();
        let marked = |mark: &str| {
            let above: String = above.iter().map(|name| format!("{name}/")).collect();
            format!("{above}{mark}")
        };
        let at = 1_600_000_000 + u64::from(salt);
        match kind {
            0..3 => dir(&name).mode(0o700 + salt).at(at),
            3 => symlink(&name, target).at(at),
            4 => hard(&name, target.trim_start_matches(['.', '/'])),
            5 => file(&marked(&format!(".wh.{last}")), ""),
            6 => file(&marked(".wh..wh..opq"), ""),
            7 => item(&name, EntryType::Fifo).at(at),
            _ => file(&name, &salt.to_string()).mode(0o600 + salt).at(at),
        }
    })
}

/// The reference makes something else of the same entries in another order, where a layer removes what
/// it also has, or a directory that it has only something in. We do not.
fn is_in_order(layer: &[Item]) -> bool {
    let name = |item: &Item| {
        let name = String::from_utf8_lossy(&item.name);
        name.trim_end_matches('/').to_owned()
    };
    let names: Vec<String> = layer.iter().map(name).collect();
    names.iter().enumerate().all(|(at, name)| {
        if let Some(above) = name.strip_suffix(".wh..wh..opq") {
            let is_far_below = |other: &String| {
                let below = other.strip_prefix(above);
                below.is_some_and(|below| below.contains('/'))
            };
            return !names[..at].iter().any(is_far_below);
        }
        let Some((above, removed)) = name.rsplit_once(".wh.") else {
            return true;
        };
        let gone = format!("{above}{removed}");
        let below = format!("{gone}/");
        !names
            .iter()
            .any(|other| *other == gone || other.starts_with(&below))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// What the reference unpacks, we unpack to the same tree.
    #[test]
    fn random_layers_come_out_as_the_reference_has_them(
        layers in prop::collection::vec(prop::collection::vec(any_item(), 1..7), 1..5),
    ) {
        prop_assume!(layers.iter().all(|layer| is_in_order(layer)));
        if !has_reference() {
            return Ok(());
        }
        let world = World::new();
        let ours = world.build(&layers);
        let (theirs, output) = world.reference(&world.image(&layers), &[]);
        if output.status.success() {
            let ours = ours.unwrap_or_else(|error| panic!("only we refuse: {}", chain(&error)));
            assert_same(&ours, &theirs, WHOLE, "random");
        }
    }
}
