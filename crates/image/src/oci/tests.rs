#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod layers;
mod portrait;
mod reference;
mod sharing;

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

use super::*;
use crate::tree_store::TreeStore;

/// One entry of a layer.
#[derive(Debug, Clone)]
struct Item {
    name: Vec<u8>,
    kind: EntryType,
    link: Vec<u8>,
    data: Vec<u8>,
    mode: u32,
    owner: (u64, u64),
    mtime: u64,
    xattrs: Vec<(String, Vec<u8>)>,
}

fn item(name: &str, kind: EntryType) -> Item {
    Item {
        name: name.as_bytes().to_owned(),
        kind,
        link: Vec::new(),
        data: Vec::new(),
        mode: if kind == EntryType::Directory {
            0o755
        } else {
            0o644
        },
        owner: (0, 0),
        mtime: 1_600_000_000,
        xattrs: Vec::new(),
    }
}

fn dir(name: &str) -> Item {
    item(&format!("{name}/"), EntryType::Directory)
}

fn file(name: &str, data: &str) -> Item {
    Item {
        data: data.as_bytes().to_owned(),
        ..item(name, EntryType::Regular)
    }
}

fn symlink(name: &str, target: &str) -> Item {
    Item {
        link: target.as_bytes().to_owned(),
        mode: 0o777,
        ..item(name, EntryType::Symlink)
    }
}

fn hard(name: &str, target: &str) -> Item {
    Item {
        link: target.as_bytes().to_owned(),
        ..item(name, EntryType::Link)
    }
}

impl Item {
    fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    fn owner(mut self, uid: u64, gid: u64) -> Self {
        self.owner = (uid, gid);
        self
    }

    fn at(mut self, mtime: u64) -> Self {
        self.mtime = mtime;
        self
    }

    fn xattr(mut self, name: &str, value: &[u8]) -> Self {
        self.xattrs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What a header has no room for.
    fn records(&self) -> Vec<(String, Vec<u8>)> {
        let mut records: Vec<(String, Vec<u8>)> = (self.xattrs.iter())
            .map(|(name, value)| (format!("SCHILY.xattr.{name}"), value.clone()))
            .collect();
        if self.name.len() > 100 {
            records.push(("path".to_owned(), self.name.clone()));
        }
        if self.link.len() > 100 {
            records.push(("linkpath".to_owned(), self.link.clone()));
        }
        records
    }
}

fn layer_of(items: &[Item]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for item in items {
        let records = item.records();
        let records = records
            .iter()
            .map(|(key, value)| (key.as_str(), &value[..]));
        builder.append_pax_extensions(records).unwrap();
        let mut header = Header::new_ustar();
        let cut = |text: &[u8]| text[..text.len().min(100)].to_owned();
        let (name, link) = (cut(&item.name), cut(&item.link));
        header.as_ustar_mut().unwrap().name[..name.len()].copy_from_slice(&name);
        header.as_ustar_mut().unwrap().linkname[..link.len()].copy_from_slice(&link);
        header.set_entry_type(item.kind);
        header.set_size(item.data.len() as u64);
        header.set_mode(item.mode);
        header.set_mtime(item.mtime);
        header.set_uid(item.owner.0);
        header.set_gid(item.owner.1);
        header.set_cksum();
        builder.append(&header, &item.data[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn sha256(bytes: &[u8]) -> OciDigest {
    OciDigest::from_bytes(Sha256::digest(bytes).into())
}

struct World {
    base: TempDir,
    trees: TreeStore,
}

impl World {
    fn new() -> Self {
        Self::with_owners(ArchiveOwners::of_this_process())
    }

    fn with_owners(owners: ArchiveOwners) -> Self {
        let base = tempfile::tempdir().unwrap();
        let trees = TreeStore::open(base.path().join("trees")).unwrap();
        fs::create_dir_all(base.path().join("layout/blobs/sha256")).unwrap();
        Self {
            base,
            trees: trees.with_owners(owners),
        }
    }

    fn blob_path(&self, digest: &OciDigest) -> PathBuf {
        let blobs = self.base.path().join("layout/blobs/sha256");
        blobs.join(digest.to_hex())
    }

    fn add_blob(&self, bytes: &[u8]) -> OciDigest {
        let digest = sha256(bytes);
        fs::write(self.blob_path(&digest), bytes).unwrap();
        digest
    }

    fn add_layer(&self, plain: &[u8], compress: impl Fn(&[u8]) -> Vec<u8>) -> ImageLayer {
        let digest = self.add_blob(&compress(plain));
        ImageLayer {
            blob: self.blob_path(&digest),
            digest,
            diff_id: sha256(plain),
        }
    }

    fn image(&self, layers: &[Vec<Item>]) -> ImageLayers {
        let layers = layers
            .iter()
            .map(|items| self.add_layer(&layer_of(items), gzip));
        image_of(layers.collect())
    }

    /// The root of the image's tree.
    fn build(&self, layers: &[Vec<Item>]) -> Result<PathBuf, ImageTreeError> {
        build(&self.image(layers), &self.trees)
    }

    fn lacks(&self, layers: &[Vec<Item>]) -> Vec<String> {
        let name = image_tree_name(&self.image(layers).manifest, self.trees.owners());
        self.trees.note(&name).unwrap().lacks
    }
}

fn image_of(layers: Vec<ImageLayer>) -> ImageLayers {
    let blobs: Vec<OciDigest> = layers.iter().map(|layer| layer.digest).collect();
    ImageLayers {
        manifest: sha256(format!("{blobs:?}").as_bytes()),
        known_as: "example:1".to_owned(),
        layers,
    }
}

fn build(image: &ImageLayers, trees: &TreeStore) -> Result<PathBuf, ImageTreeError> {
    let name = image_tree_name(&image.manifest, trees.owners());
    trees.get_or_build_with(&name, |building| image.build(building, trees))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
