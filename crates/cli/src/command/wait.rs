//! `tidemill wait`.

use tidemill_core::ExecutionId;
use tidemill_hub::Hub;

use crate::args::Format;
use crate::exit_code;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::failed;
use crate::text::record;

pub(crate) async fn wait(
    hub: &Hub,
    id: ExecutionId,
    format: Format,
    output: &mut Output,
) -> Result<u8, Failure> {
    let snapshot = hub.wait(id).await.map_err(failed)?;
    output.answer(format, &snapshot, || record::closing(&snapshot))?;
    Ok(exit_code::of_execution(&snapshot, None))
}
