//! Trees of files that somebody else made, a job or an archive: removed, measured and walked whatever their
//! modes, depth and names are, with a bounded number of descriptors and without recursion.

mod measure;
mod remove;
mod walk;

pub use measure::{Measured, measure, open_below};
pub use remove::{remove_at, remove_tree};
pub use walk::{Visit, Walk, WalkError, all_cores, map_all, split_path};
