//! The command line: every command and flag, with the texts that `--help` and the manual show.

mod cache;
mod examples;
mod grant_names;
mod image;
mod job;
mod mistake;
mod other_tools;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

pub(crate) use cache::{CacheArgs, CacheCommand, PruneArgs};
pub(crate) use image::{
    ImageArgs, ImageCommand, ImageImportArgs, ImageNameArgs, ImagePullArgs, ImageRmArgs,
    ImageTagArgs,
};
pub(crate) use job::{ExplainArgs, JobArgs, RunArgs};
pub(crate) use mistake::hint;

/// Runs jobs in clean sandboxes and keeps a record of each.
///
/// `tidemill run -- PROGRAM ARGS` runs a program at once, with nothing to set up: it sees this
/// machine's tools and the directory that you stand in, may write there without changing the real
/// files, has no network, and leaves a record that `ps`, `show`, `events` and `logs` read.
#[derive(Debug, Parser)]
#[command(
    name = "tidemill",
    version,
    after_help = examples::TOP,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100,
    infer_long_args = false
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct GlobalArgs {
    /// Where records, logs and unpacked layers are kept.
    ///
    /// Default: $TIDEMILL_STATE, else $XDG_STATE_HOME/tidemill, else ~/.local/state/tidemill.
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(help_heading = "Global options")]
    pub(crate) state_dir: Option<PathBuf>,

    /// How much room unpacked layers may take, such as 50GiB, or `all` of the disk.
    ///
    /// Default: $TIDEMILL_CACHE_SIZE, else 20 GiB or a fifth of a disk that is smaller than 100 GiB.
    #[arg(long, global = true, value_name = "SIZE")]
    #[arg(help_heading = "Global options")]
    pub(crate) cache_size: Option<String>,

    /// How the answer on standard output is written: for people, or as JSON with a `version`.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    #[arg(help_heading = "Global options", hide_possible_values = true)]
    pub(crate) format: Format,
}

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program in a sandbox of its own
    #[command(after_help = examples::RUN, after_long_help = examples::RUN_LONG)]
    Run(Box<RunArgs>),

    /// List executions, the newest first
    #[command(after_help = examples::PS)]
    Ps(PsArgs),

    /// Show what is known of one execution
    #[command(after_help = examples::SHOW)]
    Show(IdArgs),

    /// Show what happened to one execution, event by event
    #[command(after_help = examples::EVENTS)]
    Events(EventsArgs),

    /// Show what one execution wrote
    #[command(after_help = examples::LOGS)]
    Logs(LogsArgs),

    /// Ask one execution to end: its stop signal, then its grace, then a kill
    #[command(after_help = examples::CANCEL)]
    Cancel(IdArgs),

    /// Wait until one execution has ended, and exit as `run` would
    #[command(after_help = examples::WAIT)]
    Wait(IdArgs),

    /// Show what a job would see and be granted, without running it
    #[command(after_help = examples::EXPLAIN)]
    Explain(Box<ExplainArgs>),

    /// Look at what is kept for jobs to come, and make room
    #[command(after_help = examples::CACHE)]
    Cache(CacheArgs),

    /// Fetch, import and list container images
    #[command(after_help = examples::IMAGE)]
    Image(ImageArgs),

    /// Print the JSON Schema of a format
    #[command(after_help = examples::SCHEMA)]
    Schema(SchemaArgs),

    /// Show what this machine can do, what blocks the rest, and the exact fix
    Doctor,

    /// Print a completion script for a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(CompletionsArgs),

    /// Print the manual page, or write all of them into a directory
    #[command(after_help = examples::MAN)]
    Man(ManArgs),

    /// Print the version
    Version,
}

/// Which executions `ps` lists.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Only those in this state; may be given several times
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Vec<String>,

    /// Only those with this name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Only those with this label; may be given several times, and all must match
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,

    /// Only those that are older than this one; what `ps` says at the end of a list that it cut
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,

    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) limit: u32,
}

/// Which execution is meant.
#[derive(Debug, Args)]
pub(crate) struct IdArgs {
    /// The execution: its id, the beginning or the end of it or of what `ps` shows, its name, or `last`
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Which events are shown.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    pub(crate) id: IdArgs,

    /// Go on with new events until the execution has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// What of a log is shown.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) id: IdArgs,

    /// Go on with new output until the execution has ended
    #[arg(short, long)]
    pub(crate) follow: bool,

    /// Only the last lines
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u64>,

    /// Only one of the two streams
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: Option<StreamChoice>,

    /// The exact bytes, as the job wrote them
    #[arg(long)]
    pub(crate) raw: bool,
}

/// One of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StreamChoice {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Which schema is printed.
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// Which format
    #[arg(value_enum, default_value_t, value_name = "WHICH")]
    pub(crate) which: SchemaChoice,
}

/// A format with a JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SchemaChoice {
    /// A job file, as `run --file` reads it.
    #[default]
    Job,
    /// A checked job, as `explain --format json` shows it.
    Spec,
    /// A record, as `show --format json` and `--result-file` write it.
    Record,
    /// An event, as `events --format json` and `run --format json` write it.
    Event,
    /// What `run --format json` and `--result-file` write when nothing could be run.
    Refusal,
}

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Where manual pages go.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write one page for each command into this directory, instead of one page to standard output
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn run_args(line: &[&str]) -> Result<RunArgs, clap::Error> {
        let cli = Cli::try_parse_from(["tidemill", "run"].iter().chain(line))?;
        match cli.command {
            Command::Run(args) => Ok(*args),
            other => panic!("not a run: {other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_program_needs_no_dashes_before_it() {
        let plain = run_args(&["--net", "host", "cargo", "test", "--net", "x", "-p", "--"])
            .expect("flags end at the program");
        assert_eq!(
            plain.job.command,
            ["cargo", "test", "--net", "x", "-p", "--"]
        );
        assert_eq!(plain.job.net.as_deref(), Some("host"));
        let dashed = run_args(&["--", "--odd", "-x"]).expect("anything after the dashes");
        assert_eq!(dashed.job.command, ["--odd", "-x"]);
    }

    #[test]
    fn a_mistyped_flag_is_not_taken_for_a_program() {
        let error = run_args(&["--memroy", "1GiB", "true"]).expect_err("no such flag");
        assert!(error.to_string().contains("--memory"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn values_are_left_to_the_check() {
        let args = run_args(&["--memory", "12 parsecs", "--pids", "x", "true"]).expect("texts");
        assert_eq!(args.job.memory.as_deref(), Some("12 parsecs"));
    }
}
