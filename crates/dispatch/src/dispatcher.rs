//! The state machine itself.

use tidemill_core::Timestamp;

use crate::deps::Deps;
use crate::job::{JobId, Phase};
use crate::message::Message;
use crate::slots::{Capacity, Room};

/// A runner's core.
#[derive(Debug)]
pub struct Dispatcher<D: Deps> {
    deps: D,
    capacity: Capacity,
}

impl<D: Deps> Dispatcher<D> {
    /// A dispatcher without jobs. A broken invariant panics in a debug build and is told to
    /// [`Deps::defect`] in a release build.
    pub fn new(capacity: Capacity, deps: D) -> Self {
        Self { deps, capacity }
    }

    /// Takes one message to completion.
    pub fn receive(&mut self, _now: Timestamp, _message: Message) {}

    /// The adapter.
    pub fn deps(&self) -> &D {
        &self.deps
    }

    /// The adapter.
    pub fn deps_mut(&mut self) -> &mut D {
        &mut self.deps
    }

    /// Where a job stands; nothing if it is unknown or has ended.
    pub fn phase(&self, _job: JobId) -> Option<Phase> {
        None
    }

    /// What is free beside the jobs that execute or wait for a slot.
    pub fn room(&self) -> Room {
        Room {
            slots: self.capacity.slots.get(),
            memory: self.capacity.memory,
            cpus: self.capacity.cpus,
        }
    }
}
