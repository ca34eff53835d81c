//! What a runner says of itself.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use tidemill_core::{Attempt, ByteSize, CpuCount, ExecutionId, RunnerId};

use crate::submission::{QueueKey, Tenant, Tier};

/// One life of a runner. A runner of the same name that starts again gets a greater one, and what
/// the earlier one says is refused from then on. Numbers are never used twice, not even for a name
/// that was forgotten.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a claim of one life of a runner: 1, 2, 3 … The same number again is the same claim,
/// whose answer was lost, and gets the same answer.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ClaimNumber(pub u64);

/// Names one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    /// Of which execution.
    pub execution: ExecutionId,
    /// Which one.
    pub attempt: Attempt,
}

/// Whose jobs a runner takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Serves {
    /// Everybody's.
    All,
    /// Those of some tenants. Others never hear of it.
    Only(BTreeSet<Tenant>),
}

/// What a runner has, whatever it does at the moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: RunnerId,
    /// Whose jobs it takes.
    pub serves: Serves,
    /// Out of which queues; of all if absent.
    pub queues: Option<BTreeSet<String>>,
    /// The tiers that it can honour.
    pub tiers: BTreeSet<Tier>,
    /// Its architecture, as `uname -m` says it.
    pub architecture: String,
    /// Its labels.
    pub labels: BTreeSet<String>,
    /// Memory for all its jobs together.
    pub memory: ByteSize,
    /// CPUs for all its jobs together.
    pub cpus: CpuCount,
    /// Images that it has.
    pub images: BTreeSet<String>,
    /// True if it can fetch others.
    pub fetches_images: bool,
    /// Its measured speed, higher is faster; 0 if it was not measured.
    pub speed: u32,
    /// True once it takes nothing more and lets what runs finish.
    pub draining: bool,
}

impl Profile {
    /// True if it may take jobs out of a queue, and the queue's owner may know of it.
    pub fn serves(&self, queue: &QueueKey) -> bool {
        self.is_known_to(&queue.tenant)
            && (self.queues.as_ref()).is_none_or(|queues| queues.contains(&queue.name))
    }

    /// True if a tenant may know of it.
    pub fn is_known_to(&self, tenant: &Tenant) -> bool {
        match &self.serves {
            Serves::All => true,
            Serves::Only(tenants) => tenants.contains(tenant),
        }
    }
}

/// A runner asks for jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What it has.
    pub profile: Profile,
    /// Which of its lives asks.
    pub incarnation: Incarnation,
    /// Which of its claims this is.
    pub claim: ClaimNumber,
    /// Every claim up to this one was answered or given up: no job comes out of it any more.
    pub settled: ClaimNumber,
    /// How many jobs it wants.
    pub slots: u32,
    /// Memory that is free.
    pub memory_free: ByteSize,
    /// CPUs that are free.
    pub cpus_free: CpuCount,
    /// The attempts that it still holds, and those whose end it has not delivered.
    pub held: Vec<AttemptKey>,
}
