//! What manifests and indexes say: OCI's, and Docker's version 2, schema 2.
//! <https://github.com/opencontainers/image-spec/blob/main/manifest.md>

use oci_spec::image as spec;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::digest::{OciDigest, digest_of};
use crate::media_type::{Compression, MediaType};
use crate::platform::Platform;
use crate::shown::shown;

/// Bytes of a manifest or an index: what registries take at most.
pub const MANIFEST_BYTES_MAX: u64 = 4 << 20;
/// Layers of an image. Docker's own limit is 127.
pub const LAYERS_MAX: usize = 512;
/// Images of an index.
pub const ENTRIES_MAX: usize = 4096;
/// Bytes of a blob: what a file system could hold, so that sums do not overflow.
const BLOB_BYTES_MAX: u64 = 1 << 48;

/// The annotation that names an image in an image layout.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation with the whole name, where docker puts no more than a tag into the other one.
const WHOLE_NAME: &str = "io.containerd.image.name";

/// Which bytes are meant: how many, with which digest, and what they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What they are.
    pub media_type: String,
    /// Their digest.
    pub digest: OciDigest,
    /// How many they are.
    pub size: u64,
}

/// One image for one platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The manifest's own bytes.
    pub descriptor: Descriptor,
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
}

/// A layer of an image: a tar archive of what it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Its bytes, as they are stored.
    pub descriptor: Descriptor,
    /// How they are compressed, by their media type.
    pub compression: Compression,
}

/// Several images, usually one for each platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// In the index's order.
    pub entries: Vec<IndexEntry>,
}

/// One image of an index, or an index in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexEntry {
    /// Its manifest.
    pub descriptor: Descriptor,
    /// What it is for, if that is told.
    pub platform: Option<Platform>,
    /// Its name, as image layouts give one.
    pub name: Option<String>,
}

/// What a name can lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// Several.
    Index(Index),
}

/// Why bytes are not a manifest that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or something is missing in it.
    #[error("{digest} is not a manifest: {problem}")]
    Malformed {
        /// The manifest.
        digest: OciDigest,
        /// What is wrong, with its line and column.
        problem: String,
    },
    /// Docker's first manifest.
    #[error("{digest} is a manifest of Docker's schema 1, whose digests cannot be checked")]
    SchemaOne {
        /// The manifest.
        digest: OciDigest,
    },
    /// The manifest itself is of a kind that is not an image's.
    #[error("{digest} is `{media_type}`, which is not the manifest of an image")]
    Kind {
        /// The manifest.
        digest: OciDigest,
        /// What it says it is.
        media_type: String,
    },
    /// Its configuration is that of something else, such as a chart.
    #[error("{digest} is no container image: its configuration {config} is `{media_type}`")]
    NotAnImage {
        /// The manifest.
        digest: OciDigest,
        /// The configuration's digest.
        config: OciDigest,
        /// What it is.
        media_type: String,
    },
    /// A layer is encrypted.
    #[error("layer {number} of {digest}, {layer}, is encrypted (`{media_type}`)")]
    Encrypted {
        /// The manifest.
        digest: OciDigest,
        /// Which layer, counted from 1.
        number: usize,
        /// The layer's digest.
        layer: OciDigest,
        /// What it is.
        media_type: String,
    },
    /// A layer is something that is not read.
    #[error("layer {number} of {digest}, {layer}, is `{media_type}`, which is not read")]
    LayerKind {
        /// The manifest.
        digest: OciDigest,
        /// Which layer, counted from 1.
        number: usize,
        /// The layer's digest.
        layer: OciDigest,
        /// What it is.
        media_type: String,
    },
    /// More than is sensible.
    #[error("{digest} has {count} {what}, and {max} are read at most")]
    TooMany {
        /// The manifest.
        digest: OciDigest,
        /// `layers` or `images`.
        what: &'static str,
        /// How many.
        count: usize,
        /// The limit.
        max: usize,
    },
}

impl ManifestError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Malformed { .. } => "build or push the image again; its manifest is damaged",
            Self::SchemaOne { .. } => "pull and push it with a newer docker, or rebuild it",
            Self::Kind { .. } | Self::NotAnImage { .. } => "name a container image",
            Self::Encrypted { .. } => "decrypt it first, for example with skopeo and its keys",
            Self::LayerKind { .. } => "rebuild it with layers of tar, gzip or zstd",
            Self::TooMany { .. } => "squash the image, or name one of its images by digest",
        }
    }
}

/// What tells a manifest from an index before either is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    schema_version: Option<u64>,
    media_type: Option<String>,
    manifests: Option<IgnoredAny>,
    layers: Option<IgnoredAny>,
    config: Option<IgnoredAny>,
    fs_layers: Option<IgnoredAny>,
}

impl Document {
    /// Reads a manifest or an index. `media_type` is what whoever had it said it is, if anything; what
    /// stands in it counts more.
    pub fn parse(bytes: &[u8], media_type: Option<&str>) -> Result<Self, ManifestError> {
        let digest = digest_of(bytes);
        let malformed = |problem: String| ManifestError::Malformed { digest, problem };
        let outline: Outline =
            serde_json::from_slice(bytes).map_err(|error| malformed(shown(&error)))?;
        let declared = outline.media_type.as_deref().or(media_type);
        let kind = declared.and_then(MediaType::of);
        if outline.schema_version == Some(1)
            || outline.fs_layers.is_some()
            || kind == Some(MediaType::SchemaOne)
        {
            return Err(ManifestError::SchemaOne { digest });
        }
        let is_index = outline.manifests.is_some();
        let is_manifest = outline.layers.is_some() || outline.config.is_some();
        if is_index && is_manifest {
            // Whoever reads it the other way would see another image.
            return Err(malformed("it is both a manifest and an index".to_owned()));
        }
        // A header may be as general as `application/json`; the document itself may not.
        let is_wrong = match kind {
            Some(MediaType::Manifest) => is_index,
            Some(MediaType::Index) => is_manifest,
            Some(_) => true,
            None => outline.media_type.is_some() || !(is_index || is_manifest),
        };
        if is_wrong {
            return Err(ManifestError::Kind {
                digest,
                media_type: declared
                    .unwrap_or("application/json")
                    .escape_debug()
                    .to_string(),
            });
        }
        let fallback = if is_index {
            crate::media_type::OCI_INDEX
        } else {
            crate::media_type::OCI_MANIFEST
        };
        let descriptor = Descriptor {
            media_type: declared
                .filter(|_| kind.is_some())
                .unwrap_or(fallback)
                .to_owned(),
            digest,
            size: bytes.len() as u64,
        };
        if is_index {
            Index::read(bytes, digest).map(Self::Index)
        } else {
            Manifest::read(bytes, descriptor).map(Self::Manifest)
        }
    }
}

impl Manifest {
    fn read(bytes: &[u8], descriptor: Descriptor) -> Result<Self, ManifestError> {
        let digest = descriptor.digest;
        let manifest: spec::ImageManifest = parse(bytes, digest)?;
        let config = Descriptor::read(manifest.config(), digest)?;
        if MediaType::of(&config.media_type) != Some(MediaType::Config) {
            return Err(ManifestError::NotAnImage {
                digest,
                config: config.digest,
                media_type: config.media_type.escape_debug().to_string(),
            });
        }
        let count = manifest.layers().len();
        if count > LAYERS_MAX {
            return Err(ManifestError::TooMany {
                digest,
                what: "layers",
                count,
                max: LAYERS_MAX,
            });
        }
        let layers = (1..)
            .zip(manifest.layers())
            .map(|(number, layer)| Layer::read(layer, number, digest))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            descriptor,
            config,
            layers,
        })
    }

    /// Everything that it names, each blob once.
    pub fn blobs(&self) -> Vec<&Descriptor> {
        let mut blobs = vec![&self.config];
        for layer in &self.layers {
            if !blobs
                .iter()
                .any(|blob| blob.digest == layer.descriptor.digest)
            {
                blobs.push(&layer.descriptor);
            }
        }
        blobs
    }

    /// Bytes of the manifest and of everything that it names.
    pub fn size(&self) -> u64 {
        let blobs: u64 = self.blobs().iter().map(|blob| blob.size).sum();
        self.descriptor.size + blobs
    }
}

impl Layer {
    fn read(
        layer: &spec::Descriptor,
        number: usize,
        digest: OciDigest,
    ) -> Result<Self, ManifestError> {
        let descriptor = Descriptor::read(layer, digest)?;
        let media_type = || descriptor.media_type.escape_debug().to_string();
        match MediaType::of(&descriptor.media_type) {
            Some(MediaType::Layer(compression)) => Ok(Self {
                descriptor,
                compression,
            }),
            _ if MediaType::is_encrypted(&descriptor.media_type) => Err(ManifestError::Encrypted {
                digest,
                number,
                layer: descriptor.digest,
                media_type: media_type(),
            }),
            _ => Err(ManifestError::LayerKind {
                digest,
                number,
                layer: descriptor.digest,
                media_type: media_type(),
            }),
        }
    }
}

impl Index {
    fn read(bytes: &[u8], digest: OciDigest) -> Result<Self, ManifestError> {
        let index: spec::ImageIndex = parse(bytes, digest)?;
        let count = index.manifests().len();
        if count > ENTRIES_MAX {
            return Err(ManifestError::TooMany {
                digest,
                what: "images",
                count,
                max: ENTRIES_MAX,
            });
        }
        let entries = index
            .manifests()
            .iter()
            .map(|entry| {
                let platform = entry.platform().as_ref().map(|platform| {
                    Platform::new(
                        &platform.os().to_string(),
                        &platform.architecture().to_string(),
                        platform.variant().as_deref(),
                    )
                });
                let annotations = entry.annotations().as_ref();
                Ok(IndexEntry {
                    descriptor: Descriptor::read(entry, digest)?,
                    platform,
                    name: annotations
                        .and_then(|all| all.get(WHOLE_NAME).or_else(|| all.get(REF_NAME)))
                        .cloned(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { entries })
    }
}

impl Descriptor {
    fn read(descriptor: &spec::Descriptor, manifest: OciDigest) -> Result<Self, ManifestError> {
        let malformed = |problem: String| ManifestError::Malformed {
            digest: manifest,
            problem,
        };
        let size = descriptor.size();
        if size > BLOB_BYTES_MAX {
            return Err(malformed(format!(
                "{} would have {size} bytes",
                descriptor.digest()
            )));
        }
        let digest = descriptor.digest().as_ref().parse::<OciDigest>();
        Ok(Self {
            media_type: descriptor.media_type().to_string(),
            digest: digest.map_err(|error| malformed(shown(&error)))?,
            size,
        })
    }

    /// True for what [`Document::parse`] reads.
    pub fn is_document(&self) -> bool {
        matches!(
            MediaType::of(&self.media_type),
            Some(MediaType::Manifest | MediaType::Index)
        )
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8], digest: OciDigest) -> Result<T, ManifestError> {
    serde_json::from_slice(bytes).map_err(|error| ManifestError::Malformed {
        digest,
        problem: shown(&error),
    })
}

#[cfg(test)]
mod tests;
