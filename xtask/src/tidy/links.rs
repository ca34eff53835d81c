//! Relative links in Markdown: the file is there, and the heading in it.

use std::collections::BTreeMap;

use super::Problem;
use crate::file_tree::FileTree;

pub(super) fn check(tree: &FileTree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().filter(|file| file.extension() == "md") {
        let Some(text) = &file.text else {
            continue;
        };
        for (line, target) in links(text) {
            if let Some(message) = dead(tree, &file.path, &target) {
                problems.push(Problem::at(&file.path, line, message));
            }
        }
    }
    problems
}

/// Why a link leads nowhere.
fn dead(tree: &FileTree, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        from.to_owned()
    } else {
        match resolve(from, path) {
            Some(path) if path.is_empty() || tree.has(&path) => path,
            _ => return Some(format!("dead link: {target}")),
        }
    };
    let is_markdown = path
        .rsplit_once('.')
        .is_some_and(|(_, extension)| extension == "md");
    if heading.is_empty() || !is_markdown {
        return None;
    }
    let text = tree.text(&path)?;
    let found = anchors(text).iter().any(|anchor| anchor == heading);
    (!found).then(|| format!("dead link: {path} has no heading #{heading}"))
}

/// A path relative to the folder of a file; nothing if it leads out of the tree.
fn resolve(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = match path.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from
            .split('/')
            .rev()
            .skip(1)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect(),
    };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines outside of fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)` and `[name]: target`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some(at) = rest.find("](") {
            rest = &rest[at + 2..];
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            found.push((number, target.trim_matches(['<', '>']).to_owned()));
        }
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
        {
            let target = target.split_whitespace().next().unwrap_or_default();
            found.push((number, target.to_owned()));
        }
    }
    found
}

/// The line without what stands in backticks.
fn without_code(line: &str) -> String {
    let parts: Vec<_> = line.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return line.to_owned();
    }
    parts.into_iter().step_by(2).collect()
}

/// The anchors of a file's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let anchor: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let count = seen.entry(anchor.clone()).or_default();
        anchors.push(match *count {
            0 => anchor,
            count => format!("{anchor}-{count}"),
        });
        *count += 1;
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::*;

    fn check_link(target: &str) -> String {
        let text = format!("# A title\n\nSee [it]({target}).\n\n## Two, `parts`!\n");
        show(check(&FileTree::of_texts([
            ("docs/a.md", text.as_str()),
            ("docs/b.md", "# One\n# One\n```\n# not this\n```\n"),
            ("README.md", ""),
            ("crates/core/src/lib.rs", ""),
        ])))
    }

    #[test]
    fn living_links_are_fine() {
        let targets = [
            "b.md",
            "./b.md#one",
            "b.md#one-1",
            "../README.md",
            "../crates/core",
            "../crates/core/src/lib.rs#L3",
            "#two-parts",
            "https://example.org/x#y",
            "mailto:a@example.org",
            "/README.md",
        ];
        for target in targets {
            assert_eq!(check_link(target), "", "{target}");
        }
    }

    #[test]
    fn dead_links_are_refused() {
        assert_eq!(check_link("c.md"), "docs/a.md:3: dead link: c.md");
        assert_eq!(
            check_link("../../x.md"),
            "docs/a.md:3: dead link: ../../x.md"
        );
        assert_eq!(
            check_link("b.md#not-this"),
            "docs/a.md:3: dead link: docs/b.md has no heading #not-this"
        );
        assert_eq!(
            check_link("#three"),
            "docs/a.md:3: dead link: docs/a.md has no heading #three"
        );
    }

    #[test]
    fn links_by_reference_are_checked_and_code_is_not() {
        let check_text = |text| show(check(&FileTree::of_texts([("a.md", text)])));
        assert_eq!(
            check_text("[x]: b.md \"title\"\n"),
            "a.md:1: dead link: b.md"
        );
        assert_eq!(check_text("`[x](b.md)`\n```\n[x](b.md)\n```\n"), "");
    }
}
