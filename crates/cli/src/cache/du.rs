//! `tidemill cache du`.

use serde::Serialize;
use tidemill_core::ByteSize;
use tidemill_image::{CacheBounds, Inventory};

use super::Cache;
use super::images::{self, ImageUsage};
use crate::failure::Failure;
use crate::output::Output;
use crate::ui::Ui;

/// The answer as JSON; sizes are bytes on disk.
#[derive(Debug, Serialize)]
struct Usage {
    version: u32,
    trees: TreeUsage,
    images: ImageUsage,
    total_bytes: u64,
    /// What `cache prune` without flags removes at least.
    useless_bytes: u64,
    /// The bound for trees; none if there is none.
    max_bytes: Option<u64>,
    /// What is left of trees, however full the disk is.
    floor_bytes: u64,
}

#[derive(Debug, Serialize)]
struct TreeUsage {
    trees: u64,
    in_use: u64,
    bytes: u64,
    /// Files that trees share, or could.
    shared_files: u64,
    shared_bytes: u64,
    unused_bytes: u64,
    damaged_bytes: u64,
    building_bytes: u64,
}

pub(super) fn du(cache: &Cache<'_>, output: &mut Output, ui: &Ui) -> Result<u8, Failure> {
    let inventory = cache.place.inventory()?;
    let images = images::usage(&cache.state_dir, ui)?;
    let usage = usage(&inventory, images, cache.place.bounds());
    output.answer(cache.global.format, &usage, || page(&usage))?;
    Ok(0)
}

fn usage(inventory: &Inventory, images: ImageUsage, bounds: CacheBounds) -> Usage {
    let in_use = inventory.trees.iter().filter(|tree| tree.in_use);
    Usage {
        version: 1,
        trees: TreeUsage {
            trees: inventory.trees.len() as u64,
            in_use: in_use.count() as u64,
            bytes: inventory.total_bytes,
            shared_files: inventory.pool_files,
            shared_bytes: inventory.pool_bytes,
            unused_bytes: inventory.unused_bytes,
            damaged_bytes: inventory.damaged_bytes,
            building_bytes: inventory.building_bytes,
        },
        images,
        total_bytes: inventory.total_bytes + images.bytes + images.partial_bytes,
        useless_bytes: inventory.unused_bytes
            + inventory.damaged_bytes
            + images.unnamed_bytes
            + images.partial_bytes,
        max_bytes: bounds.max.map(|max| max.0),
        floor_bytes: bounds.floor.0,
    }
}

fn page(usage: &Usage) -> String {
    let size = |bytes: u64| ByteSize(bytes).to_string();
    let (trees, images) = (&usage.trees, &usage.images);
    let mut lines = vec![
        (
            "trees",
            size(trees.bytes),
            format!("{}, {} in use", trees.trees, trees.in_use),
        ),
        (
            "  files in the pool",
            size(trees.shared_bytes),
            format!("{}, each counted once", trees.shared_files),
        ),
    ];
    let mut add = |head, bytes: u64, what: &str| {
        if bytes > 0 {
            lines.push((head, size(bytes), what.to_owned()));
        }
    };
    add(
        "  files of no tree",
        trees.unused_bytes,
        "prune removes them",
    );
    add("  damaged trees", trees.damaged_bytes, "prune removes them");
    add(
        "  under way",
        trees.building_bytes,
        "being built or removed, or left by the dead",
    );
    lines.push((
        "images",
        size(images.bytes + images.partial_bytes),
        format!("{} named, {} blobs", images.images, images.blobs),
    ));
    let mut add = |head, bytes: u64, what: &str| {
        if bytes > 0 {
            lines.push((head, size(bytes), what.to_owned()));
        }
    };
    add(
        "  blobs without a name",
        images.unnamed_bytes,
        "prune removes them",
    );
    add(
        "  unfinished downloads",
        images.partial_bytes,
        "prune removes them",
    );
    lines.push(("total", size(usage.total_bytes), String::new()));
    let bound = match usage.max_bytes {
        Some(max) => size(max),
        None => "none".to_owned(),
    };
    lines.push((
        "bound for trees",
        bound,
        format!("at least {} stay", size(usage.floor_bytes)),
    ));
    let width =
        |cell: fn(&(&str, String, String)) -> usize| lines.iter().map(cell).max().unwrap_or(0);
    let (heads, sizes) = (width(|line| line.0.len()), width(|line| line.1.len()));
    let lines: Vec<String> = lines
        .iter()
        .map(|(head, size, what)| {
            let line = format!("{head:<heads$}  {size:>sizes$}  {what}");
            line.trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nothing_is_not_told() {
        let bounds = CacheBounds::at_most(ByteSize::gib(20));
        let empty = usage(&Inventory::default(), ImageUsage::default(), bounds);
        insta::assert_snapshot!(page(&empty), @"
        trees                   0 B  0, 0 in use
          files in the pool     0 B  0, each counted once
        images                  0 B  0 named, 0 blobs
        total                   0 B
        bound for trees      20 GiB  at least 2 GiB stay
        ");
    }

    #[test]
    fn what_is_of_no_use_is_told_and_summed() {
        let inventory = Inventory {
            pool_files: 3,
            pool_bytes: 5 << 20,
            unused_bytes: 1 << 20,
            damaged_bytes: 2 << 20,
            total_bytes: 9 << 20,
            ..Inventory::default()
        };
        let images = ImageUsage {
            images: 1,
            blobs: 4,
            bytes: 100 << 20,
            unnamed_bytes: 10 << 20,
            partial_bytes: 4 << 20,
        };
        let unbounded = CacheBounds {
            max: None,
            floor: ByteSize(0),
        };
        let usage = usage(&inventory, images, unbounded);
        assert_eq!(usage.useless_bytes, 17 << 20);
        insta::assert_snapshot!(page(&usage), @"
        trees                     9 MiB  0, 0 in use
          files in the pool       5 MiB  3, each counted once
          files of no tree        1 MiB  prune removes them
          damaged trees           2 MiB  prune removes them
        images                  104 MiB  1 named, 4 blobs
          blobs without a name   10 MiB  prune removes them
          unfinished downloads    4 MiB  prune removes them
        total                   113 MiB
        bound for trees            none  at least 0 B stay
        ");
    }
}
