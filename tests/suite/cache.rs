//! What the state directory keeps for jobs to come: shared, checked, bounded, and whole whatever happens.

mod full_disk;
mod killed;
mod names;
mod older;
mod outside;
mod owned;
mod racing;
mod room;
mod shared;
mod whole;

use std::fs::{self, File};
use std::path::PathBuf;

use serde_json::Value;
use tidemill_tests::{Done, TarEntry, World, write_tar};

/// An archive with these files, and the layer that it is.
fn archive(world: &World, name: &str, entries: &[TarEntry]) -> String {
    let path = world.write(format!("{name}.tar"), "");
    write_tar(File::create(&path).unwrap(), entries);
    format!("tar:{}=/taken", path.display())
}

/// Runs a shell line in a job that has this layer, and gives what it wrote.
fn run(world: &World, layer: &str, line: &str) -> Done {
    let done = world
        .job(line)
        .args(["--layer", layer, "--no-workspace"])
        .run();
    assert_eq!(done.code, 0, "{done}");
    done
}

/// The answer of a `cache` command that goes well.
fn cache(world: &World, arguments: &[&str]) -> Value {
    let mut words = vec!["cache"];
    words.extend(arguments);
    words.extend(["--format", "json"]);
    let answer: Value = serde_json::from_slice(&world.ask(words)).unwrap();
    assert_eq!(answer["version"], 1);
    answer
}

/// The trees that were made of archives, by the end of the archive's name.
fn tree_of<'a>(list: &'a Value, archive: &str) -> Option<&'a Value> {
    let trees = list["trees"].as_array().unwrap();
    trees
        .iter()
        .find(|tree| tree["from"].as_str().unwrap().ends_with(archive))
}

/// Where the tree of an archive is. The suite must be root to look inside.
fn root_of(world: &World, archive: &str) -> PathBuf {
    let list = cache(world, &["ls"]);
    let tree = tree_of(&list, archive).unwrap_or_else(|| panic!("no {archive} in {list}"));
    let digest = tree["digest"].as_str().unwrap().replace("b3:", "");
    world.state().join("trees/ready").join(digest).join("root")
}

/// Nothing is half built or half removed.
fn assert_nothing_half(world: &World) {
    let building = world.state().join("trees/building");
    let left: Vec<_> = fs::read_dir(building).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
