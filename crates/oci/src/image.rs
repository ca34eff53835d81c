//! An image in the store: its manifest and its configuration, which fit each other.

use crate::config::{CONFIG_BYTES_MAX, ConfigError, ImageConfig};
use crate::content::{Content, ContentError};
use crate::digest::OciDigest;
use crate::manifest::{Descriptor, Document, MANIFEST_BYTES_MAX, Manifest, ManifestError};
use crate::platform::{Platform, PlatformError};

/// Indexes in indexes.
const DEPTH_MAX: usize = 4;

/// A manifest with its configuration. `config.diff_ids` has one digest for each of `manifest.layers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The layers, as they are stored.
    pub manifest: Manifest,
    /// What runs in it.
    pub config: ImageConfig,
}

/// Why an image cannot be read from the store.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A blob is missing or damaged.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The manifest is not one that can be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The configuration is not one that can be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An index has nothing for the platform.
    #[error(transparent)]
    Platform(#[from] PlatformError),
    /// Indexes that lead to indexes.
    #[error("{digest} leads to more than {DEPTH_MAX} indexes, one in the other")]
    Depth {
        /// The last one.
        digest: OciDigest,
    },
    /// The image itself is for another platform.
    #[error("{digest} is an image for {found}, and {wanted} is wanted")]
    OtherPlatform {
        /// The manifest.
        digest: OciDigest,
        /// What it is for.
        found: Box<Platform>,
        /// What was asked for.
        wanted: Box<Platform>,
    },
    /// Manifest and configuration count their layers differently.
    #[error("{digest} has {layers} layers, and its configuration names {diff_ids}")]
    Layers {
        /// The manifest.
        digest: OciDigest,
        /// Layers in the manifest.
        layers: usize,
        /// Layers in the configuration.
        diff_ids: usize,
    },
}

impl ImageError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Content(error) => error.hint().to_owned(),
            Self::Manifest(error) => error.hint().to_owned(),
            Self::Config(_) | Self::Layers { .. } | Self::Depth { .. } => {
                "build or push the image again; it is damaged".to_owned()
            }
            Self::Platform(_) => "ask for one of them with --platform".to_owned(),
            Self::OtherPlatform { found, .. } => {
                format!("ask for it with --platform {found}, or name another image")
            }
        }
    }
}

impl Image {
    /// Puts together what belongs together.
    pub fn new(manifest: Manifest, config: &[u8]) -> Result<Self, ImageError> {
        let config = ImageConfig::parse(config)?;
        if config.diff_ids.len() != manifest.layers.len() {
            return Err(ImageError::Layers {
                digest: manifest.descriptor.digest,
                layers: manifest.layers.len(),
                diff_ids: config.diff_ids.len(),
            });
        }
        Ok(Self { manifest, config })
    }

    /// Reads an image by its manifest. Layers are not looked at.
    pub fn load(content: &Content, manifest: &Descriptor) -> Result<Self, ImageError> {
        match read_document(content, manifest)? {
            Document::Manifest(manifest) => {
                let config = content.read_small(&manifest.config, CONFIG_BYTES_MAX)?;
                Self::new(manifest, &config)
            }
            Document::Index(_) => Err(ManifestError::Kind {
                digest: manifest.digest,
                media_type: manifest.media_type.clone(),
            }
            .into()),
        }
    }

    /// Reads the image for a platform, through indexes if need be.
    pub fn choose(
        content: &Content,
        from: &Descriptor,
        platform: &Platform,
    ) -> Result<Self, ImageError> {
        let mut next = from.clone();
        for _ in 0..=DEPTH_MAX {
            match read_document(content, &next)? {
                Document::Index(index) => next = platform.choose(&index)?.descriptor.clone(),
                Document::Manifest(manifest) => {
                    let config = content.read_small(&manifest.config, CONFIG_BYTES_MAX)?;
                    let image = Self::new(manifest, &config)?;
                    image.check_platform(platform)?;
                    return Ok(image);
                }
            }
        }
        Err(ImageError::Depth {
            digest: next.digest,
        })
    }

    /// Refuses an image for another platform.
    pub fn check_platform(&self, wanted: &Platform) -> Result<(), ImageError> {
        if wanted.accepts(&self.config.platform) {
            return Ok(());
        }
        Err(ImageError::OtherPlatform {
            digest: self.manifest.descriptor.digest,
            found: Box::new(self.config.platform.clone()),
            wanted: Box::new(wanted.clone()),
        })
    }

    /// What of it is not in the store.
    pub fn missing(&self, content: &Content) -> Result<Vec<Descriptor>, ContentError> {
        let mut missing = Vec::new();
        for blob in self.manifest.blobs() {
            if !content.has(blob)? {
                missing.push(blob.clone());
            }
        }
        Ok(missing)
    }
}

fn read_document(content: &Content, descriptor: &Descriptor) -> Result<Document, ImageError> {
    let bytes = content.read_small(descriptor, MANIFEST_BYTES_MAX)?;
    Ok(Document::parse(&bytes, Some(&descriptor.media_type))?)
}
