//! What happened to an execution. One closed list; a snapshot only ever changes by applying one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::grant::Grant;
use crate::id::{Attempt, ExecutionId, RunnerId};
use crate::reason::Reason;
use crate::time::{Millis, Timestamp};
use crate::usage::{LogTotals, Usage};
use crate::{ByteSize, Digest};

/// The version of the event format. Readers keep reading all earlier ones.
pub const EVENT_VERSION: u32 = 1;

/// One event in the history of one execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventRecord {
    /// The format's version, [`EVENT_VERSION`].
    pub version: u32,
    /// Whose event it is.
    pub execution: ExecutionId,
    /// 1, 2, 3 … per execution, dense.
    pub sequence: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The execution exists.
    Created {
        /// The digest of the job's canonical spec.
        spec: Digest,
        /// The job's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The job's labels.
        #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
        labels: std::collections::BTreeMap<String, String>,
        /// Program and arguments, secrets replaced.
        command: Vec<String>,
        /// Who asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        submitter: Option<String>,
        /// The run that it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<String>,
        /// The request that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        correlation_id: Option<String>,
    },
    /// It waits.
    Queued {
        /// How many are ahead of it.
        ahead: u64,
    },
    /// A runner has it.
    Assigned {
        /// Which runner.
        runner: RunnerId,
        /// Which attempt this is.
        attempt: Attempt,
    },
    /// What an assigned execution waits for.
    Status {
        /// The status.
        status: Status,
    },
    /// The program was started.
    Started {
        /// What the job was given of the host.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        grants: Vec<Grant>,
    },
    /// How far a step is. It replaces the event before it in the kept history if that was progress
    /// of the same step.
    Progress {
        /// The step, if the job has named steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
        /// How much is done.
        current: u64,
        /// Of how much, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
        /// What is being done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A step began.
    StepStarted {
        /// The step's name.
        name: String,
    },
    /// A step ended.
    StepCompleted {
        /// The step's name.
        name: String,
        /// Whether it went well.
        ok: bool,
        /// More about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// Something worth knowing that is not an end: a warning, a refused call, a killed child.
    Diagnostic {
        /// The stable code and the text.
        reason: Reason,
    },
    /// Output was written.
    Log {
        /// Where in the log it is.
        piece: LogPiece,
        /// The text, cut at the line limit; the raw log keeps every byte.
        text: String,
    },
    /// A declared output was kept.
    ArtifactKept {
        /// Its name.
        name: String,
        /// Its digest.
        digest: Digest,
        /// Its size.
        size: ByteSize,
    },
    /// A declared report was kept.
    ReportKept {
        /// Its name.
        name: String,
        /// The digest of its manifest.
        digest: Digest,
    },
    /// Somebody asked to cancel it.
    Cancelling {
        /// Who.
        by: String,
    },
    /// It may not start for now.
    Paused {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// It may start again.
    Resumed {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The attempt ended without a result and another one is to come.
    Requeued {
        /// Why.
        reason: Reason,
    },
    /// The program ran to a good end.
    Completed {
        /// How it ended and what it used.
        outcome: Outcome,
    },
    /// It ended badly.
    Failed {
        /// Why.
        reason: Reason,
        /// How the program ended, if it ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
    },
    /// A time limit ended it.
    TimedOut {
        /// Which limit.
        reason: Reason,
        /// How the program ended, if it ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
    },
    /// It was cancelled.
    Cancelled {
        /// By whom, and how it ended: by itself after the signal, or killed after the grace.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// How the program ended, if it ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
    },
    /// It was dropped without having run and cannot continue.
    Interrupted {
        /// Why.
        reason: Reason,
    },
}

impl Event {
    /// The event's kind, as formats carry it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Created { .. } => "created",
            Self::Queued { .. } => "queued",
            Self::Assigned { .. } => "assigned",
            Self::Status { .. } => "status",
            Self::Started { .. } => "started",
            Self::Progress { .. } => "progress",
            Self::StepStarted { .. } => "step_started",
            Self::StepCompleted { .. } => "step_completed",
            Self::Diagnostic { .. } => "diagnostic",
            Self::Log { .. } => "log",
            Self::ArtifactKept { .. } => "artifact_kept",
            Self::ReportKept { .. } => "report_kept",
            Self::Cancelling { .. } => "cancelling",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::Requeued { .. } => "requeued",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::TimedOut { .. } => "timed_out",
            Self::Cancelled { .. } => "cancelled",
            Self::Interrupted { .. } => "interrupted",
        }
    }
}

/// What an assigned execution waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Its layers are being fetched or built.
    WaitingForLayers,
    /// Its layers are here and it waits for a slot.
    WaitingToExecute,
    /// It executes.
    Executing,
}

/// Which of a job's two output streams.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Where a piece of output stands in the raw log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogPiece {
    /// The stream.
    pub stream: Stream,
    /// The position of its first byte among all bytes that the job wrote to both streams.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// How a program ended, and what it used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The exit code, if it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if the kernel says that it left a core dump.
    #[serde(default)]
    pub core_dumped: bool,
    /// Processes still there at the end of the main one, killed by Tidemill.
    #[serde(default)]
    pub killed_processes: u64,
    /// What was used.
    pub usage: Usage,
    /// The log's totals.
    pub log: LogTotals,
    /// The time from the program's start to the end of its main process. What it left may have been given
    /// time after that, which the times of the record show.
    pub duration_ms: Millis,
}
