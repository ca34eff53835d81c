//! What happens to an attempt: it begins, ends, is given back, is lost.

use std::time::Duration;

use tidemill_core::event::Outcome;
use tidemill_core::{Attempt, Event, Grant, Reason, ReasonCode, State, Timestamp};

use crate::job::{Change, Decline, Job, Place, Stage, Token};
use crate::lease::{Ask, Asked, Lease};
use crate::retry::{self, Cause, Verdict};
use crate::settings::{DECLINES_KEPT_MAX, Settings};

/// How a runner says that an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Completed(Outcome),
    /// Badly.
    Failed {
        /// Why.
        reason: Reason,
        /// How the program ended, if it ran.
        outcome: Option<Outcome>,
    },
    /// By a time limit.
    TimedOut {
        /// Which.
        reason: Reason,
        /// How the program ended, if it ran.
        outcome: Option<Outcome>,
    },
    /// By a request.
    Cancelled {
        /// More about it.
        reason: Option<Reason>,
        /// How the program ended, if it ran.
        outcome: Option<Outcome>,
    },
}

/// How a runner gives an attempt back that it did not bring to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// It cannot run it. It is not offered it again.
    Declined,
    /// It drains, and the attempt is not to blame.
    HandedBack,
}

/// The attempt that begins when a runner gets the job. Its lease carries the attempt's number.
pub fn begin(job: &Job, lease: Lease) -> Change {
    let events = vec![Event::Assigned {
        runner: lease.runner.clone(),
        attempt: lease.attempt,
    }];
    let mut change = job.to(Stage::Leased(lease.clone()), events);
    change.job.tries.last = lease.attempt;
    change
}

/// The number of the attempt that would be next.
pub fn next_attempt(job: &Job) -> Attempt {
    Attempt(job.tries.last.0.saturating_add(1))
}

/// The program was started. `None` if that is known, or if the job is to end anyway.
pub fn start(job: &Job, grants: Vec<Grant>) -> Option<Change> {
    let lease = job.lease()?;
    if lease.started || lease.state() == State::Cancelling {
        return None;
    }
    let lease = Lease {
        started: true,
        ..lease.clone()
    };
    Some(job.to(Stage::Leased(lease), vec![Event::Started { grants }]))
}

/// The attempt ended as its runner says. `None` if nobody has the job.
pub fn finish(job: &Job, ending: Ending, now: Timestamp, settings: &Settings) -> Option<Change> {
    let lease = job.lease()?;
    let ask = lease.asked.as_ref().map(|asked| &asked.why);
    let mut change = match (ending, ask) {
        (Ending::Completed(outcome), _) => {
            let mut events = Vec::new();
            if lease.state() == State::Starting {
                events.push(Event::Started { grants: Vec::new() });
            }
            events.push(Event::Completed { outcome });
            job.end(now, State::Succeeded, events)
        }
        (
            Ending::Failed { outcome, .. }
            | Ending::TimedOut { outcome, .. }
            | Ending::Cancelled { outcome, .. },
            Some(Ask::Deadline),
        ) => past_deadline(job, now, outcome),
        (Ending::Cancelled { reason, outcome }, ask) => {
            let mut events = Vec::new();
            if ask.is_none() {
                let by = format!("runner `{}`", lease.runner);
                events.push(Event::Cancelling { by });
            }
            events.push(Event::Cancelled { reason, outcome });
            job.end(now, State::Cancelled, events)
        }
        (Ending::Failed { reason, outcome }, _) => {
            let event = Event::Failed {
                reason: reason.clone(),
                outcome: outcome.clone(),
            };
            let cause = Cause::of(&reason, outcome.as_ref());
            again_or(job, (State::Failed, event), cause, reason, now, settings)
        }
        (Ending::TimedOut { reason, outcome }, _) => {
            let event = Event::TimedOut {
                reason: reason.clone(),
                outcome: outcome.clone(),
            };
            let cause = Cause::of(&reason, outcome.as_ref());
            again_or(job, (State::TimedOut, event), cause, reason, now, settings)
        }
    };
    change.job.tries.charged += 1;
    if let Stage::Done { told_by, .. } = &mut change.job.stage {
        *told_by = Some(lease.attempt);
    }
    Some(change)
}

/// The attempt's runner was lost: its lease ended, or it does not know of the attempt. `expected` is
/// the end of the lease where the decision depends on it. `None` if nobody has the job.
pub fn lose(
    job: &Job,
    message: String,
    expected: Option<Timestamp>,
    now: Timestamp,
    settings: &Settings,
) -> Option<Change> {
    let lease = job.lease()?;
    let mut change = match lease.asked.as_ref().map(|asked| &asked.why) {
        Some(Ask::Cancel { by }) => {
            let message = format!("cancelled by {by}; {message}");
            let events = vec![Event::Cancelled {
                reason: Some(Reason::new(ReasonCode::Cancelled, message)),
                outcome: None,
            }];
            job.end(now, State::Cancelled, events)
        }
        Some(Ask::Deadline) => past_deadline(job, now, None),
        None => {
            let reason = Reason::new(ReasonCode::Lost, message);
            let event = Event::Failed {
                reason: reason.clone(),
                outcome: None,
            };
            again_or(
                job,
                (State::Failed, event),
                Cause::Lost,
                reason,
                now,
                settings,
            )
        }
    };
    change.job.tries.charged += 1;
    change.job.tries.lost += 1;
    change.expected = Some(Token {
        until: expected,
        ..job.token()
    });
    Some(change)
}

/// The runner gives the attempt back. The job waits again at once, and no attempt is used up. `None`
/// if nobody has the job.
pub fn give_back(job: &Job, how: Return, reason: Reason, now: Timestamp) -> Option<Change> {
    let lease = job.lease()?;
    match lease.asked.as_ref().map(|asked| &asked.why) {
        Some(Ask::Cancel { .. }) => {
            let events = vec![Event::Cancelled {
                reason: None,
                outcome: None,
            }];
            return Some(job.end(now, State::Cancelled, events));
        }
        Some(Ask::Deadline) => return Some(past_deadline(job, now, None)),
        None => {}
    }
    let reason = Reason {
        code: ReasonCode::Declined,
        message: match how {
            Return::Declined => format!("runner `{}` declined it: {reason}", lease.runner),
            Return::HandedBack => format!("runner `{}` handed it back: {reason}", lease.runner),
        },
        ..reason
    };
    let mut change = requeue(job, Duration::ZERO, reason.clone(), now);
    if how == Return::Declined {
        let declines = &mut change.job.declines;
        if declines.len() >= DECLINES_KEPT_MAX {
            declines.remove(0);
        }
        declines.push(Decline {
            runner: lease.runner.clone(),
            incarnation: lease.incarnation,
            at: now,
            reason,
        });
    }
    Some(change)
}

/// The deadline has passed while a runner has the job: it is asked to end it.
pub fn ask_for_deadline(job: &Job, now: Timestamp) -> Option<Change> {
    let lease = job.lease()?;
    if lease.asked.is_some() {
        return None;
    }
    let lease = Lease {
        asked: Some(Asked {
            why: Ask::Deadline,
            at: now,
        }),
        ..lease.clone()
    };
    Some(job.to(Stage::Leased(lease), Vec::new()))
}

/// A runner was asked to end the attempt and has not, although it is heard. The hub waits no longer:
/// the attempt is gone.
pub fn end_without_runner(job: &Job, now: Timestamp) -> Option<Change> {
    let lease = job.lease()?;
    let asked = lease.asked.as_ref()?;
    let mut change = match &asked.why {
        Ask::Deadline => past_deadline(job, now, None),
        Ask::Cancel { by } => {
            let message = format!(
                "cancelled by {by}; runner `{}` did not end it within {} s",
                lease.runner,
                now.since(asked.at).as_secs()
            );
            let events = vec![Event::Cancelled {
                reason: Some(Reason::new(ReasonCode::Cancelled, message)),
                outcome: None,
            }];
            job.end(now, State::Cancelled, events)
        }
    };
    change.job.tries.charged += 1;
    Some(change)
}

fn past_deadline(job: &Job, now: Timestamp, outcome: Option<Outcome>) -> Change {
    let phase = match job.lease() {
        Some(lease) if lease.started => "while it ran",
        _ => "before it had started",
    };
    let reason = Reason::new(ReasonCode::Time, format!("its deadline passed {phase}"))
        .with_hint("allow more time with `--deadline`");
    let events = vec![Event::TimedOut { reason, outcome }];
    job.end(now, State::TimedOut, events)
}

/// Another attempt if the policy allows it, else this end.
fn again_or(
    job: &Job,
    end: (State, Event),
    cause: Cause,
    reason: Reason,
    now: Timestamp,
    settings: &Settings,
) -> Change {
    let cancelling = job.state() == State::Cancelling;
    let policy = &job.submission.retry;
    let verdict = match retry::decide(policy, &job.tries, cause, settings.losses_max) {
        _ if cancelling => Verdict::NotAsked,
        verdict => verdict,
    };
    let (state, event) = end;
    match verdict {
        Verdict::Again { after, rule } => {
            let mut change = requeue(job, after, reason, now);
            change.job.tries.use_rule(rule);
            change
        }
        Verdict::NotAsked => job.end(now, state, vec![event]),
        Verdict::Exhausted { count } => {
            let times = if count == 1 { "time" } else { "times" };
            let hint = format!("it was tried again {count} {times}, as its policy allows");
            job.end(now, state, vec![with_hint(event, hint)])
        }
        Verdict::SetApart => {
            let lost = job.tries.lost + 1;
            let hint = format!(
                "{lost} runners were lost while they had it, so it is set apart: look at what it does \
                 to its host before it is submitted again"
            );
            let mut change = job.end(now, state, vec![with_hint(event, hint)]);
            if let Stage::Done { set_apart, .. } = &mut change.job.stage {
                *set_apart = true;
            }
            change
        }
    }
}

fn with_hint(mut event: Event, hint: String) -> Event {
    if let Event::Failed { reason, .. } | Event::TimedOut { reason, .. } = &mut event {
        reason.hint.get_or_insert(hint);
    }
    event
}

/// The job waits again.
fn requeue(job: &Job, after: Duration, reason: Reason, now: Timestamp) -> Change {
    let place = if after.is_zero() {
        job.place_in_line()
    } else {
        Place::BackOff {
            until: now.plus(after),
        }
    };
    job.to(Stage::Waiting { place }, vec![Event::Requeued { reason }])
}
