//! What a job may touch beyond its own sandbox. Each is data: shown by `explain`, kept in the record.

mod request;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use request::GrantRequest;

/// One thing of the host that a job was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Grant {
    /// A path of the host is visible.
    Path {
        /// The path on the host.
        host: String,
        /// Where the job sees it.
        sandbox: String,
        /// What the job may do with it.
        access: PathAccess,
        /// Why it is there.
        why: String,
    },
    /// The host's network is the job's network.
    HostNetwork,
    /// A variable of the caller's environment is passed on (the name only: values are not recorded).
    Environment {
        /// The variable's name.
        name: String,
    },
    /// The caller's standard input is the job's.
    Stdin,
    /// Something that was asked for by name. Paths and the network, which were too, are above.
    Named {
        /// What was asked for, for example `userns` or `device:/dev/net/tun`.
        name: String,
        /// What it gives beyond the sandbox of every job.
        widens: String,
    },
    /// A wall of the sandbox that this host cannot build; the job runs without it.
    Missing {
        /// Which wall, for example `cgroup.memory`.
        wall: String,
        /// Which rule of the host blocks it.
        why: String,
    },
}

/// What a job may do with a path of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PathAccess {
    /// Read and execute.
    ReadOnly,
    /// The job may write, and the host's files stay as they are.
    CopyOnWrite,
    /// The job writes the host's files.
    Write,
}
