//! A job as the dispatcher knows it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{Attempt, ExecutionId, JobSpec, Reason, Timestamp};

use crate::deps::{Deps, Root};
use crate::key::LayerRef;
use crate::layers::{LayerTracker, Want};
use crate::order::Place;
use crate::references::References;
use crate::slots::Needs;

/// Names a job on this runner: one attempt of one execution. A later attempt of the same execution
/// is another job, because the earlier one may still be dying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId {
    /// The execution.
    pub execution: ExecutionId,
    /// The attempt.
    pub attempt: Attempt,
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.execution, self.attempt)
    }
}

/// What a job asks of the runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRequest {
    /// What to run. The dispatcher reads its priority, estimate and time limit.
    pub spec: Arc<JobSpec>,
    /// The layers that have to be here before it starts, the lowest first.
    pub layers: Vec<LayerRef>,
    /// What it takes of the budget while it executes.
    pub needs: Needs,
    /// How long its layers may take.
    pub prepare_timeout: Option<Duration>,
}

impl JobRequest {
    /// A job without layers that needs what its limits say, and nothing of what they do not say.
    pub fn new(spec: Arc<JobSpec>) -> Self {
        let needs = Needs::of(&spec.limits);
        Self {
            spec,
            layers: Vec::new(),
            needs,
            prepare_timeout: None,
        }
    }
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its layers are being fetched or built.
    AwaitingLayers,
    /// It waits for a slot.
    Available,
    /// Its sandbox was started.
    Executing,
    /// It was told to die, its process is not gone yet, and nothing will be reported.
    Cancelled,
    /// It was told to die because its time is over, and will be reported as timed out.
    TimedOut,
    /// It was told to die because an invariant is broken, and will be reported as a system error.
    Defective,
}

/// A job in the dispatcher.
pub(crate) struct Job<D: Deps> {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) needs: Needs,
    pub(crate) place: Place,
    pub(crate) references: References,
    pub(crate) stage: Stage<D>,
    /// When it entered its stage.
    pub(crate) since: Timestamp,
}

/// Where a job stands, with what it has there.
pub(crate) enum Stage<D: Deps> {
    AwaitingLayers {
        tracker: LayerTracker,
        timer: Option<D::Timer>,
    },
    Available {
        root: Root,
    },
    Executing(Execution<D>),
}

/// How an execution stands.
pub(crate) enum Execution<D: Deps> {
    Nominal {
        sandbox: D::Sandbox,
        timer: Option<D::Timer>,
    },
    /// Told to die, not dead yet.
    Doomed(Fate),
}

/// Why a job was told to die.
#[derive(Debug)]
pub(crate) enum Fate {
    Cancelled,
    /// The dispatcher was shut down.
    Dropped,
    TimedOut,
    Defective(Reason),
}

impl<D: Deps> Execution<D> {
    /// Cancels the timer and tells the job to die; nothing to do if that has happened.
    pub(crate) fn end(self) {
        match self {
            Self::Nominal { sandbox, timer } => {
                drop(timer);
                drop(sandbox);
            }
            Self::Doomed(_) => {}
        }
    }
}

impl<D: Deps> Job<D> {
    /// A job that has just arrived, and what it wants first.
    pub(crate) fn new(request: JobRequest, arrival: u64, now: Timestamp) -> (Self, Vec<Want>) {
        let (tracker, wants) = LayerTracker::new(&request.layers);
        let job = Self {
            place: Place::of(&request.spec, arrival),
            spec: request.spec,
            needs: request.needs,
            references: References::default(),
            stage: Stage::AwaitingLayers {
                tracker,
                timer: None,
            },
            since: now,
        };
        (job, wants)
    }

    /// Goes on to another stage and returns the one before.
    pub(crate) fn enter(&mut self, stage: Stage<D>, now: Timestamp) -> Stage<D> {
        self.since = now;
        std::mem::replace(&mut self.stage, stage)
    }

    /// Tells an executing job to die. No effect on one that was told before: its fate stands.
    pub(crate) fn doom(&mut self, fate: Fate, now: Timestamp) {
        if let Stage::Executing(Execution::Nominal { .. }) = self.stage
            && let Stage::Executing(execution) =
                self.enter(Stage::Executing(Execution::Doomed(fate)), now)
        {
            execution.end();
        }
    }

    pub(crate) const fn is_executing(&self) -> bool {
        matches!(self.stage, Stage::Executing(_))
    }

    pub(crate) const fn phase(&self) -> Phase {
        match &self.stage {
            Stage::AwaitingLayers { .. } => Phase::AwaitingLayers,
            Stage::Available { .. } => Phase::Available,
            Stage::Executing(Execution::Nominal { .. }) => Phase::Executing,
            Stage::Executing(Execution::Doomed(fate)) => match fate {
                Fate::Cancelled | Fate::Dropped => Phase::Cancelled,
                Fate::TimedOut => Phase::TimedOut,
                Fate::Defective(_) => Phase::Defective,
            },
        }
    }
}
