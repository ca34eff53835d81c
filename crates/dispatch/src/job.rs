//! A job as the dispatcher knows it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{Attempt, ExecutionId, JobSpec};

use crate::key::LayerRef;
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
}
