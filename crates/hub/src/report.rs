//! What a runner reports, and what it is answered.

use tidemill_core::{Attempt, Event, ExecutionId, Timestamp};
use tidemill_ledger::apply::fence;
use tidemill_ledger::{Applied, Decision, Snapshot, apply};

/// Events of one attempt, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Whose.
    pub execution: ExecutionId,
    /// The attempt that says so. One that is not the current one is not listened to.
    pub attempt: Attempt,
    /// What happened.
    pub events: Vec<Event>,
}

/// What a runner is told about a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is on the disk. Events that the state machine refused were passed over.
    Taken {
        /// Who asked to cancel the execution, if somebody did.
        cancel: Option<String>,
    },
    /// Nothing was recorded, because nobody waits for this attempt any more, or because it may not
    /// start. It is to be ended without another word.
    NotWanted {
        /// Why.
        why: String,
    },
}

/// Decides what of a report is recorded.
pub(crate) fn decide(
    snapshot: Option<&Snapshot>,
    attempt: Attempt,
    events: Vec<Event>,
    at: Timestamp,
) -> Decision<Answer> {
    let not_wanted = |why: String| Decision::nothing(Answer::NotWanted { why });
    let Some(snapshot) = snapshot else {
        return not_wanted("there is no such execution".to_owned());
    };
    if snapshot.is_final() {
        return not_wanted(format!("the execution is {}", snapshot.state));
    }
    let begins = |event: &Event| matches!(event, Event::Assigned { .. });
    if !events.first().is_some_and(begins)
        && let Err(refused) = fence(snapshot, attempt)
    {
        return not_wanted(refused.to_string());
    }
    let mut current = snapshot.clone();
    let mut taken = Vec::with_capacity(events.len());
    for event in events {
        let assigned = begins(&event);
        match apply(&current, at, event.clone()) {
            Ok(Applied::Recorded(recorded)) => {
                current = recorded.snapshot;
                taken.push(event);
            }
            Ok(Applied::Already) => {}
            Err(refused) if assigned => return not_wanted(refused.to_string()),
            Err(refused) => {
                tracing::debug!(execution = %current.id, %refused, "reported event passed over");
            }
        }
    }
    let cancel = current.cancel.map(|request| request.by);
    Decision::events(taken, Answer::Taken { cancel })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use tidemill_core::event::Outcome;
    use tidemill_core::{Digest, Reason, ReasonCode, RunnerId};
    use tidemill_ledger::{Origin, create};

    use super::*;

    const AT: Timestamp = Timestamp(5);

    fn queued() -> Snapshot {
        let created = Event::Created {
            spec: Digest::of(b"spec"),
            name: None,
            labels: BTreeMap::new(),
            command: vec!["true".to_owned()],
            submitter: None,
            run: None,
            correlation_id: None,
        };
        create(ExecutionId::for_test(1), Origin::Local, AT, created)
            .unwrap()
            .snapshot
    }

    fn after(mut snapshot: Snapshot, events: impl IntoIterator<Item = Event>) -> Snapshot {
        for event in events {
            if let Applied::Recorded(recorded) = apply(&snapshot, AT, event).unwrap() {
                snapshot = recorded.snapshot;
            }
        }
        snapshot
    }

    fn assigned(attempt: u32) -> Event {
        Event::Assigned {
            runner: RunnerId("here".to_owned()),
            attempt: Attempt(attempt),
        }
    }

    fn completed() -> Event {
        Event::Completed {
            outcome: Outcome::default(),
        }
    }

    fn cancelling() -> Event {
        Event::Cancelling {
            by: "ann".to_owned(),
        }
    }

    fn check(before: &Snapshot, attempt: u32, events: Vec<Event>) -> (Vec<&'static str>, Answer) {
        let decision = decide(Some(before), Attempt(attempt), events, AT);
        let kinds = decision.events.iter().map(Event::kind).collect();
        (kinds, decision.answer)
    }

    fn is_not_wanted(answer: &Answer) -> bool {
        matches!(answer, Answer::NotWanted { .. })
    }

    #[test]
    fn a_whole_life_can_come_in_one_report() {
        let started = Event::Started { grants: Vec::new() };
        let (kinds, answer) = check(&queued(), 1, vec![assigned(1), started, completed()]);
        assert_eq!(kinds, ["assigned", "started", "completed"]);
        assert_eq!(answer, Answer::Taken { cancel: None });
    }

    #[test]
    fn what_the_state_machine_refuses_is_passed_over_and_the_rest_is_taken() {
        let running = after(
            queued(),
            [assigned(1), Event::Started { grants: Vec::new() }],
        );
        let resumed = Event::Resumed { why: None };
        let (kinds, _) = check(&running, 1, vec![resumed, completed(), completed()]);
        assert_eq!(kinds, ["completed"]);
    }

    #[test]
    fn a_stale_attempt_and_a_finished_execution_are_not_listened_to() {
        let running = after(queued(), [assigned(2)]);
        for (before, attempt) in [(&running, 1), (&queued(), 1)] {
            let (kinds, answer) = check(before, attempt, vec![completed()]);
            assert!(kinds.is_empty() && is_not_wanted(&answer), "{answer:?}");
        }
        let failed = Event::Failed {
            reason: Reason::new(ReasonCode::Lost, "lost"),
            outcome: None,
        };
        let over = after(running, [failed]);
        assert!(is_not_wanted(&check(&over, 2, vec![completed()]).1));
    }

    #[test]
    fn nothing_starts_once_somebody_asked_to_cancel() {
        let cancelled = after(queued(), [cancelling()]);
        let (kinds, answer) = check(&cancelled, 1, vec![assigned(1), completed()]);
        assert!(kinds.is_empty() && is_not_wanted(&answer), "{answer:?}");
    }

    #[test]
    fn the_answer_says_who_asked_to_cancel() {
        let running = after(queued(), [assigned(1), cancelling()]);
        let (_, answer) = check(&running, 1, Vec::new());
        let cancel = Some("ann".to_owned());
        assert_eq!(answer, Answer::Taken { cancel });
    }
}
