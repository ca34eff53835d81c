//! What process 1 does about calls that it hears of: it answers, and takes notes for the job's log.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::table::{Call, NAMESPACED, REFUSED, RULES, WRITING_RULES};
use crate::sys::notification;

/// A call that policy refused the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCall {
    /// Its name, as in its manual page.
    pub call: String,
    /// How often.
    pub times: u64,
}

/// Notes of refused calls. There is no more to note than there are names in the table.
#[derive(Debug, Default)]
pub(crate) struct RefusalNotes {
    listener: Option<OwnedFd>,
    times: BTreeMap<i64, u64>,
    /// True unless it is known that there was no socket of a network.
    made_sockets: bool,
}

impl RefusalNotes {
    /// Notes of what this descriptor tells, or none at all on kernels that have no notifications.
    pub(crate) fn new(listener: Option<OwnedFd>) -> Self {
        Self {
            // Whoever does not hear of them cannot know.
            made_sockets: listener.is_none(),
            listener,
            times: BTreeMap::new(),
        }
    }

    /// What to poll for.
    pub(crate) fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers one call that is waiting. To be called when the descriptor is readable.
    pub(crate) fn answer(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        match notification::receive(listener.as_fd()) {
            // A caller that was killed meanwhile needs no answer.
            Ok(call) if call.number == libc::SYS_socket => {
                self.made_sockets = true;
                notification::go_on(listener.as_fd(), &call).ok();
            }
            Ok(call) => {
                *self.times.entry(call.number).or_default() += 1;
                notification::refuse(listener.as_fd(), &call, libc::EPERM).ok();
            }
            // The caller was killed or interrupted before we looked.
            Err(error) if is_passing(&error) => {}
            Err(_) => self.stop(),
        }
    }

    /// False if no process of the job has made a socket of a network.
    pub(crate) fn made_sockets(&self) -> bool {
        self.made_sockets
    }

    /// Listens no more.
    pub(crate) fn stop(&mut self) {
        self.listener = None;
    }

    /// The calls, by name.
    pub(crate) fn take(&mut self) -> Vec<RefusedCall> {
        std::mem::take(&mut self.times)
            .into_iter()
            .map(|(number, times)| RefusedCall {
                call: name(number),
                times,
            })
            .collect()
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR))
}

fn name(number: i64) -> String {
    let calls = REFUSED
        .iter()
        .chain(NAMESPACED)
        .flat_map(|group| group.calls)
        .copied();
    let judged = RULES.iter().chain(WRITING_RULES).map(|rule| rule.call);
    calls
        .chain(judged)
        .find(|call| call.number == number)
        .map_or_else(
            || format!("system call {number}"),
            |call| Call::name(call).to_owned(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_calls_are_named_by_the_table() {
        assert_eq!(name(libc::SYS_mount), "mount");
        assert_eq!(name(libc::SYS_unshare), "unshare");
        assert_eq!(name(libc::SYS_chmod), "chmod");
        assert_eq!(name(9999), "system call 9999");
    }
}
