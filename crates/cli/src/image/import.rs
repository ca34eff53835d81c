//! `tidemill image import`.

use serde::Serialize;
use tidemill_oci::{ImportOptions, Imported};

use super::answer::{ImageAnswer, line};
use super::{Images, platform, reference};
use crate::args::ImageImportArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::ui::{Ui, plain};

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Answer {
    version: u32,
    images: Vec<ImageAnswer>,
}

pub(super) fn import(
    args: &ImageImportArgs,
    images: &Images,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let options = ImportOptions {
        name: args.name.as_deref().map(reference).transpose()?,
        platform: platform(args.platform.as_deref())?,
    };
    let shown = plain(&args.source.to_string_lossy());
    ui.status(&format!("importing {shown}"));
    let result = tidemill_oci::import(&images.content, &args.source, &options);
    ui.quiet();
    let imported = result.map_err(|error| {
        Failure::new(FailureKind::Unable, format!("cannot import `{shown}`"))
            .because(&error)
            .hint(error.hint())
    })?;
    let answer = Answer {
        version: 1,
        images: imported
            .iter()
            .map(|imported| ImageAnswer::new(&imported.named, &imported.image))
            .collect(),
    };
    output.answer(images.format, &answer, || {
        let lines: Vec<_> = imported.iter().map(shown_line).collect();
        lines.join("\n")
    })?;
    Ok(0)
}

fn shown_line(imported: &Imported) -> String {
    line(&imported.named, &imported.image)
}
