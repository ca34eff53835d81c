//! Leases whose runner is not heard any more.

use tidemill_core::Timestamp;

use crate::attempt;
use crate::hub::{self, HubId};
use crate::job::{Change, Job};
use crate::lease;
use crate::settings::Settings;

/// Who looks at a lease, and what it knows of the hubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rescuer<'a> {
    /// The hub that looks.
    pub hub: &'a HubId,
    /// True if the hub that the lease is for to end has ended or gave no sign of life for too long.
    pub owner_is_dead: bool,
    /// Since when runners could report to some hub without a gap.
    pub serving_since: Option<Timestamp>,
}

/// What is to be done with a lease: it is lost, it becomes this hub's because its own is dead, or, with
/// `None`, it is left alone. What this version does not know is passed over.
pub fn rescue(
    job: &Job,
    rescuer: Rescuer<'_>,
    now: Timestamp,
    settings: &Settings,
) -> Option<Change> {
    let lease = job.lease()?;
    if lease.hub != *rescuer.hub {
        let until = now.plus(settings.lease);
        return (rescuer.owner_is_dead).then(|| hub::take_over_lease(job, rescuer.hub, until))?;
    }
    let lost_at = lease::lost_at(lease, rescuer.serving_since, settings.lease)?;
    if lost_at > now || !job.is_known(settings) {
        return None;
    }
    let silent = now.since(lease.until) + settings.lease;
    let message = format!(
        "runner lost: `{}` was not heard for {} s",
        lease.runner,
        silent.as_secs()
    );
    attempt::lose(job, message, Some(lease.until), now, settings)
}
