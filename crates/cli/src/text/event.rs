//! One event, one line.

use tidemill_core::event::{Outcome, Status};
use tidemill_core::{ByteSize, Event, EventRecord, Reason, signal_name};

use super::{command_line, cut};
use crate::clock;
use crate::ui::{plain, time};

/// Characters of a command or text in a line.
const CHARS_MAX: usize = 200;

/// `  3  09:30:00.123  started`.
pub(crate) fn line(record: &EventRecord) -> String {
    let what = describe(&record.event);
    let line = format!(
        "{:>4}  {}  {:<14}  {what}",
        record.sequence,
        clock::time_of_day(record.at),
        record.event.kind(),
    );
    line.trim_end().to_owned()
}

fn describe(event: &Event) -> String {
    match event {
        Event::Created {
            command,
            name,
            submitter,
            ..
        } => {
            let name = name
                .as_ref()
                .map(|name| format!("{}: ", plain(name)))
                .unwrap_or_default();
            let by = submitter
                .as_ref()
                .map(|by| format!(", by {}", plain(by)))
                .unwrap_or_default();
            format!("{name}{}{by}", command_line(command, CHARS_MAX))
        }
        Event::Queued { ahead: 0 } => "next in line".to_owned(),
        Event::Queued { ahead } => format!("{ahead} ahead"),
        Event::Assigned { runner, attempt } => {
            format!("attempt {attempt} on {}", plain(&runner.0))
        }
        Event::Status { status } => match status {
            Status::WaitingForLayers => "waiting for layers",
            Status::WaitingToExecute => "waiting for a slot",
            Status::Executing => "executing",
        }
        .to_owned(),
        Event::Started { grants } => match grants.len() {
            0 => String::new(),
            1 => "1 grant".to_owned(),
            count => format!("{count} grants"),
        },
        Event::Progress {
            step,
            current,
            total,
            message,
        } => {
            let step = step
                .as_ref()
                .map(|step| format!("{}: ", plain(step)))
                .unwrap_or_default();
            let total = total
                .map(|total| format!(" of {total}"))
                .unwrap_or_default();
            match message {
                None => format!("{step}{current}{total}"),
                Some(text) if *current == 0 && total.is_empty() => {
                    format!("{step}{}", plain(text))
                }
                Some(text) => format!("{step}{} ({current}{total})", plain(text)),
            }
        }
        Event::StepStarted { name } => plain(name),
        Event::StepCompleted { name, ok, detail } => {
            let result = if *ok { "ok" } else { "failed" };
            let detail = detail
                .as_ref()
                .map(|text| format!(" ({})", plain(text)))
                .unwrap_or_default();
            format!("{} {result}{detail}", plain(name))
        }
        Event::Diagnostic { reason }
        | Event::Requeued { reason }
        | Event::Interrupted { reason } => why(reason),
        Event::Log { piece, text } => {
            let stream = match piece.stream {
                tidemill_core::Stream::Stdout => "stdout",
                tidemill_core::Stream::Stderr => "stderr",
            };
            format!(
                "{stream} {}: {}",
                piece.offset,
                cut(&plain(text.trim_end()), CHARS_MAX)
            )
        }
        Event::ArtifactKept { name, size, .. } => format!("{} ({size})", plain(name)),
        Event::ReportKept { name, .. } => plain(name),
        Event::Cancelling { by } => format!("asked by {}", plain(by)),
        Event::Paused { why } | Event::Resumed { why } => {
            why.as_deref().map(plain).unwrap_or_default()
        }
        Event::Completed { outcome: how } => outcome(how),
        Event::Failed {
            reason,
            outcome: how,
        }
        | Event::TimedOut {
            reason,
            outcome: how,
        } => joined([Some(why(reason)), how.as_ref().map(outcome)]),
        Event::Cancelled {
            reason,
            outcome: how,
        } => joined([reason.as_ref().map(why), how.as_ref().map(outcome)]),
    }
}

fn why(reason: &Reason) -> String {
    format!("{} [{}]", plain(&reason.message), reason.code)
}

/// How the program ended, and what it used.
fn outcome(outcome: &Outcome) -> String {
    let end = match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => Some(format!("exit code {code}")),
        (None, Some(signal)) => Some(signal_name(signal).into_owned()),
        (None, None) => None,
    };
    let memory = outcome
        .usage
        .peak_memory_bytes
        .map(|peak| format!("peak memory {}", ByteSize(peak)));
    let killed = match outcome.killed_processes {
        0 => None,
        count => Some(format!("{count} other processes killed")),
    };
    joined([
        end,
        Some(time(outcome.duration_ms.as_duration())),
        memory,
        killed,
    ])
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    let parts: Vec<String> = parts
        .into_iter()
        .flatten()
        .filter(|part| !part.is_empty())
        .collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use tidemill_core::usage::Usage;
    use tidemill_core::{Attempt, Millis, ReasonCode, RunnerId};

    use super::*;

    #[test]
    fn events_read_as_sentences() {
        for (event, expected) in [
            (Event::Queued { ahead: 0 }, "next in line"),
            (Event::Queued { ahead: 3 }, "3 ahead"),
            (
                Event::Assigned {
                    runner: RunnerId("a\u{7}".into()),
                    attempt: Attempt(2),
                },
                "attempt 2 on a\\u{7}",
            ),
            (Event::Cancelling { by: "ada".into() }, "asked by ada"),
            (
                Event::Failed {
                    reason: Reason::new(ReasonCode::Memory, "the memory limit was reached"),
                    outcome: Some(Outcome {
                        signal: Some(9),
                        killed_processes: 2,
                        usage: Usage {
                            peak_memory_bytes: Some(64 << 20),
                            ..Usage::default()
                        },
                        duration_ms: Millis(1500),
                        ..Outcome::default()
                    }),
                },
                "the memory limit was reached [memory], SIGKILL, 1.5 s, peak memory 64 MiB, \
                 2 other processes killed",
            ),
            (
                Event::Cancelled {
                    reason: None,
                    outcome: None,
                },
                "",
            ),
        ] {
            assert_eq!(describe(&event), expected);
        }
    }
}
