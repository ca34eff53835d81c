//! Stored submissions stay readable by every later version.

use std::collections::BTreeSet;

use tidemill_core::{ByteSize, CpuCount, Millis};
use tidemill_queue::retry::{BackOff, RetryOn, RetryPolicy, RetryRule};
use tidemill_queue::submission::{FORMAT, GroupPolicy, GroupUse};
use tidemill_queue::{Requirements, Submission, Tier};

use crate::submissions::job;

/// One line for each submission, as format 1 was written. Lines are added, none is changed.
const FORMAT_1: &str = include_str!("../golden/submissions-v1.jsonl");

fn full() -> Submission {
    let rule = |on| RetryRule {
        on,
        count: 2,
        back_off: BackOff {
            first: Millis(1_000),
            max: Millis(60_000),
        },
    };
    let causes = [
        RetryOn::ExitCodes(BTreeSet::from([75, 137])),
        RetryOn::AnyExit,
        RetryOn::Infrastructure,
        RetryOn::Memory,
        RetryOn::Timeout,
    ];
    let mut submission = Submission {
        key: Some("nightly".to_owned()),
        priority: -3,
        group: Some(GroupUse {
            name: "deploy".to_owned(),
            policy: GroupPolicy::CancelRunning,
        }),
        delay: Some(Millis(1)),
        expires_after: Some(Millis(2)),
        deadline_after: Some(Millis(3)),
        idempotency_key: Some("i".to_owned()),
        request_id: Some("req".to_owned()),
        requirements: Requirements {
            tier: Tier::Microvm,
            architecture: Some("aarch64".to_owned()),
            labels: ["gpu".to_owned()].into(),
            memory: ByteSize::gib(2),
            cpus: CpuCount { thousandths: 1_500 },
            image: Some("debian:13".to_owned()),
        },
        retry: RetryPolicy {
            rules: causes.into_iter().map(rule).collect(),
        },
        unsatisfiable_after: Some(Millis(4)),
        continues: false,
        ..job("ann")
    };
    submission.job.name = Some("build".to_owned());
    submission.job.run = Some("run-1".to_owned());
    submission
        .job
        .labels
        .insert("team".to_owned(), "infra".to_owned());
    submission
}

#[test]
fn every_stored_submission_is_read_as_it_was_written() {
    assert_eq!(
        FORMAT, 1,
        "a new format needs a file of its own; this one stays"
    );
    let read = |line: &str| serde_json::from_str::<Submission>(line).unwrap();
    let submissions: Vec<_> = FORMAT_1.lines().map(read).collect();
    assert_eq!(submissions, [job("ann"), full()]);
    let written = submissions
        .iter()
        .map(|each| serde_json::to_string(each).unwrap());
    assert_eq!(
        written.collect::<Vec<_>>(),
        FORMAT_1.lines().collect::<Vec<_>>()
    );
}

#[test]
fn what_a_newer_version_adds_is_no_obstacle() {
    let line = FORMAT_1.lines().next().unwrap();
    let newer = line.replacen('{', r#"{"moon_phase":"full","#, 1);
    assert_eq!(
        serde_json::from_str::<Submission>(&newer).unwrap(),
        job("ann")
    );
}
