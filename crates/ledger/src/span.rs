//! The trace span of an execution, as data. Whoever exports traces turns it into a real one.

use tidemill_core::{ExecutionId, ReasonCode, State, Timestamp};

use crate::snapshot::Snapshot;

/// What a trace says about one execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Whose span it is.
    pub execution: ExecutionId,
    /// The request that caused it, which the span is linked to.
    pub linked_to: Option<String>,
    /// When it was made.
    pub opened_at: Timestamp,
    /// When it reached its final state.
    pub closed_at: Timestamp,
    /// That state.
    pub state: State,
    /// The code, where the trace has to mark an error.
    pub error: Option<ReasonCode>,
}

impl Span {
    /// The closed span of an execution that is over; `None` for one that is not.
    pub fn closed(snapshot: &Snapshot) -> Option<Self> {
        let closed_at = snapshot.finished_at?;
        let failed = matches!(snapshot.state, State::Failed | State::TimedOut);
        let code = snapshot.reason.as_ref().map(|reason| reason.code);
        Some(Self {
            execution: snapshot.id,
            linked_to: snapshot.correlation_id.clone(),
            opened_at: snapshot.created_at,
            closed_at,
            state: snapshot.state,
            error: code.filter(|_| failed),
        })
    }
}
