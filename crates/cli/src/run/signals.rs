//! The signals that ask this process to end, as wishes for its job.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit_code::Interrupt;
use crate::failure::{Failure, FailureKind};

/// Listens from its making on. Until then a signal ends the process as usual.
#[derive(Debug)]
pub(crate) struct Signals {
    keyboard: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
    resized: Signal,
}

/// What a signal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The job shall end.
    End(Interrupt),
    /// The window has another size.
    Resize,
}

impl Signals {
    /// Starts to listen. Must be called within the runtime.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind: SignalKind| {
            signal(kind).map_err(|error| {
                Failure::new(FailureKind::Unable, "cannot listen for signals").because(&error)
            })
        };
        Ok(Self {
            keyboard: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
            resized: listen(SignalKind::window_change())?,
        })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        tokio::select! {
            Some(()) = self.keyboard.recv() => Wish::End(Interrupt::Keyboard),
            Some(()) = self.terminate.recv() => Wish::End(Interrupt::Terminate),
            Some(()) = self.hang_up.recv() => Wish::End(Interrupt::HangUp),
            Some(()) = self.quit.recv() => Wish::End(Interrupt::Quit),
            Some(()) = self.resized.recv() => Wish::Resize,
            else => std::future::pending().await,
        }
    }
}
