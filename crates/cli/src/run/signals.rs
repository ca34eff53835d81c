//! The signals that ask this process to end, as wishes for its job.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::exit_code::Interrupt;
use crate::failure::{Failure, FailureKind};

/// A supervisor signals this process and then its process group, as timeout(1) does, and a session that
/// is closed sends more than one kind. Within this time it is one wish to end.
const ECHO_FOR: Duration = Duration::from_millis(500);

/// Listens from its making on. Until then a signal ends the process as usual.
#[derive(Debug)]
pub(crate) struct Signals {
    keyboard: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
    resized: Signal,
    /// When the first wish to end came.
    asked: Option<Instant>,
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
            asked: None,
        })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Wish {
        loop {
            let wish = self.received().await;
            let Wish::End(interrupt) = wish else {
                return wish;
            };
            let now = Instant::now();
            let first = *self.asked.get_or_insert(now);
            if first == now || !is_echo(interrupt, now - first) {
                return wish;
            }
        }
    }

    async fn received(&mut self) -> Wish {
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

/// True if a signal that came so long after the first is a part of the same wish. A person who presses
/// Ctrl-C again means it.
fn is_echo(interrupt: Interrupt, after: Duration) -> bool {
    interrupt != Interrupt::Keyboard && after < ECHO_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_at_once_is_the_same_wish_but_for_ctrl_c() {
        let soon = Duration::from_millis(20);
        for interrupt in [Interrupt::Terminate, Interrupt::HangUp, Interrupt::Quit] {
            assert!(is_echo(interrupt, soon), "{interrupt:?}");
            assert!(!is_echo(interrupt, ECHO_FOR), "{interrupt:?}");
        }
        assert!(!is_echo(Interrupt::Keyboard, soon));
    }
}
