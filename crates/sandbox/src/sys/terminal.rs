//! The controlling terminal of a job that asked for one.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check_int;

/// Makes a terminal the controlling one of this session (whose leader we are).
///
/// # Errors
/// `EPERM` if we lead no session or the terminal has one already.
pub(crate) fn take_control(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an integer argument only.
    check_int(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0_i32) })?;
    Ok(())
}
