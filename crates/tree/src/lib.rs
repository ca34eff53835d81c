//! Trees of files that somebody else made, a job or an archive: removed and measured whatever their modes,
//! depth and names are, with a bounded number of descriptors and without recursion.

mod measure;
mod remove;

pub use measure::{Measured, measure};
pub use remove::{remove_at, remove_tree};
