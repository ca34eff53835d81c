//! Pulls from a registry on loopback that does what real ones do, and everything that they should not.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    unused_crate_dependencies,
    reason = "the library's own are not all used here"
)]

mod fake;
mod faults;
mod made;
mod plain;
mod redirects;
mod refused;
mod sign_in;
mod together;
