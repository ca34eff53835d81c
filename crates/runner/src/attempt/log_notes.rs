//! Output as events: a few per second at most, with the beginning of the text, so that the record
//! says that and where a job writes without being a second copy of its log. Pure.

use std::time::Duration;

use tidemill_core::{Event, LogPiece, Stream, Timestamp};

/// The shortest time between two groups of events.
const INTERVAL_MIN: Duration = Duration::from_millis(250);
/// The longest.
const INTERVAL_MAX: Duration = Duration::from_secs(5);
/// A group comes after this part of the time that the job has run, between the two bounds. A job of
/// any length up to two hours then has fewer events than a history keeps.
const INTERVAL_PART: u32 = 40;
/// Events in one group. What does not fit is told as one piece.
const RUNS_MAX: usize = 8;
/// Bytes of text in one event.
const TEXT_BYTES_MAX: usize = 4 * 1024;

/// Output that is noted and not told yet.
#[derive(Debug)]
pub(crate) struct LogNotes {
    began: Timestamp,
    /// When the next group is due, while there is something to tell.
    due: Option<Timestamp>,
    last: Timestamp,
    runs: Vec<Run>,
}

/// Bytes of one stream in a row.
#[derive(Debug)]
struct Run {
    stream: Stream,
    offset: u64,
    length: u64,
    /// The beginning of them.
    text: Vec<u8>,
}

impl LogNotes {
    /// Nothing was written yet.
    pub(crate) const fn new(began: Timestamp) -> Self {
        Self {
            began,
            due: None,
            last: began,
            runs: Vec::new(),
        }
    }

    /// Notes bytes. Those of one call follow those of the one before.
    pub(crate) fn add(&mut self, stream: Stream, offset: u64, bytes: &[u8], now: Timestamp) {
        if self.due.is_none() {
            let earliest = self.last.plus(self.interval(now));
            self.due = Some(earliest.max(now.plus(INTERVAL_MIN)));
        }
        let goes_on = match self.runs.last() {
            Some(run) => run.stream == stream || self.runs.len() >= RUNS_MAX,
            None => false,
        };
        if !goes_on {
            self.runs.push(Run {
                stream,
                offset,
                length: 0,
                text: Vec::new(),
            });
        }
        let run = self
            .runs
            .last_mut()
            .expect("one was pushed if there was none");
        run.length += bytes.len() as u64;
        // In a piece that several streams share, the text is that of the first.
        if run.stream == stream {
            let room = TEXT_BYTES_MAX.saturating_sub(run.text.len());
            run.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// How long it may still wait; `None` if there is nothing to tell.
    pub(crate) fn patience(&self, now: Timestamp) -> Option<Duration> {
        self.due.map(|due| due.since(now))
    }

    /// Takes what there is to tell. A character that has not ended is held back, unless it is the
    /// end of all.
    pub(crate) fn take(&mut self, now: Timestamp, is_end: bool) -> Vec<Event> {
        let mut runs = std::mem::take(&mut self.runs);
        self.due = None;
        self.last = now;
        if !is_end && let Some(rest) = runs.last_mut().and_then(Run::split_character) {
            self.due = Some(now.plus(self.interval(now)));
            self.runs.push(rest);
        }
        runs.into_iter()
            .filter(|run| run.length > 0)
            .map(Run::into_event)
            .collect()
    }

    fn interval(&self, now: Timestamp) -> Duration {
        (now.since(self.began) / INTERVAL_PART).clamp(INTERVAL_MIN, INTERVAL_MAX)
    }
}

impl Run {
    /// Splits off a character whose last bytes are missing.
    fn split_character(&mut self) -> Option<Self> {
        if self.text.len() as u64 != self.length {
            return None;
        }
        let whole = self.text.len() - unfinished(&self.text);
        if whole == self.text.len() {
            return None;
        }
        let text = self.text.split_off(whole);
        self.length = whole as u64;
        Some(Self {
            stream: self.stream,
            offset: self.offset + self.length,
            length: text.len() as u64,
            text,
        })
    }

    fn into_event(mut self) -> Event {
        let told = self.text.len() as u64;
        if told < self.length {
            let whole = self.text.len() - unfinished(&self.text);
            self.text.truncate(whole);
        }
        let untold = self.length - self.text.len() as u64;
        let text = String::from_utf8_lossy(&self.text);
        let text = if told < self.length {
            format!("{text}… [{untold} more bytes in the log]")
        } else {
            text.into_owned()
        };
        Event::Log {
            piece: LogPiece {
                stream: self.stream,
                offset: self.offset,
                length: self.length,
            },
            text,
        }
    }
}

/// How many bytes at the end are the beginning of a character whose other bytes are missing.
fn unfinished(bytes: &[u8]) -> usize {
    match std::str::from_utf8(
        bytes
            .get(bytes.len().saturating_sub(4)..)
            .unwrap_or_default(),
    ) {
        Ok(_) => 0,
        // The window may begin within a character, so it is looked at from its end.
        Err(_) => (1..=3.min(bytes.len()))
            .find(|count| {
                let tail = &bytes[bytes.len() - count..];
                std::str::from_utf8(tail)
                    .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
            })
            .unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp(millis * 1000)
    }

    fn told(events: &[Event]) -> Vec<(Stream, u64, u64, String)> {
        events
            .iter()
            .map(|event| match event {
                Event::Log { piece, text } => {
                    (piece.stream, piece.offset, piece.length, text.clone())
                }
                other => panic!("{other:?} is no output"),
            })
            .collect()
    }

    #[test]
    fn lines_of_a_moment_are_one_event() {
        let mut notes = LogNotes::new(at(0));
        assert_eq!(notes.patience(at(0)), None);
        notes.add(Stream::Stdout, 0, b"one\n", at(10));
        notes.add(Stream::Stdout, 4, b"two\n", at(20));
        assert_eq!(notes.patience(at(20)), Some(Duration::from_millis(240)));
        let events = notes.take(at(260), false);
        assert_eq!(
            told(&events),
            [(Stream::Stdout, 0, 8, "one\ntwo\n".to_owned())]
        );
        assert_eq!(notes.patience(at(300)), None);
    }

    #[test]
    fn streams_are_told_apart_up_to_a_number_and_no_byte_is_left_out() {
        let mut notes = LogNotes::new(at(0));
        for offset in 0..100 {
            let stream = if offset % 2 == 0 {
                Stream::Stdout
            } else {
                Stream::Stderr
            };
            notes.add(stream, offset, b"x", at(1));
        }
        let told = told(&notes.take(at(300), true));
        assert_eq!(told.len(), RUNS_MAX);
        assert_eq!(told[1], (Stream::Stderr, 1, 1, "x".to_owned()));
        assert_eq!((told[7].1, told[7].2), (7, 93));
        assert!(
            told[7].3.ends_with("[46 more bytes in the log]"),
            "{told:?}"
        );
    }

    #[test]
    fn b9_a_character_over_two_groups_stays_whole() {
        let mut notes = LogNotes::new(at(0));
        notes.add(Stream::Stdout, 0, b"a\xe2\x82", at(0));
        assert_eq!(
            told(&notes.take(at(250), false)),
            [(Stream::Stdout, 0, 1, "a".to_owned())]
        );
        notes.add(Stream::Stdout, 3, b"\xac\n", at(1000));
        assert_eq!(
            told(&notes.take(at(1250), false)),
            [(Stream::Stdout, 1, 4, "€\n".to_owned())]
        );
        notes.add(Stream::Stdout, 5, b"\xff\xfe\xe2", at(2000));
        assert_eq!(
            told(&notes.take(at(2250), true)),
            [(Stream::Stdout, 5, 3, "\u{fffd}\u{fffd}\u{fffd}".to_owned())]
        );
    }

    #[test]
    fn a_flood_is_told_by_its_beginning() {
        let mut notes = LogNotes::new(at(0));
        let block = [b'x'; 64 * 1024];
        for turn in 0..100 {
            notes.add(Stream::Stdout, turn * 65_536, &block, at(1));
        }
        let told = told(&notes.take(at(260), false));
        assert_eq!((told.len(), told[0].2), (1, 6_553_600));
        assert!(told[0].3.len() < TEXT_BYTES_MAX + 64);
    }

    #[test]
    fn a_long_job_is_told_less_often() {
        let mut notes = LogNotes::new(at(0));
        let mut groups = 0;
        for (offset, now) in (0..).zip((0..7_200_000).step_by(50)) {
            notes.add(Stream::Stdout, offset, b".", at(now));
            if notes.patience(at(now)) == Some(Duration::ZERO) {
                groups += 1;
                let _events = notes.take(at(now), false);
            }
        }
        assert!(
            (500..1_900).contains(&groups),
            "{groups} groups in two hours"
        );
    }

    proptest! {
        #[test]
        fn every_byte_is_in_exactly_one_event(
            writes in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 1..50), any::<bool>()), 0..80),
        ) {
            let mut notes = LogNotes::new(at(0));
            let (mut offset, mut next) = (0, 0);
            let mut check = |events: Vec<Event>| {
                for (_, offset, length, _) in told(&events) {
                    assert_eq!(offset, next);
                    assert!(length > 0);
                    next = offset + length;
                }
            };
            for (err, bytes, flush) in writes {
                let stream = if err { Stream::Stderr } else { Stream::Stdout };
                notes.add(stream, offset, &bytes, at(0));
                offset += bytes.len() as u64;
                if flush {
                    check(notes.take(at(0), false));
                }
            }
            check(notes.take(at(0), true));
            prop_assert_eq!(next, offset);
        }
    }
}
