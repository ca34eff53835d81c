//! `tidemill image show`.

use serde::Serialize;
use tidemill_core::ByteSize;
use tidemill_oci::{Compression, Image, ImageConfig, Named, OciDigest};

use super::answer::ImageAnswer;
use super::{Images, state};
use crate::args::ImageNameArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::text::command_line;
use crate::ui::plain;

/// Characters of a command that are shown.
const COMMAND_CHARS_MAX: usize = 200;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    version: u32,
    image: ImageAnswer,
    config_digest: OciDigest,
    config: &'a ImageConfig,
    layers: Vec<LayerAnswer>,
    /// What of it is not here and would have to be fetched.
    missing: Vec<OciDigest>,
}

#[derive(Debug, Serialize)]
struct LayerAnswer {
    digest: OciDigest,
    /// The digest without compression.
    diff_id: OciDigest,
    size: u64,
    compression: &'static str,
}

pub(super) fn show(
    args: &ImageNameArgs,
    images: &Images,
    output: &mut Output,
) -> Result<u8, Failure> {
    let found = images.find(&args.image)?;
    let named = found.first().expect("what is found is not nothing");
    let image = Image::load(&images.content, &named.manifest)
        .map_err(|error| state(&error, error.hint()))?;
    let missing = image
        .missing(&images.content)
        .map_err(|error| state(&error, error.hint()))?;
    let answer = Answer {
        version: 1,
        image: ImageAnswer::new(named, &image),
        config_digest: image.manifest.config.digest,
        config: &image.config,
        layers: layers(&image),
        missing: missing.iter().map(|blob| blob.digest).collect(),
    };
    output.answer(images.format, &answer, || {
        page(named, &image, missing.len())
    })?;
    Ok(0)
}

fn layers(image: &Image) -> Vec<LayerAnswer> {
    let layers = image.manifest.layers.iter().zip(&image.config.diff_ids);
    layers
        .map(|(layer, diff_id)| LayerAnswer {
            digest: layer.descriptor.digest,
            diff_id: *diff_id,
            size: layer.descriptor.size,
            compression: compression(layer.compression),
        })
        .collect()
}

const fn compression(compression: Compression) -> &'static str {
    match compression {
        Compression::None => "none",
        Compression::Gzip => "gzip",
        Compression::Zstd => "zstd",
    }
}

/// Everything that is known of it, a line for each.
fn page(named: &Named, image: &Image, missing: usize) -> String {
    let config = &image.config;
    let mut lines = Vec::new();
    let mut line = |head: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!("{head:<12}{}", plain(text)));
        }
    };
    let command = |words: &[String]| command_line(words, COMMAND_CHARS_MAX);
    line("name", &named.reference.to_string());
    line("digest", &named.manifest.digest.to_string());
    let index = named.index.map(|index| index.to_string());
    line("from index", index.as_deref().unwrap_or_default());
    line("platform", &named.platform.to_string());
    line("created", config.created.as_deref().unwrap_or_default());
    line("size", &ByteSize(image.manifest.size()).to_string());
    line("entry point", &command(&config.entrypoint));
    line("command", &command(&config.command));
    line("user", config.user.as_deref().unwrap_or_default());
    line(
        "directory",
        config.working_dir.as_deref().unwrap_or_default(),
    );
    line(
        "stop signal",
        config.stop_signal.as_deref().unwrap_or_default(),
    );
    for variable in &config.env {
        line("variable", variable);
    }
    for (name, value) in &config.labels {
        line("label", &format!("{name}={value}"));
    }
    for layer in &image.manifest.layers {
        let size = ByteSize(layer.descriptor.size).to_string();
        let packed = compression(layer.compression);
        line(
            "layer",
            &format!("{}  {size}  {packed}", layer.descriptor.digest),
        );
    }
    if missing > 0 {
        line(
            "missing",
            &format!("{missing} of its blobs; pull or import it again"),
        );
    }
    lines.join("\n")
}
