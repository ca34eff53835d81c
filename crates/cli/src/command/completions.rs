//! `tidemill completions`: scripts for shells.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output::Output;

pub(crate) fn completions(args: &CompletionsArgs, output: &mut Output) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tidemill", &mut script);
    output.write(&script)?;
    Ok(0)
}
