//! `tidemill image tag`.

use serde::Serialize;
use tidemill_oci::{Image, Named};

use super::answer::{ImageAnswer, line};
use super::{Images, reference, state};
use crate::args::ImageTagArgs;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::ui::Ui;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Answer {
    version: u32,
    image: ImageAnswer,
}

pub(super) fn tag(
    args: &ImageTagArgs,
    images: &Images,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let reference = reference(&args.name)?;
    if reference.digest().is_some() {
        let message = format!("`{reference}` has a digest, which is not for choosing");
        return Err(Failure::new(FailureKind::Usage, message).hint("write NAME:TAG"));
    }
    // What is found stays until it has its other name.
    let hold = images
        .content
        .hold()
        .map_err(|error| state(&error, error.hint()))?;
    let found = images.find(&args.image.image)?;
    let first = found.first().expect("what is found is not nothing");
    let image = Image::load(&images.content, &first.manifest)
        .map_err(|error| state(&error, error.hint()))?;
    let named = Named {
        reference,
        is_local: true,
        ..first.clone()
    };
    let before = images
        .names
        .set(&named)
        .map_err(|error| state(&error, error.hint()))?;
    drop(hold);
    let answer = Answer {
        version: 1,
        image: ImageAnswer::new(&named, &image),
    };
    output.answer(images.format, &answer, || line(&named, &image))?;
    if let Some(before) = before.filter(|before| before.manifest != named.manifest) {
        let name = named.reference.to_short();
        ui.note(&format!("{name} was {} before", before.manifest.digest));
    }
    Ok(0)
}
