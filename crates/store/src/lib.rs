//! The durable side of the ledger.
//!
//! All SQL of Tidemill is in this crate. It decides nothing: what an event does to an execution is
//! said by `tidemill-ledger`, and applied here inside a transaction. What is acknowledged is on the
//! disk; what was refused left no trace.
//!
//! Start reading at [`Store`], then `sqlite/writer.rs`, where commits are grouped.

pub mod entry;
pub mod fault;
pub mod listing;
pub mod open;
mod sqlite;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use entry::{Forgotten, LogObject, NewExecution, Unfinished, Written};
pub use fault::{StoreError, WriteError};
pub use listing::{ListCursor, ListPage, Resolve};
pub use open::{OpenError, OpenOptions};
pub use store::{Committed, Store};
