//! Which exit code stands for how an execution ended.

use tidemill_core::{ReasonCode, State};
use tidemill_ledger::Snapshot;

use crate::failure::FailureKind;

/// A time limit ended it.
pub(crate) const TIMED_OUT: u8 = FailureKind::Late.exit_code();
/// Tidemill could not run it, or does not know how it ended.
pub(crate) const UNABLE: u8 = FailureKind::Unable.exit_code();
/// The program is there and cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// There is no such program.
pub(crate) const NOT_FOUND: u8 = 127;
/// Added to the number of the signal that ended it.
const SIGNAL_BASE: i32 = 128;

/// The signal that asked this process to end, and so cancelled its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// SIGINT: Ctrl-C.
    Keyboard,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    HangUp,
    /// SIGQUIT: Ctrl-\.
    Quit,
    /// Nobody reads standard output any more.
    ReaderGone,
}

impl Interrupt {
    /// What people call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Keyboard => "Ctrl-C",
            Self::Terminate => "SIGTERM",
            Self::HangUp => "SIGHUP",
            Self::Quit => "SIGQUIT",
            Self::ReaderGone => "closed output",
        }
    }

    /// 128 and the number of the signal, as a shell shows it.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::HangUp => 129,
            Self::Keyboard => 130,
            Self::Quit => 131,
            Self::ReaderGone => 141,
            Self::Terminate => 143,
        }
    }
}

/// The exit code for an execution that has ended. `interrupt` is what made this process cancel it.
pub(crate) fn of_execution(snapshot: &Snapshot, interrupt: Option<Interrupt>) -> u8 {
    match snapshot.state {
        State::Succeeded => 0,
        State::TimedOut => TIMED_OUT,
        State::Cancelled => interrupt.unwrap_or(Interrupt::Keyboard).exit_code(),
        State::Failed => of_failed(snapshot),
        State::Interrupted
        | State::Queued
        | State::Paused
        | State::Starting
        | State::Running
        | State::Cancelling => UNABLE,
    }
}

fn of_failed(snapshot: &Snapshot) -> u8 {
    match snapshot.reason.as_ref().map(|reason| reason.code) {
        Some(ReasonCode::ProgramNotFound) => NOT_FOUND,
        Some(ReasonCode::ProgramNotExecutable) => NOT_EXECUTABLE,
        Some(code) if code.is_jobs_own_fault() => of_program(snapshot).unwrap_or(UNABLE),
        _ => UNABLE,
    }
}

/// How the program itself ended. A program that a limit ended well did not end well.
fn of_program(snapshot: &Snapshot) -> Option<u8> {
    if let Some(signal) = snapshot.signal {
        return u8::try_from(SIGNAL_BASE + signal).ok();
    }
    match snapshot.exit_code? {
        0 => Some(1),
        code => u8::try_from(code).ok(),
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::Reason;

    use super::*;
    use crate::testing::snapshot;

    /// The exit code for a failed program: its code, its signal, the reason.
    fn failed(code: Option<i32>, signal: Option<i32>, reason: ReasonCode) -> u8 {
        let mut failed = snapshot(1, State::Failed);
        failed.exit_code = code;
        failed.signal = signal;
        failed.reason = Some(Reason::new(reason, "it ended"));
        of_execution(&failed, None)
    }

    #[test]
    fn a5_the_table_of_exit_codes() {
        assert_eq!(of_execution(&snapshot(1, State::Succeeded), None), 0);
        assert_eq!(failed(Some(3), None, ReasonCode::Exit), 3);
        assert_eq!(failed(Some(255), None, ReasonCode::Exit), 255);
        assert_eq!(failed(None, Some(11), ReasonCode::Signal), 139);
        assert_eq!(failed(None, Some(9), ReasonCode::Memory), 137);
        assert_eq!(failed(Some(7), None, ReasonCode::Disk), 7);
        assert_eq!(failed(Some(0), None, ReasonCode::Memory), 1);
        assert_eq!(failed(None, None, ReasonCode::ProgramNotExecutable), 126);
        assert_eq!(failed(None, None, ReasonCode::ProgramNotFound), 127);
        for platform in [
            ReasonCode::BadWorkdir,
            ReasonCode::Layer,
            ReasonCode::Sandbox,
            ReasonCode::Lost,
            ReasonCode::Shutdown,
            ReasonCode::Internal,
        ] {
            assert_eq!(failed(None, None, platform), 125, "{platform}");
        }
        // The platform's fault is not hidden behind what the program said before.
        assert_eq!(failed(Some(3), None, ReasonCode::Lost), 125);
        assert_eq!(of_execution(&snapshot(1, State::TimedOut), None), 124);
        assert_eq!(of_execution(&snapshot(1, State::Interrupted), None), 125);
    }

    #[test]
    fn a_cancelled_run_ends_as_its_signal_says() {
        let cancelled = snapshot(1, State::Cancelled);
        assert_eq!(of_execution(&cancelled, None), 130);
        for (interrupt, code) in [
            (Interrupt::HangUp, 129),
            (Interrupt::Keyboard, 130),
            (Interrupt::Quit, 131),
            (Interrupt::ReaderGone, 141),
            (Interrupt::Terminate, 143),
        ] {
            assert_eq!(of_execution(&cancelled, Some(interrupt)), code);
            // A job that ended before the signal could do anything ended as it ended.
            assert_eq!(
                of_execution(&snapshot(1, State::Succeeded), Some(interrupt)),
                0
            );
        }
    }
}
