//! Imports: what is taken, and what is refused with the entry named and the store as before.

use std::fs::{self, File};
use std::io::Write;

use rstest::rstest;
use serde_json::{Value, json};
use tidemill_tests::{Mode, TarEntry, World, busybox_root, skip, write_tar};

use super::made::{Layout, give_all, image, refused};
use super::registry::has_tools;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn a_root_directory_becomes_an_image(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    let root = world.path().join("a-root");
    if let Err(why) = busybox_root(&root, world.account()) {
        return skip(&why);
    }
    let root = root.to_str().unwrap();
    let first = image(&world, &["import", root, "--name", "one"]);
    let second = image(
        &world,
        &["import", root, "--name", "two", "--platform", "arm64"],
    );
    let (first, second) = (&first["images"][0], &second["images"][0]);
    assert_eq!(second["platform"], "linux/arm64");
    let layer = |image_name: &str| image(&world, &["show", image_name])["layers"][0].take();
    assert_eq!(layer("one"), layer("two"));
    assert_ne!(first["digest"], second["digest"]);
    refused(
        &world,
        &["import", root],
        125,
        "does not say what its image is called",
    );
}

#[test]
fn an_archive_comes_through_a_pipe() {
    let Some(world) = World::new(Mode::Rootless).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, b"second") else {
        return;
    };
    let path = world.path().join("saved.tar");
    layout.copy_to(&format!("docker-archive:{}:box:saved", path.display()), &[]);
    let plain = fs::read(&path).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    let packed = zstd::encode_all(plain.as_slice(), 1).unwrap();
    for bytes in [plain, gzip.finish().unwrap(), packed] {
        let done = world.command(["image", "import", "-"]).input(bytes).run();
        assert_eq!(done.code, 0, "{done}");
        assert!(done.out().starts_with("box:saved  sha256:"), "{done}");
        image(&world, &["rm", "box:saved"]);
    }
}

/// An archive of `docker save` with a config and these layers, before anything in it is changed.
fn saved(layer_name: &str) -> Vec<TarEntry> {
    let config = json!({ "architecture": "amd64", "os": "linux",
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", "0".repeat(64))] } });
    let manifest = json!([{ "Config": "c.json", "RepoTags": ["a:b"], "Layers": [layer_name] }]);
    vec![
        TarEntry::file("manifest.json", manifest.to_string()),
        TarEntry::file("c.json", config.to_string()),
        TarEntry::file("layer.tar", "a layer"),
    ]
}

#[test]
fn what_is_no_image_is_refused() {
    let Some(world) = World::new(Mode::Rootless) else {
        return;
    };
    world.write("root/file", "x");
    image(
        &world,
        &[
            "import",
            world.work().join("root").to_str().unwrap(),
            "--name",
            "kept",
        ],
    );
    let archive = |entries: &[TarEntry]| {
        let path = world.work().join("bad.tar");
        write_tar(File::create(&path).unwrap(), entries);
        world.give(&path);
        path.to_str().unwrap().to_owned()
    };
    let import = |path: &str, said: &str| {
        refused(&world, &["import", path, "--platform", "amd64"], 125, said);
    };
    import(
        &archive(&saved("../../../etc/passwd")),
        "`../../../etc/passwd` in",
    );
    import(&archive(&saved("other.tar")), "`other.tar` is not in");
    import(&archive(&saved("layer.tar")), "`layer.tar` in");
    import(
        &archive(&[TarEntry::file("etc/passwd", "x")]),
        "neither an `index.json` nor a",
    );
    let mut linked = saved("layer.tar");
    linked[2] = TarEntry::symlink("layer.tar", "../../../etc/passwd");
    import(&archive(&linked), "links out of the archive");
    let text = world.write("text", "this is not an archive, however long it may be");
    import(text.to_str().unwrap(), "it is not a tar archive");
    import("/dev/null", "it is neither a directory nor a file");
    import("nowhere", "failed to read `nowhere`");
    let whole = fs::read(archive(&saved("layer.tar"))).unwrap();
    let cut = world.write("cut.tar", &whole[..1600]);
    import(
        cut.to_str().unwrap(),
        "is cut off: the archive is not whole",
    );
}

#[test]
fn layouts_with_what_is_not_read_are_refused() {
    let Some(world) = World::new(Mode::Root).filter(|_| has_tools()) else {
        return;
    };
    let Some(layout) = Layout::make(&world, b"second") else {
        return;
    };
    let path = layout.path.to_str().unwrap();
    let import = |said: &str| {
        refused(&world, &["import", path, "--name", "a"], 125, said);
    };
    let hex = layout.digest().replace("sha256:", "");
    let blob = layout.path.join("blobs/sha256").join(&hex);
    let good = fs::read(&blob).unwrap();
    fs::write(&blob, [b"{".repeat(good.len()).as_slice()].concat()).unwrap();
    import(&format!("`blobs/sha256/{hex}` in"));
    // As a tool that encrypts layers has it, and then one that nobody knows.
    for (kind, said) in [
        (
            "application/vnd.oci.image.layer.v1.tar+gzip+encrypted",
            "is encrypted",
        ),
        (
            "application/x-squashfs",
            "is `application/x-squashfs`, which is not read",
        ),
    ] {
        let mut manifest: Value = serde_json::from_slice(&good).unwrap();
        manifest["layers"][1]["mediaType"] = kind.into();
        put_manifest(&world, &layout, &manifest);
        import("layer 2 of sha256:");
        import(said);
    }
    let mut manifest: Value = serde_json::from_slice(&good).unwrap();
    manifest["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json".into();
    put_manifest(&world, &layout, &manifest);
    import("is no container image");
}

/// Makes this the manifest of the layout's image.
fn put_manifest(world: &World, layout: &Layout, manifest: &Value) {
    let bytes = manifest.to_string();
    let blobs = layout.path.join("blobs/sha256");
    let draft = blobs.join("draft");
    fs::write(&draft, &bytes).unwrap();
    let sum = std::process::Command::new("sha256sum")
        .arg(&draft)
        .output()
        .unwrap();
    let hex = String::from_utf8(sum.stdout).unwrap()[..64].to_owned();
    fs::rename(&draft, blobs.join(&hex)).unwrap();
    let index = json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": format!("sha256:{hex}"), "size": bytes.len(),
    }]});
    fs::write(layout.path.join("index.json"), index.to_string()).unwrap();
    give_all(world, &layout.path);
}
