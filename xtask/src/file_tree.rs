//! The files of the workspace, read once.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::rust_source::RustSource;

/// The files that are, or are about to be, in version control.
#[derive(Debug)]
pub(crate) struct FileTree {
    files: Vec<File>,
    test_modules: BTreeSet<String>,
}

/// One file.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the workspace, with `/`.
    pub(crate) path: String,
    pub(crate) bytes: u64,
    /// Nothing if it is not UTF-8.
    pub(crate) text: Option<String>,
    /// Only for Rust files.
    pub(crate) rust: Option<RustSource>,
}

impl File {
    fn new(path: String, content: Vec<u8>) -> Self {
        let bytes = content.len() as u64;
        let text = String::from_utf8(content).ok();
        let rust = match &text {
            Some(text) if path.ends_with(".rs") => Some(RustSource::new(text)),
            _ => None,
        };
        Self {
            path,
            bytes,
            text,
            rust,
        }
    }

    /// The part after the last dot; empty without one.
    pub(crate) fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

impl FileTree {
    /// Reads all files below a directory that git does not ignore; without git, all but build
    /// results.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walk(root)?,
        };
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let full = root.join(&path);
            let Ok(metadata) = fs::symlink_metadata(&full) else {
                continue; // Deleted, and the deletion is not committed yet.
            };
            if metadata.is_file() {
                let content = fs::read(&full).with_context(|| format!("failed to read {path}"))?;
                files.push(File::new(path, content));
            }
        }
        Ok(Self::of(files))
    }

    fn of(mut files: Vec<File>) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let test_modules = files.iter().flat_map(outline_test_modules).collect();
        Self {
            files,
            test_modules,
        }
    }

    /// A tree for tests.
    #[cfg(test)]
    pub(crate) fn of_texts<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let file = |(path, text): (&str, &str)| File::new(path.to_owned(), text.into());
        Self::of(files.into_iter().map(file).collect())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    /// The Rust files with their sources.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &RustSource)> {
        (self.files.iter()).filter_map(|file| Some((file, file.rust.as_ref()?)))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files
            .iter()
            .find(|file| file.path == path)?
            .text
            .as_deref()
    }

    /// Whether a file or directory is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.files
            .iter()
            .any(|file| file.path == path || file.path.starts_with(&below))
    }

    /// Whether a Rust file is there for tests only: by its place, or because its `mod` line says so.
    /// Examples and benches count as tests: they are no part of the product.
    pub(crate) fn is_test(&self, path: &str) -> bool {
        let by_place = path.split('/').any(|part| {
            matches!(
                part,
                "tests" | "tests.rs" | "testing" | "testing.rs" | "benches" | "examples"
            )
        });
        by_place
            || self.test_modules.iter().any(|module| {
                path.strip_prefix(module.as_str())
                    .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
    }
}

/// The paths, without ending, of the modules that a file declares under `cfg(test)`.
fn outline_test_modules(file: &File) -> Vec<String> {
    let Some(rust) = &file.rust else {
        return Vec::new();
    };
    let (dir, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let base = match name {
        "lib.rs" | "main.rs" => dir.to_owned(),
        _ => format!("{dir}/{}", name.trim_end_matches(".rs")),
    };
    rust.outline_test_modules()
        .map(|module| format!("{base}/{module}"))
        .collect()
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    // The checkout may belong to another user than the one who runs the checks.
    let output = Command::new("git")
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
        ])
        .arg("--exclude-standard")
        .current_dir(root)
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let list = String::from_utf8(output.stdout).ok()?;
    let paths: BTreeSet<_> = list.split_terminator('\0').map(str::to_owned).collect();
    (!paths.is_empty()).then(|| paths.into_iter().collect())
}

fn walk(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        let full = root.join(&dir);
        let entries =
            fs::read_dir(&full).with_context(|| format!("failed to list {}", full.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("failed to list {}", full.display()))?;
            let path = dir.join(entry.file_name());
            let kind = entry
                .file_type()
                .with_context(|| format!("failed to look at {}", path.display()))?;
            if !kind.is_dir() {
                found.push(path.display().to_string());
            } else if entry.file_name() != "target" && entry.file_name() != ".git" {
                dirs.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_for_tests_by_its_place_or_by_its_mod_line() {
        let tree = FileTree::of_texts([
            (
                "crates/a/src/lib.rs",
                "#[cfg(test)]\n#[expect(x)]\nmod script;\nmod real;",
            ),
            ("crates/a/src/script.rs", ""),
            ("crates/a/src/script/part.rs", ""),
            ("crates/a/src/scripting.rs", ""),
            ("crates/a/src/real.rs", "#[cfg(test)] mod model;"),
        ]);
        let tests = [
            "crates/a/src/script.rs",
            "crates/a/src/script/part.rs",
            "crates/a/src/real/model.rs",
            "crates/a/tests/black_box.rs",
            "crates/a/src/x/tests.rs",
            "crates/a/src/testing.rs",
        ];
        for path in tests {
            assert!(tree.is_test(path), "{path}");
        }
        for path in [
            "crates/a/src/real.rs",
            "crates/a/src/scripting.rs",
            "crates/a/src/model.rs",
        ] {
            assert!(!tree.is_test(path), "{path}");
        }
    }

    #[test]
    fn the_real_tree_is_found_with_and_without_git() {
        let root = crate::workspace_root().unwrap();
        let walked = walk(&root).unwrap();
        assert!(walked.iter().any(|path| path == "xtask/src/file_tree.rs"));
        assert!(!walked.iter().any(|path| path.starts_with("target/")));
        let tree = FileTree::read(&root).unwrap();
        assert!(tree.has("xtask/src/file_tree.rs") && tree.has("crates/core"));
        assert!(!tree.has("target"));
    }
}
