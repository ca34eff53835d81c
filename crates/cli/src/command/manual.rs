//! `tidemill man`: the manual as roff, made from the same texts as `--help`.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap::builder::Resettable;
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
    let after = command
        .get_after_long_help()
        .or_else(|| command.get_after_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    // It gets sections of its own instead of one without a name.
    let command = command
        .after_help(Resettable::Reset)
        .after_long_help(Resettable::Reset);
    let mut roff = Vec::new();
    // The date is left out, so that the same version gives the same bytes.
    Man::new(command)
        .date("")
        .render(&mut roff)
        .map_err(|error| {
            Failure::new(FailureKind::Internal, "cannot write the manual").because(&error)
        })?;
    roff.extend_from_slice(sections(&after).as_bytes());
    Ok(roff)
}

/// Paragraphs of the help that have a title are sections by that name; others are notes.
const TITLES: [&str; 3] = ["Examples", "Exit status", "Environment"];

/// What stands below the flags in the help, as sections of the manual.
fn sections(help: &str) -> String {
    let mut titled = Vec::new();
    let mut notes = Vec::new();
    for paragraph in help.split("\n\n").filter(|text| !text.trim().is_empty()) {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let title = first
            .strip_suffix(':')
            .filter(|title| TITLES.contains(title));
        if let Some(title) = title {
            let title = title.to_uppercase();
            titled.push(format!(".SH \"{title}\"\n.nf\n{}.fi\n", literal(rest)));
        } else {
            notes.push(format!(".PP\n{}", literal(paragraph)));
        }
    }
    if !notes.is_empty() {
        notes.insert(0, ".SH NOTES\n".to_owned());
    }
    [titled, notes].concat().concat()
}

/// Text of which roff takes no character for its own.
fn literal(text: &str) -> String {
    text.lines()
        .map(|line| {
            let line = line
                .replace('\\', "\\e")
                .replace('-', "\\-")
                .replace('\'', "\\(aq");
            let guard = if line.starts_with('.') { "\\&" } else { "" };
            format!("{guard}{line}\n")
        })
        .collect()
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
        for nested in command.get_subcommands() {
            let name = format!("{name}-{}", nested.get_name());
            // The help of the help says nothing.
            if nested.get_name() != "help" && command.get_name() != "help" {
                pages.push((name.clone(), nested.clone().name(name)));
            }
        }
        pages.push((name.clone(), command.clone().name(name)));
    }
    for (name, command) in &pages {
        let path = directory.join(format!("{name}.1"));
        fs::write(&path, page(command.clone())?).map_err(|error| failed(&path, &error))?;
    }
    Ok(pages.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_titled_paragraph_is_a_section() {
        let page = page(Cli::command()).expect("it is written");
        let page = String::from_utf8(page).expect("roff is UTF-8");
        for section in ["EXAMPLES", "EXIT STATUS", "ENVIRONMENT"] {
            assert!(page.contains(&format!(".SH \"{section}\"\n")), "{page}");
        }
        assert!(!page.contains("EXTRA"), "{page}");
        assert!(page.contains("  TIDEMILL_KEEP_FOR "), "{page}");
    }

    #[test]
    fn roff_takes_nothing_for_its_own() {
        let text = "Examples:\n  echo 'a\\b' --x\n\n.note";
        assert_eq!(
            sections(text),
            ".SH \"EXAMPLES\"\n.nf\n  echo \\(aqa\\eb\\(aq \\-\\-x\n.fi\n\
             .SH NOTES\n.PP\n\\&.note\n"
        );
    }
}
