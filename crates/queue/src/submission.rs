//! What somebody wants to have run, as the queue sees it: the immutable body of a job.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use tidemill_core::{ByteSize, CpuCount, Digest, Event, Millis};

use crate::retry::RetryPolicy;

/// The format of a stored submission that this version writes. Readers keep reading all earlier ones.
pub const FORMAT: u32 = 1;

/// The kind of a submission that says no other: run a job spec.
pub const KIND_JOB: &str = "job";

/// Whose a queue is. Nothing of one tenant is told to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tenant(pub String);

/// Names a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QueueKey {
    /// Whose it is.
    pub tenant: Tenant,
    /// Its name among the tenant's.
    pub name: String,
}

impl fmt::Display for QueueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// How a job is isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Namespaces and filters of one kernel.
    Syscall,
    /// A small virtual machine.
    Microvm,
    /// A WASI module.
    Wasm,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syscall => "syscall",
            Self::Microvm => "microvm",
            Self::Wasm => "wasm",
        })
    }
}

/// What a runner must have. Jobs with equal requirements are of one class and are matched at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Requirements {
    /// The tier.
    pub tier: Tier,
    /// The architecture, as `uname -m` says it; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    /// Labels, all of which it must have.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub labels: BTreeSet<String>,
    /// Memory.
    pub memory: ByteSize,
    /// CPUs.
    pub cpus: CpuCount,
    /// An image that it must have or be able to fetch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl Default for Requirements {
    fn default() -> Self {
        Self {
            tier: Tier::Syscall,
            architecture: None,
            labels: BTreeSet::new(),
            memory: ByteSize(0),
            cpus: CpuCount { thousandths: 0 },
            image: None,
        }
    }
}

/// What happens when a submission meets others of its group. At most one of a group is with a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupPolicy {
    /// All run, one after the other, in the order in which they came.
    QueueAll,
    /// What waits is superseded by what comes; what runs, runs on.
    KeepNewest,
    /// What waits is superseded, and what runs is asked to end.
    CancelRunning,
    /// A waiting one with the same spec takes the new one in; else they wait in order.
    Coalesce,
}

/// A group, and the policy that the submission brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupUse {
    /// The group's name within the queue.
    pub name: String,
    /// What happens to the others of it.
    pub policy: GroupPolicy,
}

/// What the record's first event says of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// The digest of the job's canonical spec.
    pub spec: Digest,
    /// The job's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The job's labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Program and arguments, secrets replaced.
    pub command: Vec<String>,
    /// The run that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// What somebody wants to have run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The queue.
    pub queue: QueueKey,
    /// What kind of work it is. A hub that does not know a kind leaves it alone.
    pub kind: String,
    /// What makes two waiting submissions of a kind the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// The concurrency group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupUse>,
    /// It does not start before so long has passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Millis>,
    /// It fails if it waited so long, without its delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_after: Option<Millis>,
    /// All of it, waiting and running, has to be over after so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_after: Option<Millis>,
    /// The same key gets the same answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Who submits it. Submitters take turns.
    pub submitter: String,
    /// The request that caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What the record says of it.
    pub job: JobFacts,
    /// What a runner must have.
    pub requirements: Requirements,
    /// When it is tried again.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// How long it waits for a runner that could run it; the hub's setting if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsatisfiable_after: Option<Millis>,
    /// False if it lives and dies with the hub that accepted it.
    pub continues: bool,
}

impl Submission {
    /// A submission with nothing but what has no default.
    pub fn new(queue: QueueKey, submitter: impl Into<String>, job: JobFacts) -> Self {
        Self {
            queue,
            kind: KIND_JOB.to_owned(),
            key: None,
            priority: 0,
            group: None,
            delay: None,
            expires_after: None,
            deadline_after: None,
            idempotency_key: None,
            submitter: submitter.into(),
            request_id: None,
            job,
            requirements: Requirements::default(),
            retry: RetryPolicy::default(),
            unsatisfiable_after: None,
            continues: true,
        }
    }

    /// The event that begins the record.
    pub fn created(&self) -> Event {
        Event::Created {
            spec: self.job.spec,
            name: self.job.name.clone(),
            labels: self.job.labels.clone(),
            command: self.job.command.clone(),
            submitter: Some(self.submitter.clone()),
            run: self.job.run.clone(),
            correlation_id: self.request_id.clone(),
        }
    }

    /// The group that it is in.
    pub fn group_key(&self) -> Option<GroupKey> {
        self.group.as_ref().map(|group| GroupKey {
            queue: self.queue.clone(),
            name: group.name.clone(),
        })
    }

    /// What a waiting one is recognised by.
    pub fn coalescing_key(&self) -> Option<CoalescingKey> {
        self.key.as_ref().map(|key| CoalescingKey {
            queue: self.queue.clone(),
            kind: self.kind.clone(),
            key: key.clone(),
        })
    }

    /// What its answer is kept under.
    pub fn answer_key(&self) -> Option<AnswerKey> {
        self.idempotency_key.as_ref().map(|key| AnswerKey {
            tenant: self.queue.tenant.clone(),
            submitter: self.submitter.clone(),
            key: key.clone(),
        })
    }
}

/// Names a concurrency group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKey {
    /// The queue that it is in.
    pub queue: QueueKey,
    /// Its name there.
    pub name: String,
}

/// What a waiting submission is recognised by. One waiting job holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoalescingKey {
    /// The queue.
    pub queue: QueueKey,
    /// The kind.
    pub kind: String,
    /// The key.
    pub key: String,
}

/// What the answer to a submission with an idempotency key is kept under.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AnswerKey {
    /// Whose it is.
    pub tenant: Tenant,
    /// Who submitted.
    pub submitter: String,
    /// The idempotency key.
    pub key: String,
}
