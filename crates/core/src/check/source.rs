//! Where files come from and where they appear: paths of the host and of the sandbox, workspace,
//! working directory.

use super::{Findings, PathKind, PathProblem, Surroundings, shown};
use crate::diagnostic::DiagnosticCode;
use crate::draft::{Draft, Located};
use crate::job::Workspace;

/// Bytes of a path at most: Linux's `PATH_MAX` without the NUL.
pub const PATH_BYTES_MAX: usize = 4095;

/// Where the sandbox mounts file systems of its own.
const RESERVED: [&str; 3] = ["/proc", "/sys", "/dev"];

pub(super) fn check_workspace(
    draft: &Draft,
    surroundings: &Surroundings<'_>,
    findings: &mut Findings,
) -> Option<Workspace> {
    if draft.no_workspace {
        if draft.workspace.is_some() {
            findings
                .error(
                    DiagnosticCode::Conflict,
                    "/no_workspace",
                    "a workspace is named, and at the same time there shall be none",
                )
                .hint("leave `workspace` or `no_workspace` out");
        }
        if draft.write {
            findings
                .error(
                    DiagnosticCode::Conflict,
                    "/write",
                    "the job shall write its workspace, and there shall be none",
                )
                .hint("leave `write` or `no_workspace` out");
        }
        return None;
    }
    let path = match &draft.workspace {
        Some(Located { text, base }) => Wanted::new(
            "/workspace",
            "the workspace",
            PathKind::Directory,
        )
        .find(text, base, surroundings, findings),
        None => surroundings.workspace?.to_owned(),
    };
    if path == "/" || RESERVED.iter().any(|reserved| is_within(&path, reserved)) {
        let message = format!("`{}` cannot be a workspace", shown(&path));
        findings
            .error(DiagnosticCode::ReservedPath, "/workspace", message)
            .hint("name the directory of a project, or ask for no workspace");
    }
    Some(Workspace {
        path,
        write: draft.write,
    })
}

/// A disk limit bounds the private layer, and nothing that is written for real.
pub(super) fn check_write(draft: &Draft, workspace: Option<&Workspace>, findings: &mut Findings) {
    if draft.limits.disk.is_some() && workspace.is_some_and(|workspace| workspace.write) {
        findings.warning(
            DiagnosticCode::Redundant,
            "/limits/disk",
            "it does not bound what the job writes into the real workspace, only what it writes elsewhere",
        );
    }
}

pub(super) fn check_workdir(
    draft: &Draft,
    workspace: Option<&Workspace>,
    findings: &mut Findings,
) -> Option<String> {
    let place = "/workdir";
    let text = draft.workdir.as_deref()?;
    let joined = match workspace {
        Some(workspace) if !text.starts_with('/') && !text.is_empty() => {
            format!("{}/{text}", workspace.path.trim_end_matches('/'))
        }
        _ => text.to_owned(),
    };
    if text.is_empty() {
        findings
            .error(
                DiagnosticCode::Empty,
                place,
                "the working directory is an empty text",
            )
            .hint("write a path in the sandbox, or leave it out");
        return None;
    }
    // The workspace's own path is checked elsewhere, so only what was written here is looked at.
    if text.split('/').any(|part| part == "..") {
        let message = format!("the working directory `{}` has `..` in it", shown(text));
        findings
            .error(DiagnosticCode::ParentComponent, place, message)
            .hint("write the path that you mean");
        return None;
    }
    if !joined.starts_with('/') {
        let message = format!(
            "the working directory `{}` is relative, and there is no workspace",
            shown(text)
        );
        findings
            .error(DiagnosticCode::RelativePath, place, message)
            .hint(format!("write /{}", shown(text)));
        return None;
    }
    if !findings.without_nul(place, "the working directory", &joined)
        || !short_enough(findings, place, "the working directory", &joined)
    {
        return None;
    }
    Some(tidied(&joined))
}

/// A path on the host that a setting names.
pub(super) struct Wanted<'a> {
    place: &'a str,
    what: &'a str,
    kind: PathKind,
}

impl<'a> Wanted<'a> {
    pub(super) const fn new(place: &'a str, what: &'a str, kind: PathKind) -> Self {
        Self { place, what, kind }
    }

    /// The path as the spec has it: absolute, or relative to `base` as written.
    pub(super) fn find(
        &self,
        text: &str,
        base: &str,
        surroundings: &Surroundings<'_>,
        findings: &mut Findings,
    ) -> String {
        let Self { place, what, kind } = *self;
        if text.is_empty() {
            let message = format!("{what} is an empty text");
            findings
                .error(DiagnosticCode::Empty, place, message)
                .hint("write a path");
            return String::new();
        }
        let path = if text.starts_with('/') {
            text.to_owned()
        } else {
            format!("{}/{text}", base.trim_end_matches('/'))
        };
        let path = tidied(&path);
        if !findings.without_nul(place, what, &path) || !short_enough(findings, place, what, &path)
        {
            return path;
        }
        if let Err(problem) = (surroundings.host_path)(&path, kind) {
            let message = format!("{what} `{}` {}", shown(&path), shown(&problem.to_string()));
            let hint = match problem {
                PathProblem::Missing if kind == PathKind::CharacterDevice => {
                    "this machine does not have it; its driver may not be loaded".to_owned()
                }
                PathProblem::Missing if text.starts_with("~/") => {
                    "the shell takes `~` for your home only at the beginning of a word; write $HOME".to_owned()
                }
                PathProblem::Missing if !text.starts_with('/') => {
                    format!("relative paths start from {}", shown(base))
                }
                PathProblem::Missing => "write a path that is there".to_owned(),
                PathProblem::NotDirectory => "name a directory".to_owned(),
                PathProblem::NotFile => "name a regular file".to_owned(),
                PathProblem::Device => format!("write device:{} for a character device", shown(&path)),
                PathProblem::NotCharacterDevice => "name a character device".to_owned(),
                PathProblem::Link(target) => format!("name {} itself", shown(&target)),
                PathProblem::NotAllowed => {
                    "let that user read and write it; mostly this means to join the group that owns it"
                        .to_owned()
                }
                PathProblem::Unreadable(_) => "let the user that runs tidemill read it".to_owned(),
            };
            findings
                .error(DiagnosticCode::HostPath, place, message)
                .hint(hint);
        }
        path
    }
}

/// A destination in the sandbox.
pub(super) fn sandbox_path(findings: &mut Findings, place: &str, text: &str) -> String {
    let what = "the destination";
    if !text.starts_with('/') {
        let message = format!("the destination `{}` is not an absolute path", shown(text));
        let hint = if text.is_empty() {
            "write a path in the sandbox".to_owned()
        } else if place.starts_with("/grants/") {
            format!("write /{}", shown(text))
        } else {
            format!(
                "write /{0}; if `=` belongs to the source's name, add `=` and a destination",
                shown(text)
            )
        };
        findings
            .error(DiagnosticCode::RelativePath, place, message)
            .hint(hint);
    } else if text.split('/').any(|part| part == "..") {
        let message = format!("the destination `{}` has `..` in it", shown(text));
        findings
            .error(DiagnosticCode::ParentComponent, place, message)
            .hint("write the path that you mean");
    } else if RESERVED
        .iter()
        .any(|reserved| is_within(&tidied(text), reserved))
    {
        let message = format!(
            "the destination `{}` is hidden by the sandbox's own mounts",
            shown(text)
        );
        findings
            .error(DiagnosticCode::ReservedPath, place, message)
            .hint("choose a destination outside of /proc, /sys and /dev");
    } else if findings.without_nul(place, what, text) {
        short_enough(findings, place, what, text);
    }
    tidied(text)
}

pub(super) fn short_enough(findings: &mut Findings, place: &str, what: &str, path: &str) -> bool {
    if path.len() <= PATH_BYTES_MAX {
        return true;
    }
    let message = format!(
        "{what} has {} bytes, and a path has at most {PATH_BYTES_MAX}",
        path.len()
    );
    findings
        .error(DiagnosticCode::TooLong, place, message)
        .hint("use a shorter path");
    false
}

/// The path without `.`, doubled and trailing slashes. `..` stays: with symbolic links, only the
/// file system knows where it leads.
pub(super) fn tidied(path: &str) -> String {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    format!("/{}", parts.join("/"))
}

pub(super) fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
