//! What comes out of the dispatcher.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::event::Status;
use tidemill_core::{Digest, JobSpec, Reason};

use crate::cache::Cache;
use crate::job::JobId;
use crate::key::{Key, LayerRef};
use crate::message::{Completion, JobEnd};

/// What the dispatcher asks of the world. Every call returns at once; what takes time answers later
/// with a [`crate::Message`], never from within the call.
pub trait Deps: Cache {
    /// A started sandbox. Dropping it tells the job to die (with its grace, if the adapter grants
    /// one); [`crate::Message::JobCompleted`] still follows when everything in it is gone.
    type Sandbox;
    /// A running timer. Dropping it cancels the timer.
    type Timer;

    /// Starts a job. Answered by one [`crate::Message::JobCompleted`].
    fn start_sandbox(&mut self, job: JobId, spec: &Arc<JobSpec>, root: Root) -> Self::Sandbox;

    /// Starts a timer. Answered by one [`crate::Message::TimerFired`], unless it is dropped before.
    fn start_timer(&mut self, job: JobId, timer: TimerKind, after: Duration) -> Self::Timer;

    /// Starts to fetch a blob. Answered by one [`crate::Message::BlobFetched`].
    fn fetch(&mut self, digest: Digest);

    /// Starts to build a tree or a stack. Answered by one [`crate::Message::LayerBuilt`] with the
    /// same key. The paths of the recipe stay valid until then, whatever becomes of the job.
    fn build(&mut self, key: &Key, recipe: Recipe);

    /// Starts to read which blobs a manifest names. Answered by one
    /// [`crate::Message::ManifestRead`].
    fn read_manifest(&mut self, digest: Digest, job: JobId, path: PathBuf);

    /// Tells the hub what a job waits for, or that it executes. Each status comes at most once per
    /// job, in the order of [`Status`].
    fn status(&mut self, job: JobId, status: Status);

    /// The last word about a job: it is gone from the dispatcher and its references are released,
    /// except those to what a build reads that it started; these follow when the build has ended.
    /// Comes exactly once for each enqueued job. The adapter tells the hub, unless
    /// [`Ending::is_told_to_hub`] says that there is nothing to tell.
    fn ended(&mut self, job: JobId, ending: Ending);

    /// The dispatcher was shut down or drained and the last job is gone. Comes at most once.
    fn done(&mut self, reason: &Reason);

    /// An invariant is broken: a defect in Tidemill, to be logged. Only where defects do not panic,
    /// see [`crate::Dispatcher::new`].
    fn defect(&mut self, defect: Defect);
}

/// Which of a job's timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimerKind {
    /// The time for preparing, from the job's arrival until its layers are here.
    Prepare,
    /// The time for running, from the sandbox's start.
    Run,
}

/// How a job left the dispatcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// It ran to its end.
    Completed(Completion),
    /// A time limit ended it.
    TimedOut {
        /// Which limit.
        timer: TimerKind,
        /// How its process ended after that, with output and statistics so far; nothing if none was
        /// started.
        end: Option<JobEnd>,
    },
    /// It could not be started, by its own fault.
    ExecutionError(Reason),
    /// It could not be prepared or started, by the runner's fault.
    SystemError(Reason),
    /// It had not started when the runner was drained; the hub may give it to another runner.
    HandedBack,
    /// It was cancelled. If it had been started, its process is gone now and ended like this.
    Cancelled(Option<JobEnd>),
    /// The dispatcher was shut down. If it had been started, its process is gone now and ended like
    /// this.
    Dropped(Option<JobEnd>),
}

impl Ending {
    /// False where the hub asked for the end itself or is not listening any more, so that a message
    /// would say nothing new. A local run, which keeps the record itself, uses these endings too.
    pub const fn is_told_to_hub(&self) -> bool {
        !matches!(self, Self::Cancelled(_) | Self::Dropped(_))
    }
}

/// Where the parts of a job's root are. The paths stay valid until the job has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Root {
    /// The tree of each layer in the order of the job's list, the lowest first.
    pub trees: Vec<PathBuf>,
    /// All of them stacked; the tree itself if there is only one, nothing without layers.
    pub top: Option<PathBuf>,
}

/// How to build a tree or a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipe {
    /// Unpack one layer.
    Tree {
        /// The layer.
        layer: LayerRef,
        /// The layer's own blob (absent for a local layer), then those that its manifest names, in
        /// the manifest's order.
        blobs: Vec<(Digest, PathBuf)>,
    },
    /// Put one tree over a lower stack (or over the lowest tree).
    Stack {
        /// What is below.
        lower: PathBuf,
        /// What comes over it.
        upper: PathBuf,
    },
}

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// An id came in twice.
    #[error("job {0} was enqueued twice")]
    EnqueuedTwice(JobId),
    /// A completion came for a job that does not execute.
    #[error("job {0} completed without executing")]
    NotExecuting(JobId),
    /// An answer came for a blob, tree or stack that nobody had asked for.
    #[error("there was an answer for {0}, which nobody asked for")]
    NotAwaited(Key),
}
