//! Images made by hand, as layouts.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::EntryType;
use tidemill_tests::{TarEntry, World, busybox_tar, skip, write_tar};

/// An image to be.
pub(super) struct Made {
    /// The archives of its layers, before they are compressed.
    pub(super) layers: Vec<Vec<u8>>,
    /// What the config has below `config`.
    pub(super) config: Value,
    /// What the config says of its layers instead of the truth.
    pub(super) diff_ids: Option<Vec<String>>,
}

/// The archive of a small root with busybox. None if there is no busybox here, which was said then.
pub(super) fn base() -> Option<Vec<u8>> {
    let mut archive = Vec::new();
    match busybox_tar(&mut archive) {
        Ok(()) => Some(archive),
        Err(why) => {
            skip(&why);
            None
        }
    }
}

pub(super) fn layer(entries: &[TarEntry]) -> Vec<u8> {
    let mut archive = Vec::new();
    write_tar(&mut archive, entries);
    archive
}

pub(super) fn hard(path: &str, target: &str) -> TarEntry {
    TarEntry {
        kind: EntryType::Link,
        ..TarEntry::symlink(path, target)
    }
}

pub(super) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

impl Made {
    pub(super) fn new(layers: Vec<Vec<u8>>) -> Self {
        Self {
            layers,
            config: json!({}),
            diff_ids: None,
        }
    }

    /// Writes a layout with this image only, and answers the digest of its manifest.
    pub(super) fn write(&self, world: &World, directory: &str) -> (PathBuf, String) {
        let layout = world.work().join(directory);
        let put = |bytes: &[u8]| {
            let digest = digest(bytes);
            let name = digest.trim_start_matches("sha256:");
            world.write(layout.join("blobs/sha256").join(name), bytes);
            digest
        };
        let layers: Vec<Value> = (self.layers.iter())
            .map(|plain| {
                let packed = pack(plain);
                json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                    "digest": put(&packed), "size": packed.len() })
            })
            .collect();
        let diff_ids = self.diff_ids.clone();
        let diff_ids =
            diff_ids.unwrap_or_else(|| self.layers.iter().map(|plain| digest(plain)).collect());
        let config = json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux", "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        })
        .to_string();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": put(config.as_bytes()), "size": config.len() },
            "layers": layers,
        })
        .to_string();
        let named = put(manifest.as_bytes());
        let index = json!({ "schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": named, "size": manifest.len() }] });
        world.write(layout.join("index.json"), index.to_string());
        world.write(
            layout.join("oci-layout"),
            r#"{"imageLayoutVersion":"1.0.0"}"#,
        );
        (layout, named)
    }

    /// Takes the image in under a name, and answers the digest of its manifest.
    pub(super) fn import(&self, world: &World, name: &str) -> String {
        let directory = format!("layout-{}", name.replace([':', '/'], "-"));
        let (layout, digest) = self.write(world, &directory);
        world.ask(["image", "import", layout.to_str().unwrap(), "--name", name]);
        fs::remove_dir_all(layout).unwrap();
        digest
    }
}

/// The flags of a job in an image.
pub(super) fn in_image(name: &str) -> [String; 3] {
    [
        "--image".to_owned(),
        format!("oci:{name}"),
        "--no-workspace".to_owned(),
    ]
}

/// The digest of a layer as layouts of [`Made`] have it.
pub(super) fn packed_digest(plain: &[u8]) -> String {
    digest(&pack(plain))
}

fn pack(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}
