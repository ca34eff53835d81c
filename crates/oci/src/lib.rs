//! Container images as data: how they are named, what their manifests say, and the directory that
//! keeps their blobs, which is an OCI image layout that other tools read.
//!
//! No network: whoever pulls writes what comes into a [`Partial`]. Nothing here unpacks a layer.
//! Start reading at [`content`], then [`manifest`].

pub mod config;
pub mod content;
pub mod digest;
pub mod image;
pub mod import;
pub mod manifest;
pub mod media_type;
pub mod names;
pub mod platform;
pub mod reference;
mod shown;

pub use config::{ConfigError, ImageConfig};
pub use content::{
    Begun, Committed, Content, ContentError, Errand, Hold, Look, NewBlob, Partial, PartialBlob,
    StoredBlob, Wanted,
};
pub use digest::{Hasher, OciDigest, ParseOciDigestError, digest_of};
pub use image::{Image, ImageError};
pub use import::{ImportError, ImportOptions, Imported, import};
pub use manifest::{Descriptor, Document, Index, IndexEntry, Layer, Manifest, ManifestError};
pub use media_type::{Compression, MediaType};
pub use names::{Named, Names, NamesError};
pub use platform::{ParsePlatformError, Platform, PlatformError};
pub use reference::{ParseReferenceError, Reference};
