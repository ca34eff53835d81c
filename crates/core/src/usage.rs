//! What an execution used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resources that an attempt used. A figure that the host cannot measure is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Time from the program's start to its end, in milliseconds.
    pub wall_ms: u64,
    /// CPU time in user mode, all processes, in milliseconds.
    pub user_ms: u64,
    /// CPU time in kernel mode, all processes, in milliseconds.
    pub system_ms: u64,
    /// Most memory at one time, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Most processes and threads at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_pids: Option<u64>,
    /// Bytes in the job's private layer at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

/// How much a job wrote to its log, and what of it was kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogTotals {
    /// Bytes written to both streams.
    pub bytes: u64,
    /// Bytes written to stdout.
    pub stdout_bytes: u64,
    /// Bytes written to stderr.
    pub stderr_bytes: u64,
    /// Bytes left out of the kept log, because of its limit.
    pub dropped_bytes: u64,
}
