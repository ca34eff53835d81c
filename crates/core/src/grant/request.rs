//! What a job asks for by name, beyond what every job gets.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::root::Allow;

/// Something beyond what every job gets, asked for by name. The host's network is not among them: it
/// has a field of its own in the spec.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GrantRequest {
    /// User namespaces.
    Userns,
    /// Tracing of the job's own processes, which every job may do.
    Ptrace,
    /// `/dev/fuse`, and mounts of what is served through it.
    Fuse,
    /// `/dev/kvm`.
    Kvm,
    /// A read-only `/sys`.
    Sys,
    /// Root's rights over files, ids and processes, for a job whose user is 0.
    Root,
    /// A character device of the host.
    Device {
        /// An absolute path below `/dev`, the same on the host and in the sandbox.
        path: String,
    },
    /// A directory or file of the host, as it is there.
    Bind {
        /// An absolute path on the host.
        source: String,
        /// Where it appears: an absolute path in the sandbox.
        dest: String,
        /// True if the job writes the host's files.
        write: bool,
    },
}

impl GrantRequest {
    /// The forms that people write, `net:host` too.
    pub const FORMS: [&'static str; 9] = [
        "userns",
        "ptrace",
        "fuse",
        "kvm",
        "sys",
        "root",
        "device:PATH",
        "net:host",
        "bind:SRC:DEST[:rw]",
    ];

    /// What it gives beyond the sandbox of every job, as one sentence without a full stop.
    pub fn widens(&self) -> String {
        let sentence = match self {
            Self::Userns => {
                "the job may make user namespaces and be root in them, which opens parts of the \
                 kernel that are seldom reviewed"
            }
            Self::Ptrace => {
                "the job may trace its own processes, as every job may, so this widens nothing"
            }
            Self::Fuse => {
                "the job may make user namespaces and mount in them what it serves itself through \
                 /dev/fuse, which opens the kernel's code for both"
            }
            Self::Kvm => {
                "the job may run virtual machines through /dev/kvm, which opens the kernel's code \
                 for them"
            }
            Self::Sys => {
                "the job may read /sys, which tells it about the host's hardware and kernel"
            }
            Self::Root => {
                "user 0 has root's rights over all files, ids and processes of the job, and as another \
                 user it has that user's share of what the kernel counts by user"
            }
            Self::Device { path } => {
                return format!(
                    "the job may use {path} of the host, which opens the code of its driver and \
                     whatever is behind it"
                );
            }
            Self::Bind { write: false, .. } => {
                "the job reads the host's files as they are, and sees each change of them"
            }
            Self::Bind { write: true, .. } => {
                "the job writes the host's files, and what it writes stays"
            }
        };
        sentence.to_owned()
    }

    /// The device of the host that it needs.
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Fuse => Some("/dev/fuse"),
            Self::Kvm => Some("/dev/kvm"),
            Self::Device { path } => Some(path),
            Self::Userns | Self::Ptrace | Self::Sys | Self::Root | Self::Bind { .. } => None,
        }
    }

    /// What of the kernel it opens. A job has no privilege to mount anything but in a user namespace of
    /// its own.
    pub const fn allows(&self) -> &'static [Allow] {
        match self {
            Self::Userns => &[Allow::UserNamespaces],
            Self::Ptrace => &[Allow::Ptrace],
            Self::Fuse => &[Allow::UserNamespaces, Allow::Fuse],
            Self::Root => &[Allow::RootRights],
            Self::Kvm | Self::Sys | Self::Device { .. } | Self::Bind { .. } => &[],
        }
    }
}

impl fmt::Display for GrantRequest {
    /// As it is written after `--grant`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Userns => f.write_str("userns"),
            Self::Ptrace => f.write_str("ptrace"),
            Self::Fuse => f.write_str("fuse"),
            Self::Kvm => f.write_str("kvm"),
            Self::Sys => f.write_str("sys"),
            Self::Root => f.write_str("root"),
            Self::Device { path } => write!(f, "device:{path}"),
            Self::Bind {
                source,
                dest,
                write,
            } => {
                let mode = if *write { ":rw" } else { "" };
                write!(f, "bind:{source}:{dest}{mode}")
            }
        }
    }
}
