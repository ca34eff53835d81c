//! `tidemill man`: the manual as roff, made from the same texts as `--help`.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{Cli, ManArgs};
use crate::failure::{Failure, FailureKind};
use crate::output::Output;

pub(crate) fn man(args: &ManArgs, output: &mut Output) -> Result<u8, Failure> {
    match &args.directory {
        None => output.write(&page(Cli::command())?)?,
        Some(directory) => {
            let written = write_pages(directory)?;
            output.line(&format!("{written} pages in {}", directory.display()))?;
        }
    }
    Ok(0)
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut roff = Vec::new();
    // The date is left out, so that the same version gives the same bytes.
    Man::new(command)
        .date("")
        .render(&mut roff)
        .map_err(|error| {
            Failure::new(FailureKind::Internal, "cannot write the manual").because(&error)
        })?;
    Ok(roff)
}

fn write_pages(directory: &Path) -> Result<usize, Failure> {
    let failed = |path: &Path, error: &io::Error| {
        let message = format!("cannot write the manual to `{}`", path.display());
        Failure::new(FailureKind::Unable, message).because(error)
    };
    fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    let mut root = Cli::command();
    root.build();
    let mut pages = vec![("tidemill".to_owned(), root.clone())];
    for command in root.get_subcommands() {
        let name = format!("tidemill-{}", command.get_name());
        pages.push((name.clone(), command.clone().name(name)));
    }
    for (name, command) in &pages {
        let path = directory.join(format!("{name}.1"));
        fs::write(&path, page(command.clone())?).map_err(|error| failed(&path, &error))?;
    }
    Ok(pages.len())
}
