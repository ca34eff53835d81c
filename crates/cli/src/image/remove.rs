//! `tidemill image rm`.

use serde::Serialize;
use tidemill_core::ByteSize;
use tidemill_oci::{Named, OciDigest, Reference};

use super::{Images, state};
use crate::args::ImageRmArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::ui::Ui;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    version: u32,
    removed: Vec<Removed<'a>>,
    /// Bytes that this gave back; nothing if images are fetched or used at this time.
    freed: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Removed<'a> {
    name: &'a Reference,
    digest: OciDigest,
}

pub(super) fn rm(
    args: &ImageRmArgs,
    images: &Images,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    // All of them are found before any is removed.
    let mut found: Vec<Named> = Vec::new();
    for text in &args.images {
        for named in images.find(text)? {
            if !found.contains(&named) {
                found.push(named);
            }
        }
    }
    for named in &found {
        images
            .names
            .remove(&named.reference)
            .map_err(|error| state(&error, error.hint()))?;
    }
    let freed = images
        .names
        .collect()
        .map_err(|error| state(&error, error.hint()))?;
    let answer = Answer {
        version: 1,
        removed: found
            .iter()
            .map(|named| Removed {
                name: &named.reference,
                digest: named.manifest.digest,
            })
            .collect(),
        freed,
    };
    output.answer(images.format, &answer, || {
        let lines: Vec<_> = found
            .iter()
            .map(|named| format!("{}  {}", named.reference.to_short(), named.manifest.digest))
            .collect();
        lines.join("\n")
    })?;
    match freed {
        Some(freed) => ui.note(&format!("{} given back", ByteSize(freed))),
        None => ui.note(
            "images are fetched or used at this time, so the room is given back later: \
             tidemill cache prune",
        ),
    }
    Ok(0)
}
