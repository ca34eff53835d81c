//! Bytes by digest, on a local disk: every blob is written once, whole, and never changed.
//!
//! Any number of processes may use one directory at the same time. What [`Store::put`] and
//! [`Writer::finish`] return has reached the disk. Never trusts what it reads: bytes whose digest is
//! wrong are an error, not an answer. Start reading at [`Store`].

mod locked;
mod reader;
mod store;
mod writer;

pub use locked::new_locked;
pub use reader::Reader;
pub use store::{Blob, BlobError, Store};
pub use writer::Writer;
