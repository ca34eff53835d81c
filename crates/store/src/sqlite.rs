//! The SQLite back end: every statement that it runs is below here.

pub(crate) mod connect;
mod decode;
mod delete;
mod migration;
pub(crate) mod read;
pub(crate) mod readers;
mod write;
pub(crate) mod writer;
