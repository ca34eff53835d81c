//! "Reading".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tidemill_core::event::EVENT_VERSION;
use tidemill_core::{Event, EventRecord, ExecutionId, State, Timestamp};
use tidemill_ledger::bounds::SUBSCRIBER_BEHIND_MAX;
use tidemill_ledger::page::{PAGE_EVENTS_MAX, PagePosition, page_limit};
use tidemill_ledger::{
    Admitted, Cursor, Delivery, EventPage, Interest, ListFilter, Subscription, Subscriptions,
};

use crate::script::after;

fn record(execution: u128, sequence: u64) -> Arc<EventRecord> {
    Arc::new(EventRecord {
        version: EVENT_VERSION,
        execution: ExecutionId::for_test(execution),
        sequence,
        at: Timestamp(0),
        event: Event::Queued { ahead: sequence },
    })
}

/// Everything that is there for a subscriber, as `execution:sequence` or `lagged N`.
fn drain(subscription: &mut Subscription) -> Vec<String> {
    std::iter::from_fn(|| subscription.try_next())
        .map(|delivery| match delivery {
            Delivery::Lagged { missed } => format!("lagged {missed}"),
            Delivery::Event(record) => {
                format!(
                    "{}:{}",
                    record.execution.as_uuid().as_u128(),
                    record.sequence
                )
            }
        })
        .collect()
}

#[test]
fn a_list_is_filtered_by_state_name_label_run_and_submitter() {
    let world = after("created");
    let snapshot = world.snapshot();
    let filter = |change: fn(&mut ListFilter)| {
        let mut filter = ListFilter::default();
        change(&mut filter);
        filter.matches(snapshot)
    };
    assert!(filter(|_| {}));
    assert!(filter(|f| f.states = vec![State::Failed, State::Queued]));
    assert!(!filter(|f| f.states = vec![State::Failed]));
    assert!(filter(|f| f.name = Some("tests".to_owned())));
    assert!(!filter(|f| f.name = Some("test".to_owned())));
    assert!(filter(
        |f| f.labels = BTreeMap::from([("team".to_owned(), "core".to_owned())])
    ));
    assert!(!filter(
        |f| f.labels = BTreeMap::from([("team".to_owned(), "web".to_owned())])
    ));
    assert!(!filter(
        |f| f.labels = BTreeMap::from([("tier".to_owned(), String::new())])
    ));
    assert!(filter(|f| f.run = Some("run-7".to_owned())));
    assert!(!filter(|f| f.run = Some("run-8".to_owned())));
    assert!(filter(|f| f.submitter = Some("ann".to_owned())));
    assert!(!filter(|f| f.submitter = Some("bob".to_owned())));
    assert!(
        !filter(|f| {
            f.submitter = Some("ann".to_owned());
            f.run = Some("run-8".to_owned());
        }),
        "every part has to match"
    );
}

#[test]
fn a_page_of_history_says_the_last_sequence_whether_more_follow_and_whether_events_were_dropped() {
    let found = |from: u64, count: u64| -> Vec<EventRecord> {
        (from..from + count)
            .map(|s| (*record(1, s)).clone())
            .collect()
    };
    let whole = PagePosition {
        after: 0,
        first_kept: 1,
        last_sequence: 9,
        events_truncated: false,
    };
    let page = EventPage::new(found(1, 4), 3, &whole);
    assert_eq!((page.events.len(), page.last_sequence), (3, 9));
    assert_eq!((page.more, page.truncated, page.gap), (true, false, false));
    assert_eq!(page.next_after(0), 3);

    let end = PagePosition { after: 8, ..whole };
    let page = EventPage::new(found(9, 1), 3, &end);
    assert!(!page.more);
    let beyond = PagePosition { after: 9, ..whole };
    let page = EventPage::new(Vec::new(), 3, &beyond);
    assert_eq!((page.more, page.next_after(9)), (false, 9));

    let cut = PagePosition {
        after: 2,
        first_kept: 5,
        last_sequence: 9,
        events_truncated: true,
    };
    let page = EventPage::new(found(5, 2), 3, &cut);
    assert_eq!((page.truncated, page.gap), (true, true));
    let seen = PagePosition { after: 4, ..cut };
    let page = EventPage::new(found(5, 2), 3, &seen);
    assert_eq!(
        (page.truncated, page.gap),
        (true, false),
        "the reader has seen what was dropped"
    );
}

#[test]
fn a_page_has_a_limit() {
    assert_eq!(page_limit(None), PAGE_EVENTS_MAX);
    assert_eq!(page_limit(Some(usize::MAX)), PAGE_EVENTS_MAX);
    assert_eq!(page_limit(Some(7)), 7);
    assert_eq!(page_limit(Some(0)), 1);
}

#[test]
fn a_subscriber_hears_of_all_or_of_some() {
    let registry = Subscriptions::new();
    let mut all = registry.subscribe(Interest::All);
    let mut one = registry.subscribe(Interest::one(ExecutionId::for_test(2)));
    for (execution, sequence) in [(1, 1), (2, 1), (1, 2), (2, 2)] {
        registry.publish(&record(execution, sequence));
    }
    assert_eq!(drain(&mut all), ["1:1", "2:1", "1:2", "2:2"]);
    assert_eq!(drain(&mut one), ["2:1", "2:2"]);
}

#[test]
fn the_filter_changes_without_reconnecting() {
    let registry = Subscriptions::new();
    let mut subscription = registry.subscribe(Interest::one(ExecutionId::for_test(1)));
    registry.publish(&record(1, 1));
    registry.publish(&record(2, 1));
    let both = BTreeSet::from([ExecutionId::for_test(1), ExecutionId::for_test(2)]);
    subscription.set_interest(Interest::Executions(both));
    registry.publish(&record(2, 2));
    assert_eq!(drain(&mut subscription), ["1:1", "2:2"]);
    registry.publish(&record(1, 2));
    registry.publish(&record(2, 3));
    subscription.set_interest(Interest::one(ExecutionId::for_test(2)));
    assert_eq!(
        drain(&mut subscription),
        ["2:3"],
        "what is no longer wanted is taken away"
    );
    assert_eq!(registry.len(), 1);
}

#[test]
fn a_receiver_that_went_away_is_forgotten_at_the_next_event() {
    let registry = Subscriptions::new();
    let gone = registry.subscribe(Interest::All);
    let _stays = registry.subscribe(Interest::All);
    drop(gone);
    registry.publish(&record(1, 1));
    assert_eq!(registry.len(), 1);
}

#[test]
fn a_subscriber_512_behind_is_told_once_before_anything_else_how_many_it_missed() {
    let registry = Subscriptions::new();
    let mut slow = registry.subscribe(Interest::All);
    let mut quick = registry.subscribe(Interest::All);
    let bound = SUBSCRIBER_BEHIND_MAX as u64;
    assert_eq!(bound, 512);
    for sequence in 1..=bound {
        registry.publish(&record(1, sequence));
        assert_eq!(drain(&mut quick).len(), 1);
    }
    registry.publish(&record(1, bound + 1));
    registry.publish(&record(1, bound + 2));
    assert_eq!(
        drain(&mut slow),
        ["lagged 514"],
        "512 that it had not taken, and two more"
    );
    registry.publish(&record(1, bound + 3));
    assert_eq!(drain(&mut slow), ["1:515"], "and it is not told again");
    assert_eq!(
        drain(&mut quick),
        ["1:513", "1:514", "1:515"],
        "the others miss nothing"
    );
}

#[test]
fn exactly_512_behind_nothing_is_missed() {
    let registry = Subscriptions::new();
    let mut slow = registry.subscribe(Interest::All);
    for sequence in 1..=SUBSCRIBER_BEHIND_MAX as u64 {
        registry.publish(&record(1, sequence));
    }
    let taken = drain(&mut slow);
    assert_eq!(taken.len(), SUBSCRIBER_BEHIND_MAX);
    assert_eq!(taken[0], "1:1");
}

/// Counts how often it was woken.
struct Bell(std::sync::atomic::AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_waiting_subscriber_is_woken_by_an_event_and_by_the_end() {
    let registry = Subscriptions::new();
    let mut subscription = registry.subscribe(Interest::All);
    let bell = Arc::new(Bell(0.into()));
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    let rung = || bell.0.load(std::sync::atomic::Ordering::SeqCst);

    assert_eq!(subscription.poll_next(&mut context), Poll::Pending);
    registry.publish(&record(1, 1));
    assert_eq!(rung(), 1);
    assert!(matches!(
        subscription.poll_next(&mut context),
        Poll::Ready(Some(Delivery::Event(_)))
    ));
    assert_eq!(subscription.poll_next(&mut context), Poll::Pending);
    registry.close();
    assert_eq!(rung(), 2);
    assert_eq!(subscription.poll_next(&mut context), Poll::Ready(None));
}

#[test]
fn snapshot_then_follow_has_no_gap_and_no_duplicate() {
    let registry = Subscriptions::new();
    let mut subscription = registry.subscribe(Interest::All);
    // Two events are committed between the subscription and the reading of the snapshot.
    registry.publish(&record(1, 4));
    registry.publish(&record(1, 5));
    let mut cursor = Cursor::after(5);
    registry.publish(&record(1, 6));
    let mut seen = Vec::new();
    while let Some(Delivery::Event(record)) = subscription.try_next() {
        match cursor.admit(&record) {
            Admitted::Next => seen.push(record.sequence),
            Admitted::Duplicate => {}
            Admitted::Gap { .. } => panic!("there is none"),
        }
    }
    assert_eq!(seen, [6]);
}

#[test]
fn one_that_lagged_resumes_from_the_snapshot_and_a_cursor() {
    let mut cursor = Cursor::after(3);
    assert_eq!(cursor.admit(&record(1, 9)), Admitted::Gap { after: 3 });
    assert_eq!(cursor.seen(), 3, "a gap is not jumped over");
    // A page of history shows 4, 5 and 8: progress events took the places of 6 and 7.
    cursor.advance(8);
    cursor.advance(2);
    assert_eq!(cursor.seen(), 8);
    assert_eq!(cursor.admit(&record(1, 8)), Admitted::Duplicate);
    assert_eq!(cursor.admit(&record(1, 9)), Admitted::Next);
}
