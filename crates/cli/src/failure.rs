//! What went wrong in Tidemill itself, with the exit code and advice that belong to it.

use std::error::Error;
use std::fmt;

use serde::Serialize;
use tidemill_core::ReasonCode;

use crate::diagnostics::Placed;

/// Something that ends a command without its answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// What we tried, on what.
    pub(crate) message: String,
    /// Why it did not work, the outermost cause first.
    pub(crate) causes: Vec<String>,
    /// Sentences that the user can act on.
    pub(crate) hints: Vec<String>,
    /// What could have been meant, a line for each, under a line of heads.
    pub(crate) choices: Box<[String]>,
    /// The mistakes in what was written, if that is why.
    pub(crate) diagnostics: Vec<Placed>,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            causes: Vec::new(),
            hints: Vec::new(),
            choices: Box::default(),
            diagnostics: Vec::new(),
        }
    }

    /// The same failure with an error and all its sources as causes.
    #[must_use]
    pub(crate) fn because(mut self, error: &dyn Error) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            let text = error.to_string();
            // Some libraries repeat their source in their own text.
            if self.causes.last().is_none_or(|last| !last.ends_with(&text)) {
                self.causes.push(text);
            }
            next = error.source();
        }
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The one for an answer that nobody reads any more. It is silent.
    pub(crate) fn reader_gone() -> Self {
        Self::new(FailureKind::ReaderGone, "standard output was closed")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for cause in &self.causes {
            write!(f, ": {cause}")?;
        }
        Ok(())
    }
}

/// A failure as JSON, for commands whose answer is JSON.
#[derive(Debug, Serialize)]
pub(crate) struct FailureReport<'a> {
    version: u32,
    error: FailureBody<'a>,
}

#[derive(Debug, Serialize)]
struct FailureBody<'a> {
    kind: FailureKind,
    exit_code: u8,
    message: &'a str,
    causes: &'a [String],
    hints: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    choices: &'a [String],
    diagnostics: &'a [Placed],
}

impl<'a> FailureReport<'a> {
    pub(crate) fn new(failure: &'a Failure) -> Self {
        Self {
            version: 1,
            error: FailureBody {
                kind: failure.kind,
                exit_code: failure.kind.exit_code(),
                message: &failure.message,
                causes: &failure.causes,
                hints: &failure.hints,
                choices: &failure.choices,
                diagnostics: &failure.diagnostics,
            },
        }
    }
}

/// What kind of failure it is. The kind decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FailureKind {
    /// What was written is wrong: a flag, a job, an id that names nothing.
    Usage,
    /// The state directory cannot be used: read-only, full, from a newer version.
    State,
    /// Tidemill could not do it: the sandbox, a record, a file.
    Unable,
    /// Something that this machine cannot do, found by `doctor`.
    Unsupported,
    /// A time limit was reached before there was anything to record.
    Late,
    /// Ctrl-C or the like, before there was anything to cancel.
    Interrupted,
    /// Nobody reads standard output any more.
    ReaderGone,
    /// A defect in Tidemill.
    Internal,
}

impl FailureKind {
    /// The reason that stands in a result without a record.
    pub(crate) const fn reason_code(self) -> ReasonCode {
        match self {
            Self::Usage => ReasonCode::BadSpec,
            Self::Unable | Self::Unsupported => ReasonCode::Sandbox,
            Self::Late => ReasonCode::PrepareTime,
            Self::Interrupted | Self::ReaderGone => ReasonCode::Cancelled,
            Self::State | Self::Internal => ReasonCode::Internal,
        }
    }

    /// The exit code, as the table in docs/reference/exit-codes.md has it.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Unsupported => 1,
            Self::Usage => 2,
            // As for a record that says so.
            Self::Late => 124,
            Self::State | Self::Unable | Self::Internal => 125,
            // What a shell shows for a process that SIGINT ended, and one that SIGPIPE ended.
            Self::Interrupted => 130,
            Self::ReaderGone => 141,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to open `x`")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn the_chain_is_kept_and_nothing_said_twice() {
        let error = Outer(std::io::Error::other("disk is full"));
        let failure = Failure::new(FailureKind::State, "cannot write the record").because(&error);
        assert_eq!(
            failure.to_string(),
            "cannot write the record: failed to open `x`: disk is full"
        );
    }
}
