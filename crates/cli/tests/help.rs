//! The help texts, as they were last looked at by a person. Run with `SNAPSHOTS=overwrite` to take
//! the present ones.

use std::path::PathBuf;
use std::process::Command;

use snapbox::{Assert, Data};

/// The commands in the order in which the help lists them.
const COMMANDS: [&str; 15] = [
    "run",
    "ps",
    "show",
    "events",
    "logs",
    "cancel",
    "wait",
    "explain",
    "cache",
    "image",
    "schema",
    "doctor",
    "completions",
    "man",
    "version",
];

/// The commands of commands.
const NESTED: [(&str, &[&str]); 2] = [
    ("cache", &["ls", "du", "prune", "verify"]),
    ("image", &["pull", "import", "ls", "show", "rm", "tag"]),
];

fn help(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{arguments:?}: {}", output.status);
    assert!(output.stderr.is_empty(), "{arguments:?}: help is data");
    output.stdout
}

/// Compares a text with the file of this name.
fn check(name: &str, text: Vec<u8>) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/help/{name}.txt"));
    let text = String::from_utf8(text).expect("help is UTF-8");
    // The parser indents empty lines; editors and reviews do not like that.
    let text: String = text
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    Assert::new()
        .action_env("SNAPSHOTS")
        .eq(text, Data::read_from(&file, None).raw());
}

#[test]
fn the_overview_is_as_it_was_looked_at() {
    check("tidemill", help(&["--help"]));
    assert_eq!(help(&["help"]), help(&["--help"]));
}

#[test]
fn each_command_explains_itself_as_it_was_looked_at() {
    for command in COMMANDS {
        check(command, help(&[command, "--help"]));
    }
    for (command, nested) in NESTED {
        for name in nested {
            check(
                &format!("{command}-{name}"),
                help(&[command, name, "--help"]),
            );
        }
    }
    check("run-short", help(&["run", "-h"]));
}

#[test]
fn no_command_is_left_out() {
    let overview = String::from_utf8(help(&["-h"])).expect("help is UTF-8");
    let listed: Vec<&str> = overview
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert_eq!(listed, COMMANDS);
}

#[test]
fn every_example_is_read_by_the_parser() {
    let mut examples = 0;
    let nested = NESTED
        .iter()
        .flat_map(|(command, names)| names.iter().map(|name| vec![*command, *name]));
    let pages = COMMANDS.iter().map(|command| vec![*command]).chain(nested);
    for page in pages {
        let command = page[0];
        let asked = [page.as_slice(), &["--help"]].concat();
        let text = String::from_utf8(help(&asked)).expect("help is UTF-8");
        for line in text.lines() {
            let Some(rest) = line.strip_prefix(&format!("  tidemill {command}")) else {
                continue;
            };
            // What follows two spaces is a remark, and what follows a shell's sign is the shell's.
            let rest = rest.split("  ").next().unwrap_or_default();
            let rest = rest.split(['>', '|', '&']).next().unwrap_or_default();
            let mut words: Vec<&str> = std::iter::once(command)
                .chain(rest.split_whitespace())
                .collect();
            // Asking for help reads all that stands before it and does nothing else.
            let place = words
                .iter()
                .position(|word| *word == "--")
                .unwrap_or(words.len());
            words.insert(place, "--help");
            assert!(!help(&words).is_empty(), "{line}");
            examples += 1;
        }
    }
    assert!(examples > 40, "only {examples} examples were found");
}
