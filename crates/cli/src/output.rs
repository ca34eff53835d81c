//! Standard output: data, and nothing else. A reader that goes away is not an error worth a word.

use std::io::{self, Write};

use serde::Serialize;

use crate::args::Format;
use crate::failure::{Failure, FailureKind};

/// Where a command writes its answer.
#[derive(Debug)]
pub(crate) struct Output<W = io::Stdout> {
    sink: W,
}

impl Output {
    pub(crate) fn stdout() -> Self {
        Self { sink: io::stdout() }
    }
}

impl<W: Write> Output<W> {
    #[cfg(test)]
    pub(crate) const fn to(sink: W) -> Self {
        Self { sink }
    }

    /// Writes and flushes, so that a follower sees it at once.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.sink
            .write_all(bytes)
            .and_then(|()| self.sink.flush())
            .map_err(|error| failed(&error))
    }

    /// One line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.write(format!("{text}\n").as_bytes())
    }

    /// One line of JSON.
    pub(crate) fn json<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(value).map_err(|error| {
            Failure::new(FailureKind::Internal, "cannot write the answer as JSON").because(&error)
        })?;
        line.push(b'\n');
        self.write(&line)
    }

    /// The answer of a command, in the form that was asked for.
    pub(crate) fn answer<T: Serialize>(
        &mut self,
        format: Format,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        match format {
            Format::Json => self.json_document(value),
            Format::Text => self.line(&text()),
        }
    }

    /// A JSON document that people read too.
    pub(crate) fn json_document<T: Serialize>(&mut self, value: &T) -> Result<(), Failure> {
        let mut text = serde_json::to_vec_pretty(value).map_err(|error| {
            Failure::new(FailureKind::Internal, "cannot write the answer as JSON").because(&error)
        })?;
        text.push(b'\n');
        self.write(&text)
    }
}

pub(crate) fn failed(error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::reader_gone()
    } else {
        Failure::new(FailureKind::Unable, "cannot write to standard output").because(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_told_apart() {
        let failure = Output::to(Closed)
            .line("x")
            .expect_err("the pipe is closed");
        assert_eq!(failure.kind, FailureKind::ReaderGone);
        assert_eq!(failure.kind.exit_code(), 141);
    }
}
