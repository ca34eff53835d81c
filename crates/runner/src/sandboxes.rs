//! How a runner speaks to the sandbox: through traits, so that tests can put a fake in its place.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use tidemill_core::{Grant, Stream};
use tidemill_sandbox::{
    Ended, Killer, Launcher, Next, OutputReader, Sandbox, SandboxRequest, StartError, Stdio,
    open_pty, output_pipes,
};

/// A place where jobs run.
pub trait Sandboxes: Send + Sync + 'static {
    /// Makes the ends of a job's output: the reader, then what goes into the sandbox.
    ///
    /// # Errors
    /// What the kernel says.
    fn output(&self) -> io::Result<(Box<dyn Output>, OwnedFd, OwnedFd)>;

    /// Makes a terminal: the reader of its output, a second handle to the controlling end, and the
    /// end that goes into the sandbox.
    ///
    /// # Errors
    /// What the kernel says.
    fn terminal(&self) -> io::Result<(Box<dyn Output>, OwnedFd, OwnedFd)>;

    /// Starts a program in a sandbox. Blocks until it was exec'd or that failed.
    ///
    /// # Errors
    /// Why nothing runs; whose fault it is stands in the error.
    fn spawn(&self, request: &SandboxRequest, stdio: Stdio)
    -> Result<Box<dyn Running>, StartError>;
}

/// The output of a job, both streams in one order.
pub trait Output: Send {
    /// The next piece. Waits for it, at most `timeout` if given.
    ///
    /// # Errors
    /// What the kernel says.
    fn next(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<Next>;
}

/// A sandbox in which a program runs. Dropping it kills everything in it.
pub trait Running: Send {
    /// Walls that this host cannot build.
    fn missing_walls(&self) -> Vec<Grant>;

    /// For signalling and killing while somebody waits.
    fn killing(&self) -> Box<dyn Killing>;

    /// Blocks until everything in it has ended and nothing of it is left.
    ///
    /// # Errors
    /// If the end is not known.
    fn wait(self: Box<Self>) -> Result<Ended, StartError>;
}

/// Ends a job from elsewhere.
pub trait Killing: Send {
    /// Sends a signal to every process of the job.
    fn signal(&self, signal: i32);

    /// Ends the job at once.
    fn kill(&self);
}

impl Sandboxes for Launcher {
    fn output(&self) -> io::Result<(Box<dyn Output>, OwnedFd, OwnedFd)> {
        let (reader, stdout, stderr) = output_pipes()?;
        Ok((Box::new(reader), stdout, stderr))
    }

    fn terminal(&self) -> io::Result<(Box<dyn Output>, OwnedFd, OwnedFd)> {
        terminal()
    }

    fn spawn(
        &self,
        request: &SandboxRequest,
        stdio: Stdio,
    ) -> Result<Box<dyn Running>, StartError> {
        let sandbox = Self::spawn(self, request, stdio)?;
        Ok(Box::new(sandbox))
    }
}

impl Output for OutputReader {
    fn next(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<Next> {
        Self::next(self, buffer, timeout)
    }
}

impl Running for Sandbox {
    fn missing_walls(&self) -> Vec<Grant> {
        Self::missing_walls(self).to_vec()
    }

    fn killing(&self) -> Box<dyn Killing> {
        Box::new(self.killer())
    }

    fn wait(self: Box<Self>) -> Result<Ended, StartError> {
        Self::wait(*self)
    }
}

impl Killing for Killer {
    fn signal(&self, signal: i32) {
        Self::signal(self, signal);
    }

    fn kill(&self) {
        Self::kill(self);
    }
}

/// Makes a terminal, see [`Sandboxes::terminal`].
pub(crate) fn terminal() -> io::Result<(Box<dyn Output>, OwnedFd, OwnedFd)> {
    let pair = open_pty()?;
    let second = pair.controller.try_clone()?;
    let output = TerminalOutput {
        controller: pair.controller,
    };
    Ok((Box::new(output), second, pair.terminal))
}

/// The controlling end of a terminal: everything that is written to it is one stream.
struct TerminalOutput {
    controller: OwnedFd,
}

impl Output for TerminalOutput {
    fn next(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<Next> {
        // A length of time that does not fit is as good as none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut ready = [PollFd::new(&self.controller, PollFlags::IN)];
        match poll(&mut ready, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(Next::TimedOut),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        match read(&self.controller, buffer) {
            // The kernel says EIO when the last one who had the terminal open is gone.
            Ok(0) | Err(Errno::IO) => Ok(Next::Closed),
            Ok(length) => Ok(Next::Piece {
                stream: Stream::Stdout,
                length,
            }),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Next::TimedOut),
            Err(errno) => Err(errno.into()),
        }
    }
}
