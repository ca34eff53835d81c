//! `tidemill image`: container images, from registries and files of this machine.
//!
//! What an image is and how it is kept is decided in `oci`, how it is fetched in `registry`.

mod answer;
mod find;
mod import;
mod list;
mod progress;
mod pull;
mod remove;
mod show;
mod tag;

use std::error::Error;
use std::path::{Path, PathBuf};

pub(crate) use self::progress::watch;
pub(crate) use self::pull::{client, not_pulled};

use tidemill_hub::StateDir;
use tidemill_oci::{Content, Names, Platform, Reference};

use crate::args::{Format, GlobalArgs, ImageArgs, ImageCommand};
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::state_dir::state_dir;
use crate::ui::Ui;

/// Where images are, in the state directory.
const DIRECTORY: &str = "images";

/// Where the images of a state directory are.
pub(crate) fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join(DIRECTORY)
}

/// The images of the state directory, which are looked at and added to.
pub(crate) fn stored(global: &GlobalArgs) -> Result<(Content, Names), Failure> {
    open(global).map(|images| (images.content, images.names))
}

/// The images of a state directory, and how answers are written.
#[derive(Debug)]
struct Images {
    content: Content,
    names: Names,
    format: Format,
}

pub(crate) fn image(
    args: &ImageArgs,
    global: &GlobalArgs,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    match &args.command {
        ImageCommand::Pull(args) => pull::pull(args, &open(global)?, output, ui),
        ImageCommand::Import(args) => import::import(args, &open(global)?, output, ui),
        ImageCommand::Ls => list::ls(look(global)?.as_ref(), global.format, output, ui),
        ImageCommand::Show(args) => show::show(args, &look_for(global, &args.image)?, output),
        ImageCommand::Rm(args) => {
            let first = args.images.first().map_or("", String::as_str);
            remove::rm(args, &look_for(global, first)?, global, output, ui)
        }
        ImageCommand::Tag(args) => {
            tag::tag(args, &look_for(global, &args.image.image)?, output, ui)
        }
    }
}

/// Opens the images, and makes room for them if there are none yet.
fn open(global: &GlobalArgs) -> Result<Images, Failure> {
    let directory = StateDir::open(&state_dir(global.state_dir.as_deref())?).map_err(|error| {
        Failure::new(FailureKind::State, "the state directory cannot be used")
            .because(&error)
            .hint(error.hint())
    })?;
    Images::open(directory.path().join(DIRECTORY), global.format)
}

/// Opens the images if there are any. Whoever only looks makes nothing.
fn look(global: &GlobalArgs) -> Result<Option<Images>, Failure> {
    let directory = state_dir(global.state_dir.as_deref())?.join(DIRECTORY);
    if !directory.is_dir() {
        return Ok(None);
    }
    Images::open(directory, global.format).map(Some)
}

/// Opens the images to find one of them.
fn look_for(global: &GlobalArgs, wanted: &str) -> Result<Images, Failure> {
    look(global)?.ok_or_else(|| find::unknown(wanted, &[]))
}

impl Images {
    fn open(directory: PathBuf, format: Format) -> Result<Self, Failure> {
        let content = Content::open(directory).map_err(|error| state(&error, error.hint()))?;
        Ok(Self {
            names: Names::new(&content),
            content,
            format,
        })
    }
}

/// A failure of the directory of images.
fn state(error: &dyn Error, hint: impl Into<String>) -> Failure {
    Failure::new(FailureKind::State, "the images cannot be used")
        .because(error)
        .hint(hint)
}

/// The name of an image as somebody wrote it.
pub(crate) fn reference(text: &str) -> Result<Reference, Failure> {
    text.parse::<Reference>().map_err(|error| {
        Failure::new(FailureKind::Usage, error.to_string()).hint(
            "write [REGISTRY/]NAME[:TAG][@DIGEST], such as debian:12 or localhost:5000/app:dev",
        )
    })
}

/// The platform as somebody wrote it, else this machine's.
pub(crate) fn platform(text: Option<&str>) -> Result<Platform, Failure> {
    match text {
        None => Ok(Platform::host()),
        Some(text) => text.parse::<Platform>().map_err(|error| {
            Failure::new(FailureKind::Usage, error.to_string()).hint(format!(
                "without it, it is {}, as this machine",
                Platform::host()
            ))
        }),
    }
}
