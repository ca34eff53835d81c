//! What a person meant whose command line is none.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::text::command_line;

/// Characters of a command that are repeated.
const COMMAND_CHARS_MAX: usize = 200;

/// What to write instead, beyond what the parser proposes: `tidemill make test` forgot `run --`.
pub(crate) fn hint(error: &clap::Error, arguments: impl Iterator<Item = String>) -> Option<String> {
    let path = env::var_os("PATH").unwrap_or_default();
    run_forgotten(error, arguments, |name| is_program(name, &path))
}

fn run_forgotten(
    error: &clap::Error,
    arguments: impl Iterator<Item = String>,
    is_program: impl Fn(&str) -> bool,
) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let command: Vec<String> = arguments.skip_while(|argument| argument != word).collect();
    is_program(word).then(|| {
        let line = command_line(&command, COMMAND_CHARS_MAX);
        format!("to run a program: tidemill run -- {line}")
    })
}

fn is_program(name: &str, path: &OsStr) -> bool {
    let may_run = |file: &std::path::Path| {
        file.metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return may_run(name.as_ref());
    }
    env::split_paths(path).any(|directory| may_run(&directory.join(name)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn hint_for(line: &[&str]) -> Option<String> {
        let error = Cli::try_parse_from(["tidemill"].iter().chain(line)).expect_err("a mistake");
        let words = line.iter().map(|&word| word.to_owned());
        run_forgotten(&error, words, |name| name == "make")
    }

    #[test]
    fn a_program_in_the_place_of_a_command_lacks_the_run_before_it() {
        assert_eq!(
            hint_for(&["--state-dir", "x", "make", "a b", "-j8"]).as_deref(),
            Some("to run a program: tidemill run -- make 'a b' -j8")
        );
        assert_eq!(hint_for(&["lgos", "last"]), None);
        assert_eq!(hint_for(&["run", "--make"]), None);
    }
}
