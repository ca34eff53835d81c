//! What a dispatcher did, written down call by call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::event::Status;
use tidemill_core::{Digest, JobSpec};
use tidemill_dispatch::{
    Completion, Defect, Ending, Get, JobEnd, JobId, Key, Message, Recipe, Root, TimerKind,
};

use crate::names::{Names, show_job};

/// One call of the dispatcher with what it was answered, or the drop of a handle.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// It asked the cache for a key.
    Get(Key, JobId, Get),
    /// It told the cache that a key is here, and heard who waited.
    Got(Key, Vec<JobId>),
    /// It told the cache that a key cannot be had, and heard who waited.
    Failed(Key, Vec<JobId>),
    /// It gave one reference back.
    Release(Key),
    /// It started a sandbox.
    Start(JobId, Arc<JobSpec>, Root),
    /// It dropped a sandbox's handle.
    Kill(JobId),
    /// It started a timer.
    StartTimer(JobId, TimerKind, Duration),
    /// It dropped a timer's handle.
    DropTimer(JobId, TimerKind),
    /// It started to fetch a blob.
    Fetch(Digest),
    /// It started to build a tree or a stack.
    Build(Key, Recipe),
    /// It started to read a manifest.
    Read(Digest, JobId, PathBuf),
    /// It told a status.
    Status(JobId, Status),
    /// It told how a job ended.
    Ended(JobId, Ending),
    /// It told that it is done, and why it stopped.
    Done(String),
    /// It reported a broken invariant.
    Defect(Defect),
}

impl Effect {
    /// The effect as one line of a trace.
    pub(crate) fn show(&self, names: &Names) -> String {
        let key = |key: &Key| names.show(key);
        let jobs = |jobs: &[JobId]| {
            jobs.iter()
                .copied()
                .map(show_job)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::Get(what, job, answer) => {
                format!("{} asks for {}: {answer:?}", show_job(*job), key(what))
            }
            Self::Got(what, waited) => format!("got {} for [{}]", key(what), jobs(waited)),
            Self::Failed(what, waited) => {
                format!("{} cannot be had by [{}]", key(what), jobs(waited))
            }
            Self::Release(what) => format!("release {}", key(what)),
            Self::Start(job, _, root) => format!("start {} on {:?}", show_job(*job), root.trees),
            Self::Kill(job) => format!("drop the sandbox of {}", show_job(*job)),
            Self::StartTimer(job, timer, after) => {
                format!("start timer {timer:?} of {}: {after:?}", show_job(*job))
            }
            Self::DropTimer(job, timer) => {
                format!("drop timer {timer:?} of {}", show_job(*job))
            }
            Self::Fetch(digest) => format!("fetch {}", names.show_blob(*digest)),
            Self::Build(what, _) => format!("build {}", key(what)),
            Self::Read(digest, job, _) => {
                let blob = names.show_blob(*digest);
                format!("read manifest {blob} for {}", show_job(*job))
            }
            Self::Status(job, status) => format!("tell: {} is {status:?}", show_job(*job)),
            Self::Ended(job, ending) => {
                format!("{} ended: {}", show_job(*job), show_ending(ending))
            }
            Self::Done(reason) => format!("done: {reason}"),
            Self::Defect(defect) => format!("defect: {}", show_defect(defect, names)),
        }
    }
}

/// A defect in a few words.
pub(crate) fn show_defect(defect: &Defect, names: &Names) -> String {
    match defect {
        Defect::EnqueuedTwice(job) => format!("{} was enqueued twice", show_job(*job)),
        Defect::NotExecuting(job) => format!("{} does not execute", show_job(*job)),
        Defect::NotAwaited(key) => format!("nobody awaits {}", names.show(key)),
    }
}

/// A message as one line of a trace.
pub(crate) fn show_message(message: &Message, names: &Names) -> String {
    let result = |result: &Result<(), tidemill_dispatch::Cause>| match result {
        Ok(()) => "is here".to_owned(),
        Err(cause) => format!("failed: {}", cause.message),
    };
    match message {
        Message::Enqueue { job, .. } => format!("enqueue {}", show_job(*job)),
        Message::Cancel { job } => format!("cancel {}", show_job(*job)),
        Message::JobCompleted { job, end } => {
            format!("{} completed: {}", show_job(*job), show_end(end))
        }
        Message::TimerFired { job, timer } => {
            format!("timer {timer:?} of {} fired", show_job(*job))
        }
        Message::BlobFetched {
            digest,
            result: how,
        } => {
            format!("{} {}", names.show(&Key::Blob(*digest)), result(how))
        }
        Message::LayerBuilt { key, result: how } => format!("{} {}", names.show(key), result(how)),
        Message::ManifestRead {
            digest,
            job,
            result: how,
        } => {
            let blob = names.show_blob(*digest);
            let what = match how {
                Ok(named) => {
                    let named: Vec<_> = named.iter().map(|each| names.show_blob(*each)).collect();
                    format!("names [{}]", named.join(" "))
                }
                Err(cause) => format!("was not read: {}", cause.message),
            };
            format!("manifest {blob} for {} {what}", show_job(*job))
        }
        Message::ShutDown { .. } => "shut down".to_owned(),
        Message::Drain { .. } => "drain".to_owned(),
    }
}

/// An ending in a few words.
pub(crate) fn show_ending(ending: &Ending) -> String {
    let then = |end: &Option<JobEnd>| match end {
        Some(end) => format!(", then {}", show_end(end)),
        None => String::new(),
    };
    match ending {
        Ending::Completed(completion) => format!("completed, {}", show_outcome(completion)),
        Ending::TimedOut { timer, end } => format!("timed out ({timer:?}){}", then(end)),
        Ending::ExecutionError(reason) => format!("execution error: {reason}"),
        Ending::SystemError(reason) => format!("system error: {reason}"),
        Ending::HandedBack => "handed back".to_owned(),
        Ending::Cancelled(end) => format!("cancelled{}", then(end)),
        Ending::Dropped(end) => format!("dropped{}", then(end)),
    }
}

fn show_end(end: &JobEnd) -> String {
    match end {
        JobEnd::Ran(completion) => show_outcome(completion),
        JobEnd::ExecutionError(reason) => format!("execution error: {reason}"),
        JobEnd::SystemError(reason) => format!("system error: {reason}"),
    }
}

fn show_outcome(completion: &Completion) -> String {
    match (completion.outcome.exit_code, completion.outcome.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "neither exit code nor signal".to_owned(),
    }
}
