//! The log of one attempt: the bytes that a job wrote, exactly, in their true order, with the stream
//! and the time of each piece.
//!
//! While the attempt runs the log is a *spool*: a directory of append-only segments that any process
//! may read while one writes it ([`LogSpool`]). Afterwards it is *sealed*: one object of zstd frames
//! with an index ([`seal()`]). [`LogReader`] reads both the same way, with bounded memory.
//!
//! This crate knows nothing of an execution but its name, and nothing of blobs or databases; it reads no clock and never decodes text.
//! Start reading at [`spool`], whose head comment has the format on disk, then [`reader`].

mod chunk;
mod piece;
pub mod reader;
mod room;
pub mod seal;
mod sealed;
mod segment;
mod source;
pub mod spool;

pub use reader::{Gap, LogError, LogReader, Next, Piece};
pub use seal::{SealError, SealedLog, seal};
pub use spool::{LogSpool, SpoolError};
