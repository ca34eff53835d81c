//! Notifications of seccomp filters: a call that waits until another process has answered it.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check_int;

/// A call that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    id: u64,
    /// The number of the call.
    pub(crate) number: i64,
}

/// Takes one waiting call; blocks if there is none.
///
/// # Errors
/// `ENOENT` if the caller was killed or interrupted meanwhile; what ioctl(2) answers.
pub(crate) fn receive(listener: BorrowedFd<'_>) -> io::Result<Waiting> {
    // SAFETY: the kernel wants a zeroed structure, fills it and keeps no pointer to it.
    let notification = unsafe {
        let mut notification: libc::seccomp_notif = std::mem::zeroed();
        check_int(libc::ioctl(
            listener.as_raw_fd(),
            SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut notification,
        ))?;
        notification
    };
    Ok(Waiting {
        id: notification.id,
        number: i64::from(notification.data.nr),
    })
}

/// Answers a waiting call with an error number.
///
/// # Errors
/// `ENOENT` if the caller was killed meanwhile; what ioctl(2) answers.
pub(crate) fn refuse(listener: BorrowedFd<'_>, call: &Waiting, errno: i32) -> io::Result<()> {
    answer(listener, call, -errno, 0)
}

/// Has the kernel do a waiting call. Only for calls whose arguments are in registers: what is in memory
/// may be another by now.
///
/// # Errors
/// `ENOENT` if the caller was killed meanwhile; what ioctl(2) answers.
pub(crate) fn go_on(listener: BorrowedFd<'_>, call: &Waiting) -> io::Result<()> {
    let flag = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1);
    answer(listener, call, 0, flag)
}

fn answer(listener: BorrowedFd<'_>, call: &Waiting, error: i32, flags: u32) -> io::Result<()> {
    let response = libc::seccomp_notif_resp {
        id: call.id,
        val: 0,
        error,
        flags,
    };
    // SAFETY: the kernel reads this structure and keeps no pointer to it.
    check_int(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            SECCOMP_IOCTL_NOTIF_SEND,
            &raw const response,
        )
    })?;
    Ok(())
}

/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)` of
/// linux/seccomp.h: direction, size, type and number.
const SECCOMP_IOCTL_NOTIF_RECV: libc::c_ulong = request(0, size_of::<libc::seccomp_notif>());
const SECCOMP_IOCTL_NOTIF_SEND: libc::c_ulong = request(1, size_of::<libc::seccomp_notif_resp>());

const fn request(number: libc::c_ulong, size: usize) -> libc::c_ulong {
    const READ_AND_WRITE: libc::c_ulong = 3 << 30;
    const TYPE: libc::c_ulong = (b'!' as libc::c_ulong) << 8;
    READ_AND_WRITE | (size as libc::c_ulong) << 16 | TYPE | number
}
