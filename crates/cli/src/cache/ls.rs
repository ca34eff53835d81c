//! `tidemill cache ls`.

use serde::Serialize;
use tidemill_core::{ByteSize, Digest, Timestamp};
use tidemill_image::{TreeEntry, TreeState, is_helper};

use super::{Cache, short};
use crate::args::Format;
use crate::failure::Failure;
use crate::output::Output;
use crate::text::cut;
use crate::ui::{Ui, plain, time};

/// Characters of what a tree was made of.
const FROM_CHARS_MAX: usize = 80;
const HEADS: [&str; 6] = ["TREE", "USED", "SIZE", "ALONE", "STATE", "FROM"];

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct List<'a> {
    version: u32,
    trees: Vec<Row<'a>>,
}

/// A tree as JSON.
#[derive(Debug, Serialize)]
struct Row<'a> {
    digest: Digest,
    names: &'a [Digest],
    from: &'a str,
    entries: u64,
    bytes: u64,
    disk_bytes: u64,
    alone_bytes: u64,
    used_at: Option<Timestamp>,
    in_use: bool,
    state: TreeState,
    lacks: &'a [String],
}

impl<'a> Row<'a> {
    fn of(tree: &'a TreeEntry) -> Self {
        Self {
            digest: tree.digest,
            names: &tree.names,
            from: &tree.from,
            entries: tree.entries,
            bytes: tree.bytes,
            disk_bytes: tree.disk_bytes,
            alone_bytes: tree.own_bytes,
            used_at: tree.used_at.map(timestamp),
            in_use: tree.in_use,
            state: tree.state,
            lacks: &tree.lacks,
        }
    }
}

pub(super) fn ls(
    cache: &Cache<'_>,
    now: Timestamp,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let inventory = cache.place.inventory()?;
    let answer = List {
        version: 1,
        trees: inventory.trees.iter().map(Row::of).collect(),
    };
    output.answer(cache.global.format, &answer, || text(&inventory.trees, now))?;
    if cache.global.format == Format::Text && inventory.trees.is_empty() {
        ui.note("nothing is unpacked; archives, globs and images of jobs are, once they are used");
    }
    Ok(0)
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp(seconds.saturating_mul(1_000_000))
}

/// The trees for people: those that only help others in one line, and below all what trees lack.
fn text(trees: &[TreeEntry], now: Timestamp) -> String {
    let (helpers, sources): (Vec<_>, Vec<_>) = trees.iter().partition(|tree| is_helper(&tree.from));
    let mut blocks = Vec::new();
    if !sources.is_empty() || helpers.is_empty() {
        blocks.push(table(&sources, now));
    }
    if !helpers.is_empty() {
        let bytes = helpers.iter().map(|tree| tree.disk_bytes).sum();
        let (count, size) = (helpers.len(), ByteSize(bytes));
        let trees = if count == 1 { "tree" } else { "trees" };
        blocks.push(format!(
            "{count} small {trees} of stubs, links and places to mount on, {size} together"
        ));
    }
    let lacks = sources.iter().flat_map(|tree| {
        let of = format!("{} {}", short(&tree.digest), name(tree));
        tree.lacks
            .iter()
            .map(move |lack| format!("{of} lacks: {}", plain(lack)))
    });
    let lacks: Vec<String> = lacks.collect();
    if !lacks.is_empty() {
        blocks.push(lacks.join("\n"));
    }
    blocks.join("\n\n")
}

fn table(trees: &[&TreeEntry], now: Timestamp) -> String {
    let rows: Vec<[String; 6]> = trees.iter().map(|tree| row(tree, now)).collect();
    let mut widths = HEADS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let heads = HEADS.map(str::to_owned);
    let line = |row: &[String; 6]| {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    let lines: Vec<String> = std::iter::once(&heads).chain(&rows).map(line).collect();
    lines.join("\n")
}

fn row(tree: &TreeEntry, now: Timestamp) -> [String; 6] {
    let used = match tree.used_at {
        _ if tree.in_use => "now".to_owned(),
        Some(at) => format!("{} ago", time(now.since(timestamp(at)))),
        None => "-".to_owned(),
    };
    let state = match tree.state {
        TreeState::Ready => "ready",
        TreeState::Unchecked => "unchecked",
        TreeState::Unlisted => "older version",
    };
    [
        short(&tree.digest),
        used,
        ByteSize(tree.disk_bytes).to_string(),
        ByteSize(tree.own_bytes).to_string(),
        state.to_owned(),
        name(tree),
    ]
}

/// What a tree was made of.
fn name(tree: &TreeEntry) -> String {
    cut(&plain(&tree.from), FROM_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_trees_is_harmless_and_says_what_goes_with_each() {
        let entry = |number: u8, used_at, in_use, state| TreeEntry {
            digest: Digest::from_bytes([number; 32]),
            names: Vec::new(),
            from: format!("tar /x/{number}\u{1b}[2J\n.tar"),
            entries: 7,
            bytes: 100,
            disk_bytes: 5 << 20,
            own_bytes: 4096,
            used_at,
            in_use,
            state,
            lacks: Vec::new(),
        };
        let helper = |number, from: &str| TreeEntry {
            from: from.to_owned(),
            ..entry(number, None, false, TreeState::Ready)
        };
        let lacking = TreeEntry {
            lacks: vec!["2 device nodes were left out".to_owned()],
            ..entry(2, Some(940), false, TreeState::Unlisted)
        };
        let trees = [
            entry(1, Some(1000), true, TreeState::Ready),
            lacking,
            entry(3, None, false, TreeState::Unchecked),
            helper(4, "stubs /a, /b/"),
            helper(5, "symlinks /bin/sh -> busybox"),
            helper(6, "places to mount on"),
        ];
        insta::assert_snapshot!(text(&trees, Timestamp(1_000_000_000)), @r"
        TREE          USED           SIZE   ALONE  STATE          FROM
        010101010101  now            5 MiB  4 KiB  ready          tar /x/1\u{1b}[2J\n.tar
        020202020202  1 min 0 s ago  5 MiB  4 KiB  older version  tar /x/2\u{1b}[2J\n.tar
        030303030303  -              5 MiB  4 KiB  unchecked      tar /x/3\u{1b}[2J\n.tar

        3 small trees of stubs, links and places to mount on, 15 MiB together

        020202020202 tar /x/2\u{1b}[2J\n.tar lacks: 2 device nodes were left out
        ");
        let alone = text(&trees[5..], Timestamp(0));
        let expected = "1 small tree of stubs, links and places to mount on, 5 MiB together";
        assert_eq!(alone, expected);
    }
}
