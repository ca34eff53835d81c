//! Whoever watches a job while it runs.

use std::io;
use std::os::fd::OwnedFd;

use tidemill_core::Stream;

/// Gets every byte of a job's output as it comes, whatever the limit of the kept log is.
///
/// It is called on the thread that reads the job's output, so a sink that is slow slows the job
/// down, as a slow pipe would, and one that blocks holds up the end of the attempt.
pub trait LiveSink: Send {
    /// Takes bytes of one stream; `offset` is the position of the first among all bytes of both.
    ///
    /// # Errors
    /// If the listener is gone. The sink is not called again, and the job goes on.
    fn write(&mut self, stream: Stream, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// The job has a terminal: this is a second handle to its controlling end, for keyboard input
    /// and window sizes. Comes once, before the program starts.
    fn terminal(&mut self, controller: OwnedFd) {
        drop(controller);
    }

    /// Nothing more will be written.
    fn end(&mut self) {}
}
