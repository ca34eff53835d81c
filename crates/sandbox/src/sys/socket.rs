//! Messages with descriptors over a local socket that keeps message borders.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::check;

/// Descriptors in one message at most.
pub(crate) const FDS_MAX: usize = 8;
/// Bytes in one message at most: set as the socket's buffer, so that a message is sent whole.
pub(crate) const MESSAGE_BYTES_MAX: usize = 192 * 1024;

/// A connected pair of sequenced-packet sockets.
///
/// # Errors
/// What socketpair(2) answers.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, two) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((one, two))
}

#[repr(C, align(8))]
struct ControlBuffer([u8; 128]);

/// Sends one message with descriptors.
///
/// # Errors
/// `EPIPE` if the other side is gone, `EMSGSIZE` if it is too long.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(
        fds.len() <= FDS_MAX,
        "a message carries at most {FDS_MAX} descriptors"
    );
    let mut control = ControlBuffer([0; 128]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the header points to one part and to a control buffer that is large and aligned
    // enough for FDS_MAX descriptors; all outlive the call. The kernel only reads them.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            let length = u32::try_from(fds.len() * size_of::<i32>()).unwrap_or(0);
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(length) as usize;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(length) as usize;
            let place = libc::CMSG_DATA(first).cast::<i32>();
            for (index, fd) in fds.iter().enumerate() {
                place.add(index).write_unaligned(fd.as_raw_fd());
            }
        }
        loop {
            let sent = libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL);
            match check(sent as libc::c_long) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Receives one message. An empty one means that the other side is gone.
///
/// # Errors
/// `EAGAIN` without a message when `wait` is false; `EMSGSIZE` if it did not fit.
pub(crate) fn receive(socket: BorrowedFd<'_>, wait: bool) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    // Not zeroed: most messages are short, and this is on the way of every one.
    let mut bytes: Vec<u8> = Vec::with_capacity(MESSAGE_BYTES_MAX);
    let mut control = ControlBuffer([0; 128]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.capacity(),
    };
    // SAFETY: the header points to buffers of the lengths it states, which outlive the call. The kernel
    // has written as many bytes as it says, which are at most those of the one part. Every descriptor in the control data was just given to us by the kernel and is wrapped once.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len();
        let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
        let received = loop {
            match check(libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) as libc::c_long) {
                Ok(count) => break usize::try_from(count).unwrap_or(0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It left without having read what we said last.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break 0,
                Err(error) => return Err(error),
            }
        };
        let mut fds = Vec::new();
        let mut current = libc::CMSG_FIRSTHDR(&raw const header);
        while !current.is_null() {
            if (*current).cmsg_level == libc::SOL_SOCKET && (*current).cmsg_type == libc::SCM_RIGHTS
            {
                let length = (*current).cmsg_len - libc::CMSG_LEN(0) as usize;
                let place = libc::CMSG_DATA(current).cast::<i32>();
                for index in 0..length / size_of::<i32>() {
                    fds.push(OwnedFd::from_raw_fd(place.add(index).read_unaligned()));
                }
            }
            current = libc::CMSG_NXTHDR(&raw const header, current);
        }
        if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        bytes.set_len(received.min(bytes.capacity()));
        bytes.shrink_to_fit();
        Ok((bytes, fds))
    }
}
