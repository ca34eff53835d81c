//! One suite for every back end, and the naive model that it is held against.
//!
//! A back end passes if [`conformance`] does. It is given a way to open stores, not the stores, so
//! that it can open the same database several times, as several processes do.

mod model;
mod rows;
mod suite;

pub use model::Model;
pub use rows::{AnyRows, AnyValue};
pub use suite::{Lab, Opening, conformance};
