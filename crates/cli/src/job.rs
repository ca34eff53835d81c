//! From flags and job file to a checked spec, or to everything that is wrong with them.

use std::env;

use tidemill_core::check::{Surroundings, check};
use tidemill_core::job::Workspace;
use tidemill_core::{Diagnostic, JobSpec};
use tidemill_image::{
    HostView, ImplicitWorkspaceError, implicit_workspace, link_warnings, written_workspace,
};

use crate::args::JobArgs;
use crate::diagnostics::{FlagPlaces, Placed, Written, usual_flag};
use crate::failure::{Failure, FailureKind};
use crate::flags;
use crate::host_files;
use crate::job_file::JobFile;
use crate::ui::plain;

/// A job that can be queued.
#[derive(Debug)]
pub(crate) struct CheckedJob {
    pub(crate) spec: JobSpec,
    /// What the user should know beside that.
    pub(crate) warnings: Vec<Placed>,
    /// Why the job has no workspace though nobody said so, and which paths are something else than
    /// their names say.
    pub(crate) notes: Vec<String>,
    /// What the check saw of the caller, for whoever plans the job.
    pub(crate) host: HostView,
}

/// Reads and checks a job whole.
pub(crate) fn checked(args: &JobArgs) -> Result<CheckedJob, Failure> {
    let host = host_view()?;
    let cwd = working_directory(&host)?;
    let file = args
        .file
        .as_deref()
        .map(|path| JobFile::read(path, &cwd))
        .transpose()?;
    let (file_draft, mut placed) = file.as_ref().map(JobFile::to_draft).unwrap_or_default();
    let (flag_draft, mut flag_places) = flags::draft_of(args, &cwd);
    flag_places.shift("/layers", file_draft.layers.len());
    flag_places.shift("/pass_env", file_draft.pass_env.len());
    flag_places.shift("/grants", file_draft.grants.len());
    let from_file = file_draft.found.len();
    let names_workspace =
        |draft: &tidemill_core::Draft| draft.workspace.is_some() || draft.no_workspace;
    let named = names_workspace(&file_draft) || names_workspace(&flag_draft);
    let draft = file_draft.overlay(flag_draft);

    let implied = implied_workspace(&host);
    let surroundings = Surroundings {
        caller_variable: &host_files::caller_variable,
        pattern_error: &host_files::pattern_error,
        host_path: &host_files::host_path,
        workspace: implied
            .as_ref()
            .ok()
            .map(|workspace| workspace.path.as_str()),
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
            notes: {
                let why = implied.err().filter(|_| !named);
                let why = why.map(|why| format!("{why}, so the job has none; {}", why.hint()));
                let mut warnings = link_warnings(&spec, &host, named);
                warnings.extend(written_workspace(&spec, &host));
                let warnings = warnings
                    .iter()
                    .map(|text| format!("warning: {}", plain(text)));
                why.into_iter().chain(warnings).collect()
            },
            spec,
            warnings: placed,
            host,
        }),
        _ => Err(refused(placed, args)),
    }
}

/// The directory that the user stands in, if it can be a workspace. A home is none, neither the one
/// that HOME says nor the one that the user database has: `sudo` and CI services let them differ.
fn implied_workspace(host: &HostView) -> Result<Workspace, ImplicitWorkspaceError> {
    let workspace = implicit_workspace(host)?;
    let without_home = env::vars_os().filter(|(name, _)| name != "HOME");
    match HostView::current(without_home) {
        Ok(registered) if registered.home != host.home => implicit_workspace(&registered),
        Ok(_) | Err(_) => Ok(workspace),
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

/// What a plan may know of the caller.
fn host_view() -> Result<HostView, Failure> {
    HostView::current(env::vars_os()).map_err(|error| {
        Failure::new(FailureKind::Usage, error.to_string()).hint("set HOME to your home directory")
    })
}

/// The directory that the user stands in, as the shell names it.
fn working_directory(host: &HostView) -> Result<String, Failure> {
    let unusable = || {
        Failure::new(
            FailureKind::Usage,
            "the directory that you stand in cannot be used",
        )
    };
    let cwd = host
        .cwd
        .as_ref()
        .ok_or_else(|| unusable().hint("it is gone: change to a directory that is there"))?;
    cwd.to_str()
        .map(str::to_owned)
        .ok_or_else(|| unusable().hint(format!("its path `{}` is not UTF-8", cwd.display())))
}
