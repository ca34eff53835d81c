//! Hubs beside each other: who lives, who stops, and who takes over what.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_core::{Event, Reason, ReasonCode, State, Timestamp};

use crate::job::{Change, Job, Stage};
use crate::lease::Lease;

/// Names one life of a hub. A hub that starts again is another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HubId(pub String);

impl fmt::Display for HubId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One hub as a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hub {
    /// Its last sign of life, which the pass that ends leases gives. A hub whose pass hangs looks dead.
    pub sign: Timestamp,
    /// Since when it has given signs of life without a gap.
    pub serving_since: Timestamp,
    /// True once it stops: nothing is accepted and nothing starts.
    pub stopping: bool,
}

impl Hub {
    /// A hub that starts now.
    pub const fn starting(now: Timestamp) -> Self {
        Self {
            sign: now,
            serving_since: now,
            stopping: false,
        }
    }

    /// True if it gave a sign of life not long ago.
    pub fn is_alive(&self, now: Timestamp, silence: Duration) -> bool {
        now.since(self.sign) < silence
    }

    /// Gives a sign of life. After a gap (its database was away, its process stood still) the time
    /// that it has served for begins anew: nobody could report in between.
    pub fn give_sign(&mut self, now: Timestamp, silence: Duration) {
        if !self.is_alive(now, silence) {
            self.serving_since = now;
        }
        self.sign = self.sign.max(now);
    }
}

/// Since when runners could report to somebody without a gap: the earliest that a living hub has
/// served since. `None` if no hub lives.
pub fn serving_since<'a>(
    hubs: impl IntoIterator<Item = &'a Hub>,
    now: Timestamp,
    silence: Duration,
) -> Option<Timestamp> {
    hubs.into_iter()
        .filter(|hub| hub.is_alive(now, silence))
        .map(|hub| hub.serving_since)
        .min()
}

/// What the history says of a job that goes on after a restart.
pub const CONTINUES: &str = "continues after a restart";

/// What a stopping hub does with a job that waits. `others` is true if another hub goes on serving.
/// `None` if the job is left as it is.
pub fn on_stop(job: &Job, hub: &HubId, now: Timestamp, others: bool) -> Option<Change> {
    if !matches!(job.stage, Stage::Waiting { .. }) {
        return None;
    }
    if !job.submission.continues {
        let message =
            format!("was not run: hub `{hub}` stopped, and the job cannot go on without it");
        return (job.hub == *hub).then(|| interrupted(job, now, message));
    }
    if others {
        return None;
    }
    let why = format!("hub `{hub}` stopped");
    let events = vec![Event::Paused {
        why: Some(why.clone()),
    }];
    Some(job.to(Stage::Paused { why }, events))
}

/// What a hub does with a job that a dead hub left, or that is paused although hubs serve. `dead` is
/// true if the job's hub stopped or gave no sign of life for too long. `None` if it is left alone.
pub fn take_over(job: &Job, hub: &HubId, now: Timestamp, dead: bool) -> Option<Change> {
    if job.hub != *hub && !dead {
        return None;
    }
    let stage = Stage::Waiting {
        place: job.place_in_line(),
    };
    let resumed = Event::Resumed {
        why: Some(CONTINUES.to_owned()),
    };
    let mut change = match &job.stage {
        Stage::Paused { .. } => job.to(stage, vec![resumed]),
        Stage::Waiting { .. } if job.hub == *hub => return None,
        Stage::Waiting { .. } if !job.submission.continues => {
            let message = format!(
                "was not run: hub `{}` is gone, and the job cannot go on without it",
                job.hub
            );
            return Some(interrupted(job, now, message));
        }
        Stage::Waiting { place } => {
            let paused = Event::Paused {
                why: Some(format!("hub `{}` is gone", job.hub)),
            };
            let stage = Stage::Waiting { place: *place };
            job.to(stage, vec![paused, resumed])
        }
        Stage::Leased(_) | Stage::Done { .. } => return None,
    };
    change.job.hub = hub.clone();
    Some(change)
}

/// Makes a lease of a dead hub this hub's. It gets its whole time anew, since nobody may have been
/// there to hear its runner.
pub fn take_over_lease(job: &Job, hub: &HubId, until: Timestamp) -> Option<Change> {
    let lease = job.lease()?;
    let mut change = job.to(
        Stage::Leased(Lease {
            hub: hub.clone(),
            until: lease.until.max(until),
            ..lease.clone()
        }),
        Vec::new(),
    );
    change.expected = Some(crate::job::Token {
        until: Some(lease.until),
        ..job.token()
    });
    Some(change)
}

fn interrupted(job: &Job, now: Timestamp, message: String) -> Change {
    let reason = Reason::new(ReasonCode::Shutdown, message).with_hint("submit it again");
    let events = vec![Event::Interrupted { reason }];
    job.end(now, State::Interrupted, events)
}
