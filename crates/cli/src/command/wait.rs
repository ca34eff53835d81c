//! `tidemill wait`.

use tidemill_hub::Hub;

use crate::args::{Format, IdArgs};
use crate::exit_code;
use crate::failure::Failure;
use crate::output::Output;
use crate::session::{failed, find};
use crate::text::record;

pub(crate) async fn wait(
    hub: &Hub,
    args: &IdArgs,
    format: Format,
    output: &mut Output,
) -> Result<u8, Failure> {
    let id = find(hub, &args.id).await?;
    let snapshot = hub.wait(id).await.map_err(failed)?;
    match format {
        Format::Json => output.json_document(&snapshot)?,
        Format::Text => output.line(&record::closing(&snapshot))?,
    }
    Ok(exit_code::of_execution(&snapshot, None))
}
