//! What the kernel counts per user, and with that for all jobs of one launcher and its caller together:
//! each job may have a share of it.
//!
//! A user namespace has limits of its own (`/proc/sys/user`, see namespaces(7)), which count beside those
//! of the namespaces around it. Without one, a single job could take all that its caller has.

use std::fs;

/// A job may have one part in this many of what there is.
const PARTS: u64 = 4;
/// What programs need even where the host has little.
const INSTANCES_MIN: u64 = 16;
const WATCHES_MIN: u64 = 1024;

/// The shares of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shares {
    inotify_instances: u64,
    inotify_watches: u64,
}

impl Shares {
    /// Divides what this process's user may have.
    pub(crate) fn of_this_user() -> Self {
        let part = |own: &str, whole: &str, least: u64| {
            let read = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
            let all = [own, whole].into_iter().filter_map(read).min();
            all.map_or(least, |all| (all / PARTS).max(least))
        };
        Self {
            inotify_instances: part(
                "/proc/sys/user/max_inotify_instances",
                "/proc/sys/fs/inotify/max_user_instances",
                INSTANCES_MIN,
            ),
            inotify_watches: part(
                "/proc/sys/user/max_inotify_watches",
                "/proc/sys/fs/inotify/max_user_watches",
                WATCHES_MIN,
            ),
        }
    }

    /// Sets them in the user namespace that this process has made. A kernel without one of them does not
    /// bound it.
    pub(crate) fn keep(self) {
        for (name, value) in [
            ("max_inotify_instances", self.inotify_instances),
            ("max_inotify_watches", self.inotify_watches),
        ] {
            fs::write(format!("/proc/sys/user/{name}"), value.to_string()).ok();
        }
    }
}
