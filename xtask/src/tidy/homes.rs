//! What has one home: SQL text, unsafe code, raw system calls, and whatever reads the world (clocks,
//! randomness, the environment), which would make a decision that cannot be tested.

use super::Problem;
use crate::file_tree::{File, FileTree};
use crate::rust_source::RustSource;

/// Code that only some files may hold.
struct Home {
    what: &'static str,
    needles: &'static [&'static str],
    /// Beginnings of paths.
    paths: &'static [&'static str],
    in_tests: InTests,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum InTests {
    Free,
    Banned,
}

const HOMES: &[Home] = &[
    Home {
        what: "unsafe code",
        needles: &["unsafe", "asm!", "global_asm!"],
        paths: &["crates/sandbox/", "tests/probes/"],
        in_tests: InTests::Banned,
    },
    Home {
        what: "a raw system call",
        needles: &[
            "libc::",
            "nix::",
            "rustix::mount",
            "rustix::runtime",
            "rustix::thread::unshare",
            "rustix::thread::move_into",
            "rustix::thread::set_no_new_privs",
            "rustix::process::pivot_root",
            "rustix::process::chroot",
        ],
        paths: &["crates/sandbox/", "tests/probes/"],
        in_tests: InTests::Banned,
    },
    Home {
        what: "the wall clock",
        needles: &["SystemTime::now"],
        paths: &["crates/hub/src/adapter.rs", "crates/runner/src/adapter.rs"],
        in_tests: InTests::Free,
    },
    Home {
        what: "the steady clock",
        needles: &["Instant::now"],
        paths: &[
            "crates/cli/",
            "crates/hub/src/adapter.rs",
            "crates/runner/src/adapter.rs",
            "crates/sandbox/",
        ],
        in_tests: InTests::Free,
    },
    Home {
        what: "randomness",
        needles: &["Uuid::now_v7", "Uuid::new_v4", "rand::random"],
        paths: &["crates/hub/src/adapter.rs", "crates/runner/src/adapter.rs"],
        in_tests: InTests::Free,
    },
    Home {
        what: "the caller's environment",
        needles: &["env::var", "env::var_os", "env::vars", "env::vars_os"],
        paths: &["crates/cli/"],
        in_tests: InTests::Free,
    },
    Home {
        what: "starting a program",
        needles: &["Command::new"],
        paths: &["crates/sandbox/", "crates/registry/src/helper_program.rs"],
        in_tests: InTests::Free,
    },
];

const SQL_HOME: &str = "crates/store/";

/// The black-box suite may look into the database, which outlives the binary.
const SUITE: &str = "tests/";

/// Tidy's own examples of what is forbidden stand in its tests.
const OWN_HOME: &str = "xtask/";

/// Words that make a text SQL when they stand in it like this, in capital letters.
const SQL_ANYWHERE: &[&str] = &[
    "INSERT INTO ",
    "INSERT OR ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "CREATE UNIQUE INDEX ",
    "ALTER TABLE ",
    "DROP TABLE ",
    "BEGIN IMMEDIATE",
    "ON CONFLICT ",
    "PRAGMA ",
];

/// First words that make a text SQL, in any letters, if the second stands behind them.
const SQL_START: &[(&str, &str)] = &[
    ("select ", " from "),
    ("update ", " set "),
    ("insert into ", "values"),
    ("delete from ", " where "),
    ("create table ", "("),
    ("pragma ", "="),
];

pub(super) fn check(tree: &FileTree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (file, source) in tree.rust() {
        if file.path.starts_with(OWN_HOME) {
            continue;
        }
        let is_at_home = |home: &Home| home.paths.iter().any(|path| file.path.starts_with(path));
        for home in HOMES.iter().filter(|home| !is_at_home(home)) {
            problems.extend(strangers(file, source, home, tree.is_test(&file.path)));
        }
        if file.path.starts_with(SQL_HOME) || file.path.starts_with(SUITE) {
            continue;
        }
        for literal in source
            .literals
            .iter()
            .filter(|literal| is_sql(&literal.text))
        {
            let message = format!("SQL text has its home in {SQL_HOME}");
            problems.push(Problem::at(&file.path, literal.line, message));
        }
    }
    for file in tree.files() {
        if file.extension() == "sql" && !file.path.starts_with(SQL_HOME) {
            let message = format!("SQL text has its home in {SQL_HOME}");
            problems.push(Problem::in_file(&file.path, message));
        }
    }
    problems
}

/// Where a file that is not its home holds such code.
fn strangers(file: &File, source: &RustSource, home: &Home, is_test: bool) -> Vec<Problem> {
    if is_test && home.in_tests == InTests::Free {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for needle in home.needles {
        let lines = match home.in_tests {
            InTests::Free => source.find_in_product(needle),
            InTests::Banned => source.find(needle),
        };
        for line in lines {
            let homes = home.paths.join(", ");
            let message = format!("{} (`{needle}`) has its home in {homes}", home.what);
            problems.push(Problem::at(&file.path, line, message));
        }
    }
    problems
}

fn is_sql(text: &str) -> bool {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lower = words.to_lowercase();
    SQL_ANYWHERE.iter().any(|part| words.contains(part))
        || (SQL_START.iter()).any(|(first, then)| {
            lower
                .strip_prefix(first)
                .is_some_and(|rest| format!(" {rest}").contains(then))
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
    fn unsafe_code_lives_in_the_sandbox() {
        let text = "fn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(
            check_file("crates/blob/src/a.rs", text),
            "crates/blob/src/a.rs:2: unsafe code (`unsafe`) has its home in crates/sandbox/, tests/probes/"
        );
        assert_eq!(check_file("crates/sandbox/src/sys/a.rs", text), "");
        assert_eq!(
            check_file(
                "crates/blob/src/a.rs",
                "//! not unsafe\nconst unsafe_code: u8;"
            ),
            ""
        );
    }

    #[test]
    fn raw_system_calls_live_in_the_sandbox() {
        for call in [
            "libc::kill(1)",
            "rustix::mount::mount_bind(a, b)",
            "use nix::sys;",
        ] {
            let problems = check_file("crates/runner/src/a.rs", call);
            assert!(problems.contains("a raw system call"), "{call}: {problems}");
            assert_eq!(check_file("crates/sandbox/src/a.rs", call), "");
        }
        assert_eq!(
            check_file(
                "crates/runner/src/a.rs",
                "rustix::fs::open(a); mylibc::x();"
            ),
            ""
        );
    }

    #[test]
    fn what_reads_the_world_lives_in_adapters_and_tests() {
        let calls = [
            "std::time::SystemTime::now()",
            "Instant::now()",
            "Uuid::now_v7()",
            "env::var_os(name)",
            "Command::new(name)",
        ];
        for call in calls {
            let problems = check_file("crates/ledger/src/a.rs", call);
            assert_eq!(problems.lines().count(), 1, "{call}: {problems}");
            assert_eq!(check_file("crates/ledger/tests/a.rs", call), "");
            let test = format!("#[cfg(test)]\nmod tests {{ {call} }}\n");
            assert_eq!(check_file("crates/ledger/src/a.rs", &test), "");
        }
        assert_eq!(
            check_file("crates/hub/src/adapter.rs", "SystemTime::now()"),
            ""
        );
        assert_eq!(check_file("crates/cli/src/a.rs", "env::var(name)"), "");
    }

    #[test]
    fn sql_lives_in_the_store() {
        let texts = [
            "SELECT id FROM executions",
            "select id\\n from executions",
            "\\n   UPDATE lease SET until = 3",
            "INSERT INTO event VALUES (1)",
            "x; DELETE FROM event",
            "PRAGMA data_version",
            "BEGIN IMMEDIATE",
        ];
        for text in texts {
            let text = text.replace("\\n", "\n");
            let code = format!("const A: &str = r#\"{text}\"#;");
            let problems = check_file("crates/hub/src/a.rs", &code);
            assert!(
                problems.contains("SQL text has its home"),
                "{text}: {problems}"
            );
            assert_eq!(check_file("crates/store/src/a.rs", &code), "");
        }
    }

    #[test]
    fn english_is_not_sql() {
        for text in [
            "delete from the list what is done",
            "select one",
            "update the set",
            "from",
        ] {
            assert!(!is_sql(text), "{text}");
        }
    }

    #[test]
    fn sql_files_live_in_the_store() {
        assert_eq!(
            check_file("crates/hub/a.sql", "SELECT 1"),
            "crates/hub/a.sql: SQL text has its home in crates/store/"
        );
        assert_eq!(check_file("crates/store/migrations/1.sql", "SELECT 1"), "");
    }
}
