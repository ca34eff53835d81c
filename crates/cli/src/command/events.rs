//! `tidemill events`.

use tidemill_core::EventRecord;
use tidemill_hub::Hub;

use crate::args::{EventsArgs, Format};
use crate::failure::Failure;
use crate::output::Output;
use crate::session::{failed, find};
use crate::text::event;
use crate::ui::Ui;

/// Events that are read at once.
const PAGE_EVENTS: usize = 500;

pub(crate) async fn events(
    hub: &Hub,
    args: &EventsArgs,
    format: Format,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    let id = find(hub, &args.id.id, ui).await?;
    let mut after = 0;
    loop {
        let page = hub.events(id, after, PAGE_EVENTS).await.map_err(failed)?;
        if page.gap && format == Format::Text {
            output.line("   …  older events were dropped, because the history is bounded")?;
        }
        for record in &page.events {
            write(output, format, record)?;
            after = record.sequence;
        }
        if !page.more {
            break;
        }
    }
    if args.follow {
        let mut follow = hub.follow(id, after);
        while let Some(record) = follow.next().await.map_err(failed)? {
            write(output, format, &record)?;
        }
    }
    Ok(0)
}

/// One event, one line.
pub(crate) fn write(
    output: &mut Output,
    format: Format,
    record: &EventRecord,
) -> Result<(), Failure> {
    match format {
        Format::Json => output.json(record),
        Format::Text => output.line(&event::line(record)),
    }
}
