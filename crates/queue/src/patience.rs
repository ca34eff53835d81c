//! What becomes of jobs because time passes: they wait too long, or their deadline passes, or nobody
//! could run them.

use std::time::Duration;

use tidemill_core::{Event, Reason, ReasonCode, State, Timestamp};

use crate::attempt::{self, Return};
use crate::job::{Change, Job, Stage};
use crate::matching::NoRunner;
use crate::settings::Settings;

/// What is due of a job at this moment. `None` if nothing is.
pub fn when_due(job: &Job, now: Timestamp, settings: &Settings) -> Option<Change> {
    if job.due(settings).is_none_or(|due| due > now) {
        return None;
    }
    match &job.stage {
        Stage::Waiting { .. } | Stage::Paused { .. } => {
            let message = if job.deadline().is_some_and(|deadline| deadline <= now) {
                "its deadline passed while it waited".to_owned()
            } else {
                let waited = now.since(job.in_line_at).as_secs();
                format!("it expired: it waited for {waited} s and no runner was free for it")
            };
            Some(fail(job, ReasonCode::Expired, message, now))
        }
        Stage::Leased(lease) if lease.asked.is_some() => attempt::end_without_runner(job, now),
        Stage::Leased(_) if job.deadline().is_some_and(|deadline| deadline <= now) => {
            attempt::ask_for_deadline(job, now)
        }
        Stage::Leased(lease) => {
            let seconds = now.since(lease.granted_at).as_secs();
            let message = format!("it was not started within {seconds} s");
            let reason = Reason::new(ReasonCode::PrepareTime, message);
            attempt::give_back(job, Return::Declined, reason, now)
        }
        Stage::Done { .. } => None,
    }
}

/// How long a job waits for a runner that could run it.
pub fn patience(job: &Job, settings: &Settings) -> Duration {
    let own = job.submission.unsatisfiable_after;
    own.map_or(settings.unsatisfiable_after, |after| after.as_duration())
}

/// When a job gives up on runners that could run it, if there have been none since this moment.
pub fn gives_up_at(job: &Job, unmet_since: Timestamp, settings: &Settings) -> Timestamp {
    let since = unmet_since.max(job.in_line_at);
    since.plus(patience(job, settings))
}

/// The end of a job that nobody could run for too long.
pub fn give_up(job: &Job, miss: &NoRunner, now: Timestamp) -> Change {
    let reason = Reason::new(ReasonCode::Unplaceable, miss.to_string())
        .with_hint("start a runner that meets it, or ask for less");
    let events = vec![Event::Failed {
        reason,
        outcome: None,
    }];
    job.end(now, State::Failed, events)
}

/// The end of a job that every runner declined that could run it.
pub fn give_up_declined(job: &Job, now: Timestamp) -> Option<Change> {
    let last = job.declines.last()?;
    let message = format!(
        "every runner that could run it declined; the last: {}",
        last.reason
    );
    Some(fail(job, ReasonCode::Unplaceable, message, now))
}

fn fail(job: &Job, code: ReasonCode, message: String, now: Timestamp) -> Change {
    let events = vec![Event::Failed {
        reason: Reason::new(code, message),
        outcome: None,
    }];
    job.end(now, State::Failed, events)
}
