//! A runner in this process.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{Attempt, Event, ExecutionId, JobSpec, Reason, ReasonCode, RunnerId};
use tidemill_dispatch::{
    Capacity, Dispatcher, Ending, JobEnd, JobId, JobRequest, Message, TimerKind,
};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::adapter::{Adapter, Incoming, now};
use crate::attempt::outcome::time;
use crate::attempt::stop::StopPlan;
use crate::hub_port::{HubPort, ReportError};
use crate::images::{Images, LayerBuild, is_jobs_own_fault};
use crate::live::LiveSink;
use crate::reporter::Reporter;
use crate::sandboxes::Sandboxes;

/// Messages that wait for the task that owns the dispatcher; whoever sends more waits.
const INCOMING_MAX: usize = 256;
/// A job whose processes have not ended this long after they were killed is given up: they hang in
/// the kernel, and nothing but time helps.
const STUCK_AFTER: Duration = Duration::from_secs(15);

/// The waits between tries of a report, unless it is said otherwise.
pub const REPORT_WAITS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1600),
    Duration::from_millis(6400),
];

/// How a runner is made.
#[derive(Clone)]
pub struct RunnerConfig {
    /// The runner's name in the record.
    pub runner: RunnerId,
    /// Slots and budget.
    pub capacity: Capacity,
    /// How long a job may take from when it comes in until its layers are there.
    pub prepare_timeout: Option<Duration>,
    /// The waits between tries of a report that did not reach the record; after the last one it is
    /// given up. [`REPORT_WAITS`] where nothing else is wanted.
    pub report_waits: Vec<Duration>,
    /// The directory of the logs' spools.
    pub logs: PathBuf,
    /// The directory for private layers; in memory if absent.
    pub scratch: Option<PathBuf>,
    /// Who is told.
    pub hub: Arc<dyn HubPort>,
    /// Where jobs run.
    pub sandboxes: Arc<dyn Sandboxes>,
    /// What they run in.
    pub images: Arc<dyn Images>,
}

impl fmt::Debug for RunnerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerConfig")
            .field("runner", &self.runner)
            .field("capacity", &self.capacity)
            .field("logs", &self.logs)
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}

/// One attempt of an execution that the hub has recorded.
pub struct Job {
    /// Which execution.
    pub execution: ExecutionId,
    /// Which attempt of it.
    pub attempt: Attempt,
    /// What to run, with its real values.
    pub spec: Arc<JobSpec>,
    /// Who watches.
    pub live: Option<Box<dyn LiveSink>>,
    /// Standard input, if the spec passes the caller's on.
    pub stdin: Option<OwnedFd>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("execution", &self.execution)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// How a job is ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelMode {
    /// The stop signal of its spec to all its processes, and the kill after the grace of its spec.
    Graceful,
    /// The kill at once.
    Now,
}

/// How a job ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// The last event of the attempt.
    pub event: Event,
    /// Whether it is in the record.
    pub recorded: Recorded,
}

/// Whether the end of a job is in the record.
#[derive(Debug, Clone)]
pub enum Recorded {
    /// It is durable.
    Yes,
    /// The hub did not want it: the record says something else.
    NotWanted {
        /// Why.
        why: String,
    },
    /// The record could not be written.
    Failed {
        /// Why.
        error: ReportError,
    },
}

/// How a runner stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopKind {
    /// Executing jobs finish, waiting ones are handed back.
    Drain,
    /// Everything ends at once.
    Now,
}

/// Says that the runner has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the runner has stopped")]
pub struct RunnerGone;

/// Waits for the end of one job.
#[derive(Debug)]
pub struct JobHandle {
    ended: oneshot::Receiver<Ended>,
}

impl JobHandle {
    /// Waits until the job has ended and its end is recorded. Cancel safe.
    ///
    /// # Errors
    /// If the runner stopped before.
    pub async fn ended(&mut self) -> Result<Ended, RunnerGone> {
        (&mut self.ended).await.map_err(|_| RunnerGone)
    }
}

/// A runner in this process. Dropping it kills what runs; [`LocalRunner::drain`] is the normal end.
#[derive(Debug)]
pub struct LocalRunner {
    sender: Sender<Incoming>,
    owner: JoinSet<()>,
    /// Ended on drop: what counts of it was waited for by the owner of the dispatcher.
    reporting: JoinSet<()>,
}

impl LocalRunner {
    /// Starts a runner on the current tokio runtime. Jobs run on threads of their own, so a runtime
    /// of one thread is enough.
    pub fn start(config: RunnerConfig) -> Self {
        Self::start_giving_up_after(config, STUCK_AFTER)
    }

    /// Starts a runner that gives up a killed job whose processes have not ended after this time.
    pub fn start_giving_up_after(config: RunnerConfig, stuck_after: Duration) -> Self {
        let (sender, receiver) = mpsc::channel(INCOMING_MAX);
        let (reporter, reporting) = Reporter::new(&config, sender.clone());
        let capacity = config.capacity;
        let adapter = Adapter::new(Arc::new(config), sender.clone(), reporter);
        let mut runner = Self {
            sender,
            owner: JoinSet::new(),
            reporting: JoinSet::new(),
        };
        runner.reporting.spawn(reporting);
        let dispatcher = Dispatcher::new(capacity, adapter);
        let owner = Owner {
            dispatcher,
            stuck_after,
        };
        runner.owner.spawn(owner.serve(receiver));
        runner
    }

    /// Takes a job. The handle says when it has ended.
    ///
    /// # Errors
    /// If the runner has stopped.
    pub async fn enqueue(&self, job: Job) -> Result<JobHandle, RunnerGone> {
        let (sender, ended) = oneshot::channel();
        let message = Incoming::Enqueue(Box::new(job), sender);
        self.send(message).await?;
        Ok(JobHandle { ended })
    }

    /// Ends a job before its time. Harmless if it is unknown or has ended. A harder mode may follow a
    /// softer one.
    ///
    /// # Errors
    /// If the runner has stopped.
    pub async fn cancel(&self, execution: ExecutionId, mode: CancelMode) -> Result<(), RunnerGone> {
        self.send(Incoming::Cancel(execution, mode)).await
    }

    /// Takes no more jobs, lets those that execute finish, and returns when everything is recorded
    /// and the logs are sealed.
    pub async fn drain(self) {
        self.stop(StopKind::Drain, "the runner was drained").await;
    }

    /// Ends everything at once, and returns when that is recorded.
    pub async fn shut_down(self) {
        self.stop(StopKind::Now, "the runner was shut down").await;
    }

    async fn stop(mut self, kind: StopKind, why: &str) {
        let reason = Reason::new(ReasonCode::Shutdown, why);
        // If it has stopped already, there is nothing to wait for but its tasks.
        self.send(Incoming::Stop(kind, reason)).await.ok();
        while self.owner.join_next().await.is_some() {}
        self.reporting.abort_all();
    }

    async fn send(&self, message: Incoming) -> Result<(), RunnerGone> {
        self.sender.send(message).await.map_err(|_| RunnerGone)
    }
}

/// Owns the dispatcher.
struct Owner {
    dispatcher: Dispatcher<Adapter>,
    stuck_after: Duration,
}

impl Owner {
    /// Until it was stopped and the last job is gone.
    async fn serve(mut self, mut receiver: Receiver<Incoming>) {
        while let Some(message) = receiver.recv().await {
            self.take(message);
            while self.adapter().tasks.try_join_next().is_some() {}
            if self.dispatcher.is_done() && self.adapter().jobs.is_empty() {
                break;
            }
        }
        // Reports and seals; all timers ended with their jobs.
        while self.adapter().tasks.join_next().await.is_some() {}
    }

    const fn adapter(&mut self) -> &mut Adapter {
        self.dispatcher.deps_mut()
    }

    fn dispatch(&mut self, message: Message) {
        self.dispatcher.receive(now(), message);
    }

    fn take(&mut self, message: Incoming) {
        match message {
            Incoming::Enqueue(job, ended) => self.on_enqueue(job, ended),
            Incoming::Preflight(job, layers) => self.on_preflight(job, layers),
            Incoming::PreparedLate(job) => self.on_prepared_late(job),
            Incoming::Cancel(execution, mode) => self.on_cancel(execution, mode),
            Incoming::CancelSeen(job) => self.stop_job(job, CancelMode::Graceful),
            Incoming::NotWanted(job) => self.on_not_wanted(job),
            Incoming::GraceOver(job) => self.on_grace_over(job),
            Incoming::Stuck(job) => self.on_stuck(job),
            Incoming::Building(name, progress) => self.adapter().on_building(name, progress),
            Incoming::BuildWarning(name, reason) => {
                self.adapter().on_build_warning(&name, &reason);
            }
            Incoming::Dispatch(message) => self.on_answer(message),
            Incoming::Stop(kind, reason) => self.on_stop(kind, reason),
        }
    }

    fn on_enqueue(&mut self, job: Box<Job>, ended: oneshot::Sender<Ended>) {
        let spec = Arc::clone(&job.spec);
        let adapter = self.adapter();
        let needs_nothing = adapter.config.images.needs_nothing(&spec);
        let id = adapter.take_in(job, ended);
        if needs_nothing {
            self.on_preflight(id, Ok(Vec::new()));
        } else {
            adapter.preflight(id, spec);
        }
    }

    fn on_preflight(&mut self, id: JobId, layers: Result<Vec<LayerBuild>, Reason>) {
        let adapter = self.adapter();
        let prepare_timeout = adapter.config.prepare_timeout;
        let Some(state) = adapter.jobs.get_mut(&id) else {
            return;
        };
        match layers {
            Ok(layers) => {
                state.dispatched = true;
                let mut request = JobRequest::new(Arc::clone(&state.spec));
                let spent = state.since.elapsed();
                request.prepare_timeout =
                    prepare_timeout.map(|timeout| timeout.saturating_sub(spent));
                request.layers = adapter.learn(id, layers);
                self.dispatch(Message::Enqueue { job: id, request });
            }
            Err(reason) if is_jobs_own_fault(&reason) => {
                adapter.finish(id, Ending::ExecutionError(reason));
            }
            Err(reason) => adapter.finish(id, Ending::SystemError(reason)),
        }
    }

    fn on_prepared_late(&mut self, id: JobId) {
        let adapter = self.adapter();
        // From then on the dispatcher looks at the clock.
        if adapter.jobs.get(&id).is_some_and(|job| !job.dispatched) {
            let timer = TimerKind::Prepare;
            adapter.finish(id, Ending::TimedOut { timer, end: None });
        }
    }

    fn on_cancel(&mut self, execution: ExecutionId, mode: CancelMode) {
        let jobs = self.adapter().jobs.keys();
        let of_execution: Vec<JobId> = jobs
            .filter(|job| job.execution == execution)
            .copied()
            .collect();
        for job in of_execution {
            self.stop_job(job, mode);
        }
    }

    fn stop_job(&mut self, id: JobId, mode: CancelMode) {
        let adapter = self.adapter();
        let Some(state) = adapter.jobs.get_mut(&id) else {
            return;
        };
        if !state.dispatched {
            // Its layers are still being looked at, which takes as long as it takes: an archive may
            // be large, or lie where nobody answers.
            adapter.finish(id, Ending::Cancelled(None));
            return;
        }
        let grace = state.spec.limits.grace.as_duration();
        let plan = match mode {
            CancelMode::Graceful => StopPlan::Graceful,
            CancelMode::Now => StopPlan::Now,
        };
        if state.stop.stop(plan) {
            let timer = adapter.timer(grace, Incoming::GraceOver(id));
            adapter.keep_timer(id, timer);
        }
        self.dispatch(Message::Cancel { job: id });
        self.watch_killed();
    }

    fn on_not_wanted(&mut self, id: JobId) {
        if let Some(state) = self.adapter().jobs.get_mut(&id) {
            state.silent = true;
            self.stop_job(id, CancelMode::Now);
        }
    }

    fn on_grace_over(&mut self, id: JobId) {
        if let Some(state) = self.adapter().jobs.get(&id) {
            state.stop.grace_is_over();
            self.watch_killed();
        }
    }

    fn on_answer(&mut self, message: Message) {
        match &message {
            Message::LayerBuilt { key, .. } => self.adapter().build_ended(key),
            // It was given up, and ended after all.
            Message::JobCompleted { job, .. } if !self.adapter().jobs.contains_key(job) => return,
            _ => {}
        }
        let may_kill = matches!(
            &message,
            Message::TimerFired {
                timer: TimerKind::Run,
                ..
            }
        );
        self.dispatch(message);
        if may_kill {
            self.watch_killed();
        }
    }

    /// Gives a killed job up whose processes do not end.
    fn on_stuck(&mut self, id: JobId) {
        let stuck_after = self.stuck_after;
        let adapter = self.adapter();
        let Some(state) = adapter.jobs.get(&id) else {
            return;
        };
        if state.stop.is_over() {
            return;
        }
        let reason = Reason::new(
            ReasonCode::Sandbox,
            format!(
                "its processes were killed and have not ended for {}: they hang in the kernel",
                time(stuck_after.into())
            ),
        )
        .with_hint("look for a file system or device that does not answer");
        adapter.warn(id, reason.clone());
        let end = JobEnd::SystemError(reason);
        self.dispatch(Message::JobCompleted { job: id, end });
    }

    fn on_stop(&mut self, kind: StopKind, reason: Reason) {
        let early: Vec<JobId> = (self.adapter().jobs.iter())
            .filter(|(_, state)| !state.dispatched)
            .map(|(id, _)| *id)
            .collect();
        for id in early {
            self.adapter().finish(id, Ending::Dropped(None));
        }
        self.dispatch(match kind {
            StopKind::Drain => Message::Drain { reason },
            StopKind::Now => Message::ShutDown { reason },
        });
        self.watch_killed();
    }

    /// Looks after jobs that were killed just now.
    fn watch_killed(&mut self) {
        let stuck_after = self.stuck_after;
        let adapter = self.adapter();
        let killed: Vec<JobId> = (adapter.jobs.iter())
            .filter(|(_, state)| state.stop.take_killed())
            .map(|(id, _)| *id)
            .collect();
        for id in killed {
            let timer = adapter.timer(stuck_after, Incoming::Stuck(id));
            adapter.keep_timer(id, timer);
        }
    }
}
