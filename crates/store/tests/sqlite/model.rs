//! The store against the naive model: whatever is done to both, both say the same.

use proptest::prelude::*;
use tidemill_core::event::Outcome;
use tidemill_core::{
    Attempt, ByteSize, Digest, Event, ExecutionId, JobSpec, Reason, ReasonCode, RunnerId, State,
    Timestamp,
};
use tidemill_ledger::loss::{self, Retry};
use tidemill_ledger::{Decision, ListFilter, Snapshot, cancel, reported};
use tidemill_store::testing::Model;
use tidemill_store::{LogObject, NewExecution, Store, WriteError};

use super::place;

/// Executions that a run of steps is about.
const SLOTS: u8 = 5;

#[derive(Debug, Clone)]
enum Step {
    Create {
        slot: u8,
        spec: u8,
        owned: bool,
    },
    Adopt {
        slot: u8,
    },
    Events {
        slot: u8,
        events: Vec<Event>,
    },
    Ask {
        slot: u8,
    },
    Lose {
        slot: u8,
        retry: bool,
    },
    Report {
        slot: u8,
        from: u64,
        events: Vec<Event>,
    },
    Own {
        slot: u8,
        owner: Option<String>,
    },
    Log {
        slot: u8,
        attempt: u32,
        start: u64,
        name: u8,
    },
    Forget {
        slots: Vec<u8>,
    },
    Reopen,
}

fn event() -> impl Strategy<Value = Event> {
    let reason = || Reason::new(ReasonCode::Exit, "because");
    prop_oneof![
        (0_u64..3).prop_map(|ahead| Event::Queued { ahead }),
        (1_u32..4).prop_map(|attempt| Event::Assigned {
            runner: RunnerId("r1".to_owned()),
            attempt: Attempt(attempt),
        }),
        Just(Event::Started { grants: vec![] }),
        (0_u64..9, prop::option::of("[ab]")).prop_map(|(current, step)| Event::Progress {
            step,
            current,
            total: None,
            message: None,
        }),
        Just(Event::StepStarted {
            name: "build".to_owned()
        }),
        Just(Event::Diagnostic { reason: reason() }),
        Just(Event::Cancelling {
            by: "ann".to_owned()
        }),
        Just(Event::Paused { why: None }),
        Just(Event::Resumed { why: None }),
        Just(Event::Requeued { reason: reason() }),
        Just(Event::Completed {
            outcome: Outcome::default()
        }),
        Just(Event::Failed {
            reason: reason(),
            outcome: None
        }),
        Just(Event::Cancelled {
            reason: None,
            outcome: None
        }),
        Just(Event::Interrupted { reason: reason() }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let slot = || 0..SLOTS;
    let events = || prop::collection::vec(event(), 1..4);
    prop_oneof![
        4 => (slot(), 0_u8..3, any::<bool>())
            .prop_map(|(slot, spec, owned)| Step::Create { slot, spec, owned }),
        1 => slot().prop_map(|slot| Step::Adopt { slot }),
        12 => (slot(), events()).prop_map(|(slot, events)| Step::Events { slot, events }),
        2 => slot().prop_map(|slot| Step::Ask { slot }),
        2 => (slot(), any::<bool>()).prop_map(|(slot, retry)| Step::Lose { slot, retry }),
        2 => (slot(), 1_u64..4, events())
            .prop_map(|(slot, from, events)| Step::Report { slot, from, events }),
        1 => (slot(), prop::option::of("[pq]")).prop_map(|(slot, owner)| Step::Own { slot, owner }),
        2 => (slot(), 1_u32..3, 0_u64..3, 0_u8..3).prop_map(|(slot, attempt, start, name)| {
            Step::Log { slot, attempt, start, name }
        }),
        1 => prop::collection::vec(slot(), 1..4).prop_map(|slots| Step::Forget { slots }),
        1 => Just(Step::Reopen),
    ]
}

/// Ids with common beginnings and ends.
fn id(slot: u8) -> ExecutionId {
    let high = u128::from(slot / 2) << 120;
    ExecutionId::for_test(high | 0xab00 | u128::from(slot))
}

fn spec(number: u8) -> JobSpec {
    let mut spec = JobSpec::new("true", [number.to_string()]);
    spec.name = (number > 0).then(|| format!("name-{number}"));
    spec.labels.insert("spec".to_owned(), number.to_string());
    spec
}

fn log(attempt: u32, start: u64, name: u8) -> LogObject {
    LogObject {
        attempt: Attempt(attempt),
        start,
        bytes: 4,
        stdout_bytes: 3,
        stderr_bytes: 1,
        dropped_bytes: 0,
        lines: 1,
        digest: Digest::of(&[name]),
        object_bytes: ByteSize(9),
    }
}

/// The store and the model side by side.
struct Both {
    store: Store,
    model: Model,
    now: i64,
}

impl Both {
    async fn change<A, F>(&mut self, slot: u8, decide: F)
    where
        A: PartialEq + std::fmt::Debug + Send + 'static,
        F: FnOnce(Option<&Snapshot>) -> Decision<A> + Clone + Send + 'static,
    {
        let at = Timestamp(self.now);
        let expected = self.model.transact(id(slot), at, decide.clone());
        let got = self.store.transact(id(slot), at, decide).await;
        match (got, expected) {
            (Ok(got), Ok((answer, records))) => {
                assert_eq!((got.answer, got.records), (answer, records));
                assert_eq!(got.snapshot, self.model.snapshot(id(slot)));
            }
            (Err(WriteError::Refused(got)), Err(expected)) => assert_eq!(got, expected),
            (got, expected) => panic!("{:?} instead of {expected:?}", got.map(|_| ())),
        }
    }

    async fn create(&mut self, slot: u8, number: u8, owned: bool) {
        let spec = spec(number);
        let owner = owned.then(|| format!("owner-{slot}"));
        let new = NewExecution {
            id: id(slot),
            at: Timestamp(self.now),
            spec: spec.clone(),
            submitter: Some("ann".to_owned()),
            run: None,
            correlation_id: None,
            owner: owner.clone(),
            ahead: 1,
        };
        let is_new = self.model.snapshot(id(slot)).is_none();
        let got = self.store.create(new).await;
        assert_eq!(got.is_ok(), is_new);
        if let Ok(written) = got {
            self.model.prepare(id(slot), &spec, owner);
            let events: Vec<Event> = written.records.into_iter().map(|r| r.event).collect();
            let at = Timestamp(self.now);
            let decide = |_: Option<&Snapshot>| Decision::events(events, ());
            self.model.transact(id(slot), at, decide).unwrap();
        }
    }

    async fn take(&mut self, step: Step) {
        self.now += 1;
        let at = Timestamp(self.now);
        let by = RunnerId("m1".to_owned());
        match step {
            Step::Create { slot, spec, owned } => self.create(slot, spec, owned).await,
            Step::Adopt { slot } => {
                let created = Event::Created {
                    spec: Digest::of(b"elsewhere"),
                    name: None,
                    labels: [("spec".to_owned(), "1".to_owned())].into(),
                    command: vec![],
                    submitter: None,
                    run: None,
                    correlation_id: None,
                };
                self.change(slot, move |s| reported::adopt(s, &by, at, created))
                    .await;
            }
            Step::Events { slot, events } => {
                self.change(slot, move |_| Decision::events(events, ()))
                    .await;
            }
            Step::Ask { slot } => self.change(slot, |s| cancel::request(s, "ann")).await,
            Step::Lose { slot, retry } => {
                let retry = if retry {
                    Retry::Allowed
                } else {
                    Retry::Exhausted
                };
                let decide = move |snapshot: Option<&Snapshot>| {
                    let reason = Reason::new(ReasonCode::Lost, "gone");
                    let event = snapshot.and_then(|s| loss::runner_lost(s, reason, retry));
                    Decision::events(event.into_iter().collect(), ())
                };
                self.change(slot, decide).await;
            }
            Step::Report { slot, from, events } => {
                let list: Vec<(u64, Event)> = (from..).zip(events).collect();
                self.change(slot, move |s| reported::report(s, &by, at, &list))
                    .await;
            }
            Step::Own { slot, owner } => {
                let got = self.store.set_owner(id(slot), owner.clone()).await.unwrap();
                assert_eq!(got, self.model.set_owner(id(slot), owner));
            }
            Step::Log {
                slot,
                attempt,
                start,
                name,
            } => {
                let log = log(attempt, start, name);
                let got = self.store.put_log(id(slot), log.clone()).await.unwrap();
                assert_eq!(got, self.model.put_log(id(slot), log));
            }
            Step::Forget { slots } => {
                let ids: Vec<ExecutionId> = slots.into_iter().map(id).collect();
                let got = self.store.forget(ids.clone()).await.unwrap();
                assert_eq!(got, self.model.forget(&ids));
            }
            Step::Reopen => {}
        }
    }

    /// Everything that can be asked gets the same answer.
    async fn compare(&self) {
        let Self { store, model, .. } = self;
        for slot in 0..SLOTS {
            assert_eq!(
                store.snapshot(id(slot)).await.unwrap(),
                model.snapshot(id(slot))
            );
            assert_eq!(store.logs(id(slot)).await.unwrap(), model.logs(id(slot)));
            for (after, limit) in [(0, 1_000), (2, 2)] {
                let got = store.events(id(slot), after, limit).await.unwrap();
                assert_eq!(got, model.events(id(slot), after, limit));
            }
            let digits = id(slot).as_uuid().simple().to_string();
            for text in [
                &digits[..],
                &digits[..2],
                &digits[..1],
                &digits[29..],
                &digits[31..],
            ] {
                assert_eq!(
                    store.resolve(text).await.unwrap(),
                    model.resolve(text),
                    "{text}"
                );
            }
        }
        for number in 0..3 {
            let digest = spec(number).digest();
            assert_eq!(store.spec(digest).await.unwrap(), model.spec(digest));
        }
        assert_eq!(store.unfinished().await.unwrap(), model.unfinished());
        let filters = [
            ListFilter::default(),
            ListFilter {
                states: vec![State::Queued, State::Failed],
                ..ListFilter::default()
            },
            ListFilter {
                name: Some("name-1".to_owned()),
                ..ListFilter::default()
            },
            ListFilter {
                labels: [("spec".to_owned(), "1".to_owned())].into(),
                ..ListFilter::default()
            },
        ];
        for filter in &filters {
            let first = store.list(filter, 2, None).await.unwrap();
            assert_eq!(first, model.list(filter, 2, None));
            let rest = store.list(filter, 9, first.next).await.unwrap();
            assert_eq!(rest, model.list(filter, 9, first.next));
        }
        assert!(!store.changed().await.unwrap(), "nobody else is there");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_directory, path) = place();
            let mut both = Both {
                store: Store::open(&path).await.unwrap(),
                model: Model::default(),
                now: 0,
            };
            for step in steps {
                if matches!(step, Step::Reopen) {
                    both.store.close().await;
                    both.store = Store::open(&path).await.unwrap();
                }
                both.take(step).await;
            }
            both.compare().await;
            both.store.close().await;
        });
    }
}
