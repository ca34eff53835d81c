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
    ALLOWED, FREE_NAMESPACE_RULES, Group, MEASURED_RULES, NAMESPACE_RULES, NAMESPACED,
    PRIVATE_RULES, REFUSED, RULES, Rule, WRITING_RULES,
};
use crate::sys::process;

/// Which set-id bits a job may give to files. In a private layer they change nothing, since no mount of a
/// job obeys them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SetId {
    /// All but set-user-id.
    #[default]
    Group,
    /// Every one: the job is root by name, and may be an installer that unpacks a whole system.
    All,
    /// None: the job writes to the host's own files.
    None,
}

/// What a filter depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FilterKind {
    /// The modes that its files may have.
    pub(crate) set_id: SetId,
    /// What the job writes lies on a disk where nothing but a look from time to time bounds it.
    pub(crate) is_measured: bool,
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
        static FILTERS: [OnceLock<Filter>; 24] = [const { OnceLock::new() }; 24];
        let modes = match kind.set_id {
            SetId::Group => 0,
            SetId::All => 1,
            SetId::None => 2,
        };
        let index = usize::from(kind.user_namespaces)
            + 2 * usize::from(kind.owns_groups)
            + 4 * usize::from(kind.is_measured)
            + 8 * modes;
        FILTERS[index].get_or_init(|| Self::compile(kind))
    }

    fn compile(kind: FilterKind) -> Self {
        let modes: &[Rule] = match kind.set_id {
            SetId::Group => PRIVATE_RULES,
            SetId::All => &[],
            SetId::None => WRITING_RULES,
        };
        let measured: &[Rule] = if kind.is_measured {
            MEASURED_RULES
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
            rules: (RULES.iter().chain(modes))
                .chain(measured)
                .chain(namespaces)
                .collect(),
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
    fn what_is_judged_in_some_jobs_is_allowed_in_others() {
        let allowed = |call: Call| {
            ALLOWED
                .iter()
                .flat_map(|group| group.calls)
                .any(|other| other.number == call.number)
        };
        let judged = [WRITING_RULES, PRIVATE_RULES, MEASURED_RULES];
        assert!(judged.into_iter().flatten().all(|rule| allowed(rule.call)));
    }
}
