//! Which crate may depend on which. Arrows point down only: `core`, then the pure machines, then
//! what touches the outside, then hub and runner, then the binary.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Problem;

/// Each crate, and the crates of this workspace that it may depend on.
const ARROWS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("ledger", &["core"]),
    ("dispatch", &["core"]),
    ("queue", &["core"]),
    ("blob", &["core"]),
    ("log", &["core"]),
    ("oci", &["core", "blob"]),
    ("registry", &["core", "oci"]),
    ("tree", &[]),
    ("sandbox", &["core", "tree"]),
    ("image", &["core", "blob", "tree"]),
    ("store", &["core", "ledger"]),
    ("hub", &["core", "ledger", "store", "blob", "log"]),
    (
        "runner",
        &["core", "dispatch", "blob", "log", "image", "sandbox"],
    ),
    (
        "cli",
        &[
            "core", "ledger", "store", "blob", "log", "oci", "registry", "tree", "image",
            "sandbox", "hub", "runner",
        ],
    ),
    // A scenario may measure any part by itself; the black-box suite knows only the binary.
    (
        "benches",
        &[
            "core", "ledger", "dispatch", "store", "blob", "log", "image", "sandbox", "hub",
            "runner",
        ],
    ),
    // Whatever reads bytes that others wrote.
    (
        "fuzz-targets",
        &["core", "ledger", "log", "oci", "image", "sandbox", "store"],
    ),
    // Drives pure machines, and is needed by nobody.
    ("sim", &["core", "dispatch"]),
    ("tests", &[]),
    ("probes", &[]),
];

/// The crates that decide and never act.
const PURE: &[&str] = &["core", "ledger", "dispatch", "queue"];

/// What a pure crate may use: nothing that reads a clock, a file, the network or randomness.
const PURE_LIBRARIES: &[&str] = &[
    "blake3",
    "schemars",
    "serde",
    "serde_json",
    "thiserror",
    "uuid",
];

/// Libraries that have one home.
const LIBRARY_HOMES: &[(&str, &[&str])] = &[
    ("clap", &["cli"]),
    ("clap_complete", &["cli"]),
    ("clap_mangen", &["cli"]),
    ("landlock", &["sandbox"]),
    ("libc", &["sandbox", "probes"]),
    ("nix", &["sandbox"]),
    ("rand_pcg", &["sim"]),
    ("seccompiler", &["sandbox"]),
    ("sqlx", &["store"]),
    ("anyhow", &["xtask", "benches", "tests"]),
];

const PREFIX: &str = "tidemill-";

/// What tidy knows of a package.
#[derive(Debug)]
pub(super) struct Package {
    name: String,
    /// For the product, not for tests.
    dependencies: Vec<String>,
}

impl Package {
    fn short_name(&self) -> &str {
        self.name.strip_prefix(PREFIX).unwrap_or(&self.name)
    }
}

/// The packages of the workspace, from what cargo says of it.
pub(super) fn packages(metadata: &Value) -> Result<Vec<Package>> {
    parse(metadata).context("cargo metadata printed JSON of an unknown shape")
}

fn parse(metadata: &Value) -> Option<Vec<Package>> {
    let packages = metadata.get("packages")?.as_array()?;
    packages.iter().map(parse_package).collect()
}

fn parse_package(package: &Value) -> Option<Package> {
    let name = package.get("name")?.as_str()?.to_owned();
    let dependencies = package.get("dependencies")?.as_array()?;
    let dependencies = dependencies
        .iter()
        .filter(|dependency| dependency.get("kind").and_then(Value::as_str) != Some("dev"))
        .map(|dependency| Some(dependency.get("name")?.as_str()?.to_owned()))
        .collect::<Option<_>>()?;
    Some(Package { name, dependencies })
}

pub(super) fn check(packages: &[Package]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for package in packages {
        let name = package.short_name();
        let report = |message| Problem::in_file(&format!("package {}", package.name), message);
        let allowed = ARROWS.iter().find(|(from, _)| *from == name);
        if allowed.is_none() && package.name.starts_with(PREFIX) {
            problems.push(report(
                "has no line in the table of arrows (tidy/arrows.rs)".to_owned(),
            ));
            continue;
        }
        for dependency in &package.dependencies {
            if let Some(to) = dependency.strip_prefix(PREFIX) {
                if !allowed.is_some_and(|(_, allowed)| allowed.contains(&to)) {
                    problems.push(report(format!(
                        "a new arrow: {name} may not depend on {to}"
                    )));
                }
                continue;
            }
            if PURE.contains(&name) && !PURE_LIBRARIES.contains(&dependency.as_str()) {
                problems.push(report(format!(
                    "{name} is pure and may not use {dependency}"
                )));
            }
            let home = LIBRARY_HOMES
                .iter()
                .find(|(library, _)| library == dependency);
            if let Some((_, homes)) = home
                && !homes.contains(&name)
            {
                problems.push(report(format!(
                    "only {} may use {dependency}",
                    homes.join(", ")
                )));
            }
        }
    }
    problems
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::super::show;
    use super::*;

    /// Every crate of the table without dependencies, and these.
    fn check_with(changed: &[(&str, &[&str])]) -> String {
        let package = |name: &str, dependencies: &[&str]| Package {
            name: name.to_owned(),
            dependencies: dependencies.iter().map(|&each| each.to_owned()).collect(),
        };
        let mut packages: Vec<_> = changed
            .iter()
            .map(|(name, dependencies)| package(name, dependencies))
            .collect();
        for (name, _) in ARROWS {
            let name = format!("{PREFIX}{name}");
            if !packages.iter().any(|each| each.name == name) {
                packages.push(package(&name, &[]));
            }
        }
        show(check(&packages))
    }

    #[test]
    fn arrows_that_point_down_are_fine() {
        let problems = check_with(&[
            ("tidemill-ledger", &["tidemill-core", "serde"]),
            ("tidemill-store", &["tidemill-ledger", "sqlx"]),
            ("xtask", &["anyhow", "serde_json"]),
        ]);
        assert_eq!(problems, "");
    }

    #[test]
    fn a_new_arrow_is_refused() {
        assert_eq!(
            check_with(&[("tidemill-core", &["tidemill-ledger"])]),
            "package tidemill-core: a new arrow: core may not depend on ledger"
        );
        assert_eq!(
            check_with(&[("xtask", &["tidemill-core"])]),
            "package xtask: a new arrow: xtask may not depend on core"
        );
    }

    #[test]
    fn a_crate_without_a_line_is_refused() {
        assert_eq!(
            check_with(&[("tidemill-misc", &[])]),
            "package tidemill-misc: has no line in the table of arrows (tidy/arrows.rs)"
        );
    }

    #[test]
    fn a_pure_crate_uses_pure_libraries_only() {
        assert_eq!(
            check_with(&[("tidemill-dispatch", &["thiserror", "tokio"])]),
            "package tidemill-dispatch: dispatch is pure and may not use tokio"
        );
    }

    #[test]
    fn a_library_has_one_home() {
        assert_eq!(
            check_with(&[("tidemill-hub", &["sqlx"])]),
            "package tidemill-hub: only store may use sqlx"
        );
    }

    #[test]
    fn dependencies_for_tests_are_not_arrows() {
        let metadata = serde_json::json!({ "packages": [{
            "name": "tidemill-core",
            "dependencies": [
                { "name": "serde", "kind": null },
                { "name": "cc", "kind": "build" },
                { "name": "proptest", "kind": "dev" },
            ],
        }]});
        let packages = parse(&metadata).unwrap();
        assert_eq!(packages[0].dependencies, ["serde", "cc"]);
        assert!(parse(&serde_json::json!({ "packages": [{}] })).is_none());
    }
}
