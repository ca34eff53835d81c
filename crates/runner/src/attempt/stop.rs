//! Ending an attempt before it ends by itself: who asked, how, and what was done about it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_core::{Millis, StopSignal};
use tokio::sync::Notify;

use crate::sandboxes::Killing;

/// How long a sandbox with a time limit may take until its program runs.
pub(crate) const SET_UP_MAX: Duration = Duration::from_secs(60);

/// How an attempt is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopPlan {
    /// The polite signal, then the kill after the grace.
    Graceful,
    /// The kill.
    Now,
}

/// What was done to end an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct StopNote {
    /// The polite signal that was sent while the job ran.
    pub(crate) signalled: Option<StopSignal>,
    /// The job was killed while it ran.
    pub(crate) killed: bool,
    /// It was killed because its grace was over.
    pub(crate) after_grace: bool,
    /// Its program did not run when the time for setting the sandbox up was over.
    pub(crate) set_up_late: bool,
}

/// Ends one attempt, at whatever point of its life it is. Clones are the same switch.
#[derive(Clone)]
pub(crate) struct StopSwitch {
    state: Arc<Mutex<State>>,
    /// Told once, when the program runs.
    running: Arc<Notify>,
}

struct State {
    life: Life,
    /// What is to be done, once somebody asked.
    asked: Option<StopPlan>,
    note: StopNote,
    kill_taken: bool,
    /// The polite signal.
    signal: StopSignal,
}

enum Life {
    /// There is no sandbox yet.
    Coming,
    /// The program runs.
    Running(Box<dyn Killing>),
    /// Nothing of it is left.
    Over,
}

impl StopSwitch {
    /// The switch of an attempt that nobody asked to end. `signal` is how it is asked.
    pub(crate) fn new(signal: StopSignal) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                life: Life::Coming,
                asked: None,
                note: StopNote::default(),
                kill_taken: false,
                signal,
            })),
            running: Arc::default(),
        }
    }

    /// Ends the attempt. A later, harder wish counts; a softer one does not. True if the polite
    /// signal was sent now, so that the grace begins.
    pub(crate) fn stop(&self, plan: StopPlan) -> bool {
        let mut state = self.state();
        let harder = match state.asked {
            None => true,
            Some(asked) => asked == StopPlan::Graceful && plan == StopPlan::Now,
        };
        if !harder {
            return false;
        }
        state.asked = Some(plan);
        state.act(plan)
    }

    /// Ends the attempt at once, unless somebody asked for an end before: then that stands.
    pub(crate) fn stop_unless_asked(&self) {
        let mut state = self.state();
        if state.asked.is_none() {
            state.asked = Some(StopPlan::Now);
            state.act(StopPlan::Now);
        }
    }

    /// True once after the job was killed.
    pub(crate) fn take_killed(&self) -> bool {
        let mut state = self.state();
        state.note.killed && !std::mem::replace(&mut state.kill_taken, true)
    }

    /// The grace is over.
    pub(crate) fn grace_is_over(&self) {
        let mut state = self.state();
        if matches!(state.life, Life::Running(_)) && !state.note.killed {
            state.note.after_grace = true;
            state.act(StopPlan::Now);
        }
    }

    /// The time for setting the sandbox up is over.
    pub(crate) fn set_up_is_over(&self) {
        let mut state = self.state();
        state.note.set_up_late = matches!(state.life, Life::Coming);
    }

    /// False if somebody asked to end the attempt.
    pub(crate) fn may_start(&self) -> bool {
        self.state().asked.is_none()
    }

    /// The program runs. If somebody asked meanwhile, it is killed at once.
    pub(crate) fn started(&self, killing: Box<dyn Killing>) {
        let mut state = self.state();
        state.life = Life::Running(killing);
        if state.asked.is_some() {
            state.act(StopPlan::Now);
        }
        self.running.notify_one();
    }

    /// Waits until the program runs. For one listener. Cancel safe.
    pub(crate) async fn has_started(&self) {
        self.running.notified().await;
    }

    /// Nothing of the attempt is left.
    pub(crate) fn over(&self) {
        self.state().life = Life::Over;
    }

    /// True once nothing of the attempt is left.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state().life, Life::Over)
    }

    /// What was done.
    pub(crate) fn note(&self) -> StopNote {
        self.state().note
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every step leaves it whole, so it is whole whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn act(&mut self, plan: StopPlan) -> bool {
        let Life::Running(killing) = &self.life else {
            return false;
        };
        match plan {
            StopPlan::Graceful => {
                killing.signal(self.signal.number());
                self.note.signalled = Some(self.signal);
                true
            }
            StopPlan::Now => {
                killing.kill();
                self.note.killed = true;
                false
            }
        }
    }
}

impl fmt::Debug for StopSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("StopSwitch")
            .field("asked", &state.asked)
            .field("note", &state.note)
            .finish_non_exhaustive()
    }
}

impl StopNote {
    /// What was done where the main process ended when it was asked, and what it left did not.
    pub(crate) fn after_grace_without_main(
        self,
        grace: Millis,
        main_ended_itself: bool,
    ) -> Option<String> {
        let signal = self.signalled?;
        (self.killed && self.after_grace && main_ended_itself).then(|| {
            let grace = super::outcome::time(grace);
            format!(
                "{signal} sent, ended by itself; what it left was killed after grace of {grace}"
            )
        })
    }

    /// What was done, for people; nothing if nothing was done.
    pub(crate) fn describe(self, grace: Millis) -> Option<String> {
        match (self.signalled, self.killed) {
            (Some(signal), true) if self.after_grace => Some(format!(
                "{signal} sent, killed after grace of {}",
                super::outcome::time(grace)
            )),
            (_, true) => Some("killed at once".to_owned()),
            (Some(signal), false) => Some(format!("{signal} sent, ended by itself")),
            (None, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Ignoring;

    impl Killing for Ignoring {
        fn signal(&self, _: i32) {}

        fn kill(&self) {}
    }

    #[test]
    fn a_set_up_is_late_only_while_the_program_does_not_run() {
        let late = StopSwitch::new(StopSignal::default());
        late.set_up_is_over();
        assert!(late.note().set_up_late);
        let running = StopSwitch::new(StopSignal::default());
        running.started(Box::new(Ignoring));
        running.set_up_is_over();
        assert!(!running.note().set_up_late);
    }
}
