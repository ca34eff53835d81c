//! The rules that no compiler knows. Each is a function from the tree to problems, with a test that
//! proves it fails on a bad example.

mod arrows;
mod homes;
mod links;
mod names;
mod sizes;
mod texts;

use std::fmt;
use std::path::Path;

use anyhow::Result;

use crate::cargo;
use crate::file_tree::FileTree;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Problem {
    fn in_file(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            line: Some(line),
            ..Self::in_file(path, message)
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// Checks the workspace and prints what is wrong. True if nothing is.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let tree = FileTree::read(root)?;
    let mut problems = arrows::check(&arrows::packages(&cargo::metadata(root)?)?);
    for check in [
        homes::check,
        links::check,
        names::check,
        sizes::check,
        texts::check,
    ] {
        problems.extend(check(&tree));
    }
    problems.sort();
    for problem in &problems {
        println!("{problem}");
    }
    let files = tree.files().count();
    match problems.len() {
        0 => println!("tidy: {files} files are fine"),
        1 => println!("tidy: 1 problem in {files} files"),
        count => println!("tidy: {count} problems in {files} files"),
    }
    Ok(problems.is_empty())
}

/// The places and messages of problems, one a line.
#[cfg(test)]
fn show(problems: Vec<Problem>) -> String {
    let lines: Vec<_> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}
