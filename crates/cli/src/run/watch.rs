//! Staying with a job: what is asked of it by signals or from elsewhere, and what a person sees
//! meanwhile.

use std::fmt;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_core::event::Status;
use tidemill_core::job::Stdin;
use tidemill_core::{Event, ExecutionId, JobSpec, StopSignal};
use tidemill_hub::{Follow, Hub, adapter};
use tidemill_ledger::{Applied, Snapshot, apply};
use tidemill_runner::{BuildProgress, CancelMode, Ended, JobHandle, LocalRunner, Recorded};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::kill;
use super::screen::Viewer;
use super::signals::{Signals, Wish};
use super::terminal::Terminal;
use crate::command::cancel::caller;
use crate::exit_code::Interrupt;
use crate::failure::{Failure, FailureKind};
use crate::session;
use crate::text::command_line;
use crate::ui::{QUIET_FOR, Ui, time};

/// How often the status line is looked at.
const TICK: Duration = Duration::from_millis(250);
/// Characters of the command in the status line.
const COMMAND_CHARS_MAX: usize = 60;

/// A job that runs, and those who care.
pub(crate) struct Watch<'a> {
    hub: &'a Hub,
    runner: &'a LocalRunner,
    id: ExecutionId,
    stop_signal: StopSignal,
    grace: Duration,
    signals: Signals,
    viewer: Arc<Viewer>,
    terminal: Option<Terminal>,
    ui: &'a Ui,
    /// A person types the job's input, and must see it.
    typed_to: bool,
    command: String,
    began: Instant,
    stage: String,
    /// Images are fetched for it, and whoever has no status line is told what that waits for.
    fetches: bool,
    /// Why this process asked for the end, and when the grace is over.
    ending: Option<(Interrupt, Instant)>,
    killed: bool,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) snapshot: Snapshot,
    pub(crate) interrupt: Option<Interrupt>,
    pub(crate) signals: Signals,
}

/// What the watcher is there for.
pub(crate) struct Watchers<'a> {
    pub(crate) signals: Signals,
    pub(crate) viewer: Arc<Viewer>,
    pub(crate) terminal: Option<Terminal>,
    /// Images are fetched for the job.
    pub(crate) fetches: bool,
    pub(crate) ui: &'a Ui,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        hub: &'a Hub,
        runner: &'a LocalRunner,
        id: ExecutionId,
        spec: &JobSpec,
        watchers: Watchers<'a>,
    ) -> Self {
        let Watchers {
            signals,
            viewer,
            terminal,
            fetches,
            ui,
        } = watchers;
        Self {
            hub,
            runner,
            id,
            stop_signal: spec.stop_signal,
            grace: spec.limits.grace.as_duration(),
            signals,
            viewer,
            terminal,
            ui,
            typed_to: spec.stdin == Stdin::Inherit && io::stdin().is_terminal(),
            command: command_line(&spec.command(), COMMAND_CHARS_MAX),
            began: Instant::now(),
            stage: "waiting".to_owned(),
            fetches,
            ending: None,
            killed: false,
        }
    }

    /// Stays until the job has ended and its end is recorded.
    pub(crate) async fn until_end(mut self, mut handle: JobHandle) -> Result<Watched, Failure> {
        let shows_status = self.ui.is_terminal() && self.terminal.is_none() && !self.typed_to;
        let tells = self.fetches && !self.ui.is_terminal();
        let mut stages = (shows_status || tells).then(|| self.hub.follow(self.id, 0));
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let viewer = Arc::clone(&self.viewer);
        let ended = loop {
            tokio::select! {
                ended = handle.ended() => break ended,
                wish = self.signals.next() => match wish {
                    Wish::End(interrupt) => self.end(interrupt).await,
                    Wish::Resize => self.terminal.iter().for_each(Terminal::resized),
                },
                () = viewer.reader_gone() => self.end(Interrupt::ReaderGone).await,
                wish = self.hub.next_cancel() => {
                    if wish.execution == self.id {
                        self.cancelled_elsewhere(&wish.by).await;
                    }
                }
                stage = next_stage(&mut stages) => self.enter(stage, tells),
                _ = ticks.tick(), if shows_status => self.show_status(),
            }
        };
        if let Some(terminal) = &self.terminal {
            terminal.close();
        }
        self.ui.quiet();
        let ended = ended.map_err(|error| {
            Failure::new(
                FailureKind::Internal,
                "the runner stopped before the job ended",
            )
            .because(&error)
        })?;
        let snapshot = self.outcome(ended).await?;
        Ok(Watched {
            snapshot,
            interrupt: self.ending.map(|(interrupt, _)| interrupt),
            signals: self.signals,
        })
    }

    /// Somebody wants this process to end: the job gets its grace first, and none the second time.
    async fn end(&mut self, interrupt: Interrupt) {
        if self.ending.is_some() {
            self.end_now().await;
            return;
        }
        self.ending = Some((interrupt, Instant::now() + self.grace));
        let by = format!("{} ({})", caller(), interrupt.name());
        let asked = self.hub.cancel(self.id, &by).await;
        if let Err(error) = asked {
            // The job must end even if that cannot be recorded.
            tracing::warn!(%error, "the request to cancel was not recorded");
        }
        self.runner.cancel(self.id, CancelMode::Graceful).await.ok();
        if interrupt != Interrupt::ReaderGone {
            self.ui.note(&format!(
                "cancelling: the job gets {} and has {} to end, a second {} kills it",
                self.stop_signal,
                time(self.grace),
                interrupt.name()
            ));
        }
    }

    async fn end_now(&mut self) {
        if !std::mem::replace(&mut self.killed, true) {
            self.ui.note("killing the job");
        }
        // A reader who stands still would hold up the end.
        self.viewer.abandoned.store(true, Ordering::Relaxed);
        kill(self.runner, self.id).await;
    }

    /// Another process recorded a request to cancel, or this one did a moment ago.
    async fn cancelled_elsewhere(&mut self, by: &str) {
        if self.ending.is_some() {
            return;
        }
        self.ui.note(&format!(
            "cancelled by {}: the job gets {} and has {} to end",
            crate::ui::plain(by),
            self.stop_signal,
            time(self.grace)
        ));
        // If the runner is gone, so is the job.
        self.runner.cancel(self.id, CancelMode::Graceful).await.ok();
    }

    fn enter(&mut self, stage: Stage, tells: bool) {
        if let (Stage::Fetching(progress), true) = (&stage, tells)
            && !self.stage.starts_with(&progress.message)
        {
            self.ui.note(&crate::ui::plain(&progress.message));
        }
        self.stage = stage.to_string();
    }

    fn show_status(&self) {
        if let Some((_, grace_ends)) = self.ending {
            let left = grace_ends.saturating_duration_since(Instant::now());
            let text = if self.killed || left.is_zero() {
                "killing the job".to_owned()
            } else {
                format!(
                    "cancelling: {} s left, Ctrl-C again kills it now",
                    left.as_secs() + 1
                )
            };
            self.ui.status(&text);
            return;
        }
        let waited = self.began.elapsed();
        if waited > QUIET_FOR && !self.viewer.spoken.load(Ordering::Relaxed) {
            self.ui.status(&format!(
                "{} ({}): {}",
                self.stage,
                time(waited),
                self.command
            ));
        }
    }

    /// The record of how it ended. If it could not be written, the record that there would be.
    async fn outcome(&self, ended: Ended) -> Result<Snapshot, Failure> {
        let snapshot = self.hub.snapshot(self.id).await.map_err(session::failed)?;
        let Recorded::Failed { error } = &ended.recorded else {
            return Ok(snapshot);
        };
        let failure = Failure::new(FailureKind::State, "the end of the job was not recorded")
            .because(error)
            .hint("the state directory must be writable and have space left");
        self.ui.failure(&failure);
        match apply(&snapshot, adapter::now(), ended.event) {
            Ok(Applied::Recorded(recorded)) => Ok(recorded.snapshot),
            Ok(Applied::Already) | Err(_) => Err(failure),
        }
    }
}

/// What a job is at.
enum Stage {
    Named(&'static str),
    Fetching(BuildProgress),
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Fetching(progress) => progress.fmt(f),
        }
    }
}

/// What the job is at, as its events tell; never for a watcher that does not ask.
async fn next_stage(stages: &mut Option<Follow>) -> Stage {
    loop {
        let Some(follow) = stages else {
            return std::future::pending().await;
        };
        match follow.next().await {
            Ok(Some(record)) => match &record.event {
                Event::Status { status } => {
                    return Stage::Named(match status {
                        Status::WaitingForLayers => "preparing layers",
                        Status::WaitingToExecute => "waiting for a slot",
                        Status::Executing => "starting",
                    });
                }
                Event::Started { .. } => return Stage::Named("running, no output yet"),
                Event::Progress {
                    current,
                    total,
                    message: Some(message),
                    ..
                } => {
                    return Stage::Fetching(BuildProgress {
                        message: message.clone(),
                        current: *current,
                        total: *total,
                    });
                }
                _ => {}
            },
            // Its end, or a store that does not answer: the run itself learns of both.
            Ok(None) | Err(_) => *stages = None,
        }
    }
}
