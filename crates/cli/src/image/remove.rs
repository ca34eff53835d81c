//! `tidemill image rm`.

use std::collections::HashSet;

use serde::Serialize;
use tidemill_core::{ByteSize, Digest};
use tidemill_image::image_tree_names;
use tidemill_oci::{Image, Named, OciDigest, Reference};

use super::{Images, state};
use crate::args::{GlobalArgs, ImageRmArgs};
use crate::cache::{self, RemovedTrees};
use crate::failure::Failure;
use crate::output::Output;
use crate::state_dir::state_dir;
use crate::ui::{Ui, plain};

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    version: u32,
    removed: Vec<Removed<'a>>,
    /// Bytes of blobs that this gave back; nothing if images are fetched or used at this time.
    freed: Option<u64>,
    /// Trees that were unpacked for these images and for no other, and are gone.
    trees: usize,
    /// Bytes on disk that this gave back.
    freed_trees: u64,
}

#[derive(Debug, Serialize)]
struct Removed<'a> {
    name: &'a Reference,
    digest: OciDigest,
}

pub(super) fn rm(
    args: &ImageRmArgs,
    images: &Images,
    global: &GlobalArgs,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    // All of them are found before any is removed.
    let mut found: Vec<Named> = Vec::new();
    for text in &args.images {
        for named in images.find(text)? {
            if !found.contains(&named) {
                found.push(named);
            }
        }
    }
    let of_removed: Vec<_> = found.iter().map(|named| images.tree_names(named)).collect();
    for named in &found {
        images
            .names
            .remove(&named.reference)
            .map_err(|error| state(&error, error.hint()))?;
    }
    let freed = images
        .names
        .collect()
        .map_err(|error| state(&error, error.hint()))?;
    let mut unneeded: HashSet<Digest> = of_removed.into_iter().flatten().collect();
    for named in images.all()? {
        for name in images.tree_names(&named) {
            unneeded.remove(&name);
        }
    }
    let state_dir = state_dir(global.state_dir.as_deref())?;
    let trees = cache::remove_named(&unneeded, &state_dir, global)?;
    let answer = Answer {
        version: 1,
        removed: found
            .iter()
            .map(|named| Removed {
                name: &named.reference,
                digest: named.manifest.digest,
            })
            .collect(),
        freed,
        trees: trees.trees,
        freed_trees: trees.freed_bytes,
    };
    output.answer(images.format, &answer, || {
        let lines: Vec<_> = found
            .iter()
            .map(|named| format!("{}  {}", named.reference.to_short(), named.manifest.digest))
            .collect();
        lines.join("\n")
    })?;
    say(freed, &trees, ui);
    Ok(0)
}

fn say(freed: Option<u64>, trees: &RemovedTrees, ui: &Ui) {
    let all = ByteSize(freed.unwrap_or(0) + trees.freed_bytes);
    if freed.is_some() || trees.freed_bytes > 0 {
        ui.note(&format!("{all} given back"));
    }
    if freed.is_none() {
        ui.note(
            "images are fetched or used at this time, so the room is given back later: \
             tidemill cache prune",
        );
    }
    if trees.in_use > 0 {
        ui.note(
            "what was unpacked is used at this time, and goes when it was not used for long: \
             tidemill cache prune",
        );
    }
    for failure in &trees.failures {
        ui.note(&format!("warning: {}", plain(failure)));
    }
}

impl Images {
    /// The names that trees of an image have; of an image that is damaged those that are known.
    fn tree_names(&self, named: &Named) -> Vec<Digest> {
        let image = Image::load(&self.content, &named.manifest).ok();
        let (diff_ids, user) = match image {
            Some(image) => (image.config.diff_ids, image.config.user),
            None => (Vec::new(), None),
        };
        let caller = rustix::process::getuid().as_raw();
        let group = rustix::process::getgid().as_raw();
        let mut users = vec!["0:0".to_owned(), format!("{caller}:{group}")];
        users.extend(user);
        image_tree_names(&named.manifest.digest, &diff_ids, &users)
    }
}
