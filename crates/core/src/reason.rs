//! Why an execution stands where it stands: a stable code, a message and what to do next.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stable code. The codes are part of every format; a new one is added, none is renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// The program ended with an exit code other than 0.
    Exit,
    /// The program was ended by a signal of its own making.
    Signal,
    /// The time limit for running was reached.
    Time,
    /// The time limit for preparing was reached.
    PrepareTime,
    /// The memory limit was reached.
    Memory,
    /// The limit of processes was reached.
    Pids,
    /// The disk limit was reached.
    Disk,
    /// The limit of `/dev/shm` was reached.
    Shm,
    /// A part of the log could not be kept.
    Log,
    /// Processes outlived the main one and were killed.
    LeftOvers,
    /// The job made system calls that policy refuses.
    Refused,
    /// The sandbox lacks a wall that this host cannot build.
    Weakened,
    /// It was cancelled by somebody.
    Cancelled,
    /// There is no such program in the sandbox.
    ProgramNotFound,
    /// The program is there and cannot be executed.
    ProgramNotExecutable,
    /// The working directory is missing, not a directory, or leads out of the root.
    BadWorkdir,
    /// The spec is wrong.
    BadSpec,
    /// A layer or image could not be prepared.
    Layer,
    /// The sandbox could not be set up: the runner's fault.
    Sandbox,
    /// The process that ran it is gone and nothing is known of its end.
    Lost,
    /// Its reporter fell silent.
    Unavailable,
    /// It waited longer than allowed.
    Expired,
    /// No runner can run it.
    Unplaceable,
    /// Its runner or hub was shut down.
    Shutdown,
    /// A runner handed it back.
    Declined,
    /// A defect in Tidemill itself.
    Internal,
}

impl ReasonCode {
    /// True where the job itself is at fault, false where the platform or a person ended it.
    pub const fn is_jobs_own_fault(self) -> bool {
        matches!(
            self,
            Self::Exit
                | Self::Signal
                | Self::Time
                | Self::Memory
                | Self::Pids
                | Self::Disk
                | Self::Shm
                | Self::ProgramNotFound
                | Self::ProgramNotExecutable
                | Self::BadWorkdir
                | Self::BadSpec
        )
    }

    /// The code as formats carry it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Time => "time",
            Self::PrepareTime => "prepare_time",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Shm => "shm",
            Self::Log => "log",
            Self::LeftOvers => "left_overs",
            Self::Refused => "refused",
            Self::Weakened => "weakened",
            Self::Cancelled => "cancelled",
            Self::ProgramNotFound => "program_not_found",
            Self::ProgramNotExecutable => "program_not_executable",
            Self::BadWorkdir => "bad_workdir",
            Self::BadSpec => "bad_spec",
            Self::Layer => "layer",
            Self::Sandbox => "sandbox",
            Self::Lost => "lost",
            Self::Unavailable => "unavailable",
            Self::Expired => "expired",
            Self::Unplaceable => "unplaceable",
            Self::Shutdown => "shutdown",
            Self::Declined => "declined",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ReasonCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why: for people (message, hint) and for programs (code).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// The stable code.
    pub code: ReasonCode,
    /// What happened, on what, in one sentence without a full stop.
    pub message: String,
    /// What to do next, where something can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Ties the reason to the request or log lines that belong to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
}

impl Reason {
    /// A reason without a hint.
    pub fn new(code: ReasonCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            correlation_id: None,
        }
    }

    /// The same reason with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
