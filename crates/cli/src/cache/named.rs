//! Removing trees that nobody has a name for any more.

use std::collections::HashSet;
use std::path::Path;

use tidemill_core::Digest;

use super::bounds;
use super::work::{Answer, Order, Place};
use crate::args::GlobalArgs;
use crate::failure::{Failure, FailureKind};

/// What became of trees.
#[derive(Debug, Default)]
pub(crate) struct RemovedTrees {
    /// How many are gone.
    pub(crate) trees: usize,
    /// Bytes on disk that this freed.
    pub(crate) freed_bytes: u64,
    /// How many somebody uses, which stay.
    pub(crate) in_use: usize,
    /// What could not be removed, and why.
    pub(crate) failures: Vec<String>,
}

/// Removes the trees whose names are all among these. Those in use stay.
pub(crate) fn remove_named(
    names: &HashSet<Digest>,
    state_dir: &Path,
    global: &GlobalArgs,
) -> Result<RemovedTrees, Failure> {
    let place = Place::new(state_dir, bounds(global)?);
    let is_meant = |names_of: &[Digest]| {
        !names_of.is_empty() && names_of.iter().all(|name| names.contains(name))
    };
    let mut trees = place.inventory()?.trees;
    trees.retain(|tree| is_meant(&tree.names));
    let found = trees.len();
    trees.retain(|tree| !tree.in_use);
    if trees.is_empty() {
        return Ok(RemovedTrees {
            in_use: found,
            ..RemovedTrees::default()
        });
    }
    let order = Order::Remove(trees.iter().map(|tree| tree.digest).collect());
    let Answer::Pruned(pruned) = place.work(&order, |_, _| ())? else {
        return Err(Failure::new(
            FailureKind::Internal,
            "trees were to be removed, and something else was done",
        ));
    };
    Ok(RemovedTrees {
        trees: pruned.trees.len(),
        freed_bytes: pruned.freed_bytes,
        in_use: found - pruned.trees.len() - pruned.failures.len().min(found),
        failures: pruned.failures,
    })
}
