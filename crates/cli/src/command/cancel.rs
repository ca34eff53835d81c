//! `tidemill cancel`.

use std::env;

use serde::Serialize;
use tidemill_core::ExecutionId;
use tidemill_hub::Hub;
use tidemill_ledger::CancelAnswer;

use crate::args::Format;
use crate::failure::{Failure, FailureKind};
use crate::output::Output;
use crate::session::failed;
use crate::ui::state;

/// The answer as JSON.
#[derive(Debug, Serialize)]
struct Cancelled {
    version: u32,
    id: ExecutionId,
    result: CancelAnswer,
}

pub(crate) async fn cancel(
    hub: &Hub,
    id: ExecutionId,
    format: Format,
    output: &mut Output,
) -> Result<u8, Failure> {
    let result = hub.cancel(id, &caller()).await.map_err(failed)?;
    let said = match result {
        CancelAnswer::Requested => format!("asked {id} to end"),
        CancelAnswer::AlreadyRequested => format!("{id} was already asked to end"),
        CancelAnswer::AlreadyFinished { state: ended } => {
            format!("{id} has already ended: {}", state(ended))
        }
        // It was there a moment ago.
        CancelAnswer::Unknown => {
            return Err(Failure::new(
                FailureKind::Usage,
                format!("{id} has been forgotten"),
            ));
        }
    };
    let answer = Cancelled {
        version: 1,
        id,
        result,
    };
    output.answer(format, &answer, || said)?;
    Ok(0)
}

/// Who asks: the name of the user, else the number.
pub(crate) fn caller() -> String {
    let named = ["USER", "LOGNAME"]
        .iter()
        .filter_map(|name| env::var(name).ok())
        .find(|name| !name.is_empty() && !name.chars().any(char::is_control));
    named.unwrap_or_else(|| format!("user {}", rustix::process::getuid().as_raw()))
}
