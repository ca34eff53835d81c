//! Why a job waits: one honest reason for each.

use std::fmt;

use tidemill_core::{ExecutionId, Reason, Timestamp};

use crate::job::{Job, Place, Stage};
use crate::matching::{NoRunner, could_run};
use crate::order::{Line, Position};
use crate::patience;
use crate::queue::Queue;
use crate::queue::index::lane_key;
use crate::queue::lanes::Lanes;
use crate::settings::{LANES_LOOKED_MAX, POSITION_EXACT_MAX};

/// Why a job waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// This version does not know such work, and leaves it alone.
    UnknownKind {
        /// The kind.
        kind: String,
    },
    /// Its hub stopped.
    HubStopped {
        /// What the history says.
        why: String,
    },
    /// Its queue is paused.
    QueuePaused {
        /// What whoever paused it said.
        why: String,
    },
    /// Its delay is not over.
    Delayed {
        /// Until when.
        until: Timestamp,
    },
    /// It is tried again later.
    BackOff {
        /// When.
        until: Timestamp,
    },
    /// Others of its group go first.
    Group {
        /// The group.
        name: String,
        /// Its place among those that wait; the next one is 1.
        position: Position,
        /// The one that a runner has.
        running: Option<ExecutionId>,
    },
    /// No runner could run it.
    NoRunner {
        /// Why, and which is nearest.
        miss: NoRunner,
        /// When it fails if that stays so.
        gives_up_at: Timestamp,
    },
    /// Every runner that could run it declined.
    Declined {
        /// What the last one said.
        last: Reason,
    },
    /// Runners have as many of its queue as they may.
    QueueBusy {
        /// How many that are.
        running: u64,
    },
    /// Every runner that could run it takes nothing more.
    Draining {
        /// How many those are.
        runners: usize,
    },
    /// Every runner that could run it is busy.
    Busy {
        /// How many those are.
        runners: usize,
        /// Its place in the queue.
        position: Position,
    },
    /// A runner has room.
    Next {
        /// Its place in the queue.
        position: Position,
    },
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind { kind } => {
                write!(
                    f,
                    "no hub that knows jobs of kind `{kind}` has looked at it"
                )
            }
            Self::HubStopped { why } => write!(f, "paused: {why}"),
            Self::QueuePaused { why } => write!(f, "its queue is paused: {why}"),
            Self::Delayed { .. } => f.write_str("its delay is not over"),
            Self::BackOff { .. } => f.write_str("waits before it is tried again"),
            Self::Group {
                name,
                position,
                running,
            } => {
                write!(f, "waits for group `{name}`, {position}")?;
                match running {
                    Some(id) => write!(f, "; {id} is running"),
                    None => Ok(()),
                }
            }
            Self::NoRunner { miss, .. } => miss.fmt(f),
            Self::Declined { last } => {
                write!(
                    f,
                    "every runner that could run it declined; the last: {last}"
                )
            }
            Self::QueueBusy { running } => {
                write!(f, "its queue has {running} jobs running, as many as it may")
            }
            Self::Draining { runners: 1 } => {
                f.write_str("the runner that could run it takes nothing more")
            }
            Self::Draining { runners } => {
                write!(
                    f,
                    "the {runners} runners that could run it take nothing more"
                )
            }
            Self::Busy {
                runners: 1,
                position,
            } => write!(f, "the runner that could run it is busy; {position}"),
            Self::Busy { runners, position } => {
                write!(
                    f,
                    "the {runners} runners that could run it are busy; {position}"
                )
            }
            Self::Next { position } => position.fmt(f),
        }
    }
}

impl Queue {
    /// Why a job waits. `None` if it does not.
    pub fn why_waiting(&self, now: Timestamp, id: ExecutionId) -> Option<Waits> {
        let job = self.jobs.get(&id)?;
        if !job.waits() {
            return None;
        }
        if !job.is_known(&self.settings) {
            let kind = job.submission.kind.clone();
            return Some(Waits::UnknownKind { kind });
        }
        if let Stage::Paused { why } = &job.stage {
            return Some(Waits::HubStopped { why: why.clone() });
        }
        let queue = self.queues.get(&job.submission.queue);
        if let Some(why) = queue.and_then(|row| row.paused.as_ref()) {
            return Some(Waits::QueuePaused { why: why.clone() });
        }
        match job.place()? {
            Place::Delayed { until } => Some(Waits::Delayed { until }),
            Place::BackOff { until } => Some(Waits::BackOff { until }),
            Place::Blocked => self.why_blocked(job),
            Place::Ready => Some(self.why_ready(job, now)),
        }
    }

    fn why_blocked(&self, job: &Job) -> Option<Waits> {
        let group = job.submission.group_key()?;
        let running = self.locks.get(&group).map(|lock| lock.execution);
        let ahead = self.index.of_group(&group).take(POSITION_EXACT_MAX);
        let found = ahead.zip(1..).find(|(id, _)| *id == job.id);
        let position = found.map_or(
            Position::AtLeast(POSITION_EXACT_MAX as u64 + 1),
            |(_, number)| Position::Exactly(number),
        );
        Some(Waits::Group {
            name: group.name,
            position,
            running,
        })
    }

    fn why_ready(&self, job: &Job, now: Timestamp) -> Waits {
        let class = job.class();
        if let Some(miss) = self.no_runner(&class, now) {
            let since = self.index.classes.get(&class);
            let since = since.and_then(|class| class.unmet_since).unwrap_or(now);
            let gives_up_at = patience::gives_up_at(job, since, &self.settings);
            return Waits::NoRunner { miss, gives_up_at };
        }
        if self.is_declined_by_all(job, now)
            && let Some(last) = job.declines.last()
        {
            let last = last.reason.clone();
            return Waits::Declined { last };
        }
        let queue = &job.submission.queue;
        if self.room(queue) == 0 {
            let running = self.index.running(queue);
            return Waits::QueueBusy { running };
        }
        let needs = &job.submission.requirements;
        let (mut runners, mut draining, mut room) = (0, 0, false);
        for runner in self.live_runners(now) {
            let profile = &runner.profile;
            if !profile.serves(&job.submission.queue)
                || !could_run(needs, profile)
                || job.was_declined_by(&profile.name, runner.incarnation)
            {
                continue;
            }
            runners += 1;
            draining += usize::from(profile.draining);
            room |= !profile.draining
                && runner.open.as_ref().is_some_and(|offer| {
                    offer.slots > 0
                        && needs.memory <= offer.memory_free
                        && needs.cpus <= offer.cpus_free
                });
        }
        if draining == runners {
            return Waits::Draining { runners };
        }
        runners -= draining;
        let position = self.position(job, now);
        if room {
            Waits::Next { position }
        } else {
            Waits::Busy { runners, position }
        }
    }

    /// The place of a job that may be claimed among all of its queue, in the order in which they would
    /// be given to a runner that can run them all.
    pub(super) fn position(&self, job: &Job, now: Timestamp) -> Position {
        let far = Position::AtLeast(POSITION_EXACT_MAX as u64 + 1);
        let (class, key) = (job.class(), lane_key(job));
        let index = self.index.classes.get(&class);
        let lane = index.and_then(|index| index.lanes.get(&key));
        let mut before = lane.into_iter().flat_map(|lane| lane.jobs.keys());
        if !before
            .by_ref()
            .take(POSITION_EXACT_MAX)
            .any(|age| *age == job.age())
        {
            return far;
        }
        let mut lanes = Lanes::of(self);
        let classes = self.index.classes.iter();
        let of_queue = classes.filter(|(of, _)| of.queue == job.submission.queue);
        let all = of_queue.flat_map(|(of, index)| index.lanes.iter().map(move |lane| (of, lane)));
        for (of, (key, lane)) in all.take(LANES_LOOKED_MAX) {
            lanes.push(of, key, lane);
        }
        let mut places = lanes.classes.iter().zip(&lanes.keys);
        let own = places.position(|(of, lane)| **of == class && **lane == key);
        let behind = lanes.lanes.iter().map(|lane| lane.jobs.keys().skip(1));
        let mut behind: Vec<_> = behind.collect();
        let (heads, turns) = (lanes.heads.clone(), lanes.turns.clone());
        let mut line = Line::new(now, self.settings.ageing_step, heads, turns);
        for number in 1..=POSITION_EXACT_MAX as u64 {
            let Some(lane) = line.pop() else {
                break;
            };
            if Some(lane) == own && line.head(lane).age == job.age() {
                return Position::Exactly(number);
            }
            line.took(lane, behind[lane].next().copied());
        }
        far
    }
}
