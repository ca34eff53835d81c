//! Layers of every kind: what they bring, in which order, as whose files, and what is said of mistakes.

mod bounds;
mod canonical;
mod commands;
mod everywhere;
mod kinds;
mod libraries;
mod marks;
mod mistakes;
mod own_files;
mod told;

use serde_json::Value;
use tidemill_tests::World;

/// The digests of the trees of a job's layers, as `explain` has them; `null` for those without.
fn trees(world: &World, arguments: &[&str]) -> Vec<Value> {
    let line = [&["explain", "--format", "json"], arguments].concat();
    let answer: Value = serde_json::from_slice(&world.ask(line)).unwrap();
    let layers = answer["layers"].as_array().unwrap();
    layers.iter().map(|layer| layer["tree"].clone()).collect()
}
