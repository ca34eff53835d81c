//! Submissions, runners and endings to try things with.

use std::collections::{BTreeMap, BTreeSet};

use tidemill_core::event::Outcome;
use tidemill_core::{ByteSize, CpuCount, Digest, Millis, Reason, ReasonCode, RunnerId};
use tidemill_queue::retry::{BackOff, RetryOn, RetryPolicy, RetryRule};
use tidemill_queue::submission::{GroupPolicy, GroupUse, JobFacts};
use tidemill_queue::{Ending, Profile, QueueKey, Serves, Submission, Tenant, Tier};

pub(crate) fn queue_named(name: &str) -> QueueKey {
    QueueKey {
        tenant: Tenant("acme".to_owned()),
        name: name.to_owned(),
    }
}

/// A plain submission to `main`.
pub(crate) fn job(submitter: &str) -> Submission {
    let facts = JobFacts {
        spec: Digest::of(b"a job"),
        name: None,
        labels: BTreeMap::new(),
        command: vec!["true".to_owned()],
        run: None,
    };
    Submission::new(queue_named("main"), submitter, facts)
}

pub(crate) fn with_priority(submitter: &str, priority: i32) -> Submission {
    Submission {
        priority,
        ..job(submitter)
    }
}

pub(crate) fn with_key(key: &str) -> Submission {
    Submission {
        key: Some(key.to_owned()),
        ..job("ann")
    }
}

pub(crate) fn in_group(policy: GroupPolicy) -> Submission {
    let name = "g".to_owned();
    Submission {
        group: Some(GroupUse { name, policy }),
        ..job("ann")
    }
}

pub(crate) fn retrying(on: RetryOn, count: u32) -> Submission {
    let back_off = BackOff {
        first: Millis(10_000),
        max: Millis(60_000),
    };
    Submission {
        retry: RetryPolicy {
            rules: vec![RetryRule {
                on,
                count,
                back_off,
            }],
        },
        ..job("ann")
    }
}

pub(crate) fn with_label(label: &str) -> Submission {
    let mut submission = job("ann");
    submission.requirements.labels.insert(label.to_owned());
    submission
}

pub(crate) fn with_memory(gib: u64) -> Submission {
    let mut submission = job("ann");
    submission.requirements.memory = ByteSize::gib(gib);
    submission
}

pub(crate) fn profile(name: &str) -> Profile {
    Profile {
        name: RunnerId(name.to_owned()),
        serves: Serves::All,
        queues: None,
        tiers: [Tier::Syscall].into(),
        architecture: "x86_64".to_owned(),
        labels: ["linux".to_owned()].into(),
        memory: ByteSize::gib(8),
        cpus: CpuCount { thousandths: 4_000 },
        images: BTreeSet::new(),
        fetches_images: false,
        speed: 0,
        draining: false,
    }
}

pub(crate) fn exit(code: i32) -> Ending {
    let outcome = Outcome {
        exit_code: Some(code),
        ..Outcome::default()
    };
    if code == 0 {
        return Ending::Completed(outcome);
    }
    Ending::Failed {
        reason: Reason::new(ReasonCode::Exit, format!("exit code {code}")),
        outcome: Some(outcome),
    }
}

pub(crate) fn failed(code: ReasonCode, message: &str) -> Ending {
    Ending::Failed {
        reason: Reason::new(code, message),
        outcome: None,
    }
}
