//! `tidemill show`.

use tidemill_hub::{Hub, adapter};

use crate::args::{Format, IdArgs};
use crate::failure::Failure;
use crate::output::Output;
use crate::session::{failed, find};
use crate::text::record;

pub(crate) async fn show(
    hub: &Hub,
    args: &IdArgs,
    format: Format,
    output: &mut Output,
) -> Result<u8, Failure> {
    let id = find(hub, &args.id).await?;
    let snapshot = hub.snapshot(id).await.map_err(failed)?;
    match format {
        Format::Json => output.json_document(&snapshot)?,
        Format::Text => output.line(&record::page(&snapshot, adapter::now()))?,
    }
    Ok(0)
}
