//! The one place where a snapshot changes.
//!
//! [`create`] makes the first snapshot out of a `created` event; [`apply`] takes every other event.
//! Both are total: what may not happen is a [`Refused`], never a panic and never a silent change.

use tidemill_core::event::{EVENT_VERSION, Status};
use tidemill_core::{
    Attempt, Event, EventRecord, ExecutionId, LogPiece, LogTotals, Reason, ReasonCode, RunnerId,
    State, Stream, Timestamp,
};

use crate::bounds::{EVENTS_KEPT_MAX, STEPS_LISTED_MAX, WARNINGS_QUOTED_MAX, cut_event};
use crate::moves;
use crate::snapshot::{CancelRequest, Origin, Progress, SNAPSHOT_VERSION, Snapshot, Step};

/// What came of an event that was not refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// It is part of the record now.
    Recorded(Box<Recorded>),
    /// It said what is already so. Nothing changed, nothing is to be recorded.
    Already,
}

/// An event that became part of the record.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// The snapshot after it.
    pub snapshot: Snapshot,
    /// The event as it is recorded.
    pub record: EventRecord,
    /// The sequence of the event that it takes the place of in the kept history.
    pub replaces: Option<u64>,
    /// True if the oldest event of the kept history has to go.
    pub drops_oldest: bool,
}

/// Why an event was not applied. Nothing changed and nothing is recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such execution, and the event does not make one.
    #[error("there is no such execution")]
    Unknown,
    /// The execution exists already.
    #[error("the execution exists already")]
    Exists,
    /// The move is not in the table.
    #[error("an execution cannot go from {from} to {to}")]
    Move {
        /// Where it stands.
        from: State,
        /// Where the event would have taken it.
        to: State,
    },
    /// The event is no move, and does not belong to this state.
    #[error("`{kind}` does not belong to an execution that is {state}")]
    OutOfPlace {
        /// The event's kind.
        kind: &'static str,
        /// Where the execution stands.
        state: State,
    },
    /// The attempt is not newer than one that has begun.
    #[error("attempt {said} is stale: {current} is the newest that has begun")]
    StaleAttempt {
        /// The newest attempt that has begun.
        current: Attempt,
        /// What the event said.
        said: Attempt,
    },
    /// Somebody asked to cancel it, so it may not start.
    #[error("it may not start: {by} asked to cancel it")]
    CancelRequested {
        /// Who asked.
        by: String,
    },
}

/// Makes the snapshot of a new execution.
///
/// # Errors
/// If the event is not `created`.
pub fn create(
    id: ExecutionId,
    origin: Origin,
    at: Timestamp,
    event: Event,
) -> Result<Recorded, Refused> {
    let Event::Created {
        spec,
        name,
        labels,
        command,
        submitter,
        run,
        correlation_id,
    } = event.clone()
    else {
        return Err(Refused::Unknown);
    };
    let snapshot = Snapshot {
        version: SNAPSHOT_VERSION,
        id,
        name,
        labels,
        command,
        spec,
        state: State::Queued,
        reason: None,
        failure: None,
        exit_code: None,
        signal: None,
        core_dumped: false,
        killed_processes: 0,
        attempt: None,
        attempts: 0,
        runner: None,
        ahead: None,
        paused_why: None,
        status: None,
        step: None,
        progress: None,
        steps: Vec::new(),
        created_at: at,
        queued_at: at,
        started_at: None,
        finished_at: None,
        duration_ms: None,
        updated_at: at,
        usage: None,
        log: LogTotals::default(),
        grants: Vec::new(),
        cancel: None,
        artifacts: 0,
        reports: 0,
        diagnostics: 0,
        warnings: Vec::new(),
        event_count: 1,
        events_kept: 1,
        events_truncated: false,
        last_sequence: 1,
        origin,
        submitter,
        run,
        correlation_id,
    };
    let record = EventRecord {
        version: EVENT_VERSION,
        execution: id,
        sequence: 1,
        at,
        event,
    };
    Ok(Recorded {
        snapshot,
        record,
        replaces: None,
        drops_oldest: false,
    })
}

/// Applies one event to a snapshot.
///
/// # Errors
/// If the event may not happen where the execution stands.
pub fn apply(before: &Snapshot, at: Timestamp, event: Event) -> Result<Applied, Refused> {
    if judge(before, &event)? == Verdict::Already {
        return Ok(Applied::Already);
    }
    let event = complete(before, cut_event(event));
    let mut snapshot = before.clone();
    let sequence = before.last_sequence.saturating_add(1);
    let replaces = replaced_by(before, &event);
    snapshot.last_sequence = sequence;
    snapshot.event_count = before.event_count.saturating_add(1);
    snapshot.updated_at = at;
    let mut drops_oldest = false;
    if replaces.is_none() {
        drops_oldest = snapshot.events_kept >= EVENTS_KEPT_MAX;
        if drops_oldest {
            snapshot.events_truncated = true;
        } else {
            snapshot.events_kept += 1;
        }
    }
    enact(&mut snapshot, sequence, at, &event);
    Ok(Applied::Recorded(Box::new(Recorded {
        snapshot,
        record: EventRecord {
            version: EVENT_VERSION,
            execution: before.id,
            sequence,
            at,
            event,
        },
        replaces,
        drops_oldest,
    })))
}

/// Refuses what an attempt says that is not the one under way. Runners name their attempt with
/// everything that they report; the events themselves do not carry it.
///
/// # Errors
/// If the execution is in another attempt, or in none.
pub fn fence(snapshot: &Snapshot, said: Attempt) -> Result<(), Refused> {
    let current = snapshot.attempt.unwrap_or_default();
    if current == said && snapshot.state != State::Queued && snapshot.state != State::Paused {
        Ok(())
    } else {
        Err(Refused::StaleAttempt { current, said })
    }
}

/// Gives a reason the correlation id of the request that caused the execution, and a cancellation a
/// reason, where they have none.
fn complete(before: &Snapshot, mut event: Event) -> Event {
    let by = before.cancel.as_ref().map(|request| &*request.by);
    let reason = match &mut event {
        Event::Diagnostic { reason }
        | Event::Requeued { reason }
        | Event::Interrupted { reason }
        | Event::Failed { reason, .. }
        | Event::TimedOut { reason, .. } => reason,
        Event::Cancelled { reason, .. } => reason.get_or_insert_with(|| cancelled_reason(by)),
        _ => return event,
    };
    if reason.correlation_id.is_none() {
        reason.correlation_id.clone_from(&before.correlation_id);
    }
    event
}

/// What is to be done with an event that is not refused.
#[derive(PartialEq, Eq)]
enum Verdict {
    Record,
    Already,
}

/// Decides whether an event may happen.
fn judge(before: &Snapshot, event: &Event) -> Result<Verdict, Refused> {
    let state = before.state;
    match event {
        Event::Created { .. } => Err(Refused::Exists),
        Event::Queued { ahead } => match state {
            State::Queued if before.ahead == Some(*ahead) => Ok(Verdict::Already),
            State::Queued => Ok(Verdict::Record),
            _ => Err(out_of_place(before, event)),
        },
        Event::Assigned { runner, attempt } => judge_assigned(before, runner, *attempt),
        Event::Started { .. } => judge_started(before),
        Event::Cancelling { .. } => match state {
            // The request is recorded; such an execution is not moved by it.
            State::Queued | State::Paused if before.cancel.is_none() => Ok(Verdict::Record),
            State::Queued | State::Paused => Ok(Verdict::Already),
            _ => judge_move(state, State::Cancelling),
        },
        Event::Resumed { .. } => match state {
            State::Starting | State::Running => Err(out_of_place(before, event)),
            _ => judge_move(state, State::Queued),
        },
        Event::Requeued { .. } => match state {
            State::Paused => Err(out_of_place(before, event)),
            _ => judge_move(state, State::Queued),
        },
        Event::Paused { .. } => judge_move(state, State::Paused),
        Event::Completed { .. } => judge_move(state, State::Succeeded),
        Event::Failed { .. } => judge_move(state, State::Failed),
        Event::TimedOut { .. } => judge_move(state, State::TimedOut),
        Event::Cancelled { .. } => judge_move(state, State::Cancelled),
        Event::Interrupted { .. } => judge_move(state, State::Interrupted),
        Event::Diagnostic { .. } if !state.is_final() => Ok(Verdict::Record),
        Event::Status { status } => match state {
            _ if before.status == Some(*status) && !state.is_final() => Ok(Verdict::Already),
            State::Starting | State::Running | State::Cancelling => Ok(Verdict::Record),
            // Somebody else's execution need not have been assigned here.
            State::Queued if before.is_reported() => Ok(Verdict::Record),
            _ => Err(out_of_place(before, event)),
        },
        Event::Progress { .. }
        | Event::StepStarted { .. }
        | Event::StepCompleted { .. }
        | Event::Log { .. }
        | Event::ArtifactKept { .. }
        | Event::ReportKept { .. }
            if matches!(state, State::Starting | State::Running | State::Cancelling) =>
        {
            Ok(Verdict::Record)
        }
        _ => Err(out_of_place(before, event)),
    }
}

fn judge_move(from: State, to: State) -> Result<Verdict, Refused> {
    if from == to {
        Ok(Verdict::Already)
    } else if moves::allows(from, to) {
        Ok(Verdict::Record)
    } else {
        Err(Refused::Move { from, to })
    }
}

fn judge_assigned(
    before: &Snapshot,
    runner: &RunnerId,
    attempt: Attempt,
) -> Result<Verdict, Refused> {
    let current = before.attempt.unwrap_or_default();
    if before.state == State::Starting {
        return if current == attempt && before.runner.as_ref() == Some(runner) {
            Ok(Verdict::Already)
        } else {
            Err(Refused::StaleAttempt {
                current,
                said: attempt,
            })
        };
    }
    let verdict = judge_move(before.state, State::Starting)?;
    may_start(before)?;
    if attempt <= current {
        return Err(Refused::StaleAttempt {
            current,
            said: attempt,
        });
    }
    Ok(verdict)
}

fn judge_started(before: &Snapshot) -> Result<Verdict, Refused> {
    if before.state == State::Queued && !before.is_reported() {
        return Err(Refused::Move {
            from: State::Queued,
            to: State::Running,
        });
    }
    judge_move(before.state, State::Running)
}

/// Nothing that this hub runs starts once somebody asked to cancel it. Of somebody else's execution
/// only its reporter knows whether it started.
fn may_start(before: &Snapshot) -> Result<(), Refused> {
    match &before.cancel {
        Some(request) if !before.is_reported() => Err(Refused::CancelRequested {
            by: request.by.clone(),
        }),
        _ => Ok(()),
    }
}

const fn out_of_place(before: &Snapshot, event: &Event) -> Refused {
    Refused::OutOfPlace {
        kind: event.kind(),
        state: before.state,
    }
}

/// The event that this one takes the place of: the last one, if both are progress of one step.
fn replaced_by(before: &Snapshot, event: &Event) -> Option<u64> {
    let Event::Progress { step, .. } = event else {
        return None;
    };
    before
        .progress
        .as_ref()
        .filter(|last| last.sequence == before.last_sequence && last.step == *step)
        .map(|last| last.sequence)
}

/// Writes an event that may happen into the snapshot.
fn enact(snapshot: &mut Snapshot, sequence: u64, at: Timestamp, event: &Event) {
    match event {
        // `judge` refuses a second one.
        Event::Created { .. } => {}
        Event::Queued { ahead } => snapshot.ahead = Some(*ahead),
        Event::Assigned { runner, attempt } => on_assigned(snapshot, runner, *attempt),
        Event::Status { status } => snapshot.status = Some(*status),
        Event::Started { grants } => {
            snapshot.state = State::Running;
            snapshot.status = Some(Status::Executing);
            snapshot.reason = None;
            snapshot.ahead = None;
            snapshot.started_at = Some(at);
            snapshot.grants.clone_from(grants);
        }
        Event::Progress {
            step,
            current,
            total,
            message,
        } => {
            snapshot.progress = Some(Progress {
                sequence,
                step: step.clone(),
                current: *current,
                total: *total,
                message: message.clone(),
            });
        }
        Event::StepStarted { name } => on_step_started(snapshot, at, name),
        Event::StepCompleted { name, ok, detail } => {
            on_step_completed(snapshot, at, name, *ok, detail.as_deref());
        }
        Event::Diagnostic { reason } => {
            snapshot.diagnostics = snapshot.diagnostics.saturating_add(1);
            push_bounded(&mut snapshot.warnings, reason.clone(), WARNINGS_QUOTED_MAX);
        }
        Event::Log { piece, .. } => on_log(&mut snapshot.log, piece),
        Event::ArtifactKept { .. } => {
            snapshot.artifacts = snapshot.artifacts.saturating_add(1);
        }
        Event::ReportKept { .. } => snapshot.reports = snapshot.reports.saturating_add(1),
        Event::Cancelling { by } => on_cancelling(snapshot, at, by),
        Event::Paused { why } => {
            snapshot.state = State::Paused;
            snapshot.paused_why.clone_from(why);
        }
        Event::Resumed { .. } => {
            snapshot.state = State::Queued;
            snapshot.paused_why = None;
            snapshot.queued_at = at;
        }
        Event::Requeued { reason } => on_requeued(snapshot, at, reason),
        Event::Completed { .. }
        | Event::Failed { .. }
        | Event::TimedOut { .. }
        | Event::Cancelled { .. }
        | Event::Interrupted { .. } => on_end(snapshot, at, event),
    }
}

fn on_assigned(snapshot: &mut Snapshot, runner: &RunnerId, attempt: Attempt) {
    snapshot.state = State::Starting;
    snapshot.runner = Some(runner.clone());
    snapshot.attempt = Some(attempt);
    snapshot.attempts = snapshot.attempts.saturating_add(1);
    snapshot.ahead = None;
    snapshot.reason = None;
}

fn on_step_started(snapshot: &mut Snapshot, at: Timestamp, name: &str) {
    snapshot.step = Some(name.to_owned());
    let step = Step {
        name: name.to_owned(),
        started_at: Some(at),
        finished_at: None,
        ok: None,
        detail: None,
    };
    push_bounded(&mut snapshot.steps, step, STEPS_LISTED_MAX);
}

/// A step that was not announced is recorded as it is told.
fn on_step_completed(
    snapshot: &mut Snapshot,
    at: Timestamp,
    name: &str,
    ok: bool,
    detail: Option<&str>,
) {
    if snapshot.step.as_deref() == Some(name) {
        snapshot.step = None;
    }
    let begun = snapshot
        .steps
        .iter_mut()
        .rev()
        .find(|step| step.name == name && step.finished_at.is_none());
    if let Some(step) = begun {
        step.finished_at = Some(at);
        step.ok = Some(ok);
        step.detail = detail.map(str::to_owned);
        return;
    }
    let step = Step {
        name: name.to_owned(),
        started_at: None,
        finished_at: Some(at),
        ok: Some(ok),
        detail: detail.map(str::to_owned),
    };
    push_bounded(&mut snapshot.steps, step, STEPS_LISTED_MAX);
}

fn on_log(log: &mut LogTotals, piece: &LogPiece) {
    log.bytes = log.bytes.max(piece.offset.saturating_add(piece.length));
    let stream = match piece.stream {
        Stream::Stdout => &mut log.stdout_bytes,
        Stream::Stderr => &mut log.stderr_bytes,
    };
    *stream = stream.saturating_add(piece.length);
}

fn on_cancelling(snapshot: &mut Snapshot, at: Timestamp, by: &str) {
    if snapshot.cancel.is_none() {
        snapshot.cancel = Some(CancelRequest {
            by: by.to_owned(),
            at,
        });
    }
    if !matches!(snapshot.state, State::Queued | State::Paused) {
        snapshot.state = State::Cancelling;
    }
}

/// The next attempt begins from nothing; why the last one ended is kept.
fn on_requeued(snapshot: &mut Snapshot, at: Timestamp, reason: &Reason) {
    snapshot.state = State::Queued;
    snapshot.queued_at = at;
    snapshot.reason = Some(reason.clone());
    snapshot.failure = Some(reason.clone());
    snapshot.runner = None;
    snapshot.ahead = None;
    snapshot.status = None;
    snapshot.step = None;
    snapshot.progress = None;
    snapshot.steps.clear();
    snapshot.started_at = None;
    snapshot.grants.clear();
}

fn on_end(snapshot: &mut Snapshot, at: Timestamp, event: &Event) {
    let (state, reason, outcome) = match event {
        Event::Completed { outcome } => (State::Succeeded, None, Some(outcome)),
        Event::Failed { reason, outcome } => {
            (State::Failed, Some(reason.clone()), outcome.as_ref())
        }
        Event::TimedOut { reason, outcome } => {
            (State::TimedOut, Some(reason.clone()), outcome.as_ref())
        }
        Event::Cancelled { reason, outcome } => {
            (State::Cancelled, reason.clone(), outcome.as_ref())
        }
        Event::Interrupted { reason } => (State::Interrupted, Some(reason.clone()), None),
        _ => unreachable!("only the five events that end an execution come here"),
    };
    match state {
        State::Succeeded => snapshot.failure = None,
        State::Failed | State::TimedOut => snapshot.failure.clone_from(&reason),
        _ => {}
    }
    snapshot.state = state;
    snapshot.reason = reason;
    snapshot.ahead = None;
    snapshot.paused_why = None;
    snapshot.status = None;
    snapshot.step = None;
    snapshot.finished_at = Some(at);
    snapshot.duration_ms = Some(match (outcome, snapshot.started_at) {
        (Some(outcome), _) => outcome.duration_ms,
        (None, Some(started)) => at.since(started).into(),
        (None, None) => Default::default(),
    });
    if let Some(outcome) = outcome {
        snapshot.exit_code = outcome.exit_code;
        snapshot.signal = outcome.signal;
        snapshot.core_dumped = outcome.core_dumped;
        snapshot.killed_processes = outcome.killed_processes;
        snapshot.usage = Some(outcome.usage);
        snapshot.log = outcome.log;
    }
}

/// The reason of a cancellation for which none was given.
fn cancelled_reason(by: Option<&str>) -> Reason {
    let message = by.map_or_else(|| "cancelled".to_owned(), |by| format!("cancelled by {by}"));
    Reason::new(ReasonCode::Cancelled, message)
}

/// Adds to a list that keeps only so many of the latest.
fn push_bounded<T>(list: &mut Vec<T>, item: T, max: usize) {
    if list.len() >= max {
        list.remove(0);
    }
    list.push(item);
}
