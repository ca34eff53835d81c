//! What a job writes, as the events of its record.

#[path = "../../../crates/runner/src/attempt/log_notes.rs"]
mod parser;

use tidemill_core::{Event, Stream, Timestamp};

use self::parser::LogNotes;
use crate::input::Input;

/// The text of an event: 4 KiB, each byte at most one U+FFFD, and what is said of the rest.
const TEXT_BYTES_MAX: usize = 3 * 4096 + 100;

/// The events of an output cover it exactly, in order, with texts of bounded length.
pub fn log_notes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut notes = LogNotes::new(Timestamp(0));
    let (mut now, mut written, mut told) = (Timestamp(0), 0, 0);
    let mut check = |events: Vec<Event>| {
        for event in events {
            let Event::Log { piece, text } = event else {
                panic!("{event:?} is no output");
            };
            assert_eq!(piece.offset, told);
            assert!(piece.length > 0);
            told += piece.length;
            assert!(text.len() <= TEXT_BYTES_MAX);
        }
        told
    };
    while !input.is_empty() {
        let kind = input.byte();
        now = Timestamp(now.0.saturating_add(i64::from(kind) * 10_000));
        if kind & 3 == 3 {
            check(notes.take(now, false));
            continue;
        }
        let stream = if kind & 1 == 0 {
            Stream::Stdout
        } else {
            Stream::Stderr
        };
        let piece = input.piece();
        notes.add(stream, written, piece, now);
        written += piece.len() as u64;
        // Whatever it says, waiting for it must be possible.
        let _patience = notes.patience(now);
    }
    assert_eq!(check(notes.take(now, true)), written);
}
