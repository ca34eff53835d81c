//! `tidemill logs`.

use std::io::{self, IsTerminal};

use serde::Serialize;
use tidemill_core::{State, Stream, Timestamp};
use tidemill_hub::{Hub, LogView, LogViewError};
use tidemill_ledger::Snapshot;
use tidemill_log::{Gap, LogError, Next, Piece};

use crate::args::{Format, LogsArgs, StreamChoice};
use crate::failure::{Failure, FailureKind};
use crate::log_text::{Decoder, LogText};
use crate::output::Output;
use crate::session::{failed, find};
use crate::text::{record, warning};
use crate::ui::{Ui, colours_wanted, plain};

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 * 1024;

pub(crate) async fn logs(
    hub: &Hub,
    args: &LogsArgs,
    format: Format,
    output: &mut Output,
    ui: &Ui,
) -> Result<u8, Failure> {
    if args.raw && format == Format::Json {
        let message = "the exact bytes of a log are no JSON";
        return Err(
            Failure::new(FailureKind::Usage, message).hint("leave out --raw or --format json")
        );
    }
    let id = find(hub, &args.id.id, ui).await?;
    let mut view = hub.open_log(id, None).await.map_err(failed)?;
    place(&mut view, args).map_err(|error| unreadable(&LogViewError::Read(error)))?;
    let mut form = Form::new(args.raw, format);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match view.next(&mut buffer).map_err(|error| unreadable(&error))? {
            Next::Piece(piece) => form.piece(&piece, &buffer[..piece.length], output)?,
            Next::Gap(gap) => form.gap(&gap, output)?,
            Next::Pending if args.follow => {
                if !view.more().await.map_err(failed)? {
                    break;
                }
            }
            Next::Pending | Next::End => break,
        }
    }
    form.finish(output)?;
    // Who asks for bytes, for JSON or for one stream gets that and nothing else.
    if !args.raw && args.stream.is_none() && format == Format::Text {
        // A log is complete a moment before the record of its end is.
        let snapshot = if args.follow {
            hub.wait(id).await
        } else {
            hub.snapshot(id).await
        };
        tell(&snapshot.map_err(failed)?, ui);
    }
    Ok(0)
}

/// Says what Tidemill itself noted about the job: it is no part of what the job wrote.
fn tell(snapshot: &Snapshot, ui: &Ui) {
    if snapshot.state.is_final() && snapshot.started_at.is_none() {
        ui.note("it never started, so it wrote nothing");
    }
    for warning in warning::noted(snapshot) {
        ui.note(&format!("warning: {}", plain(&warning)));
    }
    let reason = snapshot.reason.as_ref();
    if reason.is_some_and(|reason| !record::tells_nothing_more(reason.code)) {
        let succeeded = snapshot.state == State::Succeeded;
        ui.closing(succeeded, &record::closing(snapshot));
    }
}

/// Goes to where reading begins.
fn place(view: &mut LogView, args: &LogsArgs) -> Result<(), LogError> {
    view.reader().select(args.stream.map(|stream| match stream {
        StreamChoice::Stdout => Stream::Stdout,
        StreamChoice::Stderr => Stream::Stderr,
    }));
    args.tail
        .map_or(Ok(()), |lines| view.reader().seek_tail(lines))
}

fn unreadable(error: &LogViewError) -> Failure {
    Failure::new(FailureKind::State, "cannot read what it wrote").because(error)
}

/// How the bytes are shown.
enum Form {
    Raw,
    Text { text: LogText, is_terminal: bool },
    Json { stdout: Decoder, stderr: Decoder },
}

/// A piece as JSON. `length` counts bytes of the log; a character that ends in a later piece is in
/// the later one's text.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Piece {
        version: u32,
        stream: Stream,
        offset: u64,
        length: u64,
        at: Timestamp,
        text: String,
    },
    Gap {
        version: u32,
        offset: u64,
        length: u64,
        stdout_bytes: u64,
        stderr_bytes: u64,
    },
}

impl Form {
    fn new(raw: bool, format: Format) -> Self {
        let is_terminal = io::stdout().is_terminal();
        match format {
            Format::Json => Self::Json {
                stdout: Decoder::default(),
                stderr: Decoder::default(),
            },
            Format::Text if raw => Self::Raw,
            Format::Text => Self::Text {
                text: LogText::new(is_terminal && colours_wanted()),
                is_terminal,
            },
        }
    }

    fn piece(&mut self, piece: &Piece, bytes: &[u8], output: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Raw => output.write(bytes),
            Self::Text { text, .. } => output.write(text.piece(piece.stream, bytes).as_bytes()),
            Self::Json { stdout, stderr } => {
                let decoder = match piece.stream {
                    Stream::Stdout => stdout,
                    Stream::Stderr => stderr,
                };
                output.json(&Line::Piece {
                    version: 1,
                    stream: piece.stream,
                    offset: piece.offset,
                    length: piece.length as u64,
                    at: piece.at,
                    text: decoder.decode(bytes),
                })
            }
        }
    }

    fn gap(&mut self, gap: &Gap, output: &mut Output) -> Result<(), Failure> {
        match self {
            // The exact bytes have no place for a remark.
            Self::Raw => Ok(()),
            Self::Text { text, .. } => output.write(text.gap(gap.length).as_bytes()),
            Self::Json { .. } => output.json(&Line::Gap {
                version: 1,
                offset: gap.offset,
                length: gap.length,
                stdout_bytes: gap.stdout_bytes,
                stderr_bytes: gap.stderr_bytes,
            }),
        }
    }

    /// On a terminal the prompt gets a line of its own; a file gets no byte that was not written.
    fn finish(&mut self, output: &mut Output) -> Result<(), Failure> {
        if let Self::Text { text, is_terminal } = self {
            let mut end = text.finish();
            if *is_terminal && text.is_mid_line() {
                end.push('\n');
            }
            output.write(end.as_bytes())?;
        }
        Ok(())
    }
}
