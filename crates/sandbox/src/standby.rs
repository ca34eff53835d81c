//! A sandbox that is built before its job is known: most jobs are like the ones before them, and all that
//! is left to do then is to start a program.
//!
//! A warden builds one when the last two jobs had the same root, and the next one gets it only if its root
//! is that again and nothing that the root was made from has changed. No job ever runs in the sandbox of
//! another: what is built ahead has had none.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use tidemill_core::limits::CpuCount;
use tidemill_core::{ByteSize, Grant, Limits, RootPlan};

use crate::init::Report;
use crate::masks;
use crate::request::{SandboxRequest, StartError, Stdio, Work};
use crate::rootfs::Sizes;
use crate::seen::Seen;
use crate::sys::{process, socket};

/// For how long what /proc says of the host's memory is taken for what it says now.
const FIGURES_KEPT: Duration = Duration::from_secs(1);

/// The process 1 of a sandbox.
#[derive(Debug)]
pub(crate) struct Init {
    pid: i32,
    pub(crate) pidfd: OwnedFd,
}

impl Init {
    /// # Errors
    /// What pidfd_open(2) answers.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let pidfd = process::open_pidfd(pid)?;
        Ok(Self { pid, pidfd })
    }

    /// Ends everything in the sandbox, without asking anybody in it: the end of process 1 is the end of
    /// its namespace.
    pub(crate) fn kill(&self) {
        // ESRCH means that it is over already.
        process::signal_pidfd(self.pidfd.as_fd(), libc::SIGKILL).ok();
    }

    /// Waits until it has ended.
    pub(crate) fn reap(&self) {
        if let Err(error) = process::reap(self.pid, true) {
            tracing::warn!(%error, "a sandbox's process 1 was not reaped");
        }
    }

    /// Ends it and waits until it has.
    pub(crate) fn end(&self) {
        self.kill();
        self.reap();
    }
}

/// What two sandboxes have to have in common for one to be as good as the other before their jobs start.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) root: RootPlan,
    pub(crate) sizes: Sizes,
    memory: Option<ByteSize>,
    cpus: Option<CpuCount>,
}

impl Shape {
    /// The shape of a request's sandbox, if one like it can be built without it: a terminal is the job's own,
    /// and so is a private layer on disk.
    pub(crate) fn of(request: &SandboxRequest, sizes: Sizes) -> Option<Self> {
        Self::is_common(request).then(|| Self {
            root: request.root.clone(),
            sizes,
            memory: request.limits.memory,
            cpus: request.limits.cpus,
        })
    }

    fn is_common(request: &SandboxRequest) -> bool {
        !request.tty && !request.measured && request.scratch.is_none()
    }

    /// True if a request's sandbox has this shape.
    pub(crate) fn fits(&self, request: &SandboxRequest, sizes: Sizes) -> bool {
        Self::is_common(request)
            && self.sizes == sizes
            && self.memory == request.limits.memory
            && self.cpus == request.limits.cpus
            && self.root == request.root
    }

    /// The limits that the root shows.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            memory: self.memory,
            cpus: self.cpus,
            ..Limits::default()
        }
    }
}

/// A sandbox without a job.
#[derive(Debug)]
pub(crate) struct Standby {
    pub(crate) init: Init,
    channel: OwnedFd,
    notes: Vec<Grant>,
    shape: Shape,
    seen: Vec<Seen>,
    built: Instant,
}

impl Standby {
    /// Waits until the root is built.
    ///
    /// # Errors
    /// Why it could not be.
    pub(crate) fn wait(
        (init, channel, notes): (Init, OwnedFd, Vec<Grant>),
        shape: Shape,
        seen: Vec<Seen>,
    ) -> Result<Self, StartError> {
        let heard = socket::receive(channel.as_fd(), true);
        let report = heard.and_then(|(bytes, _)| Ok(serde_json::from_slice(&bytes)?));
        let error = match report {
            Ok(Report::Built) => {
                return Ok(Self {
                    init,
                    channel,
                    notes,
                    shape,
                    seen,
                    built: now(),
                });
            }
            Ok(Report::Failed { error }) => error,
            Ok(_) => StartError::Setup {
                step: "build a root ahead".to_owned(),
                error: "process 1 spoke out of turn".to_owned(),
            },
            Err(error) => StartError::setup("build a root ahead", &error),
        };
        init.end();
        Err(error)
    }

    /// True if what the root was made from is still there as it was.
    pub(crate) fn is_still_so(&self) -> bool {
        self.seen.iter().all(Seen::is_still_so)
    }

    /// Gives it a job. Gives process 1, the channel to it, and what its root lacks; or nothing, if it is
    /// not there any more.
    pub(crate) fn begin(
        self,
        work: &mut Work,
        stdio: &Stdio,
    ) -> Option<(Init, OwnedFd, Vec<Grant>)> {
        if self.built.elapsed() > FIGURES_KEPT {
            let replaced = masks::replacements(&self.shape.limits()).into_iter();
            work.replaced = replaced
                .map(|(name, text)| (name.to_owned(), text))
                .collect();
        }
        let sent = work.pack().and_then(|(message, file)| {
            let mut fds = vec![
                stdio.stdin.as_fd(),
                stdio.stdout.as_fd(),
                stdio.stderr.as_fd(),
            ];
            fds.extend(file.as_ref().map(AsFd::as_fd));
            socket::send(self.channel.as_fd(), &message, &fds)
        });
        if sent.is_err() {
            self.init.end();
            return None;
        }
        Some((self.init, self.channel, self.notes))
    }
}

/// The monotonic clock, for how old figures are.
fn now() -> Instant {
    Instant::now()
}
