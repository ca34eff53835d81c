//! What has to come of each message, before the jobs go on by themselves.

use tidemill_core::{Digest, Reason, ReasonCode};
use tidemill_dispatch::{
    Cause, Defect, Ending, JobEnd, JobId, JobRequest, Key, LayerRef, TimerKind,
};

use super::job::{Fate, Job, Stage};
use super::{Ends, Judge, Stop};
use crate::coverage::Kind;

impl Judge {
    pub(super) fn on_enqueue(&mut self, id: JobId, request: &JobRequest) {
        if self.is_live(id) {
            self.on_enqueue_again(id);
            return;
        }
        let stacks = self.names.borrow_mut().learn(&request.layers);
        let mut job = Job::new(request.clone(), self.arrivals, stacks);
        if let Some(stop) = &self.stop {
            let (kind, ending) = if stop.drains {
                (Kind::EnqueueAfterDrain, Ending::HandedBack)
            } else {
                (Kind::EnqueueAfterShutDown, Ending::Dropped(None))
            };
            self.coverage.hit(kind);
            job.to_tell.clear();
            self.jobs.insert(id, job);
            self.leave(id, Ends::As(ending));
            return;
        }
        self.arrivals += 1;
        self.note_enqueue(id, request);
        self.jobs.insert(id, job);
        self.pursue(id);
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.stage == Stage::Awaiting
            && let Some(after) = request.prepare_timeout
        {
            job.timer = Some(TimerKind::Prepare);
            self.expected.timers.push((id, TimerKind::Prepare, after));
        }
        let kind = match job.stage {
            Stage::Awaiting => Kind::EnqueueWaits,
            _ if request.layers.is_empty() => Kind::EnqueueWithoutLayers,
            _ => Kind::EnqueueAllHere,
        };
        self.coverage.hit(kind);
    }

    fn on_enqueue_again(&mut self, id: JobId) {
        self.expected.defects.push(Defect::EnqueuedTwice(id));
        match self.jobs[&id].stage {
            Stage::Awaiting | Stage::Available => {
                self.coverage.hit(Kind::StrayEnqueueWaiting);
                self.leave(id, broken(id));
            }
            Stage::Executing => {
                self.coverage.hit(Kind::StrayEnqueueExecuting);
                self.doom(id, Fate::Defective);
            }
            Stage::Dying(_) | Stage::Ended => self.coverage.hit(Kind::StrayEnqueueDying),
        }
    }

    fn note_enqueue(&mut self, id: JobId, request: &JobRequest) {
        let layers = &request.layers;
        let same = |one: &LayerRef| layers.iter().filter(|other| *other == one).count() > 1;
        self.coverage
            .hit_if(layers.iter().any(same), Kind::LayerTwice);
        let both = |one: &LayerRef| match one {
            LayerRef::Blob { digest, .. } => {
                layers.contains(&LayerRef::archive(*digest))
                    && layers.contains(&LayerRef::manifest(*digest))
            }
            LayerRef::Local(_) => false,
        };
        self.coverage
            .hit_if(layers.iter().any(both), Kind::ArchiveAndManifest);
        let is_dying = (self.jobs.iter()).any(|(other, job)| {
            other.execution == id.execution && matches!(job.stage, Stage::Dying(_))
        });
        self.coverage.hit_if(is_dying, Kind::AttemptWhileDying);
    }

    pub(super) fn on_cancel(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            self.coverage.hit(Kind::CancelUnknown);
            return;
        };
        let kind = match job.stage {
            Stage::Awaiting if !job.reading.is_empty() => Kind::CancelReading,
            Stage::Awaiting => Kind::CancelAwaiting,
            Stage::Available => Kind::CancelAvailable,
            Stage::Executing => Kind::CancelExecuting,
            Stage::Dying(Fate::TimedOut) => Kind::CancelTimedOut,
            Stage::Dying(Fate::Dropped) => Kind::CancelDropped,
            Stage::Dying(Fate::Cancelled | Fate::Defective) => Kind::CancelCancelled,
            Stage::Ended => Kind::CancelEnded,
        };
        self.coverage.hit(kind);
        match job.stage {
            Stage::Awaiting | Stage::Available => {
                self.leave(id, Ends::As(Ending::Cancelled(None)));
            }
            Stage::Executing => self.doom(id, Fate::Cancelled),
            Stage::Dying(_) | Stage::Ended => {}
        }
    }

    pub(super) fn on_completed(&mut self, id: JobId, end: &JobEnd) {
        let stage = self.jobs.get(&id).map(|job| job.stage);
        let how = match stage {
            Some(Stage::Executing) => Ends::As(match end {
                JobEnd::Ran(completion) => Ending::Completed(completion.clone()),
                JobEnd::ExecutionError(reason) => Ending::ExecutionError(reason.clone()),
                JobEnd::SystemError(reason) => Ending::SystemError(reason.clone()),
            }),
            Some(Stage::Dying(fate)) => match fate {
                Fate::Cancelled => Ends::As(Ending::Cancelled(Some(end.clone()))),
                Fate::Dropped => Ends::As(Ending::Dropped(Some(end.clone()))),
                Fate::TimedOut => Ends::As(Ending::TimedOut {
                    timer: TimerKind::Run,
                    end: Some(end.clone()),
                }),
                Fate::Defective => broken(id),
            },
            Some(Stage::Awaiting | Stage::Available) => {
                self.coverage.hit(Kind::StrayCompletionWaiting);
                self.expected.defects.push(Defect::NotExecuting(id));
                broken(id)
            }
            Some(Stage::Ended) | None => {
                self.coverage.hit(Kind::StrayCompletionUnknown);
                self.expected.defects.push(Defect::NotExecuting(id));
                return;
            }
        };
        self.note_completed(stage, end);
        self.leave(id, how);
    }

    fn note_completed(&mut self, stage: Option<Stage>, end: &JobEnd) {
        let kind = match (stage, end) {
            (Some(Stage::Executing), JobEnd::Ran(_)) => Kind::CompletedExit,
            (Some(Stage::Executing), JobEnd::ExecutionError(_)) => Kind::CompletedExecutionError,
            (Some(Stage::Executing), JobEnd::SystemError(_)) => Kind::CompletedSystemError,
            (Some(Stage::Dying(Fate::TimedOut)), _) => Kind::CompletedTimedOut,
            (Some(Stage::Dying(Fate::Dropped)), _) => Kind::CompletedDropped,
            (Some(Stage::Dying(Fate::Cancelled)), _) => Kind::CompletedCancelled,
            _ => return,
        };
        self.coverage.hit(kind);
        if matches!(stage, Some(Stage::Dying(_))) {
            match end {
                JobEnd::Ran(completion) => self.coverage.hit_if(
                    completion.outcome.exit_code.is_some(),
                    Kind::CompletedBeforeTheKill,
                ),
                JobEnd::ExecutionError(_) | JobEnd::SystemError(_) => {
                    self.coverage.hit(Kind::StartErrorWhileDying);
                }
            }
        }
        let stopping = self.stop.as_ref().is_some_and(|stop| !stop.done);
        self.coverage.hit_if(stopping, Kind::DoneLater);
    }

    pub(super) fn on_timer(&mut self, id: JobId, timer: TimerKind) {
        let stage = self.jobs.get(&id).map_or(Stage::Ended, |job| job.stage);
        match (timer, stage) {
            (TimerKind::Prepare, Stage::Awaiting) => {
                self.coverage.hit(Kind::PrepareTimeUp);
                let end = None;
                self.leave(id, Ends::As(Ending::TimedOut { timer, end }));
            }
            (TimerKind::Prepare, _) => self.coverage.hit(Kind::PrepareTimerLate),
            (TimerKind::Run, Stage::Executing) => {
                self.coverage.hit(Kind::RunTimeUp);
                self.doom(id, Fate::TimedOut);
            }
            (TimerKind::Run, Stage::Dying(_)) => self.coverage.hit(Kind::RunTimerWhileDying),
            (TimerKind::Run, _) => self.coverage.hit(Kind::RunTimerAfterEnd),
        }
    }

    pub(super) fn on_answer(&mut self, key: &Key, error: Option<&Cause>) {
        if !self.getting.remove(key) {
            self.coverage.hit(Kind::StrayAnswer);
            self.expected.defects.push(Defect::NotAwaited(key.clone()));
            return;
        }
        self.builds.remove(key);
        self.left_behind.retain_mut(|left| {
            left.builds.remove(key);
            !left.builds.is_empty()
        });
        let waiting: Vec<_> = (self.jobs.iter())
            .filter(|(_, job)| job.awaits(key))
            .map(|(id, _)| *id)
            .collect();
        self.note_answer(key, error.is_none(), waiting.len());
        match error {
            None => {
                self.here.insert(key.clone());
                self.cache.came(key);
                for id in waiting {
                    if let Some(job) = self.jobs.get_mut(&id) {
                        job.held.insert(key.clone());
                    }
                }
            }
            Some(cause) => {
                for id in waiting {
                    let mentions = vec![key.to_string(), cause.message.clone()];
                    let code = ReasonCode::Layer;
                    self.leave(id, Ends::SystemError { code, mentions });
                }
                self.cache.failed(key);
            }
        }
    }

    fn note_answer(&mut self, key: &Key, ok: bool, wanted: usize) {
        let asked = self.cache.waiting(key);
        let several = wanted > 1;
        let coverage = &mut self.coverage;
        match (key, ok) {
            (Key::Blob(_), true) => {
                coverage.hit_if(several, Kind::FetchShared);
                coverage.hit_if(wanted > 0 && wanted < asked, Kind::FetchForSome);
                coverage.hit_if(wanted == 0, Kind::FetchLate);
                let stopped = self.stop.is_some();
                coverage.hit_if(wanted == 0 && stopped, Kind::FetchLateAfterStop);
            }
            (Key::Blob(_), false) => {
                coverage.hit_if(wanted > 0, Kind::FetchFailed);
                coverage.hit_if(several, Kind::FetchFailedForSeveral);
                coverage.hit_if(wanted == 0, Kind::FetchFailedLate);
            }
            (Key::Tree(_), true) => {
                coverage.hit_if(wanted > 0, Kind::TreeBuilt);
                coverage.hit_if(wanted == 0, Kind::TreeBuiltLate);
                coverage.hit_if(several, Kind::BuildShared);
            }
            (Key::Stack(_), true) => {
                coverage.hit_if(wanted > 0, Kind::StackBuilt);
                coverage.hit_if(wanted == 0, Kind::StackBuiltLate);
                coverage.hit_if(several, Kind::BuildShared);
            }
            (Key::Tree(_), false) => {
                coverage.hit(Kind::TreeFailed);
                coverage.hit_if(several, Kind::BuildFailedForSeveral);
            }
            (Key::Stack(_), false) => {
                coverage.hit(Kind::StackFailed);
                coverage.hit_if(several, Kind::BuildFailedForSeveral);
            }
        }
    }

    pub(super) fn on_manifest(
        &mut self,
        manifest: Digest,
        id: JobId,
        result: Result<&[Digest], &Cause>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.stage != Stage::Awaiting || !job.reading.remove(&manifest) {
            self.coverage.hit(Kind::ManifestLate);
            return;
        }
        match result {
            Ok(named) => {
                let mut distinct: Vec<Digest> = Vec::new();
                for digest in named {
                    if *digest != manifest && !distinct.contains(digest) {
                        distinct.push(*digest);
                    }
                }
                let coverage = &mut self.coverage;
                coverage.hit(Kind::ManifestRead);
                coverage.hit_if(named.is_empty(), Kind::ManifestEmpty);
                let itself = named.contains(&manifest);
                coverage.hit_if(itself, Kind::ManifestNamesItself);
                let twice = distinct.len() + usize::from(itself) < named.len();
                coverage.hit_if(twice, Kind::ManifestNamesTwice);
                job.named.insert(manifest, distinct);
            }
            Err(cause) => {
                self.coverage.hit(Kind::ManifestFailed);
                let mentions = vec![manifest.to_string(), cause.message.clone()];
                let code = ReasonCode::Layer;
                self.leave(id, Ends::SystemError { code, mentions });
            }
        }
    }

    pub(super) fn on_shut_down(&mut self, reason: &Reason) {
        match &self.stop {
            Some(stop) if stop.done => {
                self.coverage.hit(Kind::ShutDownWhenDone);
                return;
            }
            Some(stop) if !stop.drains => {
                self.coverage.hit(Kind::ShutDownAgain);
                return;
            }
            Some(_) => self.coverage.hit(Kind::ShutDownAfterDrain),
            None => {}
        }
        self.stop = Some(Stop {
            reason: reason.clone(),
            drains: false,
            done: false,
        });
        let live: Vec<_> = self.live().map(|(id, job)| (id, job.stage)).collect();
        self.coverage.hit_if(live.is_empty(), Kind::ShutDownIdle);
        for (id, stage) in live {
            let kind = match stage {
                Stage::Awaiting => Kind::ShutDownAwaiting,
                Stage::Available => Kind::ShutDownAvailable,
                Stage::Executing => Kind::ShutDownExecuting,
                Stage::Dying(_) | Stage::Ended => Kind::ShutDownDying,
            };
            self.coverage.hit(kind);
            match stage {
                Stage::Awaiting | Stage::Available => {
                    self.leave(id, Ends::As(Ending::Dropped(None)));
                }
                _ => self.doom(id, Fate::Dropped),
            }
        }
    }

    pub(super) fn on_drain(&mut self, reason: &Reason) {
        if self.stop.is_some() {
            self.coverage.hit(Kind::DrainAgain);
            return;
        }
        self.stop = Some(Stop {
            reason: reason.clone(),
            drains: true,
            done: false,
        });
        let live: Vec<_> = self.live().map(|(id, job)| (id, job.stage)).collect();
        self.coverage.hit_if(live.is_empty(), Kind::DrainIdle);
        for (id, stage) in live {
            match stage {
                Stage::Awaiting => self.coverage.hit(Kind::DrainAwaiting),
                Stage::Available => self.coverage.hit(Kind::DrainAvailable),
                _ => {
                    self.coverage.hit(Kind::DrainExecuting);
                    continue;
                }
            }
            self.leave(id, Ends::As(Ending::HandedBack));
        }
    }
}

/// The end of a job about which an invariant is broken.
fn broken(id: JobId) -> Ends {
    Ends::SystemError {
        code: ReasonCode::Internal,
        mentions: vec![id.to_string()],
    }
}
