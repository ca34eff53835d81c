//! What every back end has to do.

mod changes;
mod reading;
mod sharing;

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tidemill_core::event::{LogPiece, Outcome};
use tidemill_core::{Attempt, Event, ExecutionId, JobSpec, RunnerId, Stream, Timestamp};
use tidemill_ledger::{Decision, Snapshot};

use crate::entry::NewExecution;
use crate::fault::WriteError;
use crate::store::Store;

/// A future that a laboratory gives.
pub type Opening = Pin<Box<dyn Future<Output = Store> + Send>>;

/// Opens stores. A number that was not used before stands for an empty database; the same number
/// again is another handle on the same one, as another process would have it.
pub struct Lab {
    open: Box<dyn Fn(u32) -> Opening + Send + Sync>,
}

impl Lab {
    /// A laboratory that opens stores in this way.
    pub fn new(open: impl Fn(u32) -> Opening + Send + Sync + 'static) -> Self {
        Self {
            open: Box::new(open),
        }
    }

    async fn open(&self, database: u32) -> Store {
        (self.open)(database).await
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab").finish_non_exhaustive()
    }
}

/// Runs the whole suite. Panics at the first thing that is wrong.
pub async fn conformance(lab: &Lab) {
    reading::what_is_created_can_be_read(&lab.open(1).await).await;
    changes::a_second_one_with_the_same_id_is_refused(&lab.open(2).await).await;
    changes::a_refused_change_spoils_none_of_its_neighbours(&lab.open(3).await).await;
    reading::a_history_is_bounded_and_paged(&lab.open(4).await).await;
    reading::a_list_is_filtered_and_paged(&lab.open(5).await).await;
    reading::an_id_is_found_by_its_beginning_and_by_its_end(&lab.open(6).await).await;
    sharing::others_are_noticed_and_our_own_changes_are_not(lab).await;
    sharing::many_writers_of_one_execution_lose_nothing(lab).await;
    reading::owners_of_unfinished_ones_are_known(&lab.open(9).await).await;
    changes::forgetting_takes_all_that_only_they_used(&lab.open(10).await).await;
    changes::a_decision_that_panics_harms_only_itself(&lab.open(11).await).await;
    sharing::an_observer_sees_every_event_once_and_in_order(lab).await;
    changes::somebody_elses_execution_is_kept(&lab.open(13).await).await;
    sharing::what_was_acknowledged_is_there_after_closing_and_after_leaving(lab).await;
    changes::a_caller_that_goes_away_does_not_take_its_change_back(&lab.open(15).await).await;
    changes::a_cancellation_is_one_step(&lab.open(16).await).await;
}

/// An id whose beginning and end tell the number.
fn id(number: u64) -> ExecutionId {
    ExecutionId::for_test(u128::from(number) << 96 | u128::from(number))
}

const fn at(second: i64) -> Timestamp {
    Timestamp(second * 1_000_000)
}

fn new(number: u64) -> NewExecution {
    let seconds = i64::try_from(number).expect("test numbers are small");
    NewExecution {
        id: id(number),
        at: at(seconds),
        spec: JobSpec::new("true", []),
        submitter: None,
        run: None,
        correlation_id: None,
        owner: None,
        ahead: 0,
    }
}

fn log(offset: u64) -> Event {
    Event::Log {
        piece: LogPiece {
            stream: Stream::Stdout,
            offset,
            length: 1,
        },
        text: "x".to_owned(),
    }
}

fn assigned(attempt: u32) -> Event {
    Event::Assigned {
        runner: RunnerId("r1".to_owned()),
        attempt: Attempt(attempt),
    }
}

fn started() -> Event {
    Event::Started { grants: Vec::new() }
}

fn completed() -> Event {
    Event::Completed {
        outcome: Outcome {
            exit_code: Some(0),
            ..Outcome::default()
        },
    }
}

async fn record(store: &Store, number: u64, events: Vec<Event>) -> Result<Snapshot, WriteError> {
    let written = store
        .transact(id(number), at(100), move |_| Decision::events(events, ()))
        .await?;
    Ok(written
        .snapshot
        .expect("a change that was made has a snapshot"))
}

/// Creates an execution and leads it to running.
async fn running(store: &Store, number: u64) {
    store.create(new(number)).await.expect("it is new");
    record(store, number, vec![assigned(1), started()])
        .await
        .expect("it may start");
}
