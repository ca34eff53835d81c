//! What a person meant whose command line is none.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use tidemill_core::diagnostic::nearest;

use super::{Cli, other_tools};
use crate::text::command_line;

/// Characters of a command that are repeated.
const COMMAND_CHARS_MAX: usize = 200;

/// What to write instead, beyond what the parser proposes: `tidemill make test` forgot `run --`, and
/// `-v` is what another tool calls it. What the parser proposes and is far from what was written is
/// taken out of the error.
pub(crate) fn hint(
    error: &mut clap::Error,
    arguments: impl Iterator<Item = String>,
) -> Option<String> {
    let arguments: Vec<String> = arguments.collect();
    let mut cli = Cli::command();
    cli.build();
    let path = path(&cli, &arguments);
    if error.kind() == ErrorKind::UnknownArgument {
        let usage = usage(&mut cli, &path);
        return unknown_flag(error, &path, &arguments, usage);
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(hint) = other_tools::command_hint(&path, word)
    {
        error.remove(ContextKind::SuggestedSubcommand);
        return Some(hint.to_owned());
    }
    if !path.is_empty() {
        return None;
    }
    let places = env::var_os("PATH").unwrap_or_default();
    run_forgotten(error, arguments.into_iter(), |name| {
        is_program(name, &places)
    })
}

fn unknown_flag(
    error: &mut clap::Error,
    path: &[String],
    arguments: &[String],
    usage: StyledStr,
) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = flag.clone();
    // To pass a flag as a value is hardly ever what was meant, and an argument that is too much is none.
    if flag.starts_with('-') {
        error.remove(ContextKind::Suggested);
    }
    let hint = other_tools::flag_hint(path, &flag, arguments);
    let is_near = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(proposed)) => nearest(&flag, [proposed.as_str()]).is_some(),
        _ => false,
    };
    if hint.is_some() || !is_near {
        error.remove(ContextKind::SuggestedArg);
        // It shows the flag that was proposed.
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    hint
}

/// The names of the command that was given, that of the one that it belongs to before it.
fn path(cli: &clap::Command, arguments: &[String]) -> Vec<String> {
    let mut command = cli;
    let mut path = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if GLOBAL_WITH_VALUE.contains(&word.as_str()) {
            words.next();
        } else if let Some(below) = command.find_subcommand(word) {
            path.push(below.get_name().to_owned());
            command = below;
        } else if !word.starts_with('-') {
            break;
        }
    }
    path
}

/// Flags that may stand before a command, with a word that is none.
const GLOBAL_WITH_VALUE: [&str; 3] = ["--state-dir", "--cache-size", "--format"];

/// How the command that was given is used.
fn usage(cli: &mut clap::Command, path: &[String]) -> StyledStr {
    let given = path
        .iter()
        .try_fold(cli, |command, name| command.find_subcommand_mut(name));
    given.map(clap::Command::render_usage).unwrap_or_default()
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

    /// What is said of a mistyped flag: the hint, and what the parser says.
    fn said(line: &[&str]) -> (Option<String>, String) {
        let mut error =
            Cli::try_parse_from(["tidemill"].iter().chain(line)).expect_err("a mistake");
        let words = line.iter().map(|&word| word.to_owned());
        let hint = hint(&mut error, words);
        (hint, error.to_string())
    }

    #[test]
    fn flags_of_other_tools_have_their_own_hint_and_no_other() {
        for (line, expected) in [
            (&["run", "--rm", "true"][..], "leave --rm out"),
            (&["run", "-it", "sh"], "write --stdin --tty for -it"),
            (&["run", "-ti", "sh"], "write --stdin --tty for -ti"),
            (&["run", "-i", "sh"], "write --stdin"),
            (&["run", "-t", "sh"], "write --tty"),
            (&["run", "-v", "a:/b", "sh"], "--layer dir:SRC=DEST"),
            (&["run", "--volume=a:/b", "sh"], "--layer dir:SRC=DEST"),
            (&["run", "-v", "a:/b", "sh"], "--grant bind:SRC:DEST"),
            (&["run", "--device=/dev/kvm", "sh"], "--grant device:PATH"),
            (&["run", "--privileged", "sh"], "--grant with each thing"),
            (&["run", "-e", "A=b", "sh"], "--env NAME=VALUE"),
            (&["run", "-w", "/x", "sh"], "--workdir PATH"),
            (&["run", "-w/x", "sh"], "--workdir PATH"),
            (
                &["run", "--network", "host", "sh"],
                "--net none or --net host",
            ),
            (&["run", "--shm-size=1g", "sh"], "--shm SIZE"),
            (&["explain", "-u", "1", "sh"], "--user UID[:GID]"),
        ] {
            let (hint, text) = said(line);
            let hint = hint.unwrap_or_else(|| panic!("{line:?}: {text}"));
            assert!(hint.contains(expected), "{line:?}: {hint}");
            assert!(!text.contains("tip:"), "{line:?}: {text}");
            let usage = format!("Usage: tidemill {} [OPTIONS] [PROGRAM]...", line[0]);
            assert!(text.contains(&usage), "{line:?}: {text}");
        }
    }

    #[test]
    fn commands_without_a_job_have_hints_of_their_own() {
        for (line, expected, usage) in [
            (&["image", "rm", "-f", "a"][..], "leave it out", "image rm"),
            (
                &["image", "remove", "--force", "a"],
                "leave it out",
                "image rm",
            ),
            (&["image", "ls", "-q"], "--format json", "image ls"),
            (
                &["image", "import", "--tag", "a", "b"],
                "--name REF",
                "image import",
            ),
            (&["cache", "prune", "-a"], "write --all", "cache prune"),
            (&["cache", "prune", "-f"], "--dry-run", "cache prune"),
            (
                &["--state-dir", "image", "cache", "prune", "-f"],
                "--dry-run",
                "cache prune",
            ),
            (&["ps", "-a"], "leave it out", "ps"),
            (&["ps", "-n", "5"], "--limit N", "ps"),
            (&["logs", "-n", "5", "last"], "--tail N", "logs"),
            (&["logs", "-n5", "run"], "--tail N", "logs"),
        ] {
            let (hint, text) = said(line);
            let hint = hint.unwrap_or_else(|| panic!("{line:?}: {text}"));
            assert!(hint.contains(expected), "{line:?}: {hint}");
            assert!(!text.contains("tip:"), "{line:?}: {text}");
            assert!(
                text.contains(&format!("Usage: tidemill {usage} ")),
                "{line:?}: {text}"
            );
        }
    }

    #[test]
    fn a_wrong_flag_shows_how_its_own_command_is_used() {
        for (line, usage) in [
            (&["cache", "prune", "--frob"][..], "cache prune"),
            (&["image", "pull", "a", "b"], "image pull"),
            (&["cache", "--frob"], "cache"),
            (&["--frob"], ""),
        ] {
            let (_, text) = said(line);
            let usage = format!("Usage: tidemill {usage}");
            assert!(text.contains(usage.trim_end()), "{line:?}: {text}");
        }
    }

    #[test]
    fn every_hint_is_for_a_command_that_there_is_and_no_flag_of_ours() {
        other_tools::check(&Cli::command());
    }

    #[test]
    fn commands_of_other_tools_have_their_hint_and_no_other() {
        for (line, expected) in [
            (&["kill"][..], "tidemill cancel ID"),
            (&["stop"], "tidemill cancel ID"),
            (&["ls"], "tidemill ps"),
            (&["list"], "tidemill ps"),
            (&["rm"], "TIDEMILL_KEEP_FOR"),
            (&["prune"], "TIDEMILL_KEEP_FOR"),
            (&["exec"], "tidemill run --tty"),
            (&["login"], "docker login"),
            (&["logout"], "skopeo login --compat-auth-file"),
            (&["build"], "tidemill image import -"),
            (&["push"], "skopeo copy"),
            (&["save"], "skopeo copy"),
            (&["commit"], "--layer command:SCRIPT"),
            (&["system"], "tidemill cache du"),
            (&["volume"], "--workspace DIR --write"),
            (&["info"], "tidemill doctor"),
            (&["image", "prune"], "tidemill cache prune,"),
            (&["image", "push"], "skopeo copy"),
            (&["cache", "clear"], "tidemill cache prune --all"),
            (&["cache", "clean"], "tidemill cache prune --all"),
            (&["cache", "df"], "tidemill cache du"),
        ] {
            let (hint, text) = said(&[line, &["x"]].concat());
            assert!(
                hint.is_some_and(|hint| hint.contains(expected)),
                "{line:?}: {text}"
            );
            assert!(!text.contains("tip:"), "{line:?}: {text}");
        }
        assert_eq!(said(&["image", "sh"]).0, None);
        let (hint, text) = said(&["run", "--mem", "1GiB", "true"]);
        assert_eq!(hint.as_deref(), Some("write --memory SIZE"), "{text}");
    }

    #[test]
    fn a_proposal_is_near_or_not_made() {
        let (hint, text) = said(&["run", "--memroy", "1GiB", "true"]);
        assert_eq!(hint, None);
        assert!(text.contains("'--memory'"), "{text}");
        for line in [
            &["run", "--frob", "true"][..],
            &["run", "-x"],
            &["ps", "--rm"],
        ] {
            let (hint, text) = said(line);
            assert_eq!(hint, None, "{line:?}");
            assert!(!text.contains("tip:"), "{line:?}: {text}");
        }
    }

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
