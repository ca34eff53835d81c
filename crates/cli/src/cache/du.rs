//! `tidemill cache du`.

use std::collections::BTreeMap;

use serde::Serialize;
use tidemill_core::ByteSize;
use tidemill_image::{CacheBounds, DamagedTree, Inventory, TreeEntry, is_helper};

use super::Cache;
use super::images::{self, ImageUsage};
use crate::failure::Failure;
use crate::output::Output;
use crate::text::cut;
use crate::ui::{Ui, plain};

/// What trees are for, in the text: those that take most.
const OWNERS_SHOWN_MAX: usize = 12;
/// Characters of its name.
const OWNER_CHARS_MAX: usize = 60;

/// The answer as JSON; sizes are bytes on disk.
#[derive(Debug, Serialize)]
struct Usage {
    version: u32,
    trees: TreeUsage,
    images: ImageUsage,
    total_bytes: u64,
    /// What the trees are for, that which takes most first.
    owners: Vec<Owner>,
    /// Trees that were found damaged and put aside.
    damaged: Vec<DamagedTree>,
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

/// What trees are for: an image, an archive, another layer of a job.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Owner {
    owner: String,
    trees: u64,
    in_use: u64,
    /// With what others have too.
    disk_bytes: u64,
}

/// The trees by what they are for. A layer of an image may be many images', so all layers are one owner; and so
/// is what a root needs beside its layers.
fn owners(trees: &[TreeEntry]) -> Vec<Owner> {
    let mut owners: BTreeMap<&str, Owner> = BTreeMap::new();
    for tree in trees {
        let name = match &*tree.from {
            "" => "unknown",
            from if from.starts_with("layer ") => "layers of images",
            from if is_helper(from) => "stubs, links and places to mount on",
            from => from,
        };
        let owner = owners.entry(name).or_default();
        name.clone_into(&mut owner.owner);
        owner.trees += 1;
        owner.in_use += u64::from(tree.in_use);
        owner.disk_bytes += tree.disk_bytes;
    }
    let mut owners: Vec<Owner> = owners.into_values().collect();
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.disk_bytes));
    owners
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
        owners: owners(&inventory.trees),
        damaged: inventory.damaged.clone(),
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
    let mut lines: Vec<[String; 3]> = lines
        .into_iter()
        .map(|(head, size, what)| [head.to_owned(), size, what])
        .collect();
    lines.extend(owner_lines(&usage.owners));
    lines.extend(damage_lines(&usage.damaged));
    let width = |column: usize| {
        let cells = lines.iter().map(|line| line[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let (heads, sizes) = (width(0), width(1));
    let lines: Vec<String> = lines
        .iter()
        .map(|[head, size, what]| {
            let line = format!("{head:<heads$}  {size:>sizes$}  {what}");
            line.trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// What trees are for, as lines for people: those that take most.
fn owner_lines(owners: &[Owner]) -> Vec<[String; 3]> {
    if owners.is_empty() {
        return Vec::new();
    }
    let head = ["trees are for", "", "with what they share"].map(str::to_owned);
    let mut lines = vec![head];
    lines.extend(owners.iter().take(OWNERS_SHOWN_MAX).map(|owner| {
        let name = cut(&plain(&owner.owner), OWNER_CHARS_MAX);
        let trees = if owner.trees == 1 { "tree" } else { "trees" };
        [
            format!("  {name}"),
            ByteSize(owner.disk_bytes).to_string(),
            format!("{} {trees}, {} in use", owner.trees, owner.in_use),
        ]
    }));
    let others = owners.len().saturating_sub(OWNERS_SHOWN_MAX);
    if others > 0 {
        let what = format!("{others} of them: see `--format json`");
        lines.push(["  others".to_owned(), String::new(), what]);
    }
    lines
}

/// What was wrong with trees that lie aside, as lines for people.
fn damage_lines(damaged: &[DamagedTree]) -> Vec<[String; 3]> {
    let mut lines = Vec::new();
    for tree in damaged {
        let name = cut(&plain(&tree.from), OWNER_CHARS_MAX);
        let mut found = tree.found.iter().map(|found| plain(found));
        let first = found.next().unwrap_or_default();
        let more = match found.count() {
            0 => String::new(),
            others => format!(", and {others} more"),
        };
        lines.push([format!("damaged: {name}"), String::new(), first + &more]);
    }
    lines
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
    fn trees_are_summed_by_what_they_are_for() {
        let tree = |from: &str, in_use| TreeEntry {
            digest: tidemill_core::Digest::of(from.as_bytes()),
            names: Vec::new(),
            from: from.to_owned(),
            entries: 1,
            bytes: 1,
            disk_bytes: 1 << 20,
            own_bytes: 0,
            used_at: None,
            in_use,
            state: tidemill_image::TreeState::Ready,
            lacks: Vec::new(),
        };
        let mut trees: Vec<TreeEntry> = [
            ("layer sha256:01", false),
            ("layer sha256:02", false),
            ("layer sha256:03", true),
            ("oci app:1", true),
            ("oci app:1", false),
            ("stubs /a", false),
            ("tar /x\u{1b}.tar", false),
        ]
        .map(|(from, in_use)| tree(from, in_use))
        .into();
        insta::assert_snapshot!(owner_lines(&owners(&trees)).iter().map(|line| line.join("|")).collect::<Vec<_>>().join("\n"), @r"
        trees are for||with what they share
          layers of images|3 MiB|3 trees, 1 in use
          oci app:1|2 MiB|2 trees, 1 in use
          stubs, links and places to mount on|1 MiB|1 tree, 0 in use
          tar /x\u{1b}.tar|1 MiB|1 tree, 0 in use
        ");
        trees.extend((0..20).map(|number| tree(&format!("tar /{number}"), false)));
        let lines = owner_lines(&owners(&trees));
        assert_eq!(lines.len(), 2 + OWNERS_SHOWN_MAX);
        assert_eq!(
            lines[1 + OWNERS_SHOWN_MAX][2],
            "12 of them: see `--format json`"
        );
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
