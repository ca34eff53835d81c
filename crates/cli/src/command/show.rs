//! `tidemill show`.

use tidemill_core::ExecutionId;
use tidemill_hub::{Hub, adapter};

use crate::args::Format;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::failed;
use crate::text::record;

pub(crate) async fn show(
    hub: &Hub,
    id: ExecutionId,
    format: Format,
    output: &mut Output,
) -> Result<u8, Failure> {
    let snapshot = hub.snapshot(id).await.map_err(failed)?;
    let spec = hub.spec(snapshot.spec).await.map_err(failed)?;
    output.answer(format, &snapshot, || {
        record::page(&snapshot, spec.as_ref(), adapter::now())
    })?;
    Ok(0)
}
