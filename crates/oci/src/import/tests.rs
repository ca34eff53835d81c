//! Layouts, archives and directories, whole and damaged. What real tools write is tried by the suite.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};

use super::*;
use crate::digest::digest_of;
use crate::media_type::{OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST};

/// A store and a place to make sources in.
struct Place {
    directory: tempfile::TempDir,
    content: Content,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::open(directory.path().join("images")).unwrap();
        Self { directory, content }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn import(&self, source: &str, name: Option<&str>) -> Result<Vec<Imported>, ImportError> {
        self.import_for(source, name, "linux/amd64")
    }

    fn import_for(
        &self,
        source: &str,
        name: Option<&str>,
        platform: &str,
    ) -> Result<Vec<Imported>, ImportError> {
        let options = ImportOptions {
            name: name.map(|name| name.parse().unwrap()),
            platform: platform.parse().unwrap(),
        };
        import(&self.content, &self.path(source), &options)
    }

    /// What the error says; the store must be as before.
    fn refused(&self, source: &str, name: Option<&str>) -> String {
        let before = (
            self.content.list().unwrap(),
            Names::new(&self.content).list().unwrap(),
        );
        let error = self.import(source, name).unwrap_err();
        let after = (
            self.content.list().unwrap(),
            Names::new(&self.content).list().unwrap(),
        );
        assert_eq!(before, after, "the store is as before");
        assert!(!error.hint().is_empty());
        assert_eq!(
            fs::read_dir(self.content.base().join("partial"))
                .unwrap()
                .count(),
            0
        );
        error.to_string()
    }

    /// Writes an archive of these files, links (`a -> b`, `a => b` for hard ones) and what they hold.
    fn archive(&self, name: &str, files: &[(&str, &[u8])]) {
        let mut tar = tar::Builder::new(File::create(self.path(name)).unwrap());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            if let Some((name, target)) = name.split_once(" -> ") {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, name, target).unwrap();
                continue;
            }
            header.set_size(bytes.len() as u64);
            // As a hostile archive has it, which the library would not write.
            let room = &mut header.as_old_mut().name;
            room[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, *bytes).unwrap();
        }
        tar.into_inner().unwrap();
    }
}

fn describe(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len() })
}

/// An image with one layer, as files of a layout.
struct Made {
    layer: Vec<u8>,
    config: Vec<u8>,
    manifest: Vec<u8>,
}

fn make(layer: &[u8], architecture: &str) -> Made {
    let config = json!({
        "architecture": architecture, "os": "linux", "config": { "Cmd": ["sh"] },
        "rootfs": { "type": "layers", "diff_ids": [digest_of(layer)] },
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": describe(OCI_CONFIG, &config),
        "layers": [describe(OCI_LAYER, layer)],
    });
    Made {
        layer: layer.to_vec(),
        config,
        manifest: manifest.to_string().into_bytes(),
    }
}

impl Made {
    fn entry(&self, name: Option<&str>) -> Value {
        let mut entry = describe(OCI_MANIFEST, &self.manifest);
        if let Some(name) = name {
            entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        }
        entry
    }
}

fn blob_name(bytes: &[u8]) -> String {
    format!("blobs/sha256/{}", digest_of(bytes).to_hex())
}

/// The files of a layout.
fn layout(images: &[&Made], entries: &[Value]) -> Vec<(String, Vec<u8>)> {
    let index = json!({ "schemaVersion": 2, "manifests": entries }).to_string();
    let mut files = vec![
        (
            "oci-layout".to_owned(),
            br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec(),
        ),
        ("index.json".to_owned(), index.into_bytes()),
    ];
    for image in images {
        for bytes in [&image.layer, &image.config, &image.manifest] {
            files.push((blob_name(bytes), bytes.clone()));
        }
    }
    files
}

fn write_directory(root: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn borrowed(files: &[(String, Vec<u8>)]) -> Vec<(&str, &[u8])> {
    files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
        .collect()
}

fn saved(made: &Made, tags: Value) -> Vec<u8> {
    let config = format!("{}.json", digest_of(&made.config).to_hex());
    json!([{ "Config": config, "RepoTags": tags, "Layers": ["1/layer.tar"] }])
        .to_string()
        .into_bytes()
}

#[test]
fn one_image_is_the_same_from_everywhere() {
    let place = Place::new();
    let made = make(b"a layer", "amd64");
    let files = layout(&[&made], &[made.entry(Some("x.y/a:b"))]);
    write_directory(&place.path("layout"), &files);
    place.archive("layout.tar", &borrowed(&files));
    let gzip = File::create(place.path("layout.tar.gz")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(gzip, flate2::Compression::fast());
    io::copy(
        &mut File::open(place.path("layout.tar")).unwrap(),
        &mut gzip,
    )
    .unwrap();
    gzip.finish().unwrap();
    for source in ["layout", "layout.tar", "layout.tar.gz"] {
        let imported = place.import(source, None).unwrap();
        assert_eq!(imported[0].named.reference.to_string(), "x.y/a:b");
        assert_eq!(imported[0].named.manifest.digest, digest_of(&made.manifest));
        assert_eq!(imported[0].image.config.command, ["sh"]);
    }
    let manifest = saved(&made, json!(["docker.io/library/busybox:1"]));
    let config = format!("{}.json", digest_of(&made.config).to_hex());
    place.archive(
        "saved.tar",
        &[
            ("manifest.json", &manifest),
            (&config, &made.config),
            ("0/layer.tar", &made.layer),
            ("1/layer.tar -> ../0/layer.tar", b""),
        ],
    );
    let imported = place.import("saved.tar", None).unwrap();
    assert_eq!(imported[0].named.reference.to_short(), "busybox:1");
    assert_eq!(
        imported[0].image.manifest.config.digest,
        digest_of(&made.config)
    );
    assert_eq!(
        place.content.list().unwrap().len(),
        4,
        "what is shared is stored once"
    );
    assert_eq!(Names::new(&place.content).list().unwrap().len(), 2);
}

#[test]
fn the_platform_is_chosen_through_an_index() {
    let place = Place::new();
    let (amd, arm) = (make(b"amd", "amd64"), make(b"arm", "arm64"));
    let mut entries = [amd.entry(None), arm.entry(None)];
    entries[0]["platform"] = json!({ "os": "linux", "architecture": "amd64" });
    entries[1]["platform"] = json!({ "os": "linux", "architecture": "arm64" });
    let inner = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries });
    let inner = inner.to_string().into_bytes();
    let mut outer = describe(OCI_INDEX, &inner);
    outer["annotations"] = json!({ "io.containerd.image.name": "x.y/a:b",
        "org.opencontainers.image.ref.name": "b" });
    let mut files = layout(&[&amd, &arm], &[outer]);
    files.push((blob_name(&inner), inner.clone()));
    write_directory(&place.path("layout"), &files);
    let imported = place.import_for("layout", None, "arm64").unwrap();
    assert_eq!(imported[0].named.manifest.digest, digest_of(&arm.manifest));
    assert_eq!(imported[0].named.index, Some(digest_of(&inner)));
    assert_eq!(imported[0].named.reference.to_string(), "x.y/a:b");
    let error = place.import_for("layout", None, "s390x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no image for linux/s390x; there are images for: linux/amd64, linux/arm64"
    );
}

#[test]
fn a_single_image_for_another_platform_is_refused() {
    let place = Place::new();
    let made = make(b"x", "riscv64");
    write_directory(
        &place.path("layout"),
        &layout(&[&made], &[made.entry(Some("a:b"))]),
    );
    let error = place.refused("layout", None);
    assert!(
        error.contains("is an image for linux/riscv64, and linux/amd64 is wanted"),
        "{error}"
    );
}

#[test]
fn names_are_asked_for_where_there_are_none() {
    let place = Place::new();
    let (one, two) = (make(b"1", "amd64"), make(b"2", "amd64"));
    write_directory(
        &place.path("bare"),
        &layout(&[&one], &[one.entry(Some("latest"))]),
    );
    let error = place.refused("bare", None);
    assert!(
        error.ends_with("does not say what its image is called, only `latest`"),
        "{error}"
    );
    assert!(place.import("bare", Some("mine")).is_ok());
    let entries = [one.entry(Some("a:1")), two.entry(Some("a:2"))];
    write_directory(&place.path("two"), &layout(&[&one, &two], &entries));
    let error = place.refused("two", Some("mine"));
    assert!(error.ends_with("they are: a:1, a:2"), "{error}");
    assert_eq!(place.import("two", None).unwrap().len(), 2);
    for choice in ["two:2", "two:a:2"] {
        let chosen = place.import(choice, Some("mine")).unwrap().remove(0);
        assert_eq!(
            chosen.named.manifest.digest,
            digest_of(&two.manifest),
            "{choice}"
        );
        assert!(chosen.named.is_local);
    }
    let error = place.refused("two:3", Some("mine"));
    assert!(error.ends_with("it has none that is called `3`"), "{error}");
}

#[test]
fn damaged_layouts_name_the_entry() {
    let place = Place::new();
    let made = make(b"a layer", "amd64");
    let files = layout(&[&made], &[made.entry(Some("a:b"))]);
    let layer = blob_name(&made.layer);
    let with = |name: &str, bytes: Option<&[u8]>| {
        let mut files = files.clone();
        files.retain(|(file, _)| file != name);
        files.extend(bytes.map(|bytes| (name.to_owned(), bytes.to_vec())));
        place.archive("damaged.tar", &borrowed(&files));
        place.refused("damaged.tar", None)
    };
    let error = with(&layer, Some(b"A layer"));
    assert!(
        error.contains(&layer) && error.contains("has the digest sha256:"),
        "{error}"
    );
    let error = with(&layer, Some(b"short"));
    assert!(
        error.ends_with("has 5 bytes, and 7 are announced"),
        "{error}"
    );
    let error = with(&layer, None);
    assert!(error.contains("though the image needs it"), "{error}");
    let error = with("index.json", Some(b"{"));
    assert!(error.contains("is not a manifest"), "{error}");
    let error = with("oci-layout", Some(br#"{"imageLayoutVersion":"2"}"#));
    assert!(error.ends_with("is of version 2, not 1"), "{error}");
    let error = with("../evil", Some(b"x"));
    assert!(error.starts_with("`../evil` in "), "{error}");
    let error = with("/etc/evil", Some(b"x"));
    assert!(error.ends_with("leads out of the archive"), "{error}");
}

#[test]
fn damaged_saves_name_the_entry() {
    let place = Place::new();
    let made = make(b"a layer", "amd64");
    let config = format!("{}.json", digest_of(&made.config).to_hex());
    let try_with = |manifest: &Value, layer: &[u8]| {
        let bytes = manifest.to_string();
        let files: [(&str, &[u8]); 3] = [
            ("manifest.json", bytes.as_bytes()),
            (&config, &made.config),
            ("1/layer.tar", layer),
        ];
        place.archive("saved.tar", &files);
        place.refused("saved.tar", None)
    };
    let image = |config: &str, layers: &[&str]| json!([{ "Config": config, "RepoTags": ["a:b"], "Layers": layers }]);
    let error = try_with(&image(&config, &["1/layer.tar"]), b"another");
    assert!(
        error.starts_with("`1/layer.tar` in ") && error.contains("has the digest"),
        "{error}"
    );
    let error = try_with(&image(&config, &[]), b"");
    assert!(error.contains("names 0 layers"), "{error}");
    let error = try_with(&image("../../etc/passwd", &["1/layer.tar"]), b"");
    assert!(error.starts_with("`../../etc/passwd` in "), "{error}");
    let error = try_with(&image(&config, &["2/layer.tar"]), b"");
    assert!(error.starts_with("`2/layer.tar` is not in "), "{error}");
    let error = try_with(
        &json!([{ "Config": config, "RepoTags": null,
        "Layers": ["1/layer.tar"] }]),
        &made.layer,
    );
    assert!(
        error.ends_with("does not say what its image is called"),
        "{error}"
    );
    let error = try_with(&json!({}), b"");
    assert!(
        error.contains("`manifest.json` in ") && error.contains("cannot be read"),
        "{error}"
    );
}

#[test]
fn what_is_no_image_is_told_what_it_is() {
    let place = Place::new();
    let say = |bytes: &[u8]| {
        fs::write(place.path("file"), bytes).unwrap();
        place.refused("file", None)
    };
    assert!(say(b"hello, this is not an archive at all").ends_with("it is not a tar archive"));
    assert!(say(b"").contains("has neither an `index.json` nor a `manifest.json`"));
    assert!(say(&[b"\xfd7zXZ\0", [7; 600].as_slice()].concat()).contains("compressed with xz"));
    assert!(say(b"\x1f\x8b\x08 damaged").contains("failed to read"));
    place.archive("other.tar", &[("etc/passwd", b"x")]);
    assert!(place.refused("other.tar", None).contains("has neither"));
    place.archive(
        "root.tar",
        &[("etc/passwd", b"x"), ("bin/sh", b"x"), ("a", b"")],
    );
    let error = place.refused("root.tar", None);
    assert!(
        error.ends_with("is an archive of a root file system, not of an image"),
        "{error}"
    );
    let hint = |path: &str| ImportError::RootArchive { path: path.into() }.hint();
    assert!(hint("root.tar").contains("tidemill run --image tar:root.tar; or unpack it"));
    assert!(!hint("-").contains("tar:"));
    place.archive(
        "circle.tar",
        &[("oci-layout -> a", b""), ("a -> oci-layout", b"")],
    );
    assert!(
        place
            .refused("circle.tar", None)
            .contains("leads in a circle")
    );
    let whole = fs::read(place.path("other.tar")).unwrap();
    fs::write(place.path("cut.tar"), &whole[..512]).unwrap();
    let error = place.refused("cut.tar", None);
    assert!(
        error.starts_with("`etc/passwd` in ") && error.contains("is cut off"),
        "{error}"
    );
    assert!(place.refused("nowhere", None).starts_with("failed to read"));
    fs::create_dir(place.path("empty")).unwrap();
    assert!(
        place
            .refused("empty", Some("a"))
            .ends_with("the directory is empty")
    );
}

#[test]
fn an_archive_that_grows_without_end_is_stopped() {
    let place = Place::new();
    let file = File::create(place.path("bomb.tar.gz")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::best());
    io::copy(&mut io::repeat(0).take(100 << 20), &mut gzip).unwrap();
    gzip.finish().unwrap();
    let error = place.refused("bomb.tar.gz", None);
    assert!(error.contains("200 times larger when unpacked"), "{error}");
}

#[test]
fn headers_without_end_are_stopped() {
    let place = Place::new();
    let mut tar = tar::Builder::new(File::create(place.path("long.tar")).unwrap());
    let value = vec![b'x'; 2 << 20];
    tar.append_pax_extensions([("comment", value.as_slice())])
        .unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    tar.append_data(&mut header, "file", io::empty()).unwrap();
    tar.into_inner().unwrap();
    let error = place.refused("long.tar", None);
    assert!(
        error.contains("more than 1048576 bytes of headers"),
        "{error}"
    );
}

#[test]
fn a_root_becomes_the_same_image_again() {
    let place = Place::new();
    for root in ["root", "again"] {
        let root = place.path(root);
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::write(root.join("bin/sh"), "#!").unwrap();
        fs::set_permissions(root.join("bin/sh"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::hard_link(root.join("bin/sh"), root.join("bin/ash")).unwrap();
        symlink(format!("//{}", "x/".repeat(90)), root.join("long")).unwrap();
        let deep = "d".repeat(120);
        fs::create_dir(root.join(&deep)).unwrap();
        fs::write(root.join(&deep).join("file"), "deep").unwrap();
        for path in ["bin", "bin/sh", &deep, &format!("{deep}/file")] {
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
            File::open(root.join(path))
                .unwrap()
                .set_modified(at)
                .unwrap();
        }
        let link = rustix::fs::Timespec {
            tv_sec: 7,
            tv_nsec: 0,
        };
        rustix::fs::utimensat(
            rustix::fs::CWD,
            root.join("long"),
            &rustix::fs::Timestamps {
                last_access: link,
                last_modification: link,
            },
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )
        .unwrap();
    }
    let first = place.import("root", Some("one")).unwrap().remove(0);
    let second = place.import("again", Some("two")).unwrap().remove(0);
    assert_eq!(first.image, second.image);
    let layer = &first.image.manifest.layers[0].descriptor;
    assert_eq!(first.image.config.diff_ids, [layer.digest]);
    let mut tar = tar::Archive::new(place.content.open_blob(&layer.digest).unwrap());
    let listed: Vec<_> = tar
        .entries()
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let link = entry.link_name_bytes().map(|link| link.len());
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            (
                name.len(),
                entry.header().entry_type(),
                entry.header().mode().unwrap(),
                link,
            )
        })
        .collect();
    let (file, directory) = (tar::EntryType::Regular, tar::EntryType::Directory);
    assert_eq!(
        listed,
        [
            (3, directory, 0o755, None),
            (7, file, 0o4755, None),
            (6, tar::EntryType::Link, 0o4755, Some(7)),
            (120, directory, 0o755, None),
            (125, file, 0o644, None),
            (4, tar::EntryType::Symlink, 0o777, Some(182)),
        ]
    );
}

#[test]
fn a_root_with_the_mark_of_a_whiteout_is_refused() {
    let place = Place::new();
    fs::create_dir(place.path("root")).unwrap();
    fs::write(place.path("root/.wh.x"), "").unwrap();
    let error = place.refused("root", Some("a"));
    assert!(error.starts_with("`.wh.x` in "), "{error}");
    fs::create_dir(place.path("plain")).unwrap();
    fs::write(place.path("plain/x"), "").unwrap();
    assert!(
        place
            .refused("plain", None)
            .contains("does not say what its image is called")
    );
}

#[test]
fn the_rest_of_a_layout_is_no_root() {
    let place = Place::new();
    let rest = place.path("rest");
    fs::create_dir_all(rest.join("blobs/sha256")).unwrap();
    fs::write(rest.join("blobs/sha256").join("a".repeat(64)), "x").unwrap();
    for more in [None, Some("index.json"), Some(".DS_Store")] {
        if let Some(more) = more {
            fs::write(rest.join(more), "{}").unwrap();
        }
        let error = place.refused("rest", Some("a"));
        assert!(
            error.contains("it has the blobs of an image layout and no `oci-layout`"),
            "{error}"
        );
    }
    // A root may have a directory of that name.
    fs::create_dir(rest.join("etc")).unwrap();
    place.import("rest", Some("a")).unwrap();
}

#[test]
fn the_store_itself_is_no_part_of_a_root() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    let imported = place.import("", Some("a")).unwrap();
    let layer = imported[0].image.manifest.layers[0].descriptor.size;
    assert_eq!(layer, 512 + 512 + 1024);
}
