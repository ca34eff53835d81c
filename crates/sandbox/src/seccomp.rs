//! The system calls that a job may make: an allow-list, calls that are refused by policy, and ENOSYS
//! for all the rest, so that programs fall back as on an older kernel.
//!
//! ```text
//! table ──► program (BPF, compiled once per launcher) ──► the kernel
//!   │                                                       │ a refused call waits
//!   └──► reference (the documentation)      process 1 ◄─────┘ and is answered by refusals
//! ```

mod program;
mod reference;
mod refusals;
mod table;

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

pub use reference::system_calls_reference;
pub(crate) use refusals::RefusalNotes;
pub use refusals::RefusedCall;

use self::program::{Refusals, Tables};
use self::table::{
    ALLOWED, FREE_NAMESPACE_RULES, Group, NAMESPACE_RULES, NAMESPACED, REFUSED, RULES, Rule,
    WRITING_RULES,
};
use crate::sys::process;

/// What a filter depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FilterKind {
    /// The job writes to the host's own files: then no file gets a set-user-id or set-group-id bit. In
    /// a private layer the bits are harmless, and installers need them.
    pub(crate) writes_to_host: bool,
    /// The job may make user namespaces, and do in them what takes privileges.
    pub(crate) user_namespaces: bool,
    /// The job's control groups belong to the caller, and so to the job: it must not get at them.
    pub(crate) owns_groups: bool,
}

/// The filter of the syscall tier.
#[derive(Debug)]
pub(crate) struct Filter {
    told: Vec<libc::sock_filter>,
    silent: Vec<libc::sock_filter>,
}

impl Filter {
    /// The filter for a job, compiled once per process and its forks.
    pub(crate) fn of(kind: FilterKind) -> &'static Self {
        static FILTERS: [OnceLock<Filter>; 8] = [const { OnceLock::new() }; 8];
        let index = usize::from(kind.writes_to_host)
            + 2 * usize::from(kind.user_namespaces)
            + 4 * usize::from(kind.owns_groups);
        FILTERS[index].get_or_init(|| Self::compile(kind))
    }

    fn compile(kind: FilterKind) -> Self {
        let writing = if kind.writes_to_host {
            WRITING_RULES
        } else {
            &[]
        };
        let (allowed, refused, namespaces): (&[Group], &[Group], &[Rule]) =
            match (kind.user_namespaces, kind.owns_groups) {
                (false, _) => (&[], NAMESPACED, &[]),
                (true, false) => (NAMESPACED, &[], FREE_NAMESPACE_RULES),
                (true, true) => (NAMESPACED, &[], NAMESPACE_RULES),
            };
        let tables = Tables {
            allowed: ALLOWED.iter().chain(allowed).collect(),
            refused: REFUSED.iter().chain(refused).collect(),
            rules: RULES.iter().chain(writing).chain(namespaces).collect(),
        };
        Self {
            told: tables.compile(Refusals::Told),
            silent: tables.compile(Refusals::Silent),
        }
    }

    /// Installs the filter on this thread. Gives the descriptor that tells of refused calls; on a
    /// kernel that has no such notifications (before Linux 5.0) they are refused silently.
    ///
    /// # Errors
    /// What seccomp(2) answers.
    pub(crate) fn install(&self) -> std::io::Result<Option<OwnedFd>> {
        match process::install_listening_filter(&self.told) {
            Ok(listener) => Ok(Some(listener)),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                process::install_filter(&self.silent)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::table::{Call, LEFT_OUT};
    use super::*;

    #[test]
    fn no_call_is_in_two_lists_and_none_twice() {
        let listed = [ALLOWED, REFUSED, NAMESPACED, LEFT_OUT]
            .into_iter()
            .flatten();
        let mut all: Vec<i64> = listed
            .flat_map(|group| group.calls)
            .map(|call| call.number)
            .chain(RULES.iter().map(|rule| rule.call.number))
            .collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn what_is_judged_where_a_job_writes_is_allowed_elsewhere() {
        let allowed = |call: Call| {
            ALLOWED
                .iter()
                .flat_map(|group| group.calls)
                .any(|other| other.number == call.number)
        };
        assert!(WRITING_RULES.iter().all(|rule| allowed(rule.call)));
    }
}
