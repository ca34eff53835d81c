//! Names, platforms, manifests, indexes and configurations of container images.

use tidemill_oci::manifest::{ENTRIES_MAX, LAYERS_MAX};
use tidemill_oci::{Document, ImageConfig, Platform, Reference, digest_of};

/// A name is written as it is read; a document is about its own bytes, within its bounds, and what is wrong
/// can be told on a terminal.
pub fn oci_text(bytes: &[u8]) {
    if let Ok(text) = str::from_utf8(bytes) {
        name(text);
        if let Ok(platform) = text.parse::<Platform>() {
            assert_eq!(platform.to_string().parse(), Ok(platform.clone()));
            assert!(platform.accepts(&platform));
        }
    }
    match Document::parse(bytes, None) {
        Ok(Document::Manifest(manifest)) => {
            assert_eq!(manifest.descriptor.digest, digest_of(bytes));
            assert_eq!(manifest.descriptor.size, bytes.len() as u64);
            assert!(manifest.layers.len() <= LAYERS_MAX);
            assert!(manifest.size() >= manifest.descriptor.size);
        }
        Ok(Document::Index(index)) => {
            assert!(index.entries.len() <= ENTRIES_MAX);
            if let Ok(chosen) = Platform::host().choose(&index) {
                assert!(index.entries.contains(chosen));
            }
        }
        Err(error) => told(&error.to_string()),
    }
    if let Err(error) = ImageConfig::parse(bytes) {
        told(&error.to_string());
    }
}

fn name(text: &str) {
    match text.parse::<Reference>() {
        Ok(reference) => {
            let whole = reference.to_string();
            // A tag may have dots in a row; what becomes a path of a registry may not.
            let path = reference.repository();
            assert!(!path.contains("..") && !path.contains("//"), "{whole}");
            assert!(reference.tag().is_some() || reference.digest().is_some());
            assert_eq!(whole.parse(), Ok(reference.clone()));
            assert_eq!(reference.to_short().parse(), Ok(reference));
        }
        Err(error) => told(&error.to_string()),
    }
}

/// What is said of a mistake must not move a terminal's cursor.
fn told(text: &str) {
    assert!(!text.contains(|c: char| c.is_control()), "{text:?}");
}
