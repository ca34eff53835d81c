//! The specification of the queue, sentence by sentence. Tests are named after the sentences.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod claiming;
mod ending;
mod fleet;
mod golden;
mod groups;
mod hubs;
mod leases;
mod ordering;
mod random;
mod retrying;
mod scale;
mod submissions;
mod submitting;
mod waiting;
mod world;
