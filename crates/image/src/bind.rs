//! Paths of the host that a job asks for as they are: `--grant bind:SRC:DEST[:rw]`.
//!
//! They go over everything else in a root. Nothing is made on the host for them and nothing that the
//! sandbox writes goes into them: what has no place to stand on is refused.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use tidemill_core::grant::PathAccess;
use tidemill_core::job::JobSpec;
use tidemill_core::root::{Owners, RootMount};
use tidemill_core::{Grant, GrantRequest};

use crate::host_view::HostView;
use crate::overlay::{Found, Way, below, walk};
use crate::plan::PlanError;
use crate::secret;
use crate::skeleton::SkeletonStep;
use crate::source::{Granted, Wish, granted, is_kernels, owner, refuse_state, state_dir};
use crate::stack::{MADE_BY_SANDBOX, Stack, refuse_closed};
use crate::tree_store::TreeStore;
use crate::workspace::Place;

/// Why something of the host cannot be shown as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// It is everything.
    #[error("it is the whole host")]
    IsHost,
    /// It is part of what Tidemill keeps.
    #[error("it lies in Tidemill's state directory `{0}`")]
    InState(String),
    /// The kernel shows the host below it.
    #[error("`{0}` in it is a view into the kernel and all its processes")]
    HoldsKernel(String),
    /// Something else appears there.
    #[error("{0} is there")]
    Taken(&'static str),
    /// Something has to be mounted in a directory that is written for real, and is not there.
    #[error("there is no `{missing}` in `{inside}`, which the job writes for real")]
    NoPlace {
        /// What is missing.
        missing: String,
        /// The directory that is written for real.
        inside: String,
    },
}

impl BindError {
    /// What to do next.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::IsHost | Self::HoldsKernel(_) => "name a smaller directory".to_owned(),
            Self::InState(_) => "name a directory outside of the state directory".to_owned(),
            Self::Taken(_) => "choose another destination".to_owned(),
            Self::NoPlace { missing, .. } => {
                format!("make `{missing}` there first, or choose another destination")
            }
        }
    }
}

/// Where the binds of a job appear.
#[derive(Debug, Default)]
pub(crate) struct Binds {
    dests: Vec<String>,
}

impl Binds {
    /// True if a path shows something of a bind.
    pub(crate) fn cover(&self, path: &str, stack: &Stack) -> bool {
        let Ok(resolved) = stack.resolve(path) else {
            return false;
        };
        let path = resolved.path;
        self.dests
            .iter()
            .any(|dest| path == *dest || below(&path, dest).is_some())
    }

    /// What the job is given by them.
    pub(crate) fn grants<'a>(&'a self, stack: &'a Stack) -> impl Iterator<Item = Grant> {
        let is_bind = |mount: &&RootMount| self.dests.contains(&mount.dest);
        stack
            .mounts
            .iter()
            .filter(is_bind)
            .map(|mount| Grant::Path {
                host: mount.source.clone(),
                sandbox: mount.dest.clone(),
                access: mount.access,
                why: mount.why.clone(),
            })
    }
}

/// Adds what a job asks for to its root.
pub(crate) fn add(
    spec: &JobSpec,
    host: &HostView,
    workspace: Option<&Place>,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<Binds, PlanError> {
    let mut binds = Binds::default();
    for grant in &spec.grants {
        let GrantRequest::Bind {
            source,
            dest,
            write,
        } = grant
        else {
            continue;
        };
        let failed = |why| PlanError::Bind {
            source_path: source.clone(),
            dest: dest.clone(),
            source: why,
        };
        let (real, owners) = find((source, dest, *write), host, &failed)?;
        let at = stack.resolve(dest)?.path;
        refuse_closed(&at)?;
        let taken = if at == "/" {
            Some("the root of the sandbox")
        } else if workspace.is_some_and(|place| place.dest == at) {
            Some("the workspace")
        } else if binds.dests.contains(&at) {
            Some("another bind")
        } else {
            None
        };
        if let Some(taken) = taken {
            return Err(failed(BindError::Taken(taken)));
        }
        let mount = RootMount {
            hidden: hidden(&real, host),
            source: real,
            dest: at.clone(),
            over: Vec::new(),
            access: if *write {
                PathAccess::Write
            } else {
                PathAccess::ReadOnly
            },
            owners,
            why: grant.widens(),
        };
        mount_over(mount, trees, stack, &failed)?;
        binds.dests.push(at);
    }
    Ok(binds)
}

/// The source without symbolic links, if it may be shown.
fn find(
    (source, dest, write): (&str, &str, bool),
    host: &HostView,
    failed: &impl Fn(BindError) -> PlanError,
) -> Result<(String, Owners), PlanError> {
    let what = "source of a bind";
    let wish = Wish {
        path: source,
        what,
        write,
        flag: &|real| format!("--grant bind:{real}:{dest}:rw"),
    };
    let Granted { real, metadata, .. } = granted(&wish, host)?;
    let kind = metadata.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(PlanError::WrongKind {
            what,
            path: source.to_owned(),
            wanted: "directory, file or socket",
        });
    }
    if real == "/" {
        return Err(failed(BindError::IsHost));
    }
    refuse_state(&real, host.state_dir.as_deref(), "the source of a bind")?;
    if let Some(state_dir) = state_dir(host)
        && Path::new(&real).starts_with(&state_dir)
    {
        return Err(failed(BindError::InState(state_dir)));
    }
    if let Some(at) = kernels_below(&real) {
        return Err(failed(BindError::HoldsKernel(at)));
    }
    Ok((real, owner(&metadata)))
}

/// A mount below a directory through which the kernel shows the host. What is mounted in a directory
/// comes along with it.
fn kernels_below(real: &str) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescaped)
        .find(|at| below(at, real).is_some() && is_kernels(Path::new(at)).unwrap_or(true))
}

/// A path of mountinfo, in which spaces, tabs, line breaks and backslashes are octal numbers.
fn unescaped(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes.iter().fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

/// What is left out of a directory: credentials of the home and of `/etc` that lie in it. One that was
/// itself named is shown.
fn hidden(real: &str, host: &HostView) -> Vec<String> {
    let home = fs::canonicalize(&host.home).unwrap_or_else(|_| host.home.clone());
    let etc = host.system("/etc");
    let of_home = secret::home_secrets_below(&home, Path::new(""));
    let of_etc = secret::etc_secrets(&etc);
    let inside = |secret: &Path| {
        let rest = secret.strip_prefix(real).ok()?.to_str()?;
        (!rest.is_empty()).then(|| rest.to_owned())
    };
    let of_home = of_home.iter().map(|secret| home.join(secret));
    let of_etc = of_etc.iter().map(|secret| etc.join(secret));
    of_home
        .chain(of_etc)
        .filter_map(|secret| inside(&secret))
        .collect()
}

/// Puts a mount over whatever is at its destination.
fn mount_over(
    mount: RootMount,
    trees: &TreeStore,
    stack: &mut Stack,
    failed: &impl Fn(BindError) -> PlanError,
) -> Result<(), PlanError> {
    let at = mount.dest.clone();
    let is_dir = Path::new(&mount.source).is_dir();
    match stack.resolve(&at)?.found {
        Found::File(_) | Found::Link(_) if is_dir => {
            return Err(PlanError::DestIsFile {
                source_path: mount.source,
                dest: at,
            });
        }
        Found::Dir(_) if !is_dir => {
            return Err(PlanError::DestIsDir {
                source_path: mount.source,
                dest: at,
            });
        }
        Found::Nothing => {
            let kind = if is_dir {
                SkeletonStep::Dir
            } else {
                SkeletonStep::File
            };
            make_place(&at, kind, trees, stack, failed)?;
        }
        Found::Dir(_) | Found::File(_) | Found::Link(_) => {}
    }
    let source = mount.source.clone();
    stack.mounts.retain(|known| known.dest != at);
    stack.insert(mount);
    for (dest, kind) in waiting(&at, stack) {
        let rest = below(&dest, &at).unwrap_or("");
        match (walk(&source, rest), kind) {
            (Way::Dir(_), SkeletonStep::Dir) | (Way::Other, SkeletonStep::File) => {}
            (Way::Nothing, _) => make_place(&dest, kind, trees, stack, failed)?,
            (Way::Dir(_) | Way::Other, _) => {
                return Err(PlanError::CoversMount {
                    source_path: source,
                    dest,
                });
            }
        }
    }
    Ok(())
}

/// What is mounted right in a mount, by the plan or by the sandbox itself.
fn waiting(at: &str, stack: &Stack) -> Vec<(String, SkeletonStep)> {
    let is_right_above = |path: &str| {
        let above = stack.mount_above(path);
        above.is_some_and(|above| above.dest == at)
    };
    let planned = stack
        .mounts_below(at)
        .map(|mount| (mount.dest.clone(), stack.kind_of_mount(&mount.dest)));
    let made = MADE_BY_SANDBOX
        .iter()
        .map(|made| ((*made).to_owned(), SkeletonStep::Dir));
    planned
        .chain(made)
        .filter(|(dest, _)| is_right_above(dest))
        .collect()
}

/// Makes something to mount on, but never in a directory that is written for real.
fn make_place(
    path: &str,
    kind: SkeletonStep,
    trees: &TreeStore,
    stack: &mut Stack,
    failed: &impl Fn(BindError) -> PlanError,
) -> Result<(), PlanError> {
    if let Some(above) = stack.mount_above(path)
        && above.access == PathAccess::Write
    {
        return Err(failed(BindError::NoPlace {
            missing: path.to_owned(),
            inside: above.dest.clone(),
        }));
    }
    stack.make_way(path, kind, trees)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
