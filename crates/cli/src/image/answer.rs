//! What is told of an image: the same in all answers.

use serde::Serialize;
use tidemill_core::ByteSize;
use tidemill_oci::{Image, Named, OciDigest, Reference};

/// Digits of a digest in tables: enough to tell images apart, and to name them by.
const SHORT_DIGITS: usize = 12;

/// An image in an answer as JSON.
#[derive(Debug, Serialize)]
pub(super) struct ImageAnswer {
    name: Reference,
    /// Of the manifest.
    digest: OciDigest,
    platform: String,
    /// The index that it was chosen from.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<OciDigest>,
    /// True if the name was given here, so that no registry is asked for it.
    is_local: bool,
    /// When it was made, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<String>,
    layers: usize,
    /// Bytes of everything that it needs, as it is stored.
    size: u64,
}

impl ImageAnswer {
    pub(super) fn new(named: &Named, image: &Image) -> Self {
        Self {
            name: named.reference.clone(),
            digest: named.manifest.digest,
            platform: named.platform.to_string(),
            index: named.index,
            is_local: named.is_local,
            created: image.config.created.clone(),
            layers: image.manifest.layers.len(),
            size: image.manifest.size(),
        }
    }
}

/// The beginning of a digest.
pub(super) fn short(digest: &OciDigest) -> String {
    let mut hex = digest.to_hex();
    hex.truncate(SHORT_DIGITS);
    hex
}

/// One line: the name, held to its digest, as `run --image` takes it, and what it is.
pub(super) fn line(named: &Named, image: &Image) -> String {
    format!(
        "{}  {}  {}  {}",
        named.reference.to_short(),
        named.manifest.digest,
        named.platform,
        ByteSize(image.manifest.size())
    )
}
