//! A sandbox that runs, from its warden's side: what process 1 said, and what it is told.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tidemill_core::{Grant, Limits, Usage};

use crate::init::Report;
use crate::request::{Ended, Oom, Order};
use crate::standby::Init;
use crate::sys::socket;

/// How long process 1 may take to kill the job and tell of it. It may be frozen; or the job may have so
/// many processes that it takes seconds.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// The monotonic clock, for what process 1 may take.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The sandbox that runs.
pub(crate) struct Running {
    pub(crate) job: u64,
    pub(crate) name: String,
    /// The name of the program's file.
    pub(crate) program: String,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) init: Init,
    /// To process 1. `None` once that is gone.
    pub(crate) channel: Option<OwnedFd>,
    pub(crate) limits: Limits,
    pub(crate) missing: Vec<Grant>,
    pub(crate) report: Option<Report>,
    pub(crate) started: bool,
    /// True if the owner knows that it has started.
    pub(crate) told: bool,
    pub(crate) killed: bool,
    /// When process 1 has had time enough to do what it was ordered to.
    pub(crate) patience: Option<Instant>,
}

/// How a sandbox ended, as process 1 tells it.
pub(crate) fn ended_from(report: Option<Report>, killed: bool) -> Ended {
    let Some(Report::Ended {
        exit_code,
        signal,
        core_dumped,
        killed_processes,
        wall_ms,
        user_ms,
        system_ms,
        largest_resident_bytes,
        watched_peak_bytes,
        watched_peak_pids,
        memory_kills,
        memory_victim,
        disk_bytes,
        disk_full,
        disk_low,
        shared_memory_full,
        pids_full,
        time_limit,
        refused_calls,
        made_sockets: _,
    }) = report
    else {
        // Process 1 was killed: by us, or by the kernel with the whole group.
        return Ended {
            signal: Some(libc::SIGKILL),
            killed_processes: u64::from(killed),
            ..Ended::default()
        };
    };
    Ended {
        exit_code,
        signal,
        core_dumped,
        killed_processes,
        usage: Usage {
            wall_ms,
            user_ms,
            system_ms,
            peak_memory_bytes: Some(largest_resident_bytes.max(watched_peak_bytes)),
            peak_pids: watched_peak_pids,
            disk_bytes: Some(disk_bytes),
        },
        oom: (memory_kills > 0).then(|| Oom {
            kills: memory_kills,
            victim: memory_victim,
            ..Oom::default()
        }),
        pids_refused: 0,
        pids_full,
        time_limit,
        disk_full,
        disk_low,
        shared_memory_full,
        refused_calls,
        network_missed: false,
    }
}

impl Running {
    /// True if process 1 has said that all is over, and what is left of it is nothing that anybody sees. A
    /// private layer on disk is removed before it is told, and not below its overlay.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.report, Some(Report::Ended { .. })) && self.scratch.is_none()
    }

    /// True if the job may have made a socket of a network. Process 1 that was killed did not tell.
    pub(crate) fn made_sockets(&self) -> bool {
        match &self.report {
            Some(Report::Ended { made_sockets, .. }) => *made_sockets,
            _ => true,
        }
    }

    /// Takes one report of process 1. False if there is none.
    pub(crate) fn hear(&mut self) -> bool {
        let Some(channel) = &self.channel else {
            return false;
        };
        let bytes = match socket::receive(channel.as_fd(), false) {
            Ok((bytes, _)) if !bytes.is_empty() => bytes,
            // Process 1 is gone: there is no more to hear, and its end is seen elsewhere.
            Ok(_) => {
                self.channel = None;
                return false;
            }
            Err(_) => return false,
        };
        match serde_json::from_slice(&bytes) {
            Ok(Report::Started) => self.started = true,
            Ok(report) => self.report = Some(report),
            Err(_) => {}
        }
        true
    }

    /// Takes one order of the sandbox's owner.
    pub(crate) fn obey(&mut self, order: Order) {
        if matches!(order, Order::Kill) && !self.started {
            self.killed = true;
            self.destroy();
            return;
        }
        if matches!(order, Order::Kill) {
            self.patience = Some(now() + KILL_PATIENCE);
        }
        let bytes = serde_json::to_vec(&order).unwrap_or_default();
        let sent = self
            .channel
            .as_ref()
            .is_some_and(|channel| socket::send(channel.as_fd(), &bytes, &[]).is_ok());
        if !sent {
            self.destroy();
        }
    }

    /// Ends everything in the sandbox, without asking anybody in it: the end of process 1 is the end
    /// of its namespace.
    pub(crate) fn destroy(&self) {
        self.init.kill();
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("name", &self.name)
            .field("init", &self.init)
            .finish_non_exhaustive()
    }
}
