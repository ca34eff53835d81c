//! `--stdin`: the caller's standard input for the job, through a pipe.
//!
//! The job gets the bytes, never the descriptor itself: a descriptor of a file or terminal would let
//! it reopen that file for writing, or push keys into the caller's terminal.

use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::thread;

use crate::failure::{Failure, FailureKind};

/// Bytes that are copied at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// Starts copying, and gives the end that goes into the sandbox.
pub(crate) fn pass_on() -> Result<OwnedFd, Failure> {
    let failed = |error: io::Error| {
        Failure::new(FailureKind::Unable, "cannot pass standard input on").because(&error)
    };
    let (reader, writer) = io::pipe().map_err(failed)?;
    // The thread waits in a read that nothing ends but the caller, so it ends with the process.
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || copy(io::stdin().lock(), writer))
        .map_err(failed)?;
    Ok(reader.into())
}

/// Copies to the end of the input, or until the job reads no more.
fn copy(mut from: impl Read, mut to: PipeWriter) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if to.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // What cannot be read ends there, as it does for any program.
            Err(_) => return,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn input_arrives_whole_and_ends() {
        let (mut reader, writer) = io::pipe().unwrap();
        let input = vec![7; 300_000];
        let expected = input.clone();
        let copying = thread::spawn(move || copy(&*input, writer));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        copying.join().unwrap();
        assert_eq!(read, expected);
    }

    #[test]
    fn a_job_that_reads_no_more_ends_the_copy() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        copy(io::repeat(1), writer);
    }
}
