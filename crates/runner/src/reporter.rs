//! Telling the hub: everything of all jobs in one stream, batched while a call is under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_core::Event;
use tidemill_dispatch::JobId;
use tokio::sync::mpsc::Sender;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use crate::adapter::Incoming;
use crate::hub_port::{Answer, HubPort, Report, ReportError};
use crate::images::chain;
use crate::local_runner::RunnerConfig;

/// Jobs that one call speaks of at most.
const BATCH_MAX: usize = 256;
/// What came of a report.
pub(crate) type Reported = Result<Answer, ReportError>;

/// Events of one job that wait for the next call, and who waits for the answer.
type Pending = BTreeMap<JobId, (Vec<Event>, Waiting)>;
type Waiting = Vec<oneshot::Sender<Reported>>;

/// What waits for the next call. Its size is bounded by the number of jobs: each sends a handful of
/// events in its life, and one group of log events at a time, the next when that is answered.
#[derive(Debug, Default)]
struct Outbox {
    pending: Mutex<Pending>,
    wake: Notify,
}

/// Takes reports from everywhere in the runner. Never waits.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    outbox: Arc<Outbox>,
}

/// Takes the reports of one job.
#[derive(Debug, Clone)]
pub(crate) struct JobReporter {
    job: JobId,
    reporter: Reporter,
}

/// The promise of an answer.
#[derive(Debug)]
pub(crate) struct Receipt {
    answer: Option<oneshot::Receiver<Reported>>,
}

impl Reporter {
    /// A reporter, and the task that does the work.
    pub(crate) fn new(
        config: &RunnerConfig,
        hear: Sender<Incoming>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let outbox = Arc::new(Outbox::default());
        let reporter = Self {
            outbox: Arc::clone(&outbox),
        };
        let carrier = Carrier {
            hub: Arc::clone(&config.hub),
            waits: config.report_waits.clone(),
        };
        (reporter, serve(carrier, outbox, hear))
    }

    /// For one job.
    pub(crate) fn of(&self, job: JobId) -> JobReporter {
        JobReporter {
            job,
            reporter: self.clone(),
        }
    }
}

impl JobReporter {
    /// Tells events, after all that was told of this job before. The receipt says what came of them.
    pub(crate) fn report(&self, events: Vec<Event>) -> Receipt {
        let (answer, receiver) = oneshot::channel();
        self.put(events, Some(answer));
        self.reporter.outbox.wake.notify_one();
        Receipt {
            answer: Some(receiver),
        }
    }

    /// Tells events together with what is told of this job next, which must come soon.
    pub(crate) fn tell_with_next(&self, events: Vec<Event>) {
        self.put(events, None);
    }

    fn put(&self, events: Vec<Event>, answer: Option<oneshot::Sender<Reported>>) {
        let mut pending = self.reporter.outbox.pending();
        let (told, waiting) = pending.entry(self.job).or_default();
        told.extend(events);
        waiting.extend(answer);
    }

    /// Tells events about whose fate nothing can be done.
    pub(crate) fn tell(&self, events: Vec<Event>) {
        drop(self.report(events));
    }
}

impl Receipt {
    /// True if the answer has come, whatever it is.
    pub(crate) fn is_here(&mut self) -> bool {
        let Some(answer) = &mut self.answer else {
            return true;
        };
        !matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
    }

    /// Blocks until the answer has come.
    ///
    /// # Errors
    /// Why the report was not taken.
    pub(crate) fn wait(&mut self) -> Result<(), String> {
        let Some(answer) = self.answer.take() else {
            return Ok(());
        };
        match answer.blocking_recv().unwrap_or_else(|_| Err(gone())) {
            Ok(Answer::Taken { .. }) => Ok(()),
            Ok(Answer::NotWanted { why }) => Err(why),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Waits for the answer.
    pub(crate) async fn answer(self) -> Reported {
        match self.answer {
            Some(answer) => answer.await.unwrap_or_else(|_| Err(gone())),
            None => Err(gone()),
        }
    }
}

fn gone() -> ReportError {
    ReportError::new("the runner was stopped before the report was sent")
}

impl Outbox {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        // No step in between can panic, so it is whole whoever panicked.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what waits, some jobs at most.
    async fn take(&self) -> Pending {
        loop {
            {
                let mut pending = self.pending();
                let rest = pending.keys().nth(BATCH_MAX).copied();
                let rest = rest.map(|job| pending.split_off(&job)).unwrap_or_default();
                let batch = std::mem::replace(&mut *pending, rest);
                if !batch.is_empty() {
                    return batch;
                }
            }
            self.wake.notified().await;
        }
    }
}

/// Hands over what was told, one call at a time, until it is aborted.
async fn serve(carrier: Carrier, outbox: Arc<Outbox>, hear: Sender<Incoming>) {
    loop {
        let batch = outbox.take().await;
        for (job, reported, waiting) in carrier.send(batch).await {
            // The runner hears of it before whoever waits for the answer does. If it is gone, the job
            // is ending anyway.
            match &reported {
                Ok(Answer::Taken { cancel: Some(_) }) => {
                    hear.send(Incoming::CancelSeen(job)).await.ok();
                }
                Ok(Answer::NotWanted { why }) => {
                    tracing::debug!(%job, why, "attempt not wanted");
                    hear.send(Incoming::NotWanted(job)).await.ok();
                }
                Ok(Answer::Taken { cancel: None }) => {}
                Err(error) => {
                    tracing::error!(%job, error = %chain(error), "report lost");
                }
            }
            for answer in waiting {
                // Whoever told it may not want to know.
                answer.send(reported.clone()).ok();
            }
        }
    }
}

/// Brings reports to the hub.
struct Carrier {
    hub: Arc<dyn HubPort>,
    waits: Vec<Duration>,
}

impl Carrier {
    /// Sends a batch, and again what did not reach the record, for a while.
    async fn send(&self, mut pending: Pending) -> Vec<(JobId, Reported, Waiting)> {
        let mut waits = self.waits.iter();
        let mut done = Vec::new();
        loop {
            let reports = pending
                .iter()
                .map(|(job, (events, _))| Report {
                    job: *job,
                    events: events.clone(),
                })
                .collect();
            let answers = self.hub.report(reports).await;
            let mut failed = BTreeMap::new();
            let mut why = BTreeMap::new();
            for ((job, told), answer) in std::mem::take(&mut pending).into_iter().zip(answers) {
                match answer {
                    Ok(answer) => done.push((job, Ok(answer), told.1)),
                    Err(error) => {
                        failed.insert(job, told);
                        why.insert(job, error);
                    }
                }
            }
            if failed.is_empty() {
                return done;
            }
            let Some(wait) = waits.next() else {
                let lost = failed.into_iter().zip(why);
                done.extend(lost.map(|((job, told), (_, error))| (job, Err(error), told.1)));
                return done;
            };
            sleep(*wait).await;
            pending = failed;
        }
    }
}
