//! The blobs of OCI images, as far as their room matters.

use std::path::Path;

use serde::Serialize;
use tidemill_oci::{Content, ContentError, Names};
use tidemill_tree::{all_cores, map_all};

use crate::failure::{Failure, FailureKind};
use crate::ui::Ui;

/// What the blobs of images take up, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct ImageUsage {
    /// Images that have a name.
    pub(super) images: u64,
    /// Blobs of all kinds: layers, configurations, manifests.
    pub(super) blobs: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// The part of them that no name leads to.
    pub(super) unnamed_bytes: u64,
    /// Bytes of downloads that were not finished.
    pub(super) partial_bytes: u64,
}

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct ImagesPruned {
    pub(super) freed_bytes: u64,
    pub(super) failures: Vec<String>,
}

/// The store of blobs, if there is one.
fn content(state_dir: &Path) -> Result<Option<Content>, Failure> {
    let base = state_dir.join("images");
    // Opening makes it, and whoever only looks makes nothing.
    if !base.join("index.json").exists() && !base.join("blobs").exists() {
        return Ok(None);
    }
    Content::open(base)
        .map(Some)
        .map_err(|error| failed(&error))
}

/// Sums them up. If the names cannot be read, that is said, and no blob counts as one that no name leads to.
pub(super) fn usage(state_dir: &Path, ui: &Ui) -> Result<ImageUsage, Failure> {
    let Some(content) = content(state_dir)? else {
        return Ok(ImageUsage::default());
    };
    let names = Names::new(&content);
    let known = names
        .list()
        .and_then(|list| Ok((list.len() as u64, names.needed()?)));
    let (images, needed) = match known {
        Ok((images, needed)) => (images, Some(needed)),
        Err(error) => {
            ui.note(&format!("warning: {}", failed(&error).hint(error.hint())));
            (0, None)
        }
    };
    let mut usage = ImageUsage {
        images,
        ..ImageUsage::default()
    };
    for blob in content.list().map_err(|error| failed(&error))? {
        usage.blobs += 1;
        usage.bytes += blob.size;
        if needed
            .as_ref()
            .is_some_and(|needed| !needed.contains(&blob.digest))
        {
            usage.unnamed_bytes += blob.size;
        }
    }
    let partials = content.partials().map_err(|error| failed(&error))?;
    usage.partial_bytes = partials.iter().map(|partial| partial.size).sum();
    Ok(usage)
}

/// Removes blobs that no name leads to, and downloads that nobody is at.
pub(super) fn prune(state_dir: &Path) -> ImagesPruned {
    let mut pruned = ImagesPruned::default();
    let content = match content(state_dir) {
        Ok(Some(content)) => content,
        Ok(None) => return pruned,
        Err(failure) => {
            pruned.failures.push(failure.to_string());
            return pruned;
        }
    };
    match Names::new(&content).collect() {
        Ok(Some(freed)) => pruned.freed_bytes += freed,
        Ok(None) => pruned.failures.push(
            "an image is being fetched or unpacked, so that no blob was removed: try again"
                .to_owned(),
        ),
        Err(error) => pruned.failures.push(failed(&error).to_string()),
    }
    for partial in content.partials().unwrap_or_default() {
        match content.remove_partial(&partial.digest) {
            Ok(true) => pruned.freed_bytes += partial.size,
            Ok(false) => {}
            Err(error) => pruned.failures.push(failed(&error).to_string()),
        }
    }
    pruned
}

/// What reading all blobs gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct ImagesVerified {
    /// Blobs that were read.
    pub(super) blobs: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// What is damaged. It was removed, and is fetched again with its image.
    pub(super) damaged: Vec<String>,
    /// What could not be read or removed.
    pub(super) failures: Vec<String>,
}

/// Reads all blobs with all cores. Those that are damaged are removed, so that they are fetched again.
pub(super) fn verify(state_dir: &Path) -> Result<ImagesVerified, Failure> {
    let mut verified = ImagesVerified::default();
    let Some(content) = content(state_dir)? else {
        return Ok(verified);
    };
    let blobs = content.list().map_err(|error| failed(&error))?;
    let results = map_all(
        &blobs,
        all_cores(),
        || (),
        |(), blob| content.verify(&blob.digest),
    );
    for (blob, result) in blobs.iter().zip(results) {
        verified.blobs += 1;
        match result {
            Ok(bytes) => verified.bytes += bytes,
            Err(ContentError::Damaged { .. }) => {
                verified.damaged.push(blob.digest.to_string());
                if let Err(error) = content.remove(&blob.digest) {
                    verified.failures.push(failed(&error).to_string());
                }
            }
            // It was removed meanwhile.
            Err(ContentError::Missing { .. }) => {}
            Err(error) => verified.failures.push(failed(&error).to_string()),
        }
    }
    Ok(verified)
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::new(FailureKind::State, "the store of images cannot be used").because(error)
}
