//! Job files.

#[path = "../../../crates/cli/src/job_file.rs"]
mod parser;

use std::os::fd::AsRawFd;
use std::path::PathBuf;

use tidemill_core::check::{Surroundings, check};
use tidemill_core::{Diagnostic, DiagnosticCode};

use self::parser::JobFile;
use crate::diagnostics::{Placed, Written, render};
use crate::draft::assert_tellable;
use crate::walk::in_memory;

/// Any bytes are a job or have a mistake, and each mistake has a place in the file.
pub fn job_file(bytes: &[u8]) {
    let file = in_memory(bytes);
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(job) = JobFile::read(&path, "/jobs") else {
        assert!(str::from_utf8(bytes).is_err(), "it is small and readable");
        return;
    };
    let text = str::from_utf8(bytes).expect("others are refused");
    let (draft, mut placed) = job.to_draft();
    let is_json = (placed.iter()).all(|found| found.diagnostic.code != DiagnosticCode::Syntax);
    if is_json {
        let (spec, found) = check(&draft, &Surroundings::default());
        assert_eq!(spec.is_none(), found.iter().any(Diagnostic::is_error));
        placed.extend(job.place(found));
    } else {
        assert!(!placed.is_empty());
    }
    for found in &placed {
        assert_placed(found, text);
        assert_tellable(&found.diagnostic);
    }
    let shown = render(&placed);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'));
}

fn assert_placed(found: &Placed, text: &str) {
    let Written::File { line, column, .. } = &found.written else {
        panic!("{found:?} is no place in a file");
    };
    assert!(*line >= 1 && *column >= 1);
    let there = text.split('\n').nth(line - 1);
    let there = there.unwrap_or_else(|| panic!("there is no line {line}: {found:?}"));
    assert!(*column <= there.chars().count() + 1, "{found:?}");
}
