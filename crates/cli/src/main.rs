//! The `tidemill` binary: arguments, output, exit codes.
//!
//! Thin: what a job is and whether it is right is decided in `core`, what happened to it in `ledger`,
//! how it runs in `runner` and `sandbox`. Start reading at [`args`], then [`command`].

mod args;
mod clock;
mod command;
mod diagnostics;
mod exit_code;
mod failure;
mod flags;
mod host_files;
mod job;
mod job_file;
mod log_text;
mod output;
mod session;
mod state_dir;
#[cfg(test)]
mod testing;
mod text;
mod ui;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command, GlobalArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::ui::Ui;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Whoever closed the pipe does not read the help, and there is nobody else to tell.
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let mut ui = Ui::new();
    match perform(cli, &mut ui) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            ui.failure(&failure);
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

fn perform(cli: Cli, _ui: &mut Ui) -> Result<u8, Failure> {
    let mut output = Output::stdout();
    let format = cli.global.format;
    match cli.command {
        Command::Schema(args) => command::schema::schema(&args, &mut output),
        Command::Completions(args) => command::completions::completions(&args, &mut output),
        Command::Man(args) => command::manual::man(&args, &mut output),
        Command::Version => command::version::version(format, &mut output),
        Command::Explain(args) => {
            let job = job::checked(&args.job)?;
            output.json_document(&job.spec)?;
            Ok(0)
        }
        recorded => session::runtime()?.block_on(on_record(recorded, &cli.global, &mut output)),
    }
}

/// The commands that read or change the record of executions.
async fn on_record(
    command: Command,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<u8, Failure> {
    let format = global.format;
    let hub = session::open(global).await?;
    let result = match &command {
        Command::Ps(args) => command::ps::ps(&hub, args, format, output).await,
        Command::Show(args) => command::show::show(&hub, args, format, output).await,
        Command::Events(args) => command::events::events(&hub, args, format, output).await,
        Command::Logs(args) => command::logs::logs(&hub, args, format, output).await,
        Command::Cancel(args) => command::cancel::cancel(&hub, args, format, output).await,
        Command::Wait(args) => command::wait::wait(&hub, args, format, output).await,
        _ => Err(Failure::new(
            failure::FailureKind::Internal,
            "this command is not built yet",
        )),
    };
    hub.close().await;
    result
}
