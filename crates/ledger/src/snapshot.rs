//! What is true now of one execution.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_core::event::Status;
use tidemill_core::{
    Attempt, Digest, ExecutionId, Grant, LogTotals, Millis, Reason, RunnerId, State, Timestamp,
    Usage,
};

/// The version of the snapshot format. Readers keep reading all earlier ones.
pub const SNAPSHOT_VERSION: u32 = 1;

/// What is true now of one execution. Only [`crate::apply()`] changes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The format's version, [`SNAPSHOT_VERSION`].
    pub version: u32,
    /// Whose snapshot it is.
    pub id: ExecutionId,
    /// The job's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The job's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Program and arguments, secrets replaced.
    pub command: Vec<String>,
    /// The digest of the job's canonical spec.
    pub spec: Digest,
    /// Where it stands.
    pub state: State,
    /// Why it stands there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The last failure of an attempt. A later cancellation leaves it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Reason>,
    /// The exit code, if the program exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the program, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if the kernel says that the program left a core dump.
    #[serde(default)]
    pub core_dumped: bool,
    /// Processes still there at the end of the main one, killed by Tidemill.
    #[serde(default)]
    pub killed_processes: u64,
    /// The number of the attempt that it is in, or that was the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// How many attempts have begun.
    #[serde(default)]
    pub attempts: u32,
    /// Which runner has it, or had it at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RunnerId>,
    /// How many were ahead of it when that was last said, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// Why it is paused, while it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_why: Option<String>,
    /// What the attempt waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The step that began last and has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Its steps, the latest [`crate::bounds::STEPS_LISTED_MAX`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last began to wait.
    pub queued_at: Timestamp,
    /// When the program of its last attempt was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it reached its final state. Set once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How long the program ran; zero if it never did. Set once, with `finished_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<Millis>,
    /// When the last event was recorded.
    pub updated_at: Timestamp,
    /// What the program used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How much was written to the log.
    #[serde(default)]
    pub log: LogTotals,
    /// What the job was given of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Who asked to cancel it, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// How many outputs were kept.
    #[serde(default)]
    pub artifacts: u64,
    /// How many reports were kept.
    #[serde(default)]
    pub reports: u64,
    /// How many diagnostics there were.
    #[serde(default)]
    pub diagnostics: u64,
    /// The latest [`crate::bounds::WARNINGS_QUOTED_MAX`] diagnostics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Reason>,
    /// How many events there were, kept or not.
    pub event_count: u64,
    /// How many of them the history still has.
    pub events_kept: u64,
    /// True once events were dropped from the beginning of the history.
    #[serde(default)]
    pub events_truncated: bool,
    /// The sequence of the last event.
    pub last_sequence: u64,
    /// Who runs it.
    pub origin: Origin,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitter: Option<String>,
    /// The run that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The request that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

impl Snapshot {
    /// True if nothing will happen to it any more.
    pub const fn is_final(&self) -> bool {
        self.state.is_final()
    }

    /// True if somebody else runs it and only reports it here.
    pub const fn is_reported(&self) -> bool {
        matches!(self.origin, Origin::Reported { .. })
    }
}

/// Who runs an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Origin {
    /// This hub, by itself or through its runners.
    Local,
    /// Somebody who only reports it.
    Reported {
        /// Who reports it.
        by: RunnerId,
        /// When something was last heard from it.
        last_heard: Timestamp,
        /// The last sequence of the reporter's own that was taken in.
        through: u64,
    },
}

/// A request to cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelRequest {
    /// Who asked.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// How far a step is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// The sequence of the event that said so.
    pub sequence: u64,
    /// The step, if the job has named steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// How much is done.
    pub current: u64,
    /// Of how much, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// One step of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// When it began, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Whether it went well, once it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// More about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
