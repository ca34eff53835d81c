//! What is written down of a tree beside its files and its list.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::TreeNote;
use super::layout::NOTE;
use crate::unpack::ArchiveOwners;

/// The content of `tree.json`. Older versions wrote the first four.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(default)]
    pub(crate) from: String,
    #[serde(default)]
    pub(crate) entries: u64,
    #[serde(default)]
    pub(crate) bytes: u64,
    #[serde(default)]
    pub(crate) lacks: Vec<String>,
    /// How the ids of the source became those on disk.
    #[serde(default)]
    pub(crate) owners: Option<String>,
    /// Bytes on disk of what is not in the pool: directories, links, what could not be shared.
    #[serde(default)]
    pub(crate) unshared_bytes: Option<u64>,
}

impl Record {
    pub(crate) fn new(note: TreeNote, owners: ArchiveOwners, unshared_bytes: u64) -> Self {
        Self {
            from: note.from,
            entries: note.entries,
            bytes: note.bytes,
            lacks: note.lacks,
            owners: Some(owners.tag().to_owned()),
            unshared_bytes: Some(unshared_bytes),
        }
    }

    /// What stands in a place; nothing is known of one that cannot be read.
    pub(crate) fn read(place: &Path) -> Self {
        fs::read(place.join(NOTE))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record has no fallible serialiser")
    }

    /// How its ids are to be read, if that was noted.
    pub(crate) fn owners(&self) -> Option<ArchiveOwners> {
        [
            ArchiveOwners::Lost,
            ArchiveOwners::Kept,
            ArchiveOwners::SubIds,
        ]
        .into_iter()
        .find(|owners| self.owners.as_deref() == Some(owners.tag()))
    }
}

impl ArchiveOwners {
    /// A word for it in names and files.
    pub(crate) const fn tag(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Kept => "kept",
            Self::SubIds => "sub-ids",
        }
    }
}
