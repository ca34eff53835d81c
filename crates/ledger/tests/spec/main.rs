//! The specification of the ledger, sentence by sentence. Tests are named after the sentences.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod cancelling;
mod causes;
mod events;
mod golden;
mod moves;
mod properties;
mod reading;
mod reported;
mod script;
