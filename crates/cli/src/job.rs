//! From flags and job file to a checked spec, or to everything that is wrong with them.

use std::env;
use std::path::{Path, PathBuf};

use tidemill_core::check::{Surroundings, check};
use tidemill_core::{Diagnostic, JobSpec};

use crate::args::JobArgs;
use crate::diagnostics::{FlagPlaces, Placed, Written, usual_flag};
use crate::failure::{Failure, FailureKind};
use crate::flags;
use crate::host_files;
use crate::job_file::JobFile;

/// A job that can be queued.
#[derive(Debug)]
pub(crate) struct CheckedJob {
    pub(crate) spec: JobSpec,
    /// What the user should know beside that.
    pub(crate) warnings: Vec<Placed>,
    /// Why the job has no workspace though nobody said so.
    pub(crate) workspace_note: Option<String>,
}

/// Reads and checks a job whole.
pub(crate) fn checked(args: &JobArgs) -> Result<CheckedJob, Failure> {
    let cwd = working_directory()?;
    let file = args
        .file
        .as_deref()
        .map(|path| JobFile::read(path, &cwd))
        .transpose()?;
    let (file_draft, mut placed) = file.as_ref().map(JobFile::to_draft).unwrap_or_default();
    let (flag_draft, mut flag_places) = flags::draft_of(args, &cwd);
    flag_places.shift("/layers", file_draft.layers.len());
    flag_places.shift("/pass_env", file_draft.pass_env.len());
    let from_file = file_draft.found.len();
    let names_workspace =
        |draft: &tidemill_core::Draft| draft.workspace.is_some() || draft.no_workspace;
    let named = names_workspace(&file_draft) || names_workspace(&flag_draft);
    let draft = file_draft.overlay(flag_draft);

    let implied = implied_workspace(&cwd, home_directory().as_deref());
    let surroundings = Surroundings {
        caller_variable: &host_files::caller_variable,
        pattern_error: &host_files::pattern_error,
        host_path: &host_files::host_path,
        workspace: implied.as_ref().ok().map(|()| cwd.as_str()),
    };
    // A file that is not even JSON has no fields that could be missed.
    let (spec, mut diagnostics) = if placed.iter().any(is_unreadable) {
        (None, Vec::new())
    } else {
        check(&draft, &surroundings)
    };
    let of_flags = diagnostics.split_off(from_file.min(diagnostics.len()));
    if let Some(file) = &file {
        placed.extend(file.place(diagnostics));
    }
    placed.extend(
        of_flags
            .into_iter()
            .map(|found| place(found, &flag_places, file.as_ref())),
    );
    placed.sort_by(|a, b| order_of(&a.written).cmp(&order_of(&b.written)));

    match spec {
        Some(spec) if placed.iter().all(|found| !found.diagnostic.is_error()) => Ok(CheckedJob {
            spec,
            warnings: placed,
            workspace_note: if named { None } else { implied.err() },
        }),
        _ => Err(refused(placed, args)),
    }
}

fn is_unreadable(found: &Placed) -> bool {
    found.diagnostic.code == tidemill_core::DiagnosticCode::Syntax
}

fn place(diagnostic: Diagnostic, flags: &FlagPlaces, file: Option<&JobFile>) -> Placed {
    if let Some(flag) = flags.flag_of(&diagnostic.place) {
        let written = Written::Flag {
            flag: flag.to_owned(),
        };
        return Placed {
            diagnostic,
            written,
        };
    }
    match file {
        Some(file) => file
            .place(vec![diagnostic])
            .pop()
            .expect("one diagnostic went in, so one comes out"),
        None => {
            let written = Written::Flag {
                flag: usual_flag(&diagnostic.place),
            };
            Placed {
                diagnostic,
                written,
            }
        }
    }
}

/// The order of the job file, then that of the flags' names.
fn order_of(written: &Written) -> (u8, usize, usize, &str) {
    match written {
        Written::File { file, line, column } => (0, *line, *column, file),
        Written::Flag { flag } => (1, 0, 0, flag),
    }
}

fn refused(placed: Vec<Placed>, args: &JobArgs) -> Failure {
    let errors = placed
        .iter()
        .filter(|found| found.diagnostic.is_error())
        .count();
    let mistakes = if errors == 1 {
        "a mistake".to_owned()
    } else {
        format!("{errors} mistakes")
    };
    let mut failure = Failure::new(
        FailureKind::Usage,
        format!("the job has {mistakes}, so nothing was run"),
    );
    if args.command.is_empty() && args.file.is_none() {
        failure = failure.hint("for example: tidemill run -- cargo test");
    } else if args.file.is_some() {
        failure = failure.hint("`tidemill schema job` prints what a job file may say");
    }
    failure.diagnostics = placed;
    failure
}

/// The directory that the user stands in, by its real path.
pub(crate) fn working_directory() -> Result<String, Failure> {
    let unusable = || {
        Failure::new(
            FailureKind::Usage,
            "the directory that you stand in cannot be used",
        )
    };
    let path = env::current_dir().map_err(|error| {
        unusable()
            .because(&error)
            .hint("change to a directory that is there: `cd`")
    })?;
    path.into_os_string().into_string().map_err(|path| {
        let path = PathBuf::from(path);
        unusable().hint(format!("its path `{}` is not UTF-8", path.display()))
    })
}

fn home_directory() -> Option<PathBuf> {
    let home = PathBuf::from(env::var_os("HOME")?);
    home.canonicalize().ok()
}

/// Whether the directory that the user stands in may be the workspace without having been named. A
/// home has keys and tokens in it, so neither it nor what holds it is given to a job by chance.
fn implied_workspace(cwd: &str, home: Option<&Path>) -> Result<(), String> {
    let cwd = Path::new(cwd);
    let is_home = home.is_some_and(|home| home.starts_with(cwd));
    let is_system = cwd == Path::new("/")
        || ["/proc", "/sys", "/dev"]
            .iter()
            .any(|system| cwd.starts_with(system));
    if is_home && cwd != Path::new("/") {
        return Err(format!(
            "{} holds your home, so the job does not see it; `--workspace .` gives it to the job",
            cwd.display()
        ));
    }
    if is_system {
        return Err(format!(
            "{} cannot be a workspace, so the job has none",
            cwd.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_not_given_away_by_chance() {
        let home = Some(Path::new("/home/ada"));
        for (cwd, implied) in [
            ("/home/ada/project", true),
            ("/srv", true),
            ("/home/adam", true),
            ("/home/ada", false),
            ("/home", false),
            ("/", false),
            ("/proc/1", false),
        ] {
            assert_eq!(implied_workspace(cwd, home).is_ok(), implied, "{cwd}");
        }
        assert!(implied_workspace("/home/ada", None).is_ok());
    }
}
