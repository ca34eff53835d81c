//! The totals of test runners, and the tests that said they cannot run here.

use std::collections::BTreeSet;
use std::fmt;

/// How many tests passed, failed, and were left out by the runner.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    passed: u64,
    failed: u64,
    left_out: u64,
    /// A test runner gave a total, so that there were tests.
    is_counted: bool,
    /// From nextest's summary, which has the last word: what it shows of failed tests has lines of
    /// libtest in it.
    is_summary: bool,
}

impl Totals {
    /// The totals of what two streams of one run said.
    pub(super) const fn merge(self, other: Self) -> Self {
        if self.is_summary {
            return self;
        }
        if other.is_summary {
            return other;
        }
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            left_out: self.left_out + other.left_out,
            is_counted: self.is_counted || other.is_counted,
            is_summary: false,
        }
    }

    /// False if no test was run, because the tests could not be built.
    pub(super) const fn is_counted(self) -> bool {
        self.is_counted
    }

    /// Counts a line if it is a summary:
    /// libtest's `test result: ok. 3 passed; 1 failed; 0 ignored; …` (one for each program) or
    /// nextest's `Summary [ 1.2s] 4 tests run: 3 passed (1 slow), 1 failed, 2 skipped`.
    pub(super) fn read_line(&mut self, line: &str) {
        let plain = without_colours(line);
        let line = plain.trim();
        let counts = if !self.is_summary
            && let Some(counts) = line.strip_prefix("test result: ")
        {
            counts
        } else if line.starts_with("Summary [")
            && let Some((_, counts)) = line.split_once(" run: ")
        {
            *self = Self {
                is_summary: true,
                ..Self::default()
            };
            counts
        } else {
            return;
        };
        self.is_counted = true;
        for part in counts.split([';', ',', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" | "timed" => self.failed += number,
                "ignored" | "skipped" => self.left_out += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failed,
            left_out,
            is_counted,
            is_summary: _,
        } = self;
        if !is_counted {
            return f.write_str("tests: not built");
        }
        write!(
            f,
            "tests: {passed} passed, {failed} failed, {left_out} left out by the runner"
        )
    }
}

/// The line without terminal colours.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        rest = rest[at..].split_once('m').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

/// The skips that tests noted, counted and named; a test that ran twice is named once.
pub(super) fn skips(noted: &str) -> String {
    let lines: BTreeSet<_> = noted
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let mut text = format!("skipped on this machine: {}\n", lines.len());
    for line in lines {
        text.push_str("  ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(lines: &[&str]) -> String {
        let mut totals = Totals::default();
        for line in lines {
            totals.read_line(line);
        }
        totals.to_string()
    }

    #[test]
    fn libtest_is_summed_over_its_programs() {
        let lines = [
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; in 0.1s",
            "test result: FAILED. 5 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out",
        ];
        assert_eq!(
            totals(&lines),
            "tests: 8 passed, 2 failed, 1 left out by the runner"
        );
    }

    #[test]
    fn nextest_is_read_with_and_without_colours() {
        let plain = "     Summary [   1.234s] 12 tests run: 9 passed (2 slow), 2 failed, 1 timed out, 3 skipped";
        let expected = "tests: 9 passed, 3 failed, 3 left out by the runner";
        assert_eq!(totals(&[plain]), expected);
        let coloured = plain.replace("Summary", "\u{1b}[31;1mSummary\u{1b}[0m");
        assert_eq!(
            totals(&[&coloured.replace('9', "\u{1b}[1m9\u{1b}[0m")]),
            expected
        );
    }

    #[test]
    fn what_nextest_shows_of_a_failed_test_is_not_counted() {
        let lines = [
            "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out",
            "Summary [ 1.2s] 3 tests run: 2 passed, 1 failed, 0 skipped",
        ];
        let expected = "tests: 2 passed, 1 failed, 0 left out by the runner";
        assert_eq!(totals(&lines), expected);
        assert_eq!(totals(&[lines[1], lines[0]]), expected);
        let [mut stdout, mut stderr] = [Totals::default(); 2];
        stdout.read_line(lines[0]);
        stderr.read_line(lines[1]);
        assert_eq!(stdout.merge(stderr).to_string(), expected);
        assert_eq!(stderr.merge(stdout).to_string(), expected);
    }

    #[test]
    fn without_a_total_nothing_was_built() {
        let lines = ["3 passed", "error: could not compile `x`", ""];
        assert_eq!(totals(&lines), "tests: not built");
        let none = "Summary [ 0.1s] 0 tests run: 0 passed, 0 skipped";
        assert_eq!(
            totals(&[none]),
            "tests: 0 passed, 0 failed, 0 left out by the runner"
        );
    }

    #[test]
    fn skips_are_counted_and_named_once() {
        assert_eq!(skips(""), "skipped on this machine: 0\n");
        assert_eq!(
            skips("b: no KVM\na: not root\nb: no KVM\n"),
            "skipped on this machine: 2\n  a: not root\n  b: no KVM\n"
        );
    }
}
