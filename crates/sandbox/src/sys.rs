//! Raw system calls behind safe wrappers. The only place in Tidemill with `unsafe`.
//!
//! Every wrapper states its contract in a `SAFETY` line. Nothing here decides anything.
#![expect(
    unsafe_code,
    reason = "this is the one module that talks to the kernel directly"
)]

pub(crate) mod mount;
pub(crate) mod notification;
pub(crate) mod process;
pub(crate) mod socket;
pub(crate) mod terminal;

use std::io;

/// Turns the result of a system call into a `Result`.
pub(crate) fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The same for calls that give an `int`.
pub(crate) fn check_int(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
