//! How a runner speaks to a hub: in the same process, or over HTTP.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tidemill_core::Event;
use tidemill_dispatch::JobId;

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Events of one attempt, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Which attempt of which execution.
    pub job: JobId,
    /// What happened.
    pub events: Vec<Event>,
}

/// What the hub answers to a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is durable.
    Taken {
        /// Who asked to cancel the execution, if somebody did.
        cancel: Option<String>,
    },
    /// Nobody waits for this attempt any more, or it may not start. It is to be ended without
    /// another word.
    NotWanted {
        /// Why.
        why: String,
    },
}

/// Says that a report did not reach the record. Trying again may help.
#[derive(Clone)]
pub struct ReportError(Arc<dyn Error + Send + Sync>);

impl ReportError {
    /// Wraps what the hub said.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(error.into()))
    }
}

impl fmt::Debug for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the report did not reach the record")
    }
}

impl Error for ReportError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = &*self.0;
        Some(source)
    }
}

/// The hub as a runner sees it.
pub trait HubPort: Send + Sync + 'static {
    /// Hands over what happened. There is one report per job at most, and one call at a time; the
    /// answers come in the order of the reports, when what was taken is durable.
    fn report(&self, reports: Vec<Report>) -> Later<'_, Vec<Result<Answer, ReportError>>>;

    /// Seals the log of an attempt whose end is recorded. What cannot be sealed stays a spool and is
    /// found by a later sweep.
    fn seal_log(&self, job: JobId) -> Later<'_, Result<(), ReportError>>;
}
