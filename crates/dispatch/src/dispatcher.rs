//! The state machine itself.

mod inspect;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidemill_core::event::Status;
use tidemill_core::{Digest, Reason, ReasonCode, Timestamp};

use crate::builds::Builds;
use crate::cache::Get;
use crate::deps::{Defect, Deps, Ending, TimerKind};
use crate::job::{Execution, Fate, Job, JobId, JobRequest, Phase, Stage};
use crate::key::Key;
use crate::layers::Want;
use crate::message::{Cause, JobEnd, Message};
use crate::order::Queue;
use crate::slots::{Capacity, Slots};

/// A runner's core: it takes [`Message`]s and calls [`Deps`].
pub struct Dispatcher<D: Deps> {
    deps: D,
    slots: Slots,
    jobs: BTreeMap<JobId, Job<D>>,
    queue: Queue,
    /// Keys that were asked for and about which no answer has come.
    awaited: BTreeSet<Key>,
    builds: Builds,
    /// How many jobs ever arrived.
    arrivals: u64,
    /// Jobs that became available during the current message; told to the hub unless they start.
    newly_available: Vec<JobId>,
    stop: Option<Stop>,
    defects_panic: bool,
}

/// The dispatcher takes no more jobs.
#[derive(Debug)]
struct Stop {
    reason: Reason,
    kind: StopKind,
    done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopKind {
    Drain,
    ShutDown,
}

impl<D: Deps> Dispatcher<D> {
    /// A dispatcher without jobs. A broken invariant panics in a debug build and is told to
    /// [`Deps::defect`] in a release build, where the job, if it is known, fails.
    pub fn new(capacity: Capacity, deps: D) -> Self {
        Self {
            deps,
            slots: Slots::new(capacity),
            jobs: BTreeMap::new(),
            queue: Queue::default(),
            awaited: BTreeSet::new(),
            builds: Builds::default(),
            arrivals: 0,
            newly_available: Vec::new(),
            stop: None,
            defects_panic: cfg!(debug_assertions),
        }
    }

    /// The same dispatcher, which tells broken invariants to [`Deps::defect`] in every build.
    #[must_use]
    pub const fn reporting_defects(mut self) -> Self {
        self.defects_panic = false;
        self
    }

    /// Takes one message to completion. Never blocks.
    ///
    /// # Panics
    /// In a debug build, if an invariant is broken, see [`Defect`].
    pub fn receive(&mut self, now: Timestamp, message: Message) {
        match message {
            Message::Enqueue { job, request } => self.on_enqueue(now, job, request),
            Message::Cancel { job } => self.on_cancel(now, job),
            Message::JobCompleted { job, end } => self.on_job_completed(job, end),
            Message::TimerFired { job, timer } => self.on_timer_fired(now, job, timer),
            Message::BlobFetched { digest, result } => {
                self.on_answer(now, &Key::Blob(digest), result);
            }
            Message::LayerBuilt { key, result } => self.on_answer(now, &key, result),
            Message::ManifestRead {
                digest,
                job,
                result,
            } => self.on_manifest_read(now, digest, job, result),
            Message::ShutDown { reason } => self.on_shut_down(now, reason),
            Message::Drain { reason } => self.on_drain(reason),
        }
        self.fill_slots(now);
        self.tell_who_waits();
        self.finish_stop();
    }

    fn on_enqueue(&mut self, now: Timestamp, id: JobId, request: JobRequest) {
        if self.jobs.contains_key(&id) {
            self.on_enqueued_twice(now, id);
            return;
        }
        if let Some(stop) = &self.stop {
            let ending = match stop.kind {
                StopKind::Drain => Ending::HandedBack,
                StopKind::ShutDown => Ending::Dropped(None),
            };
            self.deps.ended(id, ending);
            return;
        }
        self.arrivals += 1;
        let prepare_timeout = request.prepare_timeout;
        let (job, wants) = Job::new(request, self.arrivals, now);
        self.jobs.insert(id, job);
        self.pursue(now, id, wants);
        let Some(Job {
            stage: Stage::AwaitingLayers { timer, .. },
            ..
        }) = self.jobs.get_mut(&id)
        else {
            return;
        };
        self.deps.status(id, Status::WaitingForLayers);
        *timer = prepare_timeout.map(|after| self.deps.start_timer(id, TimerKind::Prepare, after));
    }

    fn on_enqueued_twice(&mut self, now: Timestamp, id: JobId) {
        let defect = Defect::EnqueuedTwice(id);
        let reason = internal(&defect);
        self.broken(defect);
        match self.jobs.get_mut(&id).map(|job| &mut job.stage) {
            None => {}
            Some(Stage::AwaitingLayers { .. } | Stage::Available { .. }) => {
                self.leave(id, Ending::SystemError(reason));
            }
            Some(Stage::Executing(_)) => self.doom(now, id, Fate::Defective(reason)),
        }
    }

    fn on_cancel(&mut self, now: Timestamp, id: JobId) {
        match self.jobs.get(&id).map(|job| &job.stage) {
            None => {}
            Some(Stage::AwaitingLayers { .. } | Stage::Available { .. }) => {
                self.leave(id, Ending::Cancelled(None));
            }
            Some(Stage::Executing(_)) => self.doom(now, id, Fate::Cancelled),
        }
    }

    fn on_job_completed(&mut self, id: JobId, end: JobEnd) {
        let ending = match self.jobs.get(&id).map(|job| &job.stage) {
            Some(Stage::Executing(Execution::Nominal { .. })) => match end {
                JobEnd::Ran(completion) => Ending::Completed(completion),
                JobEnd::ExecutionError(reason) => Ending::ExecutionError(reason),
                JobEnd::SystemError(reason) => Ending::SystemError(reason),
            },
            Some(Stage::Executing(Execution::Doomed(fate))) => match fate {
                Fate::Cancelled => Ending::Cancelled(Some(end)),
                Fate::Dropped => Ending::Dropped(Some(end)),
                Fate::TimedOut => Ending::TimedOut {
                    timer: TimerKind::Run,
                    end: Some(end),
                },
                Fate::Defective(reason) => Ending::SystemError(reason.clone()),
            },
            None | Some(Stage::AwaitingLayers { .. } | Stage::Available { .. }) => {
                let defect = Defect::NotExecuting(id);
                let reason = internal(&defect);
                self.broken(defect);
                Ending::SystemError(reason)
            }
        };
        self.leave(id, ending);
    }

    fn on_timer_fired(&mut self, now: Timestamp, id: JobId, timer: TimerKind) {
        match (timer, self.jobs.get(&id).map(|job| &job.stage)) {
            (TimerKind::Prepare, Some(Stage::AwaitingLayers { .. })) => {
                self.leave(id, Ending::TimedOut { timer, end: None });
            }
            (TimerKind::Run, Some(Stage::Executing(_))) => self.doom(now, id, Fate::TimedOut),
            // It fired while it was being cancelled.
            (TimerKind::Prepare | TimerKind::Run, _) => {}
        }
    }

    /// A blob, tree or stack is here, or cannot be had.
    fn on_answer(&mut self, now: Timestamp, key: &Key, result: Result<(), Cause>) {
        if !self.awaited.remove(key) {
            self.broken(Defect::NotAwaited(key.clone()));
            return;
        }
        for key in self.builds.ended(key) {
            self.deps.release(&key);
        }
        match result {
            Ok(()) => {
                for id in self.deps.got(key) {
                    self.on_reference(now, id, key);
                }
            }
            Err(cause) => {
                for id in self.deps.failed(key) {
                    if (self.jobs.get(&id)).is_some_and(|job| job.references.awaits(key)) {
                        self.leave(id, Ending::SystemError(not_had(key, &cause)));
                    }
                }
            }
        }
    }

    /// The cache gave a job a reference that it waited for, or that it does not want any more.
    fn on_reference(&mut self, now: Timestamp, id: JobId, key: &Key) {
        if let Some(job) = self.jobs.get_mut(&id)
            && let Stage::AwaitingLayers { tracker, .. } = &mut job.stage
            && job.references.arrived(key)
        {
            let wants = tracker.arrived(key);
            self.pursue(now, id, wants);
        } else {
            self.deps.release(key);
        }
    }

    fn on_manifest_read(
        &mut self,
        now: Timestamp,
        digest: Digest,
        id: JobId,
        result: Result<Vec<Digest>, Cause>,
    ) {
        let Some(Stage::AwaitingLayers { tracker, .. }) =
            self.jobs.get_mut(&id).map(|job| &mut job.stage)
        else {
            return;
        };
        if !tracker.is_reading(digest) {
            return;
        }
        match result {
            Ok(named) => {
                let wants = tracker.manifest_read(digest, named);
                self.pursue(now, id, wants);
            }
            Err(cause) => {
                let reason = layer_reason(format!("failed to read manifest {digest}"), &cause);
                self.leave(id, Ending::SystemError(reason));
            }
        }
    }

    fn on_shut_down(&mut self, now: Timestamp, reason: Reason) {
        if (self.stop.as_ref()).is_some_and(|stop| stop.done || stop.kind == StopKind::ShutDown) {
            return;
        }
        self.stop = Some(Stop {
            reason,
            kind: StopKind::ShutDown,
            done: false,
        });
        for id in self.in_order_of_arrival() {
            match &self.jobs[&id].stage {
                Stage::AwaitingLayers { .. } | Stage::Available { .. } => {
                    self.leave(id, Ending::Dropped(None));
                }
                Stage::Executing(_) => self.doom(now, id, Fate::Dropped),
            }
        }
    }

    fn on_drain(&mut self, reason: Reason) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(Stop {
            reason,
            kind: StopKind::Drain,
            done: false,
        });
        for id in self.in_order_of_arrival() {
            match &self.jobs[&id].stage {
                Stage::AwaitingLayers { .. } | Stage::Available { .. } => {
                    self.leave(id, Ending::HandedBack);
                }
                Stage::Executing(_) => {}
            }
        }
    }

    /// Gets what a job wants, and what it wants next where that is here already, until it has
    /// everything or has to wait.
    fn pursue(&mut self, now: Timestamp, id: JobId, wants: Vec<Want>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Stage::AwaitingLayers { tracker, .. } = &mut job.stage else {
            return;
        };
        let mut wants = VecDeque::from(wants);
        while let Some(want) = wants.pop_front() {
            let key = match want {
                Want::Get(key) => key,
                Want::Read(digest) => {
                    let path = self.deps.path(&Key::Blob(digest));
                    self.deps.read_manifest(digest, id, path);
                    continue;
                }
            };
            match job.references.ask(&key, id, &mut self.deps) {
                Get::Here => wants.extend(tracker.arrived(&key)),
                Get::Wait => {
                    self.awaited.insert(key);
                }
                Get::YouGet => {
                    let mut reads = BTreeSet::new();
                    let recipe = tracker.recipe(&key, |key| {
                        reads.insert(key.clone());
                        self.deps.path(key)
                    });
                    match (&key, recipe) {
                        (Key::Blob(digest), _) => self.deps.fetch(*digest),
                        (_, Some(recipe)) => {
                            self.deps.build(&key, recipe);
                            self.builds.started(key.clone(), id, reads);
                        }
                        (_, None) => unreachable!("the tracker wanted what it cannot build"),
                    }
                    self.awaited.insert(key);
                }
            }
        }
        if tracker.is_ready() {
            let root = tracker.root(|key| self.deps.path(key));
            job.enter(Stage::Available { root }, now);
            self.queue.insert(job.place, id);
            self.newly_available.push(id);
        }
    }

    /// Starts jobs in order as long as the next one fits. Nobody passes a job that does not fit.
    fn fill_slots(&mut self, now: Timestamp) {
        while let Some(id) = self.queue.first()
            && let Some(job) = self.jobs.get_mut(&id)
            && let Stage::Available { root } = &mut job.stage
            && self.slots.fits(job.needs)
        {
            let root = std::mem::take(root);
            self.queue.remove(job.place);
            self.slots.take(job.needs);
            self.deps.status(id, Status::Executing);
            let sandbox = self.deps.start_sandbox(id, &job.spec, root);
            let timer = (job.spec.limits.timeout).map(|after| {
                self.deps
                    .start_timer(id, TimerKind::Run, after.as_duration())
            });
            let execution = Execution::Nominal { sandbox, timer };
            job.enter(Stage::Executing(execution), now);
        }
    }

    fn tell_who_waits(&mut self) {
        for id in std::mem::take(&mut self.newly_available) {
            if self.phase(id) == Some(Phase::Available) {
                self.deps.status(id, Status::WaitingToExecute);
            }
        }
    }

    fn finish_stop(&mut self) {
        if let Some(stop) = &mut self.stop
            && !stop.done
            && self.jobs.is_empty()
        {
            stop.done = true;
            self.deps.done(&stop.reason);
        }
    }

    fn doom(&mut self, now: Timestamp, id: JobId, fate: Fate) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.doom(fate, now);
        }
    }

    /// Takes a job out, whatever its stage. Its references are released before the last word, except
    /// those that its builds need.
    fn leave(&mut self, id: JobId, ending: Ending) {
        let Some(job) = self.jobs.remove(&id) else {
            return;
        };
        match job.stage {
            Stage::AwaitingLayers { timer, .. } => drop(timer),
            Stage::Available { .. } => self.queue.remove(job.place),
            Stage::Executing(execution) => {
                self.slots.free(job.needs);
                execution.end();
            }
        }
        let references = self.builds.take_over(id, job.references.into_held());
        for key in references.iter().rev() {
            self.deps.release(key);
        }
        self.deps.ended(id, ending);
    }

    fn broken(&mut self, defect: Defect) {
        assert!(!self.defects_panic, "broken invariant: {defect}");
        self.deps.defect(defect);
    }

    fn in_order_of_arrival(&self) -> Vec<JobId> {
        let mut ids: Vec<_> = self.jobs.keys().copied().collect();
        ids.sort_by_key(|id| self.jobs[id].place.arrival());
        ids
    }
}

fn internal(defect: &Defect) -> Reason {
    Reason::new(ReasonCode::Internal, defect.to_string())
        .with_hint("this is a defect in Tidemill; please report it with the runner's log")
}

fn not_had(key: &Key, cause: &Cause) -> Reason {
    let verb = match key {
        Key::Blob(_) => "fetch",
        Key::Tree(_) | Key::Stack(_) => "build",
    };
    layer_reason(format!("failed to {verb} {key}"), cause)
}

fn layer_reason(what: String, cause: &Cause) -> Reason {
    Reason {
        code: ReasonCode::Layer,
        // Whoever reads it wants to know why first; which of many digests it was is for a search.
        message: format!("{} ({what})", cause.message),
        hint: cause.hint.clone(),
        correlation_id: None,
    }
}
