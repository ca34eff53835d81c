//! What is said to people on standard error: a quiet status line, notes, and how a job ended.

mod status_line;

use std::env;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidemill_core::State;

use self::status_line::{ERASE, StatusLine};
use crate::diagnostics::render;
use crate::failure::{Failure, FailureKind};

/// Columns of a terminal that does not tell how many it has.
const COLUMNS: u16 = 80;
/// A preparation that is done by then shows nothing at all, so that quick jobs do not flicker.
pub(crate) const QUIET_FOR: Duration = Duration::from_millis(250);

/// Standard error, as far as people read it.
///
/// Clones are the same screen: the thread that writes a job's output takes the status line away.
#[derive(Debug, Clone)]
pub(crate) struct Ui {
    is_terminal: bool,
    colours: bool,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    status: Mutex<StatusLine>,
    /// True if a job left the cursor of the terminal behind an unfinished line.
    mid_line: AtomicBool,
}

impl Ui {
    /// Looks at standard error and at `NO_COLOR` and `TERM`.
    pub(crate) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            is_terminal,
            colours: is_terminal && colours_wanted(),
            shared: Arc::default(),
        }
    }

    /// True if a person watches.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows what is being done, on a terminal only, and not behind an unfinished line of the job.
    /// The line goes away with [`Ui::quiet`].
    pub(crate) fn status(&self, text: &str) {
        if !self.is_terminal || self.shared.mid_line.load(Ordering::Relaxed) || is_dumb() {
            return;
        }
        // A terminal that was never given a size has none, which is not a narrow one.
        let columns = rustix::termios::tcgetwinsize(io::stderr())
            .map(|size| size.ws_col)
            .ok()
            .filter(|&columns| columns > 0)
            .unwrap_or(COLUMNS)
            .into();
        let mut line = self.line();
        let drawn = line.draw(&plain(text), columns);
        io::stderr().write_all(drawn.as_bytes()).ok();
    }

    /// Takes the status line away, before anything else is written to the terminal.
    pub(crate) fn quiet(&self) {
        if !self.is_terminal {
            return;
        }
        let mut line = self.line();
        if let Some(erase) = line.erase() {
            io::stderr().write_all(erase.as_bytes()).ok();
        }
    }

    /// A job wrote to the terminal, and its last byte was a line end or not.
    pub(crate) fn job_wrote(&self, line_ended: bool) {
        self.shared.mid_line.store(!line_ended, Ordering::Relaxed);
    }

    fn line(&self) -> MutexGuard<'_, StatusLine> {
        // Whoever panicked, all that can be wrong is a line on the screen.
        self.shared
            .status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Clears the way for a line of our own.
    fn own_line(&self) {
        self.quiet();
        if !self.is_terminal {
            return;
        }
        if self.shared.mid_line.swap(false, Ordering::Relaxed) {
            say("");
        } else if !is_dumb() {
            // What the terminal echoed, such as `^C`.
            io::stderr().write_all(ERASE.as_bytes()).ok();
        }
    }

    /// Says something, on a line of its own.
    pub(crate) fn note(&self, text: &str) {
        self.own_line();
        say(&format!("tidemill: {text}"));
    }

    /// Says several lines as they are.
    pub(crate) fn raw_note(&self, text: &str) {
        self.own_line();
        say(text);
    }

    /// Says how a job ended. `good` is green, anything else red.
    pub(crate) fn closing(&self, good: bool, text: &str) {
        self.own_line();
        let line = format!("tidemill: {text}");
        say(&self.paint(if good { GREEN } else { RED }, &line));
    }

    /// Says what went wrong, and what to do next.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.kind == FailureKind::ReaderGone {
            self.quiet();
            return;
        }
        self.own_line();
        if !failure.diagnostics.is_empty() {
            say(&render(&failure.diagnostics));
        }
        let mut lines = vec![self.paint(RED, &format!("tidemill: {}", plain(&failure.message)))];
        lines.extend(
            failure
                .causes
                .iter()
                .map(|cause| format!("  because: {}", plain(cause))),
        );
        lines.extend(
            failure
                .hints
                .iter()
                .map(|hint| format!("  hint: {}", plain(hint))),
        );
        lines.extend(
            failure
                .choices
                .iter()
                .map(|choice| format!("    {}", plain(choice))),
        );
        say(&lines.join("\n"));
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colours {
            format!("{colour}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }
}

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const RESET: &str = "\u{1b}[0m";

/// True unless the user asked for no colours. <https://no-color.org>
pub(crate) fn colours_wanted() -> bool {
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_colour && !is_dumb()
}

/// True for a terminal that can do nothing but write on.
fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Writes a line to standard error. If nobody reads there, nobody misses it.
fn say(text: &str) {
    let mut stderr = io::stderr();
    // A terminal that is raw for a job needs the way back to the first column spelled out.
    let line = if stderr.is_terminal() {
        format!("{text}\n").replace('\n', "\r\n")
    } else {
        format!("{text}\n")
    };
    stderr.write_all(line.as_bytes()).ok();
}

/// A text that came from a job (a name, a label, a command), so that it can neither move the cursor
/// nor reverse what is read: control characters and direction marks are escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unsafe(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

const fn is_unsafe(character: char) -> bool {
    matches!(
        character,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// A length of time for people: `80 ms`, `0.8 s`, `12 s`, `4 min 5 s`, `2 h 3 min`.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() < 100 => format!("{} ms", duration.as_millis()),
        0..60 => {
            let tenths = (duration.as_millis() + 50) / 100;
            match (tenths / 10, tenths % 10) {
                (whole, 0) => format!("{whole} s"),
                (whole, rest) => format!("{whole}.{rest} s"),
            }
        }
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// The state in words.
pub(crate) const fn state(state: State) -> &'static str {
    match state {
        State::TimedOut => "timed out",
        other => other.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(
            plain("a\u{1b}[2Jb\r\n\u{9b}\u{202e}é"),
            "a\\u{1b}[2Jb\\r\\n\\u{9b}\\u{202e}é"
        );
    }

    #[test]
    fn times_are_short() {
        for (millis, expected) in [
            (0, "0 ms"),
            (99, "99 ms"),
            (800, "0.8 s"),
            (497, "0.5 s"),
            (10_000, "10 s"),
            (12_345, "12.3 s"),
            (245_000, "4 min 5 s"),
            (7_400_000, "2 h 3 min"),
            (100_000_000, "1 d 3 h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), expected);
        }
    }
}
