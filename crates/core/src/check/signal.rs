//! The signal that asks a job to end.

use super::{Findings, shown};
use crate::diagnostic::{DiagnosticCode, nearest};
use crate::draft::Draft;
use crate::signal::{ParseSignalError, StopSignal};

const PREFIX: &str = "SIG";

pub(super) fn check_stop_signal(draft: &Draft, findings: &mut Findings) -> StopSignal {
    let Some(text) = draft.stop_signal.as_deref() else {
        return StopSignal::default();
    };
    let error = match text.parse() {
        Ok(signal) => return signal,
        Err(error) => error,
    };
    let message = format!("`{}` is {error}", shown(text));
    let (code, hint) = match error {
        ParseSignalError::Unknown => {
            let hint = nearest_signal(text).map_or_else(
                || "write a name such as INT or SIGTERM, or a number from 1 to 31".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            (DiagnosticCode::UnknownValue, hint)
        }
        ParseSignalError::NotStandard => (
            DiagnosticCode::OutOfRange,
            "write a name such as INT or SIGTERM, or a number from 1 to 31".to_owned(),
        ),
        ParseSignalError::NotCatchable { .. } => (
            DiagnosticCode::OutOfRange,
            "write one that a program can act on, such as INT; the kill comes after the grace anyway"
                .to_owned(),
        ),
    };
    findings.error(code, "/stop_signal", message).hint(hint);
    StopSignal::default()
}

/// The nearest name, with `SIG` only if that was written.
fn nearest_signal(text: &str) -> Option<String> {
    let is_long = text
        .get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
    let names: Vec<String> = StopSignal::names()
        .map(|name| if is_long { name } else { &name[PREFIX.len()..] })
        .map(str::to_lowercase)
        .collect();
    nearest(text, names.iter().map(String::as_str)).map(str::to_uppercase)
}
