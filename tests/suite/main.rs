//! The trials: how jobs go wrong elsewhere, and must not go wrong here. A test whose name begins with
//! a letter and a number is the trial of that id.
//!
//! See the library of this package for how they are run, and for what is looked at after each.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_input;
mod cache;
mod commands;
mod damaged_state;
mod durable_logs;
mod environment;
mod exit_codes;
mod filling_disk;
mod forbidden;
mod formats;
mod granted;
mod grants;
mod home;
mod image;
mod layers;
mod left_overs;
mod limits;
mod links;
mod listing;
mod live;
mod logs;
mod neighbours;
mod oci;
mod odd_images;
mod other_tools;
mod processes;
mod real_work;
mod roots;
mod services;
mod shared_memory;
mod state_dir;
mod stopping;
mod system_calls;
mod terminal;
mod toolchains;
mod unused_trees;
mod user_database;
mod walls;
mod workspace;
