//! What the hub has to be told of each job: waiting for layers, waiting to execute, executing; each
//! once, in this order, and none that did not happen.

use tidemill_core::event::Status;
use tidemill_dispatch::Phase;

use super::job::{Fate, Stage};
use super::{Judge, SelfReport};
use crate::fault::{Fault, FaultKind};
use crate::names::show_job;

impl Judge {
    /// A job that stays in a stage when a message is done is told to be there, once.
    pub(super) fn check_statuses(&mut self) -> Result<(), Fault> {
        for (id, job) in &mut self.jobs {
            let status = match job.stage {
                Stage::Awaiting => Some(Status::WaitingForLayers),
                Stage::Available => Some(Status::WaitingToExecute),
                Stage::Executing => Some(Status::Executing),
                Stage::Dying(_) | Stage::Ended => None,
            };
            if let Some(status) = status
                && job.to_tell.last() != Some(&status)
            {
                job.to_tell.push(status);
            }
            if job.told != job.to_tell {
                let what = format!(
                    "of {} was told {:?}, not {:?}",
                    show_job(*id),
                    job.told,
                    job.to_tell
                );
                return Err(Fault::new(FaultKind::WrongStatus, what));
            }
        }
        Ok(())
    }

    /// What the dispatcher says of itself.
    pub(super) fn check_report(&self, report: &SelfReport<'_>) -> Result<(), Fault> {
        let room = self.room();
        if report.room != room {
            let what = format!("it says {:?} and has {room:?}", report.room);
            return Err(Fault::new(FaultKind::WrongRoom, what));
        }
        let is_done = self.stop.as_ref().is_some_and(|stop| stop.done);
        if report.is_done != is_done {
            let what = format!("asked whether it is done, it says {}", report.is_done);
            return Err(Fault::new(FaultKind::WrongPhase, what));
        }
        for (id, job) in &self.jobs {
            let phase = match job.stage {
                Stage::Awaiting => Some(Phase::AwaitingLayers),
                Stage::Available => Some(Phase::Available),
                Stage::Executing => Some(Phase::Executing),
                Stage::Dying(Fate::Cancelled | Fate::Dropped) => Some(Phase::Cancelled),
                Stage::Dying(Fate::TimedOut) => Some(Phase::TimedOut),
                Stage::Dying(Fate::Defective) => Some(Phase::Defective),
                Stage::Ended => None,
            };
            let says = (report.phase)(*id);
            if says != phase {
                let what = format!("{} is {phase:?}, not {says:?}", show_job(*id));
                return Err(Fault::new(FaultKind::WrongPhase, what));
            }
        }
        Ok(())
    }
}
