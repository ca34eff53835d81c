//! The directory of the host that a job works in.

use std::fs;
use std::path::{Path, PathBuf};

use tidemill_core::grant::PathAccess;
use tidemill_core::job::{JobSpec, Workspace};
use tidemill_core::root::{Node, RootMount};

use crate::host_view::{HostView, why_too_wide};
use crate::overlay::{Found, below, names};
use crate::plan::PlanError;
use crate::secret;
use crate::source::{Granted, Wish, check_listed, granted, owner, state_dir};
use crate::stack::{MADE_BY_SANDBOX, Stack};

/// Symbolic links on the way to a workspace at most.
const LINKS_MAX: usize = 40;

/// Where a workspace appears in a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path by which the caller knows it, which works inside too.
    pub(crate) shown: String,
    /// Where it is mounted: the same without symbolic links.
    pub(crate) dest: String,
}

/// Adds the workspace to a root. Its links are followed once, here; the sandbox opens the path that
/// they led to and follows none, so that nobody can put another one in its way.
pub(crate) fn add(
    spec: &JobSpec,
    host: &HostView,
    stack: &mut Stack,
) -> Result<Option<Place>, PlanError> {
    let Some(workspace) = &spec.workspace else {
        return Ok(None);
    };
    let named = &workspace.path;
    let wish = Wish {
        path: named,
        what: "workspace",
        write: workspace.write,
        flag: &|real| format!("--workspace {real}"),
    };
    let Granted {
        real,
        metadata,
        link,
    } = granted(&wish, host)?;
    check_listed(named, "workspace", &real, &metadata)?;
    refuse(&real)?;
    if let Some(link) = &link
        && let Some(what) = why_too_wide(Path::new(&real), host)
    {
        return Err(PlanError::WorkspaceLink {
            path: named.clone(),
            link: link.clone(),
            leads_to: real,
            what,
        });
    }
    let mut hidden = hide_state(&real, host)?;
    if let Ok(inside) = host.home.strip_prefix(&real) {
        let inside = inside.to_string_lossy();
        let secrets = secret::home_secrets_below(&host.home, Path::new(""));
        hidden.extend(secrets.into_iter().map(|path| {
            if inside.is_empty() {
                path
            } else {
                format!("{inside}/{path}")
            }
        }));
    }
    let tidy: String = names(named).flat_map(|name| ["/", name]).collect();
    let has_dots = names(named).any(|name| name == "..");
    let shown = if has_dots { real.clone() } else { tidy };
    let dest = if shown == real || link_way(&shown, stack)? {
        real.clone()
    } else {
        shown.clone()
    };
    // The image may have links of its own on the way: the mount goes where they lead.
    let dest = stack.resolve(&dest)?.path;
    if let Some(home) = host.home.to_str() {
        stack.own_way(home, &dest);
    }
    stack.add_mount(RootMount {
        source: real,
        dest: dest.clone(),
        over: Vec::new(),
        access: if workspace.write {
            PathAccess::Write
        } else {
            PathAccess::CopyOnWrite
        },
        owners: owner(&metadata),
        hidden,
        why: why(workspace, link.is_some()),
    });
    Ok(Some(Place { shown, dest }))
}

fn why(workspace: &Workspace, is_behind_link: bool) -> String {
    let named = if is_behind_link {
        format!(", which `{}` leads to", workspace.path)
    } else {
        String::new()
    };
    if workspace.write {
        format!("the workspace{named}, written for real")
    } else {
        format!("the workspace{named}; changes stay in the sandbox")
    }
}

fn refuse(real: &str) -> Result<(), PlanError> {
    let wrong = |why| PlanError::Workspace {
        path: real.to_owned(),
        why,
    };
    if real == "/" {
        return Err(wrong("the whole host"));
    }
    for kernel in ["/proc", "/sys", "/dev"] {
        // Shared memory is a file system like any other.
        let is_shm = real.starts_with("/dev/shm/");
        if !is_shm && (real == kernel || below(real, kernel).is_some()) {
            return Err(wrong("the kernel's own"));
        }
    }
    if MADE_BY_SANDBOX.contains(&real) {
        return Err(wrong("shared by everybody, and the sandbox has its own"));
    }
    Ok(())
}

/// Keeps the state directory out of the job's sight.
fn hide_state(real: &str, host: &HostView) -> Result<Vec<String>, PlanError> {
    let Some(state_dir) = state_dir(host) else {
        return Ok(Vec::new());
    };
    if Path::new(real).starts_with(&state_dir) {
        return Err(PlanError::InState {
            path: real.to_owned(),
            state_dir,
        });
    }
    let Some(inside) = below(&state_dir, real) else {
        return Ok(Vec::new());
    };
    if host.allow_state_in_workspace {
        return Ok(vec![inside.to_owned()]);
    }
    Err(PlanError::HoldsState {
        what: "the workspace",
        path: real.to_owned(),
        state_dir,
    })
}

/// Repeats the symbolic links on the way to `shown`, so that this path works inside as well. False if
/// one of them cannot be made there; then the workspace is mounted at `shown` itself.
fn link_way(shown: &str, stack: &mut Stack) -> Result<bool, PlanError> {
    let mut links = Vec::new();
    let mut path = PathBuf::from(shown);
    while let Some((link, rest)) = first_link(&path) {
        if links.len() == LINKS_MAX {
            return Err(PlanError::TooManyLinks {
                path: shown.to_owned(),
            });
        }
        let failed = |source| PlanError::Source {
            what: "workspace",
            path: shown.to_owned(),
            source,
        };
        let target = fs::canonicalize(&link).map_err(failed)?;
        path = target.join(rest);
        links.push((PlanError::utf8(&link)?, PlanError::utf8(&target)?));
    }
    for (link, _) in &links {
        let in_made = MADE_BY_SANDBOX
            .iter()
            .any(|made| link == made || below(link, made).is_some());
        if in_made {
            return Ok(false);
        }
    }
    let mut missing = Vec::new();
    for (link, target) in links {
        let there = stack.resolve(&link)?;
        if there.path == stack.resolve(&target)?.path {
            continue;
        }
        let in_mount = stack
            .mounts
            .iter()
            .any(|mount| below(&link, &mount.dest).is_some());
        if there.found != Found::Nothing || in_mount {
            return Ok(false);
        }
        missing.push(Node::Symlink { path: link, target });
    }
    for node in missing {
        stack.add_node(node);
    }
    Ok(true)
}

/// The first symbolic link on the way to a path, and what of the path is behind it.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut at = PathBuf::new();
    let mut rest = path.components();
    while let Some(component) = rest.next() {
        at.push(component);
        if fs::symlink_metadata(&at).is_ok_and(|metadata| metadata.is_symlink()) {
            return Some((at, rest.as_path().to_owned()));
        }
    }
    None
}
