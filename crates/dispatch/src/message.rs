//! What goes into the dispatcher.

use tidemill_core::event::Outcome;
use tidemill_core::{Digest, Reason};

use crate::deps::TimerKind;
use crate::job::{JobId, JobRequest};
use crate::key::Key;

/// Everything that the dispatcher can be told. Every call on [`crate::Deps`] that starts something
/// is answered by exactly one message, in any order.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// A job came in. Its id has never been used before.
    Enqueue {
        /// Which attempt of which execution.
        job: JobId,
        /// What it needs.
        request: JobRequest,
    },
    /// Somebody wants this job to end. For a job that is unknown or already ending: no effect.
    Cancel {
        /// Which job.
        job: JobId,
    },
    /// The process of a job and everything in its sandbox is gone, or the sandbox could not be set
    /// up. Answers [`crate::Deps::start_sandbox`], also after the handle was dropped.
    JobCompleted {
        /// Which job.
        job: JobId,
        /// How it ended.
        end: JobEnd,
    },
    /// A timer ran out. Answers [`crate::Deps::start_timer`]; late ones are ignored.
    TimerFired {
        /// Whose timer.
        job: JobId,
        /// Which of its timers.
        timer: TimerKind,
    },
    /// A blob is here, or cannot be had. Answers [`crate::Deps::fetch`].
    BlobFetched {
        /// Which blob.
        digest: Digest,
        /// Whether it is here.
        result: Result<(), Cause>,
    },
    /// A tree or a stack is ready, or cannot be built. Answers [`crate::Deps::build`].
    LayerBuilt {
        /// Which tree or stack.
        key: Key,
        /// Whether it is ready.
        result: Result<(), Cause>,
    },
    /// A manifest was read. Answers [`crate::Deps::read_manifest`].
    ManifestRead {
        /// Which manifest.
        digest: Digest,
        /// For which job.
        job: JobId,
        /// The blobs that it names.
        result: Result<Vec<Digest>, Cause>,
    },
    /// Stop at once: take no job, drop the waiting ones, kill the executing ones.
    ShutDown {
        /// Why; handed to [`crate::Deps::done`].
        reason: Reason,
    },
    /// Stop gently: take no job, hand back the waiting ones, let the executing ones finish.
    Drain {
        /// Why; handed to [`crate::Deps::done`].
        reason: Reason,
    },
}

/// How a started job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// The program ran and is gone.
    Ran(Completion),
    /// The sandbox could not be set up, by the job's own fault: no such program, a bad working
    /// directory.
    ExecutionError(Reason),
    /// The sandbox could not be set up or was lost, by the runner's fault.
    SystemError(Reason),
}

/// How a program ended. The dispatcher passes it on without looking at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completion {
    /// Exit code or signal, what it used, how much it wrote.
    pub outcome: Outcome,
    /// The limit that ended it, or what else there is to say beyond the outcome.
    pub reason: Option<Reason>,
}

/// Why a blob, a tree or a manifest could not be had: one sentence without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What went wrong.
    pub message: String,
    /// What to do next, where something can be done.
    pub hint: Option<String>,
}

impl From<&str> for Cause {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

impl From<String> for Cause {
    fn from(message: String) -> Self {
        Self {
            message,
            hint: None,
        }
    }
}
