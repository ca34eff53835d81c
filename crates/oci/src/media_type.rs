//! The media types of images: OCI's and those of Docker's image manifest version 2, schema 2.
//! <https://github.com/opencontainers/image-spec/blob/main/media-types.md>
//! <https://distribution.github.io/distribution/spec/manifest-v2-2/>

/// What a blob of an image is, as far as it is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaType {
    /// One image for one platform.
    Manifest,
    /// Several images, usually one for each platform.
    Index,
    /// The configuration of an image.
    Config,
    /// A layer.
    Layer(Compression),
    /// Docker's first manifest, which names no digests that could be checked.
    SchemaOne,
}

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    None,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
}

/// OCI's name of a manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// OCI's name of an index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// OCI's name of a configuration.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// OCI's name of a layer without compression.
pub const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// Docker's name of a manifest.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker's name of an index.
pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker's name of a configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

const KNOWN: &[(&str, MediaType)] = &[
    (OCI_MANIFEST, MediaType::Manifest),
    (OCI_INDEX, MediaType::Index),
    (OCI_CONFIG, MediaType::Config),
    (DOCKER_MANIFEST, MediaType::Manifest),
    (DOCKER_INDEX, MediaType::Index),
    (DOCKER_CONFIG, MediaType::Config),
    (
        "application/vnd.docker.distribution.manifest.v1+json",
        MediaType::SchemaOne,
    ),
    (
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        MediaType::SchemaOne,
    ),
];

/// What layers begin with, before their compression.
const LAYERS: &[&str] = &[
    OCI_LAYER,
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

/// What follows a layer that is encrypted, as ocicrypt writes it.
const ENCRYPTED: &str = "+encrypted";

impl MediaType {
    /// Reads a media type; `None` if it is not one of an image.
    pub fn of(text: &str) -> Option<Self> {
        if let Some((_, known)) = KNOWN.iter().find(|(name, _)| *name == text) {
            return Some(*known);
        }
        // The longer names begin with none of the shorter ones.
        let suffix = LAYERS.iter().find_map(|layer| text.strip_prefix(layer))?;
        let compression = match suffix {
            "" => Compression::None,
            "+gzip" | ".gzip" => Compression::Gzip,
            "+zstd" | ".zstd" => Compression::Zstd,
            _ => return None,
        };
        Some(Self::Layer(compression))
    }

    /// True for the name of a layer that only the owner of a key can read.
    pub fn is_encrypted(text: &str) -> bool {
        text.ends_with(ENCRYPTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_known() {
        for (text, expected) in [
            (OCI_MANIFEST, MediaType::Manifest),
            (DOCKER_INDEX, MediaType::Index),
            (OCI_LAYER, MediaType::Layer(Compression::None)),
            (
                "application/vnd.oci.image.layer.v1.tar+zstd",
                MediaType::Layer(Compression::Zstd),
            ),
            (
                "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
                MediaType::Layer(Compression::Gzip),
            ),
            (
                "application/vnd.docker.image.rootfs.diff.tar.gzip",
                MediaType::Layer(Compression::Gzip),
            ),
        ] {
            assert_eq!(MediaType::of(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "text/plain",
            "application/vnd.oci.image.layer.v1.tar+xz",
        ] {
            assert_eq!(MediaType::of(text), None, "{text}");
        }
        let secret = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
        assert_eq!(MediaType::of(secret), None);
        assert!(MediaType::is_encrypted(secret));
    }
}
