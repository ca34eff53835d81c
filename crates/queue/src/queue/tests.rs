//! What only somebody can try who breaks the machine's books on purpose.

use std::collections::BTreeMap;

use tidemill_core::{Attempt, Digest, ExecutionId, Timestamp};

use super::*;
use crate::submission::{GroupPolicy, GroupUse, JobFacts, Submission, Tenant};
use crate::submit::Answer;

fn id(number: u128) -> ExecutionId {
    ExecutionId::for_test(number)
}

fn submission() -> Submission {
    let queue = QueueKey {
        tenant: Tenant("acme".to_owned()),
        name: "main".to_owned(),
    };
    let facts = JobFacts {
        spec: Digest::of(b"job"),
        name: None,
        labels: BTreeMap::new(),
        command: vec!["true".to_owned()],
        run: None,
    };
    Submission {
        key: Some("k".to_owned()),
        group: Some(GroupUse {
            name: "g".to_owned(),
            policy: GroupPolicy::QueueAll,
        }),
        ..Submission::new(queue, "ann", facts)
    }
}

fn queue(now: Timestamp) -> (Queue, HubId) {
    let mut queue = Queue::new(Settings::default()).unwrap();
    let hub = HubId("a".to_owned());
    queue.start_hub(now, hub.clone());
    (queue, hub)
}

#[test]
fn an_orphaned_group_lock_is_freed() {
    let now = Timestamp(1);
    let (mut queue, hub) = queue(now);
    let group = submission().group_key().unwrap();
    let holders = [id(9), id(1)];
    for holder in holders {
        let orphan = Lock {
            execution: holder,
            attempt: Attempt(1),
        };
        // Nobody is behind it: not an execution that never was, and not one that waits.
        queue.locks.insert(group.clone(), orphan);
        let answer = queue.submit(now, &hub, id(1), submission());
        assert!(answer.is_ok() || holder == id(1));
        queue.locks.insert(group.clone(), orphan);
        assert_eq!(queue.pass(now, &hub, 10).freed, 1);
        assert_eq!(queue.job(id(1)).unwrap().place(), Some(Place::Ready));
        queue.check_invariants();
    }
}

#[test]
fn a_lock_of_an_earlier_attempt_is_orphaned() {
    let now = Timestamp(1);
    let (mut queue, hub) = queue(now);
    queue.submit(now, &hub, id(1), submission()).unwrap();
    let change = begin(&queue, id(1));
    queue.commit(now, change).unwrap();
    let job = queue.job(id(1));
    let of_attempt = |number| Lock {
        execution: id(1),
        attempt: Attempt(number),
    };
    assert!(of_attempt(0).is_orphaned(job));
    assert!(!of_attempt(1).is_orphaned(job));
}

#[test]
fn an_orphaned_lock_stops_no_claim() {
    let now = Timestamp(1);
    let (mut queue, _) = queue(now);
    let group = submission().group_key().unwrap();
    let lock = |execution| Lock {
        execution,
        attempt: Attempt(1),
    };
    queue.locks.insert(group.clone(), lock(id(9)));
    assert_eq!(queue.lock(&group, lock(id(1))), Ok(()));
}

/// What a claim would write that has seen the job ready.
fn begin(queue: &Queue, id: ExecutionId) -> Change {
    let job = queue.job(id).unwrap();
    let lease = crate::lease::Lease {
        runner: RunnerId("r".to_owned()),
        incarnation: Incarnation(1),
        attempt: crate::attempt::next_attempt(job),
        claim: ClaimNumber(1),
        granted_at: Timestamp(1),
        until: Timestamp(2),
        hub: job.hub.clone(),
        started: false,
        asked: None,
    };
    crate::attempt::begin(job, lease)
}

#[test]
fn two_claims_never_both_have_a_group_whatever_they_saw() {
    let now = Timestamp(1);
    let (mut queue, hub) = queue(now);
    for number in [1, 2] {
        let submission = Submission {
            key: None,
            ..submission()
        };
        queue.submit(now, &hub, id(number), submission).unwrap();
    }
    let changes = [1, 2].map(|number| begin(&queue, id(number)));
    let results = changes.map(|change| queue.commit(now, change));
    assert_eq!(results, [Ok(()), Err(Conflict::GroupBusy)]);
    queue.check_invariants();
}

#[test]
fn an_orphaned_coalescing_key_is_freed() {
    let now = Timestamp(1);
    let (mut queue, hub) = queue(now);
    let key = submission().coalescing_key().unwrap();
    queue.keys.insert(key.clone(), id(9));
    assert_eq!(queue.pass(now, &hub, 10).freed, 1);
    // One that is found by a submission is no obstacle either, whoever it names.
    queue.keys.insert(key.clone(), id(9));
    let answer = queue.submit(now, &hub, id(1), submission());
    assert!(matches!(answer, Ok(Answer::Accepted { .. })));
    queue.cancel(now, id(1), "test");
    queue.keys.insert(key, id(1));
    let answer = queue.submit(now, &hub, id(2), submission());
    assert!(matches!(answer, Ok(Answer::Accepted { .. })));
    queue.check_invariants();
}

#[test]
fn turns_are_remembered_for_a_bounded_number_of_submitters() {
    let (mut queue, hub) = queue(Timestamp(1));
    let template = submission();
    let count = crate::settings::TURNS_KEPT_MAX + 5;
    for number in 0..count {
        let submission = Submission {
            submitter: format!("s{number}"),
            key: None,
            group: None,
            ..template.clone()
        };
        let id = id(number as u128);
        queue.submit(Timestamp(1), &hub, id, submission).unwrap();
        let job = queue.job(id).unwrap().clone();
        queue.took_turn(&job);
        queue.cancel(Timestamp(1), id, "test");
    }
    assert_eq!(queue.turns.len(), crate::settings::TURNS_KEPT_MAX);
    assert_eq!(queue.last_turn(&template.queue, "s4"), 0);
    assert_ne!(queue.last_turn(&template.queue, "s5"), 0);
}

#[test]
fn answers_are_forgotten_after_their_window_a_bounded_number_at_a_time() {
    let start = Timestamp(1);
    let (mut queue, hub) = queue(start);
    let submission = |number: u128| Submission {
        idempotency_key: Some(format!("i{number}")),
        key: None,
        ..submission()
    };
    for number in 0..5 {
        queue
            .submit(start, &hub, id(number), submission(number))
            .unwrap();
    }
    let later = start.plus(queue.settings.idempotency_window);
    // One is given anew, and its window begins anew.
    queue.start_hub(later, hub.clone());
    queue.submit(later, &hub, id(9), submission(0)).unwrap();
    for left in [3, 1, 1] {
        queue.pass(later, &hub, 2);
        assert_eq!(
            (queue.answers.len(), queue.answers_by_age.len()),
            (left, left)
        );
    }
}
