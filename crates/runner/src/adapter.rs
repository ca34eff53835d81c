//! What the dispatcher asks for, done: threads, timers, builds and reports. Their answers come back
//! as [`Incoming`] messages to the one task that owns the dispatcher.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidemill_core::event::Status;
use tidemill_core::{Digest, Event, ExecutionId, JobSpec, Reason, ReasonCode, Timestamp};
use tidemill_dispatch::{
    Cache, CacheTable, Cause, Defect, Deps, Ending, Get, JobEnd, JobId, Key, LayerRef, Message,
    Recipe, Root, TimerKind,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::attempt::Attempt;
use crate::attempt::outcome::last_event;
use crate::attempt::stop::{SET_UP_MAX, StopSwitch};
use crate::build_watch::{BuildProgress, BuildWatch};
use crate::hub_port::Answer;
use crate::images::{LayerBuild, chain};
use crate::local_runner::{CancelMode, Ended, Job, Recorded, RunnerConfig, StopKind};
use crate::reporter::{Receipt, Reporter};

/// Layers that are built at once.
const BUILDS_MAX: usize = 2;

/// The time now: the runner's one look at the clock.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// Everything that the task which owns the dispatcher is told.
pub(crate) enum Incoming {
    /// A job came in.
    Enqueue(Box<Job>, oneshot::Sender<Ended>),
    /// It is known which layers a job needs.
    Preflight(JobId, Result<Vec<LayerBuild>, Reason>),
    /// Somebody wants an execution to end.
    Cancel(ExecutionId, CancelMode),
    /// The hub says that somebody wants a job to end.
    CancelSeen(JobId),
    /// The time to prepare a job was over before it was known what it needs.
    PreparedLate(JobId),
    /// The hub does not want to hear of a job any more.
    NotWanted(JobId),
    /// The time between the polite signal and the kill is over.
    GraceOver(JobId),
    /// A killed job has not ended for a long time.
    Stuck(JobId),
    /// How far the build of a layer is.
    Building(Arc<str>, BuildProgress),
    /// What is not as it should be with a layer that was built.
    BuildWarning(Arc<str>, Reason),
    /// For the dispatcher.
    Dispatch(Message),
    /// No more jobs.
    Stop(StopKind, Reason),
}

/// Dropping it ends the job at once, unless it was asked to end in another way before.
#[derive(Debug)]
pub(crate) struct Doom(StopSwitch);

impl Drop for Doom {
    fn drop(&mut self) {
        self.0.stop_unless_asked();
    }
}

/// Dropping it cancels the timer.
#[derive(Debug)]
pub(crate) struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A job that has not ended.
pub(crate) struct JobState {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) stop: StopSwitch,
    /// When it came in: its time to prepare begins.
    pub(crate) since: Instant,
    /// True once the dispatcher knows it.
    pub(crate) dispatched: bool,
    /// Nothing more is reported.
    pub(crate) silent: bool,
    /// The layers that it waits for, until its sandbox is set up.
    awaited: Vec<Arc<str>>,
    /// Grace and the like.
    pub(crate) timers: Vec<Timer>,
    job: Option<Box<Job>>,
    begun: Option<Receipt>,
    ended: Option<oneshot::Sender<Ended>>,
}

/// The runner's side of the dispatcher.
pub(crate) struct Adapter {
    pub(crate) config: Arc<RunnerConfig>,
    pub(crate) jobs: HashMap<JobId, JobState>,
    /// Reports, seals and timers that are under way.
    pub(crate) tasks: JoinSet<()>,
    sender: mpsc::Sender<Incoming>,
    reporter: Reporter,
    cache: CacheTable,
    /// How the trees are built that jobs need, and where they are once they are.
    builds: HashMap<Arc<str>, LayerBuild>,
    built: HashMap<Key, PathBuf>,
    /// What builds told last that have not ended.
    progress: HashMap<Arc<str>, BuildProgress>,
    building: usize,
    waiting_builds: VecDeque<(Key, LayerBuild)>,
}

impl Adapter {
    pub(crate) fn new(
        config: Arc<RunnerConfig>,
        sender: mpsc::Sender<Incoming>,
        reporter: Reporter,
    ) -> Self {
        Self {
            config,
            jobs: HashMap::new(),
            tasks: JoinSet::new(),
            sender,
            reporter,
            cache: CacheTable::new(),
            builds: HashMap::new(),
            built: HashMap::new(),
            progress: HashMap::new(),
            building: 0,
            waiting_builds: VecDeque::new(),
        }
    }

    /// Takes a job in: its attempt begins in the record.
    pub(crate) fn take_in(&mut self, job: Box<Job>, ended: oneshot::Sender<Ended>) -> JobId {
        let id = JobId {
            execution: job.execution,
            attempt: job.attempt,
        };
        let assigned = Event::Assigned {
            runner: self.config.runner.clone(),
            attempt: job.attempt,
        };
        let state = JobState {
            spec: Arc::clone(&job.spec),
            stop: StopSwitch::new(job.spec.stop_signal),
            since: Instant::now(),
            dispatched: false,
            silent: false,
            awaited: Vec::new(),
            timers: Vec::new(),
            begun: Some(self.reporter.of(id).report(vec![assigned])),
            job: Some(job),
            ended: Some(ended),
        };
        self.jobs.insert(id, state);
        id
    }

    /// Finds out, on a thread, which layers a job needs.
    pub(crate) fn preflight(&mut self, id: JobId, spec: Arc<JobSpec>) {
        if let Some(after) = self.config.prepare_timeout {
            let timer = self.timer(after, Incoming::PreparedLate(id));
            self.keep_timer(id, timer);
        }
        let images = Arc::clone(&self.config.images);
        let failed = move |why: String| {
            let reason = Reason::new(ReasonCode::Internal, why);
            Incoming::Preflight(id, Err(reason))
        };
        self.on_thread("preflight", failed, move || {
            Incoming::Preflight(id, images.layers(&spec))
        });
    }

    /// Remembers how the layers of a job are built, and names them for the dispatcher.
    pub(crate) fn learn(&mut self, id: JobId, layers: Vec<LayerBuild>) -> Vec<LayerRef> {
        let names: Vec<_> = layers.iter().map(|layer| Arc::clone(&layer.name)).collect();
        // Some of them may be under way for other jobs.
        for progress in names.iter().filter_map(|name| self.progress.get(name)) {
            self.tell_progress(id, progress);
        }
        if let Some(state) = self.jobs.get_mut(&id) {
            state.awaited.clone_from(&names);
        }
        self.builds.extend(names.iter().cloned().zip(layers));
        names.into_iter().map(LayerRef::Local).collect()
    }

    /// Tells the jobs that wait for a layer how far it is.
    pub(crate) fn on_building(&mut self, name: Arc<str>, progress: BuildProgress) {
        for id in self.waiting_for(&name) {
            self.tell_progress(id, &progress);
        }
        self.progress.insert(name, progress);
    }

    /// Warns the jobs that wait for a layer.
    pub(crate) fn on_build_warning(&self, name: &Arc<str>, reason: &Reason) {
        for id in self.waiting_for(name) {
            self.warn(id, reason.clone());
        }
    }

    fn waiting_for(&self, name: &Arc<str>) -> impl Iterator<Item = JobId> {
        let jobs = self.jobs.iter();
        let waiting = jobs.filter(move |(_, job)| job.awaited.contains(name));
        waiting.map(|(id, _)| *id)
    }

    fn tell_progress(&self, id: JobId, progress: &BuildProgress) {
        self.reporter.of(id).tell(vec![Event::Progress {
            step: None,
            current: progress.current,
            total: progress.total,
            message: Some(progress.message.clone()),
        }]);
    }

    /// What a job waited for that has no sandbox yet.
    fn awaited_by(&self, state: &JobState) -> Option<String> {
        let told = state
            .awaited
            .iter()
            .filter_map(|name| self.progress.get(name));
        let told: Vec<_> = told.map(ToString::to_string).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }

    /// Starts a timer that sends a message.
    pub(crate) fn timer(&mut self, after: Duration, message: Incoming) -> Timer {
        let sender = self.sender.clone();
        Timer(self.tasks.spawn(async move {
            sleep(after).await;
            // Without the owner of the dispatcher nobody needs it.
            sender.send(message).await.ok();
        }))
    }

    /// Keeps a timer as long as a job has not ended.
    pub(crate) fn keep_timer(&mut self, job: JobId, timer: Timer) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.timers.push(timer);
        }
    }

    /// Tells what there is to say about a job beside its life.
    pub(crate) fn warn(&self, job: JobId, reason: Reason) {
        self.reporter
            .of(job)
            .tell(vec![Event::Diagnostic { reason }]);
    }

    /// The last word about a job.
    pub(crate) fn finish(&mut self, id: JobId, ending: Ending) {
        let Some(state) = self.jobs.remove(&id) else {
            return;
        };
        let awaited = self.awaited_by(&state);
        let event = last_event(
            ending,
            state.stop.note(),
            &state.spec.limits,
            awaited.as_deref(),
        );
        let Some(ended) = state.ended else { return };
        if state.silent {
            let why = "the hub does not wait for it".to_owned();
            let recorded = Recorded::NotWanted { why };
            // Whoever enqueued it may not want to know.
            ended.send(Ended { event, recorded }).ok();
            return;
        }
        let receipt = self.reporter.of(id).report(vec![event.clone()]);
        let hub = Arc::clone(&self.config.hub);
        self.tasks.spawn(async move {
            let recorded = match receipt.answer().await {
                Ok(Answer::Taken { .. }) => Recorded::Yes,
                Ok(Answer::NotWanted { why }) => Recorded::NotWanted { why },
                Err(error) => Recorded::Failed { error },
            };
            ended.send(Ended { event, recorded }).ok();
            if let Err(error) = hub.seal_log(id).await {
                tracing::warn!(job = %id, error = %chain(&error), "log not sealed");
            }
        });
    }

    /// A build has ended.
    pub(crate) fn build_ended(&mut self, key: &Key) {
        if let Key::Tree(LayerRef::Local(name)) = key {
            self.progress.remove(name);
        }
        self.building -= 1;
        self.start_builds();
    }

    fn start_builds(&mut self) {
        while self.building < BUILDS_MAX
            && let Some((key, layer)) = self.waiting_builds.pop_front()
        {
            self.building += 1;
            let failed_key = key.clone();
            let failed = move |why: String| {
                Incoming::Dispatch(Message::LayerBuilt {
                    key: failed_key,
                    result: Err(Cause::from(why)),
                })
            };
            let (sender, name) = (self.sender.clone(), Arc::clone(&layer.name));
            let watch = BuildWatch::new(move |progress| {
                let told = sender.try_send(Incoming::Building(Arc::clone(&name), progress));
                if let Err(error) = told {
                    // What is told next is as good.
                    tracing::debug!(%error, "how far a build is was not told");
                }
            });
            let (sender, name) = (self.sender.clone(), Arc::clone(&layer.name));
            let watch = watch.with_warnings(move |reason| {
                let told = sender.try_send(Incoming::BuildWarning(Arc::clone(&name), reason));
                if let Err(error) = told {
                    // The cache lists it too.
                    tracing::warn!(%error, "a warning of a build was not told");
                }
            });
            self.on_thread("layer-build", failed, move || {
                let result = (layer.build)(&watch).map(drop);
                Incoming::Dispatch(Message::LayerBuilt { key, result })
            });
        }
    }

    /// Runs blocking work on a thread of its own and sends what comes of it; if it panics, or there
    /// is no thread, what `failed` makes of the reason.
    fn on_thread(
        &mut self,
        name: &str,
        failed: impl FnOnce(String) -> Incoming + Clone + Send + 'static,
        work: impl FnOnce() -> Incoming + Send + 'static,
    ) {
        let sender = self.sender.clone();
        let on_panic = failed.clone();
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let message = catch_unwind(AssertUnwindSafe(work))
                .unwrap_or_else(|_| on_panic("a thread of the runner panicked".to_owned()));
            // Without the owner of the dispatcher nobody needs it.
            sender.blocking_send(message).ok();
        });
        if let Err(error) = spawned {
            self.answer(failed(format!("no thread could be started: {error}")));
        }
    }

    /// Sends a message to ourselves, never from within a call of the dispatcher.
    fn answer(&mut self, message: Incoming) {
        let sender = self.sender.clone();
        self.tasks.spawn(async move {
            sender.send(message).await.ok();
        });
    }

    fn refuse_fetch(&mut self, message: Message) {
        self.answer(Incoming::Dispatch(message));
    }
}

impl Deps for Adapter {
    type Sandbox = Doom;
    type Timer = Timer;

    fn start_sandbox(&mut self, job: JobId, spec: &Arc<JobSpec>, _root: Root) -> Doom {
        let end = move |end| Incoming::Dispatch(Message::JobCompleted { job, end });
        let failed =
            move |why: String| end(JobEnd::SystemError(Reason::new(ReasonCode::Internal, why)));
        let Some(state) = self.jobs.get_mut(&job) else {
            self.answer(failed("the runner does not know the job".to_owned()));
            return Doom(StopSwitch::new(spec.stop_signal));
        };
        let stop = state.stop.clone();
        let (Some(mut taken), Some(begun)) = (state.job.take(), state.begun.take()) else {
            self.answer(failed("the job was started twice".to_owned()));
            return Doom(StopSwitch::new(spec.stop_signal));
        };
        state.awaited.clear();
        let name = job.execution.sandbox_name(job.attempt);
        let attempt = Attempt {
            job,
            spec: Arc::clone(spec),
            images: Arc::clone(&self.config.images),
            sandboxes: Arc::clone(&self.config.sandboxes),
            reporter: self.reporter.of(job),
            begun,
            stop: stop.clone(),
            live: taken.live.take(),
            stdin: taken.stdin.take(),
            spool: tidemill_log::spool::dir_of(&self.config.logs, job.execution, job.attempt),
            scratch: self.config.scratch.as_ref().map(|dir| dir.join(name)),
        };
        self.on_thread("attempt", failed, move || end(attempt.run()));
        Doom(stop)
    }

    fn start_timer(&mut self, job: JobId, timer: TimerKind, after: Duration) -> Timer {
        let message = Incoming::Dispatch(Message::TimerFired { job, timer });
        let state = self.jobs.get(&job);
        let (TimerKind::Run, Some(stop)) = (timer, state.map(|state| state.stop.clone())) else {
            return self.timer(after, message);
        };
        let sender = self.sender.clone();
        Timer(self.tasks.spawn(async move {
            // The time of a program begins when it does: what sets it up does not eat from it.
            match timeout(SET_UP_MAX, stop.has_started()).await {
                Ok(()) => sleep(after).await,
                Err(_) => stop.set_up_is_over(),
            }
            // Without the owner of the dispatcher nobody needs it.
            sender.send(message).await.ok();
        }))
    }

    fn fetch(&mut self, digest: Digest) {
        let result = Err(Cause::from("a local run fetches nothing"));
        self.refuse_fetch(Message::BlobFetched { digest, result });
    }

    fn build(&mut self, key: &Key, _recipe: Recipe) {
        let layer = match key {
            Key::Tree(LayerRef::Local(name)) => self.builds.get(name).cloned(),
            _ => None,
        };
        match layer {
            Some(layer) => {
                self.waiting_builds.push_back((key.clone(), layer));
                self.start_builds();
            }
            None => {
                self.building += 1;
                let result = Err(Cause::from("a local run does not know how to build it"));
                let key = key.clone();
                self.answer(Incoming::Dispatch(Message::LayerBuilt { key, result }));
            }
        }
    }

    fn read_manifest(&mut self, digest: Digest, job: JobId, _path: PathBuf) {
        self.refuse_fetch(Message::ManifestRead {
            digest,
            job,
            result: Err(Cause::from("a local run has no manifests")),
        });
    }

    fn status(&mut self, job: JobId, status: Status) {
        self.reporter.of(job).tell(vec![Event::Status { status }]);
    }

    fn ended(&mut self, job: JobId, ending: Ending) {
        self.finish(job, ending);
    }

    fn done(&mut self, reason: &Reason) {
        tracing::debug!(%reason, "runner done");
    }

    fn defect(&mut self, defect: Defect) {
        tracing::error!(%defect, "defect");
    }
}

/// The trees of a job are stacked by its sandbox when it is set up, so a stack is always here.
impl Cache for Adapter {
    fn get(&mut self, key: &Key, job: JobId) -> Get {
        match key {
            Key::Stack(_) => Get::Here,
            Key::Blob(_) | Key::Tree(_) => self.cache.get(key, job),
        }
    }

    fn got(&mut self, key: &Key) -> Vec<JobId> {
        self.cache.got(key)
    }

    fn failed(&mut self, key: &Key) -> Vec<JobId> {
        self.cache.failed(key)
    }

    fn release(&mut self, key: &Key) {
        if !matches!(key, Key::Stack(_)) {
            self.cache.release(key);
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.built.get(key).cloned().unwrap_or_default()
    }
}
