//! Patterns of files, from the layer as it is written to the files that it matches.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use globset::GlobBuilder;
use tempfile::TempDir;
use tidemill_core::check::{Surroundings, check};
use tidemill_core::draft::{Draft, LayerDraft};
use tidemill_core::job::Layer;
use tidemill_image::fuzzing;

const FILES: [&str; 9] = [
    "a.txt",
    "b.rs",
    "sub/c.rs",
    "sub/deep/d.txt",
    ".hidden",
    "sub/.git/config",
    "we ird[1].c",
    "{x}",
    "é/ü.c",
];
const LINKS: [(&str, &str); 3] = [
    ("out", "../secret"),
    ("loop", "."),
    ("sub/link", "../a.txt"),
];

fn make_world() -> TempDir {
    let world = tempfile::tempdir().expect("there is a directory for temporary files");
    let base = world.path().join("base");
    for file in FILES {
        let path = base.join(file);
        let parent = path.parent().expect("it lies below the base");
        fs::create_dir_all(parent).expect("it is ours");
        fs::write(path, "").expect("it is ours");
    }
    for (link, target) in LINKS {
        symlink(target, base.join(link)).expect("it is ours");
    }
    fs::create_dir(world.path().join("secret")).expect("it is ours");
    fs::write(world.path().join("secret/key.txt"), "").expect("it is ours");
    world
}

thread_local! {
    static WORLD: OnceCell<TempDir> = const { OnceCell::new() };
}

/// A pattern that the check lets pass matches exactly the files below its directory that the syntax
/// says, however the search is shortened, and never leads through a link.
pub fn glob(bytes: &[u8]) {
    let Ok(pattern) = str::from_utf8(bytes) else {
        return;
    };
    WORLD.with(|world| {
        let base = world.get_or_init(make_world).path().join("base");
        let base = base.to_str().expect("temporary files have plain names");
        if let Some(pattern) = checked(pattern, base) {
            try_pattern(&pattern, base);
        }
    });
}

/// The pattern as a job has it; `None` if it is refused or searches elsewhere.
fn checked(pattern: &str, base: &str) -> Option<String> {
    let draft = Draft {
        program: Some("true".to_owned()),
        layers: vec![LayerDraft::new(format!("glob:{pattern}=/x"), base)],
        ..Draft::default()
    };
    let (spec, _) = check(&draft, &Surroundings::default());
    match spec?.layers.pop()? {
        Layer::Glob {
            base: from,
            mut include,
            ..
        } if from == base => include.pop(),
        _ => None,
    }
}

fn try_pattern(pattern: &str, base: &str) {
    let found = fuzzing::find_matches(base, pattern);
    let names: Vec<&str> = pattern.split('/').filter(|name| *name != ".").collect();
    let glob = GlobBuilder::new(&names.join("/"))
        .literal_separator(true)
        .backslash_escape(true)
        .build();
    let Ok(glob) = glob.map(|glob| glob.compile_matcher()) else {
        assert!(found.is_err());
        return;
    };
    let all = FILES.into_iter().chain(LINKS.map(|(link, _)| link));
    let wanted: BTreeSet<PathBuf> = all
        .filter(|file| glob.is_match(file))
        .map(PathBuf::from)
        .collect();
    let found: BTreeSet<PathBuf> = found.into_iter().flatten().collect();
    assert_eq!(found, wanted, "`{pattern}`");
}
