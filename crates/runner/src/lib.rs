//! The tasks around the dispatcher: prepare, start, capture the log, report.
//!
//! Every decision about what runs next is the dispatcher's; this crate turns its calls into threads,
//! timers and messages, and their answers back into messages. It knows the hub, the sandbox and the
//! image code only through the traits in [`hub_port`], [`sandboxes`] and [`images`]. It must never
//! lose a byte of a job's output on the way to a live listener, and never let the record or the log
//! change a job's result. Start reading at [`LocalRunner`], then `adapter`, then `attempt`.

mod adapter;
mod attempt;
mod build_watch;
pub mod hub_port;
pub mod images;
mod layer_command;
pub mod live;
pub mod local_runner;
mod reporter;
pub mod sandboxes;
#[cfg(feature = "testing")]
pub mod testing;

pub use build_watch::{BuildProgress, BuildWatch};
pub use hub_port::{Answer, HubPort, Report, ReportError};
pub use images::{Images, LayerBuild, LocalImages, OciImages, Unpacker, chain};
pub use layer_command::LAYER_COMMAND_TIME_MAX;
pub use live::LiveSink;
pub use local_runner::{
    CancelMode, Ended, Job, JobHandle, LocalRunner, REPORT_WAITS, Recorded, RunnerConfig,
    RunnerGone,
};
pub use sandboxes::{Killing, Output, Running, Sandboxes};
pub use tidemill_dispatch::{Capacity, Cause, JobId};
