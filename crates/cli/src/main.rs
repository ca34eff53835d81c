//! The `tidemill` binary: arguments, output, exit codes.
//!
//! Thin: what a job is and whether it is right is decided in `core`, what happened to it in `ledger`,
//! how it runs in `runner` and `sandbox`. Start reading at [`args`], then [`command`].

mod args;
mod cache;
mod clock;
mod command;
mod diagnostics;
mod exit_code;
mod failure;
mod flags;
mod host_files;
mod image;
mod job;
mod job_file;
mod log_text;
mod oci;
mod output;
mod result_file;
mod retention;
mod run;
mod session;
mod state_dir;
#[cfg(test)]
mod testing;
mod text;
mod ui;
mod unpacker;

use std::process::ExitCode;

use clap::Parser;
use tidemill_hub::Hub;
use tidemill_sandbox::LAUNCHER_ARG;
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command, EventsArgs, Format, GlobalArgs, IdArgs, LogsArgs, PsArgs};
use crate::failure::{Failure, FailureReport};
use crate::output::Output;
use crate::ui::Ui;

fn main() -> ExitCode {
    // Before anything else: the launcher must be a process of one thread.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == LAUNCHER_ARG)
    {
        return tidemill_sandbox::launcher_main();
    }
    if let Some(code) = unpacker::if_asked(std::env::args().skip(1)) {
        return code;
    }
    if let Some(code) = cache::if_asked(std::env::args().skip(1)) {
        return code;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            let hint = args::hint(&mut error, std::env::args().skip(1));
            // Whoever closed the pipe does not read the help, and there is nobody else to tell.
            error.print().ok();
            if let Some(hint) = hint {
                Ui::new().note(&format!("hint: {hint}"));
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    trace();
    let ui = Ui::new();
    let format = cli.global.format;
    let is_run = matches!(cli.command, Command::Run(_));
    match perform(cli, &ui) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            ui.failure(&failure);
            if format == Format::Json && !is_run {
                // It was told on standard error, whatever becomes of this line.
                Output::stdout().json(&FailureReport::new(&failure)).ok();
            }
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// What Tidemill does, for whoever looks for a defect: silent unless `TIDEMILL_LOG` asks.
fn trace() {
    let Ok(filter) = EnvFilter::try_from_env("TIDEMILL_LOG") else {
        return;
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
}

fn perform(cli: Cli, ui: &Ui) -> Result<u8, Failure> {
    let mut output = Output::stdout();
    let Cli { global, command } = cli;
    match command {
        Command::Run(args) => run::run(&args, &global, ui),
        Command::Explain(args) => command::explain::explain(&args, &global, &mut output, ui),
        Command::Doctor => command::doctor::doctor(global.format, &mut output),
        Command::Cache(args) => cache::cache(&args, &global, &mut output, ui),
        Command::Image(args) => image::image(&args, &global, &mut output, ui),
        Command::Schema(args) => command::schema::schema(&args, &mut output),
        Command::Completions(args) => command::completions::completions(&args, &mut output),
        Command::Man(args) => command::manual::man(&args, &mut output),
        Command::Version => command::version::version(global.format, &mut output),
        Command::Ps(args) => on_record(&Query::Ps(args), &global, &mut output, ui),
        Command::Events(args) => on_record(&Query::Events(args), &global, &mut output, ui),
        Command::Logs(args) => on_record(&Query::Logs(args), &global, &mut output, ui),
        Command::Show(args) => on_record(&Query::One(One::Show, args), &global, &mut output, ui),
        Command::Cancel(args) => {
            on_record(&Query::One(One::Cancel, args), &global, &mut output, ui)
        }
        Command::Wait(args) => on_record(&Query::One(One::Wait, args), &global, &mut output, ui),
    }
}

/// The commands that read or change the record of executions.
enum Query {
    Ps(PsArgs),
    Events(EventsArgs),
    Logs(LogsArgs),
    One(One, IdArgs),
}

/// The commands that need nothing but one execution.
enum One {
    Show,
    Cancel,
    Wait,
}

fn on_record(
    query: &Query,
    global: &GlobalArgs,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    session::runtime()?.block_on(async {
        let hub = session::open(global).await?;
        let (answering, answered) = oneshot::channel();
        let answer = async {
            let result = answer(&hub, query, global.format, output, ui).await;
            drop(answering);
            result
        };
        let (result, ()) = tokio::join!(answer, hub.sweep_until(answered));
        hub.close().await;
        result
    })
}

async fn answer(
    hub: &Hub,
    query: &Query,
    format: Format,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    match query {
        Query::Ps(args) => command::ps::ps(hub, args, format, output, ui).await,
        Query::Events(args) => command::events::events(hub, args, format, output, ui).await,
        Query::Logs(args) => command::logs::logs(hub, args, format, output, ui).await,
        Query::One(what, args) => {
            let id = session::find(hub, &args.id, ui).await?;
            match what {
                One::Show => command::show::show(hub, id, format, output).await,
                One::Cancel => command::cancel::cancel(hub, id, format, output).await,
                One::Wait => command::wait::wait(hub, id, format, output).await,
            }
        }
    }
}
