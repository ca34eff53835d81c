//! Trailing blanks, `TODO` without an issue, `allow` instead of `expect`.

use super::Problem;
use crate::file_tree::{File, FileTree};

/// Files that people write and read as text.
const TEXT_EXTENSIONS: &[&str] = &["kdl", "md", "rs", "sh", "sql", "toml", "yml"];

const MARKS: &[&str] = &["TODO", "FIXME", "XXX"];

pub(super) fn check(tree: &FileTree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files() {
        let Some(text) = &file.text else {
            continue;
        };
        if TEXT_EXTENSIONS.contains(&file.extension()) || text.starts_with("#!") {
            problems.extend(check_blanks(&file.path, text));
            problems.extend(check_marks(file, text));
        }
    }
    for (file, source) in tree.rust() {
        for needle in ["#[allow(", "#![allow("] {
            for line in source.find(needle) {
                let message = format!("`{needle}…)]`: use `expect` with a reason");
                problems.push(Problem::at(&file.path, line, message));
            }
        }
    }
    problems
}

fn check_blanks(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            problems.push(Problem::at(
                path,
                index + 1,
                "a blank at the end of the line",
            ));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        problems.push(Problem::in_file(path, "the last line has no end"));
    } else if text.ends_with("\n\n") {
        problems.push(Problem::in_file(path, "blank lines at the end"));
    }
    problems
}

/// In Rust only comments count, in other files every line.
fn check_marks(file: &File, text: &str) -> Vec<Problem> {
    let lines: Vec<(usize, &str)> = match &file.rust {
        Some(source) => (source.comments.iter())
            .flat_map(|comment| {
                let lines = comment.text.lines().enumerate();
                lines.map(|(index, line)| (comment.line + index, line))
            })
            .collect(),
        None => (text.lines().enumerate())
            .map(|(index, line)| (index + 1, line))
            .collect(),
    };
    let mut problems = Vec::new();
    for (number, line) in lines {
        if let Some(mark) = MARKS.iter().find(|mark| has_mark_without_issue(line, mark)) {
            let message = format!("{mark} without an issue: write {mark}(#123)");
            problems.push(Problem::at(&file.path, number, message));
        }
    }
    problems
}

/// Whether a mark stands in a line as a word, not quoted, without `(#number)` behind it.
fn has_mark_without_issue(line: &str, mark: &str) -> bool {
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let rest = &line[at + mark.len()..];
        let is_word = !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '`')
            && !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '`');
        let has_issue = (rest.strip_prefix("(#"))
            .is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()));
        is_word && !has_issue
    })
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::*;

    fn check_file(path: &str, text: &str) -> String {
        show(check(&FileTree::of_texts([(path, text)])))
    }

    #[test]
    fn blanks_at_the_end_are_refused() {
        assert_eq!(
            check_file("a.md", "one \ntwo\n"),
            "a.md:1: a blank at the end of the line"
        );
        assert_eq!(
            check_file("a.md", "one\ntwo\r\n"),
            "a.md:2: a blank at the end of the line"
        );
        assert_eq!(check_file("a.md", "one"), "a.md: the last line has no end");
        assert_eq!(
            check_file("a.md", "one\n\n"),
            "a.md: blank lines at the end"
        );
        assert_eq!(
            check_file("run", "#!/bin/sh\nx \n"),
            "run:2: a blank at the end of the line"
        );
        assert_eq!(check_file("a.snap", "one \n"), "");
        assert_eq!(check_file("a.md", ""), "");
    }

    #[test]
    fn a_todo_names_its_issue() {
        let wanted =
            |line, mark| format!("a.rs:{line}: {mark} without an issue: write {mark}(#123)");
        assert_eq!(check_file("a.rs", "// TODO: later\n"), wanted(1, "TODO"));
        assert_eq!(check_file("a.rs", "/* a\nFIXME */\n"), wanted(2, "FIXME"));
        assert_eq!(check_file("a.rs", "// TODO(#12): later\n"), "");
        assert_eq!(check_file("a.rs", "const TODO: &str = \"TODO\";\n"), "");
        assert_eq!(
            check_file("a.rs", "// `TODO` and TODOs and mktemp.XXXXXX\n"),
            ""
        );
        assert_eq!(
            check_file("a.toml", "# TODO soon\n"),
            "a.toml:1: TODO without an issue: write TODO(#123)"
        );
    }

    #[test]
    fn allow_is_refused() {
        assert_eq!(
            check_file("a.rs", "#[allow(dead_code)]\nfn f() {}\n"),
            "a.rs:1: `#[allow(…)]`: use `expect` with a reason"
        );
        assert!(check_file("a.rs", "#![allow(x)]\n").contains("use `expect`"));
        assert_eq!(
            check_file("a.rs", "// #[allow(x)]\n#[expect(x)]\nfn f() {}\n"),
            ""
        );
    }
}
