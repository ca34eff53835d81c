//! The isolation tiers behind one interface. Today there is one: the syscall tier, of namespaces,
//! overlayfs, seccomp, Landlock, resource limits and control groups.
//!
//! The only crate with `unsafe`, all of it in `sys`. It must never run a job with less than it was
//! asked for, never let a descriptor, variable or path of its owner reach a job, and leave nothing
//! behind.
//!
//! ```text
//! owner (Launcher) ──socket──► launcher process (serve) ──fork──► warden, one per slot
//!      └───────────────────────────link────────────────────────────┘ ──clone──► process 1 (init) ──fork──► job
//! ```
//!
//! Start reading at [`Launcher`], then `serve`, `warden`, `init` and `rootfs`.

mod cgroup;
mod cgroup_text;
mod dev;
pub mod fuzzing;
mod host;
mod identity;
mod in_use;
mod init;
mod job_network;
mod job_start;
mod landlock_wall;
mod launcher;
mod masks;
mod mirror;
mod namespace;
mod network_text;
mod output;
mod pty;
mod request;
mod rootfs;
mod running;
mod seccomp;
mod seen;
mod serve;
mod shares;
mod standby;
mod sweep;
mod sys;
mod unreached;
mod victim;
mod warden;

pub use cgroup::{CgroupFigures, CgroupPlaces, Controller};
pub use host::{Check, CheckState, HostSupport, has_sub_ids, probe_host};
pub use identity::{Identity, JOB_ID_BASE, JOB_ID_COUNT};
pub use init::DRAIN;
pub use launcher::{Killer, LAUNCHER_ARG, Launcher, LauncherConfig, LauncherError, Sandbox};
pub use output::{Next, OutputReader, output_pipes};
pub use pty::{PtyPair, open_pty};
pub use request::{Ended, Oom, SandboxRequest, StartError, Stdio};
pub use seccomp::{RefusedCall, system_calls_reference};
pub use serve::launcher_main;
pub use sweep::{SweepNote, sweep};
