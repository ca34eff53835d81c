//! Which exit code stands for how an execution ended.

use tidemill_core::{ReasonCode, State};
use tidemill_ledger::Snapshot;

use crate::failure::FailureKind;

/// A time limit ended it.
pub(crate) const TIMED_OUT: u8 = 124;
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
