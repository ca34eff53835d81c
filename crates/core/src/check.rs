//! A draft becomes a spec, or a list of everything that is wrong with it.
//!
//! The check is pure: what only the caller's machine knows (variables, whether a path is there) comes
//! in as [`Surroundings`].

mod command;
mod grant;
mod image;
mod layer;
mod naming;
mod quantity;
mod signal;
mod source;

use crate::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, DiagnosticCode, nearest};
use crate::draft::Draft;
use crate::job::{JobSpec, Network, SPEC_BYTES_MAX, SPEC_VERSION, Stdin};

pub use command::ARGUMENTS_TOTAL_MAX;
pub use grant::GRANTS_MAX;
pub use image::{IMAGE_NAME_BYTES_MAX, reference_error};
pub use layer::{BINARIES_MAX, ENTRIES_MAX, LAYERS_MAX, MTIME_MAX};
pub use naming::{LABEL_KEY_BYTES_MAX, LABEL_VALUE_BYTES_MAX, LABELS_MAX, NAME_BYTES_MAX};
pub use quantity::{
    DISK_MIN, GRACE_MAX, LOG_MIN, MEMORY_MIN, OPEN_FILES_MAX, OPEN_FILES_MIN, PIDS_MAX, SHM_MIN,
    SIZE_MAX, USER_ID_MAX,
};
pub use source::PATH_BYTES_MAX;

/// What the check is told about the place where the draft was written.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// What the caller's environment has under a name.
    pub caller_variable: &'a dyn Fn(&str) -> CallerVariable,
    /// What is wrong with a glob pattern, or `None` if nothing is.
    pub pattern_error: &'a dyn Fn(&str) -> Option<String>,
    /// Looks whether an absolute path on the host can be used.
    pub host_path: &'a dyn Fn(&str, PathKind) -> Result<(), PathProblem>,
    /// The workspace of a job that names none: an absolute path on the host.
    pub workspace: Option<&'a str>,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("workspace", &self.workspace)
            .finish_non_exhaustive()
    }
}

impl Default for Surroundings<'_> {
    /// Nothing known: no variable is set, every pattern that is not plainly broken is taken, every path
    /// is there, and there is no default workspace.
    fn default() -> Self {
        Self {
            caller_variable: &|_| CallerVariable::Unset,
            pattern_error: &|_| None,
            host_path: &|_, _| Ok(()),
            workspace: None,
        }
    }
}

/// What a path on the host must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// Anything that can be mounted somewhere else and used there: no device.
    Mountable,
    /// A character device that is no symbolic link and that the caller may read and write.
    CharacterDevice,
}

/// Why a path on the host cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathProblem {
    /// There is nothing.
    #[error("does not exist")]
    Missing,
    /// It is there and not a directory.
    #[error("is not a directory")]
    NotDirectory,
    /// It is there and not a regular file.
    #[error("is not a regular file")]
    NotFile,
    /// It is a device, which needs a grant of its own.
    #[error("is a device")]
    Device,
    /// It is there and not a character device.
    #[error("is not a character device")]
    NotCharacterDevice,
    /// It leads to another path.
    #[error("is a symbolic link to `{0}`")]
    Link(String),
    /// The caller itself may not use it.
    #[error("cannot be read and written by the user that runs tidemill")]
    NotAllowed,
    /// The system did not let us look.
    #[error("cannot be looked at: {0}")]
    Unreadable(String),
}

/// A variable of the caller's environment, as far as the check needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerVariable {
    /// There is none of this name.
    Unset,
    /// Its value is so many bytes of UTF-8.
    Set {
        /// Bytes of the value.
        bytes: usize,
    },
    /// Its value is not UTF-8.
    NotUtf8,
}

/// Checks a draft whole. There is a spec exactly if no diagnostic is an error.
pub fn check(draft: &Draft, surroundings: &Surroundings<'_>) -> (Option<JobSpec>, Vec<Diagnostic>) {
    let mut findings = Findings::default();
    let version = check_version(draft, &mut findings);
    let name = naming::check_name(draft, &mut findings);
    let labels = naming::check_labels(draft, &mut findings);
    let image = image::check_image(draft, surroundings, &mut findings);
    let command = command::check_command(draft, &image, &mut findings);
    command::check_arguments(draft, &mut findings);
    command::check_environment(draft, surroundings, &mut findings);
    command::check_total(draft, surroundings, &mut findings);
    let layers = layer::check_layers(draft, surroundings, &mut findings);
    let workspace = source::check_workspace(draft, surroundings, &mut findings);
    let workdir = source::check_workdir(draft, workspace.as_ref(), &mut findings);
    let network = check_network(draft, &mut findings);
    let (network, grants) = grant::check_grants(draft, network, surroundings, &mut findings);
    let limits = quantity::check_limits(draft, &mut findings);
    source::check_write(draft, workspace.as_ref(), &mut findings);
    let stop_signal = signal::check_stop_signal(draft, &mut findings);
    let (user, user_name) = quantity::check_user(draft, &image, &mut findings);
    let stdin = check_stdin(draft, &mut findings);
    let priority = quantity::check_priority(draft, &mut findings);
    let estimate = quantity::check_estimate(draft, &mut findings);

    let diagnostics = findings.after(&draft.found);
    if diagnostics.iter().any(Diagnostic::is_error) {
        return (None, diagnostics);
    }
    let spec = JobSpec {
        version,
        name,
        labels,
        program: command.program,
        args: command.args,
        entrypoint: command.entrypoint,
        image,
        layers,
        workspace,
        workdir,
        env: draft.env.clone(),
        pass_env: command::passed_names(draft),
        network,
        grants,
        limits,
        stop_signal,
        user,
        user_name,
        stdin,
        tty: draft.tty,
        wait_children: draft.wait_children,
        priority,
        estimate,
    };
    check_spec_size(spec, diagnostics)
}

/// The check of the whole comes last: it needs the canonical form.
fn check_spec_size(
    spec: JobSpec,
    mut diagnostics: Vec<Diagnostic>,
) -> (Option<JobSpec>, Vec<Diagnostic>) {
    let bytes = spec.to_canonical().len() as u64;
    if bytes <= SPEC_BYTES_MAX.0 {
        return (Some(spec), diagnostics);
    }
    diagnostics.push(
        Diagnostic::error(
            DiagnosticCode::TooLong,
            "",
            format!("the job is {bytes} bytes as JSON, and {SPEC_BYTES_MAX} is the limit"),
        )
        .with_hint("put what is large into files and give them as layers"),
    );
    (None, diagnostics)
}

fn check_version(draft: &Draft, findings: &mut Findings) -> u32 {
    let text = draft.version.as_deref().unwrap_or("1");
    if text.parse() != Ok(SPEC_VERSION) {
        let message = format!("version {} of the job format is not known", shown(text));
        findings.error(DiagnosticCode::UnknownVersion, "/version", message).hint(format!(
            "this Tidemill knows version {SPEC_VERSION}; leave the field out or write {SPEC_VERSION}"
        ));
    }
    SPEC_VERSION
}

fn check_network(draft: &Draft, findings: &mut Findings) -> Network {
    match draft.network.as_deref() {
        None | Some("none") => Network::None,
        Some("host") => Network::Host,
        Some(other) => {
            findings.unknown_value("/network", "network", other, &["none", "host"]);
            Network::None
        }
    }
}

fn check_stdin(draft: &Draft, findings: &mut Findings) -> Stdin {
    match draft.stdin.as_deref() {
        None if draft.tty => Stdin::Inherit,
        None => Stdin::Empty,
        Some("inherit") => Stdin::Inherit,
        Some("empty" | "none") if draft.tty => {
            findings
                .error(
                    DiagnosticCode::Conflict,
                    "/tty",
                    "a terminal cannot have an empty standard input",
                )
                .hint("leave `stdin` out, write `inherit`, or leave `tty` out");
            Stdin::Inherit
        }
        Some("empty" | "none") => Stdin::Empty,
        Some(other) => {
            findings.unknown_value("/stdin", "stdin", other, &["empty", "inherit"]);
            Stdin::Empty
        }
    }
}

/// What the parts of the check have found so far.
#[derive(Debug, Default)]
struct Findings {
    found: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
    beyond: Option<Diagnostic>,
}

impl Findings {
    fn error(
        &mut self,
        code: DiagnosticCode,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> Advice<'_> {
        self.push(Diagnostic::error(code, place, message))
    }

    fn warning(
        &mut self,
        code: DiagnosticCode,
        place: impl Into<String>,
        message: impl Into<String>,
    ) -> Advice<'_> {
        self.push(Diagnostic::warning(code, place, message))
    }

    /// Errors and warnings have a bound each, so that warnings never crowd out the error that stops
    /// the job. What is beyond goes to a place where the next one overwrites it.
    fn push(&mut self, diagnostic: Diagnostic) -> Advice<'_> {
        let counted = if diagnostic.is_error() {
            &mut self.errors
        } else {
            &mut self.warnings
        };
        if *counted == DIAGNOSTICS_MAX {
            return Advice(self.beyond.insert(diagnostic));
        }
        *counted += 1;
        self.found.push(diagnostic);
        Advice(
            self.found
                .last_mut()
                .expect("one was pushed in the line before"),
        )
    }

    fn unknown_value(&mut self, place: &str, field: &str, value: &str, known: &[&'static str]) {
        let hint = nearest(value, known.iter().copied()).map_or_else(
            || format!("write one of: {}", known.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        let message = format!("`{}` is not a {field}", shown(value));
        self.error(DiagnosticCode::UnknownValue, place, message)
            .hint(hint);
    }

    /// Refuses NUL bytes. True if there is none.
    fn without_nul(&mut self, place: &str, what: &str, text: &str) -> bool {
        let Some(position) = text.find('\0') else {
            return true;
        };
        let message = format!("{what} has a NUL byte at position {position}");
        self.error(DiagnosticCode::NulByte, place, message).hint(
            "no program can be given a NUL; put binary data into a file and give it as a layer",
        );
        false
    }

    /// What reading found, and what the check found in places that reading did not already reject.
    fn after(self, earlier: &[Diagnostic]) -> Vec<Diagnostic> {
        let rejected = |place: &str| {
            earlier.iter().any(|diagnostic| {
                diagnostic.is_error()
                    && place
                        .strip_prefix(diagnostic.place.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        let fresh = self
            .found
            .into_iter()
            .filter(|diagnostic| !rejected(&diagnostic.place));
        earlier.iter().cloned().chain(fresh).collect()
    }
}

/// The place where advice is added to the diagnostic that was just found.
struct Advice<'a>(&'a mut Diagnostic);

impl Advice<'_> {
    fn hint(self, hint: impl Into<String>) {
        self.0.hint = Some(hint.into());
    }
}

/// A text as a message shows it: escaped, and cut where it is long.
fn shown(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let mut short: String = text
        .chars()
        .take(SHOWN_CHARS_MAX)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
