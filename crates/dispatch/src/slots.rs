//! How many jobs may execute at once, and what they may use together.

use std::num::NonZeroU32;

use tidemill_core::{ByteSize, CpuCount, Limits};

/// What a runner has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Jobs at once.
    pub slots: NonZeroU32,
    /// Memory for all of them together; not counted if absent.
    pub memory: Option<ByteSize>,
    /// CPUs for all of them together; not counted if absent.
    pub cpus: Option<CpuCount>,
}

impl Capacity {
    /// Slots without a budget.
    pub const fn slots(slots: NonZeroU32) -> Self {
        Self {
            slots,
            memory: None,
            cpus: None,
        }
    }
}

/// What one job takes of the budget while it executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Bytes of memory.
    pub memory: ByteSize,
    /// Thousandths of a CPU.
    pub cpu_thousandths: u32,
}

impl Needs {
    /// What a job with these limits can use; an absent limit counts as nothing, so whoever wants
    /// the runner's default counted fills it in before.
    pub fn of(limits: &Limits) -> Self {
        Self {
            memory: limits.memory.unwrap_or_default(),
            cpu_thousandths: limits.cpus.map_or(0, |cpus| cpus.thousandths),
        }
    }
}

/// What is free: what a runner asks the hub for when it claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// More jobs that could execute.
    pub slots: u32,
    /// Memory that they could use; absent if not counted.
    pub memory: Option<ByteSize>,
    /// CPUs that they could use; absent if not counted.
    pub cpus: Option<CpuCount>,
}
