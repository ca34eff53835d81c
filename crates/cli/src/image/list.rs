//! `tidemill image ls`.

use serde::Serialize;
use tidemill_core::ByteSize;
use tidemill_oci::{Image, Named};

use super::Images;
use super::answer::{ImageAnswer, short};
use crate::args::Format;
use crate::failure::Failure;
use crate::output::Output;
use crate::ui::{Ui, plain};

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Answer {
    version: u32,
    images: Vec<ImageAnswer>,
}

const HEADS: [&str; 6] = ["NAME", "DIGEST", "PLATFORM", "LAYERS", "SIZE", "CREATED"];
/// Characters of a date: `2026-03-01`.
const DATE_CHARS: usize = 10;

pub(super) fn ls(
    images: Option<&Images>,
    format: Format,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let mut found = Vec::new();
    for named in images.map_or(Ok(Vec::new()), Images::all)? {
        let content = images.map(|images| &images.content);
        match content.map(|content| Image::load(content, &named.manifest)) {
            Some(Ok(image)) => found.push((named, image)),
            Some(Err(error)) => {
                let name = named.reference.to_short();
                let said = plain(&format!("{error}; {}", error.hint()));
                ui.note(&format!("{name} cannot be used: {said}"));
            }
            None => {}
        }
    }
    let answer = Answer {
        version: 1,
        images: found
            .iter()
            .map(|(named, image)| ImageAnswer::new(named, image))
            .collect(),
    };
    output.answer(format, &answer, || table(&found))?;
    if format == Format::Text && found.is_empty() {
        ui.note("there is no image yet; for example: tidemill image pull debian:12");
    }
    Ok(0)
}

fn table(found: &[(Named, Image)]) -> String {
    let rows = found.iter().map(|(named, image)| {
        let created = image.config.created.as_deref().unwrap_or_default();
        [
            named.reference.to_short(),
            short(&named.manifest.digest),
            named.platform.to_string(),
            image.manifest.layers.len().to_string(),
            ByteSize(image.manifest.size()).to_string(),
            created.chars().take(DATE_CHARS).collect(),
        ]
    });
    let rows: Vec<_> = std::iter::once(HEADS.map(str::to_owned))
        .chain(rows)
        .collect();
    let mut widths = [0; HEADS.len()];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let lines: Vec<_> = rows
        .iter()
        .map(|row| {
            let cells: Vec<_> = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{:<width$}", plain(cell)))
                .collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}
