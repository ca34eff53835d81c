//! File names that say nothing, and modules that hide in `mod.rs`.

use super::Problem;
use crate::file_tree::FileTree;

const BANNED: &[&str] = &[
    "common", "helper", "helpers", "manager", "misc", "types", "util", "utils",
];

pub(super) fn check(tree: &FileTree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().filter(|file| file.extension() == "rs") {
        let parts: Vec<_> = file.path.trim_end_matches(".rs").split('/').collect();
        if let Some(name) = parts.iter().find(|part| BANNED.contains(part)) {
            let message = format!("`{name}` says nothing; name the file for what it holds");
            problems.push(Problem::in_file(&file.path, message));
        }
        if parts.last() == Some(&"mod") {
            let message = "`mod.rs` is banned; use `name.rs` beside the folder `name`";
            problems.push(Problem::in_file(&file.path, message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::*;

    #[test]
    fn names_that_say_nothing_are_banned() {
        let tree = FileTree::of_texts([
            ("crates/a/src/utils.rs", ""),
            ("tests/common/fixture.rs", ""),
            ("crates/a/src/commonplace.rs", ""),
            ("docs/types.md", ""),
        ]);
        assert_eq!(
            show(check(&tree)),
            "crates/a/src/utils.rs: `utils` says nothing; name the file for what it holds\n\
             tests/common/fixture.rs: `common` says nothing; name the file for what it holds"
        );
    }

    #[test]
    fn mod_rs_is_banned() {
        let tree =
            FileTree::of_texts([("crates/a/src/b/mod.rs", ""), ("crates/a/src/mode.rs", "")]);
        assert_eq!(
            show(check(&tree)),
            "crates/a/src/b/mod.rs: `mod.rs` is banned; use `name.rs` beside the folder `name`"
        );
    }
}
