//! Real work in a job: this project's own tests, and those of a JavaScript package. A C project's
//! `make` is in `workspace.rs`, a Debian system's programs in `roots.rs`.

use std::env;
use std::path::Path;
use std::time::Duration;

use rstest::rstest;
use tidemill_tests::{Mode, World, has_program, skip, tree};

/// What cargo needs to find itself, its toolchains and its crates.
const OF_CARGO: &[&str] = &[
    "PATH",
    "HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
];

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn slow_this_projects_own_tests_pass_in_a_job(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if world.account().uid != rustix::process::geteuid().as_raw() {
        skip("the toolchain and the crates are another user's");
        return;
    }
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let manifest = project.join("crates/ledger/Cargo.toml");
    let before = std::fs::metadata(&manifest).unwrap().modified().unwrap();
    // The build that is there is used and not changed: the job has its own copy of the directory.
    let command = ["cargo", "test", "--package", "tidemill-ledger", "--offline"];
    let mut trial = world.program(command).directory(project);
    for name in OF_CARGO {
        if let Some(value) = env::var_os(name) {
            trial = trial.variable(name, value);
        }
    }
    let done = trial.within(Duration::from_secs(280)).run();
    let said = done.err();
    let lacks_crates = ["offline mode", "failed to download"].map(|words| said.contains(words));
    if done.code != 0 && lacks_crates.contains(&true) {
        skip("the crates are not downloaded here");
        return;
    }
    assert_eq!(done.code, 0, "{done}");
    let out = done.out();
    let passed: u32 = out
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split(' ').next()?.parse::<u32>().ok())
        .sum();
    assert!(passed > 50, "{passed} passed: {done}");
    let after = std::fs::metadata(&manifest).unwrap().modified().unwrap();
    assert_eq!(before, after, "the real directory changed");
}

const PACKAGE: &str =
    r#"{ "name": "trial", "version": "1.0.0", "scripts": { "test": "node --test" } }"#;

#[rstest]
#[case::root(Mode::Root)]
#[case::rootless(Mode::Rootless)]
fn the_tests_of_a_javascript_package_run(#[case] mode: Mode) {
    let Some(world) = World::new(mode) else {
        return;
    };
    if !has_program("npm") || !has_program("node") {
        skip("npm or node is missing");
        return;
    }
    let case = |sum: u32| {
        format!(
            "const test = require('node:test'); const assert = require('node:assert');\n\
             test('adds up', () => assert.strictEqual(1 + 1, {sum}));\n"
        )
    };
    world.write("package.json", PACKAGE);
    world.write("sum.test.js", case(2));
    let before = tree(&world.work());
    let good = world.program(["npm", "test"]).run();
    assert_eq!(good.code, 0, "{good}");
    assert!(good.out().contains("pass 1"), "{good}");
    assert!(tree(&world.work()) == before, "the real directory changed");
    world.write("sum.test.js", case(3));
    let bad = world.program(["npm", "test"]).run();
    assert_eq!((bad.code, bad.record().reason()), (1, "exit"), "{bad}");
    assert!(bad.out().contains("fail 1"), "{bad}");
}
