//! Which jobs a claim gets.
//!
//! A claim is planned on what somebody saw and committed job by job with compare and set: of several
//! that plan at once, one gets each job, and who lost one still gets the others.

use tidemill_core::{CpuCount, ExecutionId, Timestamp};

use crate::job::{Job, Token};
use crate::matching::Budget;
use crate::offer::Offer;
use crate::order::{Age, Head, Line};
use crate::settings::{CLAIM_BATCH_MAX, Settings};
use crate::submission::Requirements;

/// Jobs of one lane that one claim looks at only to find that its runner declined them. A runner that
/// declined so many in a row gets nothing out of that lane.
pub const DECLINED_LOOKED_MAX: u32 = 32;

/// A lane that the runner could serve, with its head.
#[derive(Debug, Clone, Copy)]
pub struct LaneOffer<'a> {
    /// Its head.
    pub head: Head,
    /// What its jobs need.
    pub requirements: &'a Requirements,
    /// Its queue: an index into the rooms.
    pub queue: usize,
}

/// The jobs that wait in the lanes: a whole table, or as much of each lane as was loaded.
pub trait Window {
    /// The first ready job of a lane, behind this age. `None` at its end, or at the end of what was
    /// loaded.
    fn first(&self, lane: usize, behind: Option<Age>) -> Option<&Job>;
}

/// What a claim gets if nobody is faster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The jobs, the first one first.
    pub picks: Vec<Pick>,
    /// A job that the runner is large enough for and has waited for long: it takes nothing else until
    /// it has room.
    pub hold: Option<ExecutionId>,
    /// How much was looked at.
    pub looked: Looked,
}

/// One job of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// Which.
    pub id: ExecutionId,
    /// What the plan saw of it.
    pub token: Token,
}

/// How much a plan looked at: what a claim costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Looked {
    /// Classes whose requirements were compared.
    pub classes: usize,
    /// Lanes whose heads were looked at.
    pub lanes: usize,
    /// Rows of jobs, the heads not counted again.
    pub rows: usize,
}

/// What a plan depends on beside the lanes.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The number of the last turn of each submitter that a head names.
    pub turns: Vec<u64>,
    /// How many more jobs of each queue that a lane names runners may have.
    pub rooms: Vec<u64>,
}

/// Plans a claim. `lanes` are the ones that the runner could serve.
pub fn plan(
    window: &impl Window,
    lanes: &[LaneOffer<'_>],
    tally: Tally,
    offer: &Offer,
    now: Timestamp,
    settings: &Settings,
) -> Plan {
    let heads = lanes.iter().map(|lane| lane.head).collect();
    let Tally { turns, mut rooms } = tally;
    let mut line = Line::new(now, settings.ageing_step, heads, turns);
    let mut budget = Budget {
        slots: offer.slots.min(CLAIM_BATCH_MAX),
        memory: offer.memory_free,
        cpus: CpuCount {
            thousandths: offer.cpus_free.thousandths,
        },
    };
    let mut plan = Plan::default();
    while budget.slots > 0 {
        let Some(lane) = line.pop() else {
            break;
        };
        let needs = lanes[lane].requirements;
        let room = &mut rooms[lanes[lane].queue];
        if *room == 0 {
            continue;
        }
        let Some(job) = first_wanted(window, lane, &line, offer, &mut plan.looked) else {
            continue;
        };
        // A lone job may have all of the runner, whatever the rest of the host takes of it.
        let alone = offer.held.is_empty() && plan.picks.is_empty();
        if !budget.fits(needs) && !alone {
            if is_held_for(job, line.head(lane), offer, now, settings) {
                plan.hold = Some(job.id);
                break;
            }
            continue;
        }
        budget.take(needs);
        *room -= 1;
        plan.picks.push(Pick {
            id: job.id,
            token: job.token(),
        });
        let next = window.first(lane, Some(job.age()));
        line.took(lane, next.map(Job::age));
    }
    plan
}

/// The first job of a lane that the runner did not decline.
fn first_wanted<'a>(
    window: &'a impl Window,
    lane: usize,
    line: &Line,
    offer: &Offer,
    looked: &mut Looked,
) -> Option<&'a Job> {
    let head = line.head(lane).age;
    // The head itself is the first one that is not in front of it.
    let mut behind = Age {
        since: head.since,
        arrival: head.arrival.saturating_sub(1),
    };
    for _ in 0..DECLINED_LOOKED_MAX {
        let job = window.first(lane, Some(behind))?;
        looked.rows += 1;
        if !job.was_declined_by(&offer.profile.name, offer.incarnation) {
            return Some(job);
        }
        behind = job.age();
    }
    None
}

/// True if a runner without room for a job is to wait until it has.
fn is_held_for(job: &Job, head: &Head, offer: &Offer, now: Timestamp, settings: &Settings) -> bool {
    let passed_over = now.since(head.age.since.max(head.served_at));
    passed_over >= settings.hold_after
        && (job.hold.as_ref())
            .is_none_or(|hold| hold.runner == offer.profile.name || hold.until <= now)
}
