//! Writing to a standard descriptor of this process, so that a reader who stands still can be left.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, write};

/// So many bytes fit into a pipe that says it has room, and a write of them does not block.
const PIPE_PIECE: usize = 4096;
/// How often a wait for room looks whether it is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A descriptor that job output is copied to.
#[derive(Debug)]
pub(crate) struct Descriptor<F> {
    fd: F,
    may_block: bool,
    pub(crate) is_terminal: bool,
}

impl<F: AsFd> Descriptor<F> {
    pub(crate) fn new(fd: F) -> Self {
        let kind = fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
        let is_terminal = rustix::termios::isatty(&fd);
        let is_null = kind == Ok(FileType::CharacterDevice) && !is_terminal;
        Self {
            may_block: !(is_null || kind == Ok(FileType::RegularFile)),
            is_terminal,
            fd,
        }
    }

    /// Writes everything, or fails. While nobody reads, it waits until `abandon` is set.
    pub(crate) fn write_all(&self, mut bytes: &[u8], abandon: &AtomicBool) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = if self.may_block {
                self.wait_for_room(abandon)?;
                &bytes[..bytes.len().min(PIPE_PIECE)]
            } else {
                bytes
            };
            match write(&self.fd, piece) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn wait_for_room(&self, abandon: &AtomicBool) -> io::Result<()> {
        let timeout = Timespec::try_from(LOOK_EVERY).expect("a tenth of a second fits");
        loop {
            if abandon.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let fd: BorrowedFd<'_> = self.fd.as_fd();
            match poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                // Room, or an error that the write will tell.
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Read;
    use std::thread;

    use super::*;

    #[test]
    fn every_byte_goes_through_a_pipe() {
        let (mut reader, writer) = io::pipe().unwrap();
        let bytes: Vec<u8> = (0..300_000_u32)
            .map(|number| number.to_le_bytes()[0])
            .collect();
        let expected = bytes.clone();
        let writing = thread::spawn(move || {
            Descriptor::new(writer)
                .write_all(&bytes, &AtomicBool::new(false))
                .unwrap();
        });
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        writing.join().unwrap();
        assert_eq!(read, expected);
    }

    #[test]
    fn a_reader_who_stands_still_can_be_left() {
        let (reader, writer) = io::pipe().unwrap();
        let descriptor = Descriptor::new(writer);
        let abandon = AtomicBool::new(true);
        let error = descriptor.write_all(&[0; 1 << 20], &abandon).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(reader);
        abandon.store(false, Ordering::Relaxed);
        let error = descriptor.write_all(b"x", &abandon).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
