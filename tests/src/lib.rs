//! The black-box suite: the real binary, tried as its users use it.
//!
//! It knows nothing of the product's code: it starts `tidemill` as a process, reads what comes out,
//! and looks at the host before and after. Most tests are named after a trial (`a1_…`) and run twice,
//! as root and rootless. Start reading at [`World`], then `suite/processes.rs`.
//!
//! | variable | what it does |
//! |---|---|
//! | `TIDEMILL_BIN` | tries this binary instead of building one |
//! | `TIDEMILL_TEST_USER` | who runs the rootless tests when the suite runs as root |
//! | `TIDEMILL_TEST_SKIPS` | the file that skipped tests are appended to |
//! | `TIDEMILL_TEST_RUNS` | how many runs the test for left-overs makes (default 500) |

mod binary;
mod debian;
mod host;
mod leavings;
mod mode;
mod output;
mod patience;
mod processes;
mod record;
mod root;
mod skip;
mod tree;
mod trial;
mod world;

pub use binary::{binary, kept, probe};
pub use debian::debian;
pub use host::{Doctor, has_program};
pub use leavings::Leavings;
pub use mode::{Account, Mode};
pub use output::{Collected, Collector};
pub use patience::{PATIENCE, until};
pub use processes::{Process, children_of, peak_memory, processes};
pub use record::Record;
pub use root::{TarEntry, busybox_root, busybox_tar, write_tar};
pub use skip::{skip, test_name};
pub use tree::{Entry, tree};
pub use trial::{Background, Done, Trial};
pub use world::World;
