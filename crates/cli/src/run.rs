//! `tidemill run`: hub core, runner and sandbox in this process, and one job in them.
//!
//! ```text
//! flags ─► checked spec ─► hub.create ─► runner.enqueue ─► (output, signals, status) ─► record ─► exit code
//! ```
//!
//! Start reading at [`run`], then [`watch`].

mod advice;
mod around;
mod descriptor;
mod event_lines;
mod local_hub;
mod place;
mod screen;
mod secret;
mod signals;
mod stdin;
mod terminal;
mod watch;

use std::path::Path;
use std::sync::Arc;

use tidemill_core::job::Stdin;
use tidemill_core::{Attempt, ExecutionId, JobSpec, ReasonCode, signal_name};
use tidemill_hub::{Hub, NewJob};
use tidemill_image::HostView;
use tidemill_ledger::Snapshot;
use tidemill_runner::{Job, JobHandle, LiveSink, LocalRunner};

pub(crate) use self::place::{namespace_unpacker, tree_store};
pub(crate) use self::secret::values as secret_values;

use self::event_lines::EventLines;
use self::screen::{Screen, Viewer};
use self::signals::{Signals, Wish};
use self::terminal::Terminal;
use self::watch::{Watch, Watched, Watchers};
use crate::args::{Format, GlobalArgs, RunArgs};
use crate::command::cancel::caller;
use crate::diagnostics::render;
use crate::exit_code::{self, Interrupt};
use crate::failure::{Failure, FailureKind};
use crate::job::{self, CheckedJob};
use crate::oci::{Preparing, Resolution, Resolving};
use crate::output::Output;
use crate::result_file::{NotRecorded, ResultFile};
use crate::session;
use crate::text::{record, warning};
use crate::ui::Ui;

/// Runs a job to its end.
pub(crate) fn run(args: &RunArgs, global: &GlobalArgs, ui: &Ui) -> Result<u8, Failure> {
    let result_file = args
        .result_file
        .as_deref()
        .map(ResultFile::new)
        .transpose()?;
    let preparing = Preparing::begin(args.prepare_timeout);
    let ended = checked(args, preparing, global, ui).and_then(|(job, host)| {
        let Resolution { spec: job, pending } = job;
        // A workspace that was named is what its caller wants.
        let around = (args.job.workspace.is_none() && args.job.file.is_none())
            .then_some(job.workspace.as_ref())
            .flatten()
            .and_then(|workspace| around::hint(Path::new(&workspace.path), &host.home));
        let fetches = !pending.is_empty();
        let place = place::open(host, job.network, pending, preparing, global);
        let run = session::runtime()?.block_on(perform(job, fetches, place, global, ui))?;
        Ok((run, around))
    });
    match ended {
        Ok((run, around)) => {
            let reason = run.snapshot.reason.as_ref().map(|reason| reason.code);
            if let Some(hint) = around.filter(|_| reason == Some(ReasonCode::Exit)) {
                ui.note(&format!("hint: {}", crate::ui::plain(&hint)));
            }
            if let Some(file) = &result_file {
                file.write_record(&run.snapshot)?;
            }
            Ok(exit_code::of_execution(&run.snapshot, run.interrupt))
        }
        Err(failure) => {
            if let Some(file) = &result_file
                && let Err(second) = file.write_failure(&failure)
            {
                ui.failure(&second);
            }
            if global.format == Format::Json && failure.kind != FailureKind::ReaderGone {
                // The failure itself is told on standard error, whatever becomes of this line.
                Output::stdout().json(&NotRecorded::new(&failure)).ok();
            }
            Err(failure)
        }
    }
}

/// A run that came to its end.
#[derive(Debug)]
struct Run {
    snapshot: Snapshot,
    interrupt: Option<Interrupt>,
}

fn checked(
    args: &RunArgs,
    preparing: Preparing,
    global: &GlobalArgs,
    ui: &Ui,
) -> Result<(Resolution, HostView), Failure> {
    let CheckedJob {
        spec,
        warnings,
        notes,
        host,
    } = job::checked(&args.job)?;
    if spec.tty && global.format == Format::Json {
        let message = "a job with a terminal writes to yours, and so do the events as JSON";
        return Err(Failure::new(FailureKind::Usage, message)
            .hint("leave out --tty or --format json; --result-file has the record as JSON"));
    }
    if spec.stdin == Stdin::Inherit && args.job.file.as_deref() == Some(Path::new("-")) {
        let message = "standard input cannot be the job file and the job's input at once";
        return Err(Failure::new(FailureKind::Usage, message)
            .hint("put the job into a file, or pass the input as a layer"));
    }
    if !warnings.is_empty() {
        ui.raw_note(&render(&warnings));
    }
    for note in notes {
        ui.note(&note);
    }
    let resolving = Resolving {
        global,
        is_locked: args.job.locked,
        preparing,
        ui,
    };
    Ok((resolving.resolve(spec)?, host))
}

async fn perform(
    spec: JobSpec,
    fetches: bool,
    place: impl Future<Output = Result<place::Place, Failure>>,
    global: &GlobalArgs,
    ui: &Ui,
) -> Result<Run, Failure> {
    let mut signals = Signals::listen()?;
    let place = tokio::select! {
        place = place => place?,
        // Another process may hold the record for a while, and nothing is there to be cancelled yet.
        () = asked_to_end(&mut signals) => {
            return Err(Failure::new(FailureKind::Interrupted, "interrupted before the job began"));
        }
    };
    let hub = place.hub.clone();
    let run = follow(spec, fetches, global.format, place, signals, ui).await;
    if run.is_ok()
        && let Err(error) = hub.retain_if_due().await
    {
        tracing::warn!(%error, "old executions were not forgotten");
    }
    hub.close().await;
    run
}

/// Waits for a signal that asks this process to end. Cancel safe.
async fn asked_to_end(signals: &mut Signals) {
    while signals.next().await == Wish::Resize {}
}

/// Records the job, starts it and stays with it until it has ended.
async fn follow(
    spec: JobSpec,
    fetches: bool,
    format: Format,
    place: place::Place,
    signals: Signals,
    ui: &Ui,
) -> Result<Run, Failure> {
    let place::Place { hub, runner } = place;
    let spec = Arc::new(spec);
    let viewer = Arc::new(Viewer::default());
    let terminal = spec.tty.then(Terminal::new);
    let stdin = if spec.stdin == Stdin::Inherit && !spec.tty {
        Some(stdin::pass_on()?)
    } else {
        None
    };
    let live: Option<Box<dyn LiveSink>> = match format {
        Format::Text => Some(Box::new(Screen::new(
            Arc::clone(&viewer),
            terminal.clone(),
            ui.clone(),
        ))),
        Format::Json => None,
    };
    let id = record(&hub, &spec).await?;
    let lines = match format {
        Format::Text => None,
        Format::Json => Some(EventLines::start(hub.follow(id, 0), Arc::clone(&viewer))?),
    };
    let job = Job {
        execution: id,
        attempt: Attempt(1),
        spec: Arc::clone(&spec),
        live,
        stdin,
    };
    let handle: JobHandle = runner.enqueue(job).await.map_err(|error| {
        Failure::new(FailureKind::Internal, "the job was not taken").because(&error)
    })?;
    let watchers = Watchers {
        signals,
        viewer,
        terminal,
        fetches,
        ui,
    };
    let watch = Watch::new(&hub, &runner, id, &spec, watchers);
    let Watched {
        snapshot,
        interrupt,
        mut signals,
    } = watch.until_end(handle).await?;
    if let Some(lines) = lines {
        tokio::select! {
            () = lines.finish(&snapshot) => {}
            // Whoever reads them stands still, and the caller does not want to wait for it.
            () = asked_to_end(&mut signals) => {}
        }
    }
    close(&snapshot, &spec, interrupt, ui);
    // A tree that is being built for a job that nobody wants any more is not waited for: it ends with this
    // process, and the next one sweeps what it leaves.
    if interrupt.is_none() || snapshot.started_at.is_some() {
        runner.drain().await;
    }
    Ok(Run {
        snapshot,
        interrupt,
    })
}

async fn record(hub: &Hub, spec: &JobSpec) -> Result<ExecutionId, Failure> {
    let job = NewJob {
        sensitive: secret::values(spec),
        submitter: Some(caller()),
        ..NewJob::new(spec.clone())
    };
    hub.create(job).await.map_err(session::failed)
}

/// Says how it ended: always to a person, else only what the exit code does not say.
fn close(snapshot: &Snapshot, spec: &JobSpec, interrupt: Option<Interrupt>, ui: &Ui) {
    if interrupt == Some(Interrupt::ReaderGone) {
        return;
    }
    for warning in warning::texts(snapshot, &spec.limits) {
        ui.note(&format!("warning: {}", crate::ui::plain(&warning)));
    }
    let reason = snapshot.reason.as_ref();
    let is_no_program = reason.is_some_and(|reason| reason.code == ReasonCode::ProgramNotFound);
    let advice = advice::after(snapshot, spec, tidemill_sandbox::has_sub_ids);
    let says_more = died_unexpectedly(snapshot)
        || reason.is_some_and(|reason| {
            !record::tells_nothing_more(reason.code) || reason.hint.is_some()
        });
    if ui.is_terminal() || says_more {
        ui.closing(
            snapshot.state == tidemill_core::State::Succeeded,
            &record::closing(snapshot),
        );
        let hint = reason.and_then(|reason| reason.hint.as_deref());
        // What says where to find a program is no help for an image.
        if let Some(hint) = hint
            && !(advice.is_some() && is_no_program)
        {
            ui.note(&format!("hint: {}", crate::ui::plain(hint)));
        }
    }
    if let Some(advice) = advice {
        ui.note(&format!("hint: {}", crate::ui::plain(&advice)));
    }
}

/// Signals by which programs end each other, or themselves, without a defect.
const ORDINARY_ENDS: [&str; 3] = ["SIGPIPE", "SIGINT", "SIGTERM"];

/// True for a job that a signal of its own ended, such as a crash: a shell says that too.
fn died_unexpectedly(snapshot: &Snapshot) -> bool {
    let is_own = snapshot
        .reason
        .as_ref()
        .is_some_and(|reason| reason.code == ReasonCode::Signal);
    let signal = snapshot.signal.map(signal_name);
    is_own && signal.is_some_and(|name| !ORDINARY_ENDS.contains(&name.as_ref()))
}

/// Ends the job for good, if the runner is still there to do it.
async fn kill(runner: &LocalRunner, id: ExecutionId) {
    // A runner that is gone has killed it already.
    runner
        .cancel(id, tidemill_runner::CancelMode::Now)
        .await
        .ok();
}
