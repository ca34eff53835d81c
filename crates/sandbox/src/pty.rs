//! A terminal for a job that asked for one.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// Both ends of a new pseudo-terminal.
#[derive(Debug)]
pub struct PtyPair {
    /// What its owner reads and writes.
    pub controller: OwnedFd,
    /// What the job has as standard input, output and error.
    pub terminal: OwnedFd,
}

/// Opens a new pseudo-terminal.
///
/// # Errors
/// What the kernel answers.
pub fn open_pty() -> io::Result<PtyPair> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&controller)?;
    unlockpt(&controller)?;
    let name = ptsname(&controller, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open(name.as_c_str(), flags, Mode::empty())?;
    Ok(PtyPair {
        controller,
        terminal,
    })
}
