//! One attempt in a process of its own, so that whatever ends it is an answer too.

use std::io::{self, PipeReader, PipeWriter, Read, Write};

use crate::sys::{self, Ending};

/// How long an attempt may take.
const SECONDS_MAX: u32 = 10;

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It succeeded.
    Done,
    /// It failed with this error number.
    Refused(i32),
    /// A signal ended the process.
    Killed(i32),
    /// The process ended without a word.
    Silent,
}

/// Tries something in a child.
pub(crate) fn attempt(action: impl FnOnce() -> io::Result<()>) -> Answer {
    let Ok((reader, writer)) = io::pipe() else {
        return Answer::Silent;
    };
    match sys::fork() {
        Err(error) => Answer::Refused(error.raw_os_error().unwrap_or(0)),
        Ok(0) => {
            drop(reader);
            sys::alarm(SECONDS_MAX);
            answer(writer, action());
            sys::exit_now(0)
        }
        Ok(pid) => {
            drop(writer);
            let said = listen(reader);
            match (said, sys::wait(pid)) {
                (Some(0), _) => Answer::Done,
                (Some(errno), _) => Answer::Refused(errno),
                (None, Ok(Ending::Signalled { signal, .. })) => Answer::Killed(signal),
                (None, _) => Answer::Silent,
            }
        }
    }
}

/// Writes 0 for success, or the error number.
fn answer(mut writer: PipeWriter, result: io::Result<()>) {
    let errno = match result {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    // Nobody reads it if the parent is gone.
    drop(writer.write_all(&errno.to_ne_bytes()));
}

fn listen(mut reader: PipeReader) -> Option<i32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_an_answer() {
        assert_eq!(attempt(|| Ok(())), Answer::Done);
        let refused = || Err(io::Error::from_raw_os_error(libc::EPERM));
        assert_eq!(attempt(refused), Answer::Refused(libc::EPERM));
        assert_eq!(attempt(|| sys::exit_now(3)), Answer::Silent);
        let killed = || {
            sys::kill(std::process::id().cast_signed(), libc::SIGKILL)?;
            Ok(())
        };
        assert_eq!(attempt(killed), Answer::Killed(libc::SIGKILL));
    }
}
