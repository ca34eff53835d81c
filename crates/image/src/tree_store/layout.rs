//! Where everything of the store lies.

use std::path::{Path, PathBuf};

use tidemill_core::Digest;

/// The store's directory and the names in it.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    base: PathBuf,
}

impl Layout {
    pub(crate) const fn at(base: PathBuf) -> Self {
        Self { base }
    }

    pub(crate) fn base(&self) -> &Path {
        &self.base
    }

    /// Every directory of the store, the outer ones first.
    pub(crate) fn directories(&self) -> [PathBuf; 8] {
        [
            self.base.clone(),
            self.ready(),
            self.names(),
            self.files(),
            self.building(),
            self.locks(),
            self.memo(),
            self.damaged(),
        ]
    }

    /// Published trees, each by the digest of all that is in it. Those of older versions have the name of
    /// what they were made of instead, and no list.
    pub(crate) fn ready(&self) -> PathBuf {
        self.base.join("ready")
    }

    /// One symbolic link for each name that a tree was asked for by: to the digest of the tree.
    pub(crate) fn names(&self) -> PathBuf {
        self.base.join("names")
    }

    /// The pool of shared files.
    pub(crate) fn files(&self) -> PathBuf {
        self.base.join("files")
    }

    /// Trees under construction and trees that are being removed.
    pub(crate) fn building(&self) -> PathBuf {
        self.base.join("building")
    }

    pub(crate) fn locks(&self) -> PathBuf {
        self.base.join("locks")
    }

    /// Digests of files elsewhere that were remembered.
    pub(crate) fn memo(&self) -> PathBuf {
        self.base.join("memo")
    }

    /// Trees in which something was found to be wrong.
    pub(crate) fn damaged(&self) -> PathBuf {
        self.base.join("damaged")
    }

    /// The most that the store can take up, as far as it is known.
    pub(crate) fn usage(&self) -> PathBuf {
        self.base.join("usage")
    }

    pub(crate) fn place(&self, id: &Digest) -> PathBuf {
        self.ready().join(id.to_hex())
    }

    pub(crate) fn name(&self, name: &Digest) -> PathBuf {
        self.names().join(name.to_hex())
    }

    pub(crate) fn lock(&self, id: &Digest) -> PathBuf {
        self.locks().join(id.to_hex())
    }

    pub(crate) fn under_way(&self, id: &Digest) -> PathBuf {
        self.building().join(id.to_hex())
    }
}

/// The tree itself, in a place.
pub(crate) const ROOT: &str = "root";
/// What is known of it beside its files.
pub(crate) const NOTE: &str = "tree.json";
/// What is in it, entry by entry.
pub(crate) const LIST: &str = "list";
/// There until the tree is known to have reached the disk; see `fresh`.
pub(crate) const FRESH: &str = "fresh";

/// What stands before the name of a link that is not in its place yet.
pub(crate) const DRAFT: &str = "new-";

/// A name that is made of a digest.
pub(crate) fn digest_of(name: &std::ffi::OsStr) -> Option<Digest> {
    format!("b3:{}", name.to_str()?).parse().ok()
}
