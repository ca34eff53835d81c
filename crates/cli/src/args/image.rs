//! The flags of `image`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::examples;

/// What is done with container images.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    #[command(subcommand)]
    pub(crate) command: ImageCommand,
}

/// What to do with them.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Fetch an image from a registry
    #[command(after_help = examples::IMAGE_PULL)]
    Pull(ImagePullArgs),

    /// Take an image from a file or a directory of this machine
    #[command(alias = "load", after_help = examples::IMAGE_IMPORT)]
    Import(ImageImportArgs),

    /// List the images that are here
    #[command(alias = "list", after_help = examples::IMAGE_LS)]
    Ls,

    /// Show what one image is made of and how it runs
    #[command(alias = "inspect", after_help = examples::IMAGE_SHOW)]
    Show(ImageNameArgs),

    /// Remove images, and what only they needed
    #[command(alias = "remove", after_help = examples::IMAGE_RM)]
    Rm(ImageRmArgs),

    /// Give an image another name
    #[command(after_help = examples::IMAGE_TAG)]
    Tag(ImageTagArgs),
}

/// Which image is fetched.
#[derive(Debug, Args)]
pub(crate) struct ImagePullArgs {
    // No documentation comment: rustdoc would take the brackets for links.
    #[arg(
        value_name = "REF",
        help = "The image, as docker writes it: [REGISTRY/]NAME[:TAG][@DIGEST]"
    )]
    pub(crate) reference: String,

    /// For which machine, such as linux/arm64 or linux/arm/v7 [default: this one]
    #[arg(long, value_name = "PLATFORM")]
    pub(crate) platform: Option<String>,

    /// Talk to the registry without TLS; on this machine that is so anyway
    #[arg(long)]
    pub(crate) plain_http: bool,

    /// Hold the tag to what it stands for now, in `tidemill.lock` where you stand, for `run` and for others
    ///
    /// A tag that the file has already is renewed without it.
    #[arg(long)]
    pub(crate) lock: bool,
}

/// What is taken in.
#[derive(Debug, Args)]
pub(crate) struct ImageImportArgs {
    /// An OCI image layout (a directory or a tar archive), an archive of `docker save`, the directory of a
    /// root file system, or `-` for an archive on standard input
    #[arg(value_name = "SOURCE", value_hint = ValueHint::AnyPath)]
    pub(crate) source: PathBuf,

    /// What it shall be called, if the source does not say so or says something else
    #[arg(long, value_name = "REF")]
    pub(crate) name: Option<String>,

    /// Which one of several, and what a root file system is for [default: this machine]
    #[arg(long, value_name = "PLATFORM")]
    pub(crate) platform: Option<String>,
}

/// Which image is meant.
#[derive(Debug, Args)]
pub(crate) struct ImageNameArgs {
    /// The image: its name, or its digest or the beginning of it
    #[arg(value_name = "IMAGE")]
    pub(crate) image: String,
}

/// Which images go.
#[derive(Debug, Args)]
pub(crate) struct ImageRmArgs {
    /// The images: their names, or their digests or the beginnings of them
    #[arg(value_name = "IMAGE", required = true)]
    pub(crate) images: Vec<String>,
}

/// What gets another name.
#[derive(Debug, Args)]
pub(crate) struct ImageTagArgs {
    #[command(flatten)]
    pub(crate) image: ImageNameArgs,

    /// The other name
    #[arg(value_name = "REF")]
    pub(crate) name: String,
}
