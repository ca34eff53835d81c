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

/// Who uses what of the capacity.
#[derive(Debug)]
pub(crate) struct Slots {
    capacity: Capacity,
    used: Sum,
}

impl Slots {
    /// All slots are free.
    pub(crate) const fn new(capacity: Capacity) -> Self {
        let used = Sum::ZERO;
        Self { capacity, used }
    }

    /// Whether a job may start now. A lone job always may, even if it asks for more than the budget:
    /// together with the strict order (nobody passes a job that does not fit) a large one never
    /// starves.
    pub(crate) fn fits(&self, needs: Needs) -> bool {
        if self.used.jobs == 0 {
            return true;
        }
        let with = self.used.plus(needs);
        with.jobs <= u64::from(self.capacity.slots.get())
            && self.memory().is_none_or(|memory| with.memory <= memory)
            && self.cpus().is_none_or(|cpus| with.cpus <= cpus)
    }

    /// Notes that a job starts.
    pub(crate) fn take(&mut self, needs: Needs) {
        self.used = self.used.plus(needs);
    }

    /// Notes that a started job is gone.
    pub(crate) fn free(&mut self, needs: Needs) {
        self.used = self.used.minus(needs);
    }

    /// What is left when these waiting jobs have started, too.
    pub(crate) fn room(&self, waiting: impl Iterator<Item = Needs>) -> Room {
        let used = waiting.fold(self.used, Sum::plus);
        let left = |all: u128, used: u128| all.saturating_sub(used);
        let slots = u64::from(self.capacity.slots.get()).saturating_sub(used.jobs);
        Room {
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
            memory: self
                .memory()
                .map(|all| ByteSize(u64::try_from(left(all, used.memory)).unwrap_or(u64::MAX))),
            cpus: self.cpus().map(|all| CpuCount {
                thousandths: u32::try_from(left(all, used.cpus)).unwrap_or(u32::MAX),
            }),
        }
    }

    /// No room at all.
    pub(crate) fn no_room(&self) -> Room {
        Room {
            slots: 0,
            memory: self.capacity.memory.map(|_| ByteSize(0)),
            cpus: self.capacity.cpus.map(|_| CpuCount { thousandths: 0 }),
        }
    }

    /// Panics if what is used is not the sum of what these jobs, the executing ones, need.
    pub(crate) fn check(&self, executing: impl Iterator<Item = Needs>) {
        let sum = executing.fold(Sum::ZERO, Sum::plus);
        assert_eq!(self.used, sum, "a slot was lost or used twice");
        assert!(
            sum.jobs <= u64::from(self.capacity.slots.get()),
            "more jobs execute than there are slots"
        );
        let within = self.memory().is_none_or(|memory| sum.memory <= memory)
            && self.cpus().is_none_or(|cpus| sum.cpus <= cpus);
        assert!(within || sum.jobs == 1, "the budget is exceeded");
    }

    fn memory(&self) -> Option<u128> {
        self.capacity.memory.map(|memory| u128::from(memory.0))
    }

    fn cpus(&self) -> Option<u128> {
        self.capacity.cpus.map(|cpus| u128::from(cpus.thousandths))
    }
}

/// The needs of several jobs. Wide enough that no sum of a spec's limits overflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    jobs: u64,
    memory: u128,
    cpus: u128,
}

impl Sum {
    const ZERO: Self = Self {
        jobs: 0,
        memory: 0,
        cpus: 0,
    };

    fn plus(self, needs: Needs) -> Self {
        Self {
            jobs: self.jobs + 1,
            memory: self.memory + u128::from(needs.memory.0),
            cpus: self.cpus + u128::from(needs.cpu_thousandths),
        }
    }

    /// The inverse of [`Self::plus`]; only for needs that were added before.
    fn minus(self, needs: Needs) -> Self {
        Self {
            jobs: self.jobs - 1,
            memory: self.memory - u128::from(needs.memory.0),
            cpus: self.cpus - u128::from(needs.cpu_thousandths),
        }
    }
}
