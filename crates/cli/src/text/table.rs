//! The table that `ps` shows.

use std::time::Duration;

use tidemill_core::{ByteSize, State, Timestamp, signal_name};
use tidemill_ledger::Snapshot;

use super::{command_line, cut};
use crate::ui::{plain, state, time};

/// Characters of a name in the table.
const NAME_CHARS_MAX: usize = 24;
/// Characters of a command in a table that is not for a terminal.
const COMMAND_CHARS_MAX: usize = 200;
/// Characters of a command that are shown on the narrowest terminal.
const COMMAND_CHARS_MIN: usize = 20;

const HEADS: [&str; 7] = ["ID", "STATE", "AGE", "TIME", "EXIT", "NAME", "COMMAND"];

/// The executions as a table with a head. `width` is that of the terminal, if it is one.
pub(crate) fn table(snapshots: &[Snapshot], now: Timestamp, width: Option<usize>) -> String {
    let rows: Vec<[String; 7]> = snapshots
        .iter()
        .map(|snapshot| row(snapshot, now))
        .collect();
    let mut widths = HEADS.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let before_command: usize = widths[..6].iter().map(|width| width + 2).sum();
    let room = width.map_or(COMMAND_CHARS_MAX, |width| {
        width
            .saturating_sub(before_command)
            .clamp(COMMAND_CHARS_MIN, COMMAND_CHARS_MAX)
    });
    let heads = HEADS.map(str::to_owned);
    let lines: Vec<String> = std::iter::once(&heads)
        .chain(&rows)
        .map(|row| line(row, &widths, room))
        .collect();
    lines.join("\n")
}

fn line(row: &[String; 7], widths: &[usize; 7], room: usize) -> String {
    let mut cells: Vec<String> = row[..6]
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:<width$}"))
        .collect();
    cells.push(cut(&row[6], room));
    cells.join("  ").trim_end().to_owned()
}

fn row(snapshot: &Snapshot, now: Timestamp) -> [String; 7] {
    [
        short_id(snapshot),
        state(snapshot.state).to_owned(),
        age(now.since(snapshot.created_at)),
        run_time(snapshot, now).map(time).unwrap_or_default(),
        how_it_ended(snapshot),
        cut(
            &plain(snapshot.name.as_deref().unwrap_or_default()),
            NAME_CHARS_MAX,
        ),
        match preparing(snapshot) {
            Some(preparing) => format!(
                "[{preparing}] {}",
                command_line(&snapshot.command, COMMAND_CHARS_MAX)
            ),
            None => command_line(&snapshot.command, COMMAND_CHARS_MAX),
        },
    ]
}

/// What is done or waited for before the program of an execution starts.
pub(crate) fn preparing(snapshot: &Snapshot) -> Option<String> {
    let progress = snapshot.progress.as_ref()?;
    let message = plain(progress.message.as_deref()?);
    if snapshot.state != State::Starting {
        return None;
    }
    Some(match progress.total {
        Some(total) if progress.current < total => {
            let (current, total) = (ByteSize(progress.current), ByteSize(total));
            format!("{message} ({current} of {total})")
        }
        _ => message,
    })
}

/// The last twelve digits of the id: the random part, which tells executions apart where the
/// beginning, a time, does not.
pub(crate) fn short_id(snapshot: &Snapshot) -> String {
    let id = snapshot.id.to_string();
    id.rsplit('-').next().unwrap_or(&id).to_owned()
}

/// How long the program has run, or ran.
pub(crate) fn run_time(snapshot: &Snapshot, now: Timestamp) -> Option<Duration> {
    let started = snapshot.started_at?;
    match snapshot.duration_ms {
        Some(duration) => Some(duration.as_duration()),
        None => Some(now.since(started)),
    }
}

fn how_it_ended(snapshot: &Snapshot) -> String {
    match (snapshot.exit_code, snapshot.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => signal_name(signal).to_string(),
        (None, None) if snapshot.state == State::Succeeded => "0".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;

    #[test]
    fn a_table_fits_the_terminal_and_is_harmless() {
        let mut first = snapshot(1, State::Failed);
        first.exit_code = Some(101);
        first.name = Some("evil\u{1b}[2J".into());
        first.command = vec!["cargo".into(), "test".into(), "x".repeat(100)];
        let second = snapshot(2, State::Running);
        let now = first.created_at.plus(Duration::from_secs(65));
        let text = table(&[first, second], now, Some(90));
        insta::assert_snapshot!(text, @r"
        ID            STATE    AGE    TIME  EXIT  NAME           COMMAND
        000000000001  failed   1 min        101   evil\u{1b}[2J  cargo test xxxxxxxxxxxxxxxxxxxxx…
        000000000002  running  1 min        -                    true
        ");
        assert!(table(&[], now, None).starts_with("ID  STATE"));
    }

    #[test]
    fn ages_get_coarser() {
        for (seconds, expected) in [(0, "0 s"), (61, "1 min"), (7200, "2 h"), (200_000, "2 d")] {
            assert_eq!(age(Duration::from_secs(seconds)), expected);
        }
    }
}
