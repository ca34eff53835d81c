//! `tidemill version`.

use serde::Serialize;
use tidemill_core::event::EVENT_VERSION;
use tidemill_core::job::SPEC_VERSION;
use tidemill_ledger::snapshot::SNAPSHOT_VERSION;

use crate::args::Format;
use crate::failure::Failure;
use crate::output::Output;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Version {
    version: u32,
    tidemill: &'static str,
    formats: Formats,
}

/// The versions of what is written to files and other programs.
#[derive(Debug, Serialize)]
struct Formats {
    spec: u32,
    event: u32,
    record: u32,
}

pub(crate) fn version(format: Format, output: &mut Output) -> Result<u8, Failure> {
    let tidemill = env!("CARGO_PKG_VERSION");
    match format {
        Format::Text => output.line(&format!("tidemill {tidemill}"))?,
        Format::Json => output.json_document(&Version {
            version: 1,
            tidemill,
            formats: Formats {
                spec: SPEC_VERSION,
                event: EVENT_VERSION,
                record: SNAPSHOT_VERSION,
            },
        })?,
    }
    Ok(0)
}
