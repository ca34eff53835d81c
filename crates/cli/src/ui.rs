//! What is said to people on standard error: a quiet status line, notes, and how a job ended.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tidemill_core::State;

use crate::diagnostics::render;
use crate::failure::{Failure, FailureKind};

/// How often the status line moves.
const TICK: Duration = Duration::from_millis(120);
/// A preparation that is done by then shows nothing at all, so that quick jobs do not flicker.
const QUIET_FOR: Duration = Duration::from_millis(250);

/// Standard error, as far as people read it.
#[derive(Debug)]
pub(crate) struct Ui {
    is_terminal: bool,
    colours: bool,
    status: Option<ProgressBar>,
}

impl Ui {
    /// Looks at standard error and at `NO_COLOR` and `TERM`.
    pub(crate) fn new() -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self {
            is_terminal,
            colours: is_terminal && colours_wanted(),
            status: None,
        }
    }

    /// One that a test can compare: no terminal, no colours.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self {
            is_terminal: false,
            colours: false,
            status: None,
        }
    }

    /// True if a person watches.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows what is being done, on a terminal only. The line goes away with [`Ui::quiet`].
    pub(crate) fn status(&mut self, text: &str) {
        if !self.is_terminal {
            return;
        }
        let status = self.status.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {wide_msg}")
                .expect("the template is a constant with known keys");
            bar.set_style(style);
            bar
        });
        status.set_message(plain(text));
        status.enable_steady_tick(TICK);
    }

    /// Takes the status line away, before anything else is written to the terminal.
    pub(crate) fn quiet(&mut self) {
        if let Some(status) = self.status.take() {
            status.finish_and_clear();
        }
    }

    /// After this long without news the status line is worth showing.
    pub(crate) const fn quiet_for() -> Duration {
        QUIET_FOR
    }

    /// Says something, on a line of its own.
    pub(crate) fn note(&mut self, text: &str) {
        self.quiet();
        say(&format!("tidemill: {text}"));
    }

    /// Says how a job ended. `good` is green, anything else red.
    pub(crate) fn closing(&mut self, good: bool, text: &str) {
        self.quiet();
        let line = format!("tidemill: {text}");
        say(&self.paint(if good { GREEN } else { RED }, &line));
    }

    /// Says what went wrong, and what to do next.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        self.quiet();
        if failure.kind == FailureKind::ReaderGone {
            return;
        }
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

impl Drop for Ui {
    fn drop(&mut self) {
        self.quiet();
    }
}

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const RESET: &str = "\u{1b}[0m";

/// True unless the user asked for no colours. <https://no-color.org>
pub(crate) fn colours_wanted() -> bool {
    let no_colour = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_colour && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Writes a line to standard error. If nobody reads there, nobody misses it.
fn say(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// A text that came from a job (a name, a label, a command), so that it can neither move the cursor
/// nor reverse what is read: control characters and direction marks are escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_unsafe(character) {
            safe.extend(character.escape_unicode());
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

/// A length of time for people: `0.8 s`, `12.3 s`, `4 min 5 s`, `2 h 3 min`.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() < 100 => format!("{} ms", duration.as_millis()),
        0..60 => format!("{}.{} s", seconds, duration.subsec_millis() / 100),
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
            "a\\u{1b}[2Jb\\u{d}\\u{a}\\u{9b}\\u{202e}é"
        );
    }

    #[test]
    fn times_are_short() {
        for (millis, expected) in [
            (0, "0 ms"),
            (99, "99 ms"),
            (800, "0.8 s"),
            (12_345, "12.3 s"),
            (245_000, "4 min 5 s"),
            (7_400_000, "2 h 3 min"),
            (100_000_000, "1 d 3 h"),
        ] {
            assert_eq!(time(Duration::from_millis(millis)), expected);
        }
    }
}
