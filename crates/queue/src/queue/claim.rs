//! Claiming.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{Attempt, ExecutionId, RunnerId, Timestamp};

use crate::attempt;
use crate::claim::{LaneOffer, Plan, Tally, plan};
use crate::hub::HubId;
use crate::job::{Class, Hold, Job, Place};
use crate::lease::{self, Account, Lease, Speaker};
use crate::matching::could_run;
use crate::offer::{AttemptKey, ClaimNumber, Incarnation, Offer, Profile};
use crate::queue::index::{ClassIndex, Lane, LaneKey};
use crate::queue::lanes::Lanes;
use crate::queue::{Queue, Runner};
use crate::report::Verdict;
use crate::settings::{LANES_LOOKED_MAX, PROMOTED_PER_CLAIM_MAX, TURNS_KEPT_MAX};
use crate::submission::{QueueKey, Submission};

/// One job for a runner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Which attempt of which execution.
    pub attempt: AttemptKey,
    /// What was submitted.
    pub submission: Arc<Submission>,
    /// How long the lease lasts without a report, in the runner's own time from when it asked.
    pub lease: Duration,
}

/// What a runner hears to its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The jobs; none if the claim stays open.
    Jobs {
        /// The jobs.
        assignments: Vec<Assignment>,
        /// What the runner is to do with those that it holds.
        held: Vec<(AttemptKey, Verdict)>,
    },
    /// The hub takes nothing more and starts nothing more.
    HubStopping,
    /// No such runner is registered.
    UnknownRunner,
    /// A later life of the runner has said something: this one is to kill what it has, and end.
    Replaced {
        /// The later life.
        by: Incarnation,
    },
    /// The runner has given this claim up, or drains.
    Settled,
}

/// A plan, and where the next one goes on if there were too many lanes for one.
#[derive(Debug, Clone)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    resume: Option<(Class, LaneKey)>,
}

impl Queue {
    /// A runner begins a life. What an earlier one of the same name says is refused from now on.
    pub fn hello(&mut self, now: Timestamp, profile: Profile) -> Incarnation {
        self.incarnations += 1;
        let incarnation = Incarnation(self.incarnations);
        let runner = Runner {
            incarnation,
            seen: now,
            settled: ClaimNumber::default(),
            open: None,
            profile,
        };
        self.runners.insert(runner.profile.name.clone(), runner);
        incarnation
    }

    /// Forgets a runner. What it has ends with its leases.
    pub fn forget_runner(&mut self, name: &RunnerId) {
        self.runners.remove(name);
    }

    /// A runner asks for jobs. If there are none, the claim stays open: it is made again, with the
    /// same number, when something may have changed.
    pub fn claim(&mut self, now: Timestamp, hub: &HubId, offer: &Offer) -> ClaimAnswer {
        if self.hubs.get(hub).is_none_or(|row| row.stopping) {
            return ClaimAnswer::HubStopping;
        }
        let Some(runner) = self.runners.get_mut(&offer.profile.name) else {
            return ClaimAnswer::UnknownRunner;
        };
        if runner.incarnation != offer.incarnation {
            let by = runner.incarnation;
            return ClaimAnswer::Replaced { by };
        }
        runner.seen = now;
        runner.profile = offer.profile.clone();
        runner.settled = runner.settled.max(offer.settled);
        runner.forget_settled_claim();
        let settled = offer.claim <= runner.settled || offer.profile.draining;
        let mut named = offer.held.clone();
        named.sort_unstable();
        let account = Account {
            who: Speaker {
                runner: &offer.profile.name,
                incarnation: offer.incarnation,
            },
            held: &named,
            settled: offer.settled,
        };
        let held = self.reconcile(now, account);
        if settled {
            return ClaimAnswer::Settled;
        }
        self.promote(now, PROMOTED_PER_CLAIM_MAX);
        let mut assignments = self.assigned_before(now, offer);
        if assignments.is_empty() {
            let planned = self.plan_claim(now, offer);
            assignments = self.commit_claim(now, hub, offer, &planned);
        }
        if let Some(runner) = self.runners.get_mut(&offer.profile.name) {
            runner.open = assignments.is_empty().then(|| offer.clone());
        }
        ClaimAnswer::Jobs { assignments, held }
    }

    /// What this very claim got before: its answer was lost. The runner counts the lease from when it
    /// asked again, and so does the hub.
    fn assigned_before(&mut self, now: Timestamp, offer: &Offer) -> Vec<Assignment> {
        let who = Speaker {
            runner: &offer.profile.name,
            incarnation: offer.incarnation,
        };
        let until = now.plus(self.settings.lease);
        let ids = self.index.by_runner.get(&offer.profile.name);
        let jobs = ids.into_iter().flatten().filter_map(|id| self.jobs.get(id));
        let (assignments, changes): (Vec<_>, Vec<_>) = jobs
            .filter_map(|job| {
                let lease = job.lease()?;
                let same = lease.incarnation == offer.incarnation && lease.claim == offer.claim;
                same.then(|| {
                    let assignment = self.assignment(job, lease.attempt);
                    (assignment, lease::renew(job, who, until))
                })
            })
            .unzip();
        for change in changes.into_iter().flatten() {
            self.must(now, change);
        }
        assignments
    }

    fn assignment(&self, job: &Job, attempt: Attempt) -> Assignment {
        Assignment {
            attempt: AttemptKey {
                execution: job.id,
                attempt,
            },
            submission: Arc::clone(&job.submission),
            lease: self.settings.lease,
        }
    }

    /// Plans a claim on what there is now.
    pub fn plan_claim(&self, now: Timestamp, offer: &Offer) -> Planned {
        let mut lanes = Lanes::of(self);
        let mut resume = None;
        let looked_at = Cell::new(0);
        for (class, key, lane) in self.lanes_for(offer, &looked_at) {
            if lanes.lanes.len() >= LANES_LOOKED_MAX {
                resume = Some((class.clone(), key.clone()));
                break;
            }
            lanes.push(class, key, lane);
        }
        let offers: Vec<_> = (lanes.heads.iter().zip(&lanes.classes).zip(&lanes.queues))
            .map(|((head, class), queue)| LaneOffer {
                head: *head,
                requirements: &class.requirements,
                queue: *queue,
            })
            .collect();
        let tally = Tally {
            turns: lanes.turns.clone(),
            rooms: lanes.rooms.clone(),
        };
        let mut plan = plan(&lanes, &offers, tally, offer, now, &self.settings);
        plan.looked.classes = looked_at.get();
        plan.looked.lanes = offers.len();
        Planned { plan, resume }
    }

    /// The lanes that a runner could serve, beginning where the last plan left off.
    fn lanes_for<'a>(
        &'a self,
        offer: &'a Offer,
        looked_at: &'a Cell<usize>,
    ) -> impl Iterator<Item = (&'a Class, &'a LaneKey, &'a Lane)> {
        let from = self.cursors.lane.as_ref();
        let start = from.map_or(Bound::Unbounded, |(class, _)| Bound::Included(class));
        let all = &self.index.classes;
        let behind = all.range::<Class, _>((start, Bound::Unbounded));
        let before = from.map(|(class, _)| all.range::<Class, _>(..class));
        behind
            .chain(before.into_iter().flatten())
            .filter(move |(class, index)| {
                looked_at.set(looked_at.get() + 1);
                !index.lanes.is_empty() && self.may_serve(offer, class)
            })
            .flat_map(move |(class, index)| lanes_from(class, index, from))
    }

    fn may_serve(&self, offer: &Offer, class: &Class) -> bool {
        self.class_is_known(class)
            && offer.profile.serves(&class.queue)
            && !self.is_paused(&class.queue)
            && could_run(&class.requirements, &offer.profile)
    }

    /// Makes a planned claim true, job by job. What somebody else got meanwhile is left out, and
    /// keeps nobody from the others.
    pub fn commit_claim(
        &mut self,
        now: Timestamp,
        hub: &HubId,
        offer: &Offer,
        planned: &Planned,
    ) -> Vec<Assignment> {
        if !self.may_commit(hub, offer) {
            return Vec::new();
        }
        self.cursors.lane = planned.resume.clone();
        if let Some(id) = planned.plan.hold {
            self.hold(now, id, offer);
        }
        let mut assignments = Vec::new();
        for pick in &planned.plan.picks {
            let Some(job) = self.jobs.get(&pick.id) else {
                continue;
            };
            let queue = &job.submission.queue;
            if self.room(queue) == 0
                || !job.is(&pick.token)
                || job.place() != Some(Place::Ready)
                || self.is_paused(queue)
            {
                continue;
            }
            let lease = Lease {
                runner: offer.profile.name.clone(),
                incarnation: offer.incarnation,
                attempt: attempt::next_attempt(job),
                claim: offer.claim,
                granted_at: now,
                until: now.plus(self.settings.lease),
                hub: hub.clone(),
                started: false,
                asked: None,
            };
            let attempt = lease.attempt;
            let before = job.clone();
            let assignment = self.assignment(job, attempt);
            if self.commit(now, attempt::begin(&before, lease)).is_ok() {
                self.index.served(&before, now);
                self.took_turn(&before);
                assignments.push(assignment);
            }
        }
        assignments
    }

    /// True if the world is still one in which this claim may get something.
    fn may_commit(&self, hub: &HubId, offer: &Offer) -> bool {
        self.hubs.get(hub).is_some_and(|row| !row.stopping)
            && (self.runners.get(&offer.profile.name)).is_some_and(|runner| {
                runner.incarnation == offer.incarnation && runner.settled < offer.claim
            })
    }

    fn hold(&mut self, now: Timestamp, id: ExecutionId, offer: &Offer) {
        let until = now.plus(self.settings.lease);
        if let Some(job) = self.jobs.get_mut(&id)
            && job.waits()
        {
            job.hold = Some(Hold {
                runner: offer.profile.name.clone(),
                until,
            });
        }
    }

    pub(super) fn last_turn(&self, queue: &QueueKey, submitter: &str) -> u64 {
        let key = (queue.clone(), submitter.to_owned());
        self.turns.get(&key).copied().unwrap_or(0)
    }

    pub(super) fn took_turn(&mut self, job: &Job) {
        self.newest_turn += 1;
        let key = (
            job.submission.queue.clone(),
            job.submission.submitter.clone(),
        );
        self.turns.insert(key, self.newest_turn);
        if self.turns.len() > TURNS_KEPT_MAX
            && let Some(oldest) = self.turns.iter().min_by_key(|(_, turn)| **turn)
        {
            let oldest = oldest.0.clone();
            self.turns.remove(&oldest);
        }
    }
}

/// The lanes of a class; of the class where the last plan left off only those behind that place.
fn lanes_from<'a>(
    class: &'a Class,
    index: &'a ClassIndex,
    from: Option<&'a (Class, LaneKey)>,
) -> impl Iterator<Item = (&'a Class, &'a LaneKey, &'a Lane)> {
    let start = match from {
        Some((of, lane)) if of == class => Bound::Included(lane),
        _ => Bound::Unbounded,
    };
    let lanes = index.lanes.range::<LaneKey, _>((start, Bound::Unbounded));
    lanes.map(move |(key, lane)| (class, key, lane))
}
