//! What was wrong with a tree that was put aside: it stands beside it, because whoever found it was about to start
//! a job and had nobody to tell.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidemill_core::Digest;

use super::layout::digest_of;
use super::record::Record;
use super::verify::Compared;
use super::{TreeStore, TreeStoreError, failed};

const FILE: &str = "damage.json";

/// A tree that was found damaged and put aside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedTree {
    /// The digest of all that should be in it.
    pub digest: Digest,
    /// What it was made of.
    pub from: String,
    /// What is wrong with it, each with its path.
    pub found: Vec<String>,
}

/// The content of the file beside a damaged tree.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Damage {
    #[serde(default)]
    found: Vec<String>,
}

impl Damage {
    pub(super) fn of(compared: &Compared) -> Self {
        Self {
            found: compared.told().collect(),
        }
    }

    pub(super) fn write(&self, place: &Path) -> io::Result<()> {
        fs::write(place.join(FILE), serde_json::to_vec(self)?)
    }

    /// Nothing is known of one that an older version put aside.
    fn read(place: &Path) -> Self {
        fs::read(place.join(FILE))
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }
}

impl TreeStore {
    /// The trees that lie aside, by their digests.
    pub(super) fn damaged_trees(&self) -> Result<Vec<DamagedTree>, TreeStoreError> {
        let directory = self.layout.damaged();
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed("list", &directory))?,
        };
        let mut trees: Vec<DamagedTree> = entries
            .flatten()
            .filter_map(|entry| {
                let place = entry.path();
                Some(DamagedTree {
                    digest: digest_of(&entry.file_name())?,
                    from: Record::read(&place).from,
                    found: Damage::read(&place).found,
                })
            })
            .collect();
        trees.sort_by_key(|tree| tree.digest);
        Ok(trees)
    }
}
