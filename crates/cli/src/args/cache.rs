//! The flags of `cache`.

use clap::{Args, Subcommand};

use super::examples;

/// What is done with what is kept for jobs to come.
#[derive(Debug, Args)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    pub(crate) command: CacheCommand,
}

/// What to do with it.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List the unpacked trees, the last used first
    #[command(after_help = examples::CACHE_LS)]
    Ls,

    /// Show how much room it all takes, files that several trees have counted once
    #[command(after_help = examples::CACHE_DU)]
    Du,

    /// Remove what is of no use, and more if asked; never what is in use
    #[command(after_help = examples::CACHE_PRUNE)]
    Prune(PruneArgs),

    /// Read every file of every tree and image, and put aside what is damaged
    #[command(after_help = examples::CACHE_VERIFY)]
    Verify,
}

/// What `cache prune` removes beside what is of no use.
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Every tree that is not in use
    #[arg(long, conflicts_with_all = ["max", "unused_for"])]
    pub(crate) all: bool,

    /// The trees that were used least recently, until no more than this is left, such as 5GiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) max: Option<String>,

    /// Trees that nobody has used for so long, such as 7d
    #[arg(long, value_name = "DURATION")]
    pub(crate) unused_for: Option<String>,

    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}
