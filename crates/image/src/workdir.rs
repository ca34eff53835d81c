//! The directory that a program starts in.

use tidemill_core::job::{Image, JobSpec};
use tidemill_core::root::{Node, RootMount};

use crate::overlay::{Found, below, names};
use crate::plan::PlanError;
use crate::stack::{MADE_BY_SANDBOX, Stack};
use crate::workspace::Place;

/// Where the program starts. Everything that links on the way may lead to was decided by whoever
/// wrote the workspace, so a path in it has to stay in it: a link to `/etc` would silently start the
/// job beside its files. A directory that a container image lacks is made, and is the job's: images name
/// such ones, because docker makes them.
pub(crate) fn find(
    spec: &JobSpec,
    workspace: Option<&Place>,
    stack: &mut Stack,
) -> Result<String, PlanError> {
    let Some(wanted) = &spec.workdir else {
        return Ok(workspace.map_or_else(|| "/".to_owned(), |place| place.shown.clone()));
    };
    // A path below the workspace, as it was written, is one below where the workspace appears.
    let below_workspace = spec
        .workspace
        .as_ref()
        .zip(workspace)
        .and_then(|(named, place)| {
            let rest = below(wanted, named.path.trim_end_matches('/'))?;
            Some(format!("{}/{rest}", place.shown))
        });
    let wanted = below_workspace.as_ref().unwrap_or(wanted);
    let tidy = tidy(wanted)?;
    let wrong = |why: String| PlanError::Workdir {
        path: tidy.clone(),
        why,
    };
    let resolved = match stack.resolve(&tidy) {
        Ok(resolved) => resolved,
        Err(PlanError::NotADirectory { path, .. }) => {
            return Err(wrong(format!("`{path}` is not a directory")));
        }
        Err(PlanError::TooManyLinks { .. }) => {
            return Err(wrong("it leads through too many symbolic links".to_owned()));
        }
        Err(other) => return Err(other),
    };
    // Who asked for a name learns what the name stands for.
    let it = match workspace {
        _ if resolved.path == tidy => "it".to_owned(),
        Some(place) if in_dest(place, &tidy) == Some(resolved.path.clone()) => "it".to_owned(),
        _ => format!("it leads to `{}`, which", resolved.path),
    };
    match resolved.found {
        Found::File(_) => return Err(wrong(format!("{it} is not a directory"))),
        Found::Nothing if is_made(spec, stack, &resolved.path) => {
            stack.add_node(Node::Dir {
                path: resolved.path.clone(),
                mode: 0o755,
                job_owned: true,
            });
        }
        Found::Nothing => return Err(wrong(format!("{it} does not exist in the sandbox"))),
        Found::Dir(_) | Found::Link(_) => {}
    }
    let leads_out = workspace.is_some_and(|place| {
        in_dest(place, &tidy).is_some() && !is_at_or_below(&resolved.path, &place.dest)
    });
    if leads_out {
        return Err(PlanError::WorkdirOutside {
            path: tidy,
            leads_to: resolved.path,
        });
    }
    Ok(tidy)
}

/// True if a directory of this path is made when it is missing: in a container image, where nothing is mounted.
fn is_made(spec: &JobSpec, stack: &Stack, path: &str) -> bool {
    let is_mounted = |mount: &RootMount| is_at_or_below(path, &mount.dest);
    matches!(spec.image, Image::Oci { .. })
        && !stack.mounts.iter().any(is_mounted)
        && !MADE_BY_SANDBOX
            .iter()
            .any(|made| is_at_or_below(path, made))
}

/// An absolute path without needless parts.
fn tidy(wanted: &str) -> Result<String, PlanError> {
    let wrong = |why: &str| PlanError::Workdir {
        path: wanted.to_owned(),
        why: why.to_owned(),
    };
    if !wanted.starts_with('/') {
        return Err(wrong("it is not absolute"));
    }
    if wanted.contains('\0') {
        return Err(wrong("it contains a NUL"));
    }
    if names(wanted).any(|name| name == "..") {
        return Err(wrong("it contains `..`"));
    }
    let tidy: String = names(wanted).flat_map(|name| ["/", name]).collect();
    Ok(if tidy.is_empty() {
        "/".to_owned()
    } else {
        tidy
    })
}

/// The same path from where the workspace is mounted on, if it lies at or below the workspace by
/// one of its two names.
fn in_dest(place: &Place, path: &str) -> Option<String> {
    [&place.shown, &place.dest].into_iter().find_map(|top| {
        if path == top {
            return Some(place.dest.clone());
        }
        below(path, top).map(|rest| format!("{}/{rest}", place.dest))
    })
}

fn is_at_or_below(path: &str, above: &str) -> bool {
    path == above || below(path, above).is_some()
}
