//! Whether what a root was made from is still what is there: a root may be built long before its job.

use tidemill_core::RootPlan;
use tidemill_core::grant::PathAccess;

use crate::rootfs::open_host;

/// A path of the host as it was when a root was made from it.
#[derive(Debug)]
pub(crate) struct Seen {
    path: String,
    /// `None` if there was nothing.
    identity: Option<Identity>,
}

/// What tells one file from another.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds of the last change, where a directory's own attributes went into the root.
    changed: Option<(i64, i64)>,
}

impl Seen {
    fn look(path: String, is_changing: bool) -> Self {
        let at = open_host(&path).ok();
        let stat = at.and_then(|at| rustix::fs::fstat(at).ok());
        let identity = stat.map(|stat| {
            let nanoseconds = i64::try_from(stat.st_ctime_nsec).unwrap_or(0);
            let changed = (!is_changing).then_some((stat.st_ctime, nanoseconds));
            Identity {
                device: stat.st_dev,
                inode: stat.st_ino,
                changed,
            }
        });
        Self { path, identity }
    }

    /// True if the same is there as then.
    pub(crate) fn is_still_so(&self) -> bool {
        let is_changing =
            (self.identity.as_ref()).is_some_and(|identity| identity.changed.is_none());
        Self::look(self.path.clone(), is_changing).identity == self.identity
    }
}

/// Looks at every path of the host that a plan names. Before any of them is opened: what changes
/// meanwhile is then found to have changed.
pub(crate) fn look_at_sources(plan: &RootPlan) -> Vec<Seen> {
    let trees = plan.trees.iter().map(|tree| (tree.path.clone(), false));
    let mounts = plan.mounts.iter().flat_map(|mount| {
        let is_written = mount.access == PathAccess::Write;
        let source = std::iter::once((mount.source.clone(), is_written));
        let over = mount.over.iter().map(|tree| (tree.path.clone(), false));
        // Whoever replaces a file takes away what covers it.
        let base = mount.source.trim_end_matches('/');
        let hidden = mount.hidden.iter();
        let hidden = hidden.map(move |path| (format!("{base}/{path}"), false));
        source.chain(over).chain(hidden)
    });
    trees
        .chain(mounts)
        .map(|(path, is_changing)| Seen::look(path, is_changing))
        .collect()
}
