//! What every parser of bytes that we did not write promises, as functions from any bytes: each
//! returns if the promise holds and panics if not. The README beside the seeds says what each promises.
//!
//! No part of the product. A fuzzer calls these functions with what it thinks up; a test of this
//! package calls them with the committed seeds. Start reading at [`TARGETS`].

// The files that are compiled in have tests of their own, which run where they belong.
#![cfg(not(test))]

mod archive;
mod draft;
mod elf;
mod glob;
mod image_text;
mod input;
mod job_file;
mod kernel_text;
mod log_notes;
mod log_text;
mod oci_archive;
mod oci_text;
mod quantity;
mod record;
mod sealed_log;
mod spool;
mod store_rows;
mod walk;

// Parsers of crates that have no library, or no way into them, are compiled in from their files; what
// those import stands in the manifest of this package too.
#[path = "../../../crates/cli/src/diagnostics.rs"]
#[expect(dead_code, reason = "only a part of the file is fuzzed")]
mod diagnostics;
#[path = "../../../crates/cli/src/failure.rs"]
#[expect(dead_code, reason = "only a part of the file is fuzzed")]
mod failure;

pub use archive::archive;
pub use draft::draft;
pub use elf::elf;
pub use glob::glob;
pub use image_text::image_text;
pub use job_file::job_file;
pub use kernel_text::kernel_text;
pub use log_notes::log_notes;
pub use log_text::log_text;
pub use oci_archive::oci_archive;
pub use oci_text::oci_text;
pub use quantity::quantity;
pub use record::record;
pub use sealed_log::sealed_log;
pub use spool::spool;
pub use store_rows::store_rows;

/// A function that panics if a promise is broken.
pub type Target = fn(&[u8]);

/// All targets by their names, which the folders of their seeds have too.
pub const TARGETS: &[(&str, Target)] = &[
    ("archive", archive),
    ("draft", draft),
    ("elf", elf),
    ("glob", glob),
    ("image_text", image_text),
    ("job_file", job_file),
    ("kernel_text", kernel_text),
    ("log_notes", log_notes),
    ("log_text", log_text),
    ("oci_archive", oci_archive),
    ("oci_text", oci_text),
    ("quantity", quantity),
    ("record", record),
    ("sealed_log", sealed_log),
    ("spool", spool),
    ("store_rows", store_rows),
];
