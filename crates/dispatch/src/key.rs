//! Names of what jobs share: blobs, trees and stacks.

use std::fmt;
use std::sync::Arc;

use tidemill_core::Digest;

/// One layer of a job, as far as the dispatcher cares.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LayerRef {
    /// Bytes that are fetched by digest.
    Blob {
        /// Their digest.
        digest: Digest,
        /// What they are.
        form: BlobForm,
    },
    /// Something that is on this machine already and only has to be built. The name is chosen by
    /// the adapter; equal names mean equal trees.
    Local(Arc<str>),
}

impl LayerRef {
    /// A layer that is built from what is on this machine.
    pub fn local(name: impl Into<Arc<str>>) -> Self {
        Self::Local(name.into())
    }

    /// A layer that is one archive.
    pub const fn archive(digest: Digest) -> Self {
        let form = BlobForm::Archive;
        Self::Blob { digest, form }
    }

    /// A layer that is a manifest and the blobs that it names.
    pub const fn manifest(digest: Digest) -> Self {
        let form = BlobForm::Manifest;
        Self::Blob { digest, form }
    }
}

impl fmt::Display for LayerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blob { digest, form } => write!(f, "{form} {digest}"),
            Self::Local(name) => f.write_str(name),
        }
    }
}

/// What a layer's blob is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlobForm {
    /// An archive that holds the whole layer.
    Archive,
    /// A list of entries whose contents are blobs of their own.
    Manifest,
}

impl fmt::Display for BlobForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Archive => "archive",
            Self::Manifest => "manifest",
        })
    }
}

/// Something in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// Bytes.
    Blob(Digest),
    /// One unpacked layer.
    Tree(LayerRef),
    /// Several trees, one over the other.
    Stack(StackKey),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blob(digest) => write!(f, "blob {digest}"),
            Self::Tree(layer) => write!(f, "tree of {layer}"),
            Self::Stack(stack) => write!(f, "stack {stack}"),
        }
    }
}

/// Names a stack by what it is made of: equal lists of layers have equal keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackKey {
    /// A digest over all layers, the lowest first.
    pub digest: Digest,
    /// How many layers.
    pub height: u32,
}

impl StackKey {
    /// The stack that is only this layer.
    pub fn lowest(layer: &LayerRef) -> Self {
        Self {
            digest: Digest::of(layer.to_string().as_bytes()),
            height: 1,
        }
    }

    /// This stack with one more layer over it.
    #[must_use]
    pub fn under(self, layer: &LayerRef) -> Self {
        // The digest's text has a fixed length, so no two different pairs give the same bytes.
        Self {
            digest: Digest::of(format!("{}{layer}", self.digest).as_bytes()),
            height: self.height.saturating_add(1),
        }
    }
}

impl fmt::Display for StackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} layers {}", self.height, self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_named_by_all_its_layers_in_order() {
        let [a, b] = ["a", "b"].map(LayerRef::local);
        let stack = |layers: &[&LayerRef]| {
            let lowest = StackKey::lowest(layers[0]);
            (layers[1..].iter()).fold(lowest, |below, layer| below.under(layer))
        };
        assert_eq!(stack(&[&a, &b]), stack(&[&a, &b]));
        assert_ne!(stack(&[&a, &b]), stack(&[&b, &a]));
        assert_ne!(stack(&[&a, &b]), stack(&[&a, &b, &b]));
        assert_eq!(stack(&[&a, &b, &b]).height, 3);
    }

    #[test]
    fn an_archive_and_a_manifest_of_one_blob_are_different_layers() {
        let digest = Digest::of(b"x");
        let [archive, manifest] = [LayerRef::archive(digest), LayerRef::manifest(digest)];
        assert_ne!(StackKey::lowest(&archive), StackKey::lowest(&manifest));
        assert_eq!(
            Key::Tree(archive).to_string(),
            format!("tree of archive {digest}")
        );
    }
}
