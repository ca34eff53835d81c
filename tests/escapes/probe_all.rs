//! No case of the probe is forgotten, and the table of the README is true.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tidemill_tests::probe;

use crate::{
    probe_descriptors, probe_exhaustion, probe_host, probe_identity, probe_kernel,
    probe_kernel_memory, probe_life, probe_memory, probe_network, probe_output, probe_shared,
};

/// Text between backticks that is a name.
fn names_in(text: &str) -> BTreeSet<&str> {
    let is_name = |part: &&str| {
        let mut letters = part.bytes();
        letters
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'_')
            && part.contains(|letter: char| letter.is_ascii_lowercase())
    };
    // Every second part is between two of them.
    let parts = text.split('`').skip(1).step_by(2);
    parts.filter(is_name).collect()
}

/// What the table says is tried is tried.
#[test]
fn every_name_of_the_table_is_a_test() {
    let rows = include_str!("README.md").lines();
    let rows: String = rows.filter(|line| line.starts_with("| ")).collect();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut functions = String::new();
    for folder in ["escapes", "suite"] {
        for entry in fs::read_dir(tests.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "rs") {
                functions.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let cases = tried();
    let missing: Vec<&str> = names_in(&rows)
        .into_iter()
        .filter(|name| !cases.contains(name) && !functions.contains(&format!("fn {name}(")))
        .collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
    assert!(names_in(&rows).len() > 100, "the table is read");
}

/// Every case that has tests here.
fn tried() -> BTreeSet<&'static str> {
    [
        probe_descriptors::PLAIN,
        probe_exhaustion::PLAIN,
        probe_exhaustion::JUDGED,
        probe_host::PLAIN,
        probe_host::JUDGED,
        probe_identity::PLAIN,
        probe_kernel::PLAIN,
        probe_kernel_memory::PLAIN,
        probe_kernel_memory::JUDGED,
        probe_life::PLAIN,
        probe_life::JUDGED,
        probe_memory::PLAIN,
        probe_network::PLAIN,
        probe_network::JUDGED,
        probe_output::JUDGED,
        probe_shared::PLAIN,
        probe_shared::JUDGED,
    ]
    .into_iter()
    .flatten()
    .copied()
    .collect()
}

#[test]
fn every_case_has_its_tests() {
    let tried = tried();
    let output = Command::new(probe()).arg("list").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let known: BTreeSet<&str> = text.lines().collect();
    assert!(known.len() > 50, "{text}");
    assert_eq!(tried, known);
}
