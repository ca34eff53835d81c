//! The states of an execution and which moves between them are allowed.
//!
//! ```text
//!            ┌──────── requeued ◄───────┬──────────────┐
//!            ▼                          │              │
//! paused ◄► queued ──────► starting ────┴──► running ──┤
//!            │  └───────────── (reported) ─────▲ │     │
//!            │               │                   ├─► cancelling ─► cancelled …
//!            ▼               ▼                   ▼
//!   cancelled failed    failed timed_out   succeeded failed timed_out
//!     interrupted
//! ```

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where an execution stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits to be given to a runner.
    Queued,
    /// It waits and may not start: its hub stopped, or its queue is paused.
    Paused,
    /// A runner has it and prepares it.
    Starting,
    /// Its program runs.
    Running,
    /// Somebody asked to cancel it, and it has not ended yet.
    Cancelling,
    /// It ran to an end, well.
    Succeeded,
    /// It ended badly; the reason tells whose fault it was.
    Failed,
    /// A time limit ended it.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// It was dropped without having run and cannot continue.
    Interrupted,
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Paused,
        Self::Starting,
        Self::Running,
        Self::Cancelling,
        Self::Succeeded,
        Self::Failed,
        Self::TimedOut,
        Self::Cancelled,
        Self::Interrupted,
    ];

    /// True for a state that nothing leaves.
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::TimedOut | Self::Cancelled | Self::Interrupted
        )
    }

    /// The name in formats and on the screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Paused => "paused",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
