//! How large files and functions may be.

use super::Problem;
use crate::file_tree::FileTree;

/// Lines of code in a Rust file, tests not counted.
const FILE_CODE_LINES_MAX: usize = 700;

/// Lines of code in a function's body.
const FUNCTION_CODE_LINES_MAX: usize = 80;

/// Bytes in any file.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Functions that may be longer.
const LONG_FUNCTIONS: &[LongFunction] = &[
    LongFunction {
        path: "crates/cli/src/text/event.rs",
        name: "describe",
        _why: "one arm for each kind of event, each a sentence; parts would hide which is missing",
    },
    LongFunction {
        path: "crates/cli/src/text/record.rs",
        name: "page",
        _why: "one line for each field of the page, in the order in which they are shown",
    },
];

/// A function that may be longer, and why.
struct LongFunction {
    path: &'static str,
    name: &'static str,
    /// Kept for the reader of the table.
    _why: &'static str,
}

pub(super) fn check(tree: &FileTree) -> Vec<Problem> {
    check_with(tree, LONG_FUNCTIONS)
}

fn check_with(tree: &FileTree, long_functions: &[LongFunction]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files().filter(|file| file.bytes > FILE_BYTES_MAX) {
        let message = format!("{} bytes; {FILE_BYTES_MAX} at most", file.bytes);
        problems.push(Problem::in_file(&file.path, message));
    }
    let mut excused = vec![false; long_functions.len()];
    for (file, source) in tree.rust().filter(|(file, _)| !tree.is_test(&file.path)) {
        let lines = source.code_lines();
        if lines > FILE_CODE_LINES_MAX {
            let message = format!(
                "{lines} lines of code without tests, {FILE_CODE_LINES_MAX} at most; split it by \
                 concept"
            );
            problems.push(Problem::in_file(&file.path, message));
        }
        for function in source.functions() {
            if function.code_lines <= FUNCTION_CODE_LINES_MAX {
                continue;
            }
            let excuse = long_functions
                .iter()
                .position(|long| long.path == file.path && long.name == function.name);
            if let Some(excuse) = excuse {
                excused[excuse] = true;
                continue;
            }
            let message = format!(
                "`{}` has {} lines of code, {FUNCTION_CODE_LINES_MAX} at most",
                function.name, function.code_lines
            );
            problems.push(Problem::at(&file.path, function.line, message));
        }
    }
    for (long, excused) in long_functions.iter().zip(excused) {
        if !excused {
            let message = format!(
                "`{}` needs no exception; take it out of sizes.rs",
                long.name
            );
            problems.push(Problem::in_file(long.path, message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::show;
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines))
    }

    fn check_file(path: &str, text: &str) -> String {
        show(check_with(&FileTree::of_texts([(path, text)]), &[]))
    }

    #[test]
    fn a_long_file_is_refused() {
        let line = "const A: u8 = 1;\n";
        assert_eq!(check_file("a.rs", &line.repeat(700)), "");
        assert_eq!(
            check_file("a.rs", &line.repeat(701)),
            "a.rs: 701 lines of code without tests, 700 at most; split it by concept"
        );
        assert_eq!(check_file("tests/a.rs", &line.repeat(701)), "");
        let tests = format!("{}#[cfg(test)]\nmod tests {{\n{line}}}\n", line.repeat(700));
        assert_eq!(check_file("a.rs", &tests), "");
        let comments = format!("{}{}", line.repeat(700), "// why\n\n".repeat(50));
        assert_eq!(check_file("a.rs", &comments), "");
    }

    #[test]
    fn a_long_function_is_refused() {
        assert_eq!(check_file("a.rs", &function(80)), "");
        assert_eq!(
            check_file("a.rs", &function(81)),
            "a.rs:1: `long` has 81 lines of code, 80 at most"
        );
    }

    #[test]
    fn a_named_exception_holds_as_long_as_it_is_needed() {
        let exception = LongFunction {
            path: "a.rs",
            name: "long",
            _why: "a table reads best in one piece",
        };
        let check_one = |lines| {
            let text = function(lines);
            let tree = FileTree::of_texts([("a.rs", text.as_str())]);
            show(check_with(&tree, std::slice::from_ref(&exception)))
        };
        assert_eq!(check_one(81), "");
        assert_eq!(
            check_one(80),
            "a.rs: `long` needs no exception; take it out of sizes.rs"
        );
    }

    #[test]
    fn a_large_file_is_refused() {
        assert_eq!(check_file("a.bin", &"x".repeat(256 * 1024)), "");
        assert_eq!(
            check_file("a.bin", &"x".repeat(256 * 1024 + 1)),
            "a.bin: 262145 bytes; 262144 at most"
        );
    }
}
