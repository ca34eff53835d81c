//! The bounds of a record, and how a text that is too long is cut.

use std::borrow::Cow;

use tidemill_core::{Event, Reason};

/// Events that are kept of one execution. Past it the oldest go.
pub const EVENTS_KEPT_MAX: u64 = 2_000;
/// Characters of one line in an event. The raw log keeps every byte.
pub const LINE_CHARS_MAX: usize = 2_000;
/// What stands at the end of a line that was cut.
pub const CUT_MARK: &str = "… [cut]";
/// Events that a subscriber may be behind before it is told that it lags.
pub const SUBSCRIBER_BEHIND_MAX: usize = 512;
/// Steps that a snapshot lists, the latest ones. The history has them all.
pub const STEPS_LISTED_MAX: usize = 64;
/// Diagnostics that a snapshot quotes, the latest ones. It counts them all.
pub const WARNINGS_QUOTED_MAX: usize = 8;

/// The text with each line that is too long cut at [`LINE_CHARS_MAX`] characters, with
/// [`CUT_MARK`]. Cutting twice is cutting once.
pub fn cut_lines(text: &str) -> Cow<'_, str> {
    if text.len() <= LINE_CHARS_MAX || text.split('\n').all(|line| cut_at(line).is_none()) {
        return Cow::Borrowed(text);
    }
    let mut cut = String::with_capacity(text.len().min(8 * LINE_CHARS_MAX));
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            cut.push('\n');
        }
        match cut_at(line) {
            None => cut.push_str(line),
            Some(end) => {
                cut.push_str(&line[..end]);
                cut.push_str(CUT_MARK);
            }
        }
    }
    Cow::Owned(cut)
}

/// Where a line has to be cut, if it is too long. A carriage return before the line feed is not
/// counted as a character of the line.
fn cut_at(line: &str) -> Option<usize> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.len() <= LINE_CHARS_MAX {
        return None;
    }
    line.char_indices()
        .nth(LINE_CHARS_MAX)
        .map(|(index, _)| index)
}

/// The same event with every text in it cut to the bound.
pub(crate) fn cut_event(mut event: Event) -> Event {
    match &mut event {
        Event::Log { text, .. } => cut(text),
        Event::Progress { step, message, .. } => {
            step.iter_mut().for_each(cut);
            message.iter_mut().for_each(cut);
        }
        Event::StepStarted { name } => cut(name),
        Event::StepCompleted { name, detail, .. } => {
            cut(name);
            detail.iter_mut().for_each(cut);
        }
        Event::Diagnostic { reason }
        | Event::Requeued { reason }
        | Event::Interrupted { reason }
        | Event::Failed { reason, .. }
        | Event::TimedOut { reason, .. } => cut_reason(reason),
        Event::Cancelled { reason, .. } => reason.iter_mut().for_each(cut_reason),
        Event::Cancelling { by } => cut(by),
        Event::Paused { why } | Event::Resumed { why } => why.iter_mut().for_each(cut),
        Event::Created { .. }
        | Event::Queued { .. }
        | Event::Assigned { .. }
        | Event::Status { .. }
        | Event::Started { .. }
        | Event::ArtifactKept { .. }
        | Event::ReportKept { .. }
        | Event::Completed { .. } => {}
    }
    event
}

fn cut_reason(reason: &mut Reason) {
    cut(&mut reason.message);
    reason.hint.iter_mut().for_each(cut);
}

fn cut(text: &mut String) {
    if let Cow::Owned(shorter) = cut_lines(text) {
        *text = shorter;
    }
}
