//! The pump: it takes a job's output out of the pipe as it comes and gives each byte to the spool and
//! to whoever watches, and a summary now and then to the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use memchr::memmem;
use tidemill_core::{Event, LogTotals, Reason, ReasonCode, Stream, Timestamp};
use tidemill_log::{LogSpool, SpoolError};
use tidemill_sandbox::Next;

use super::log_notes::LogNotes;
use crate::adapter::now;
use crate::images::chain;
use crate::live::LiveSink;
use crate::reporter::{JobReporter, Receipt};
use crate::sandboxes::Output;

/// Bytes that are taken at once.
const BUFFER_BYTES: usize = 64 * 1024;
/// The shortest rest of the buffer that another piece is read into: a packet of a pipe.
const PIECE_BYTES_MIN: usize = 4096;
/// A piece shorter than this is given on at once, without looking whether more is there: whoever
/// writes little wants it seen.
const COALESCE_FROM: usize = 4096;
/// How long the pump sleeps at most where nothing is due.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// After the end of everything in the sandbox the pipe is empty and closed at once. If it is not,
/// somebody outside holds it open, and this is how long that is waited for.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// Moves the output of one attempt.
pub(super) struct Pump {
    pub(super) output: Box<dyn Output>,
    pub(super) spool: LogSpool,
    pub(super) live: Option<Box<dyn LiveSink>>,
    pub(super) reporter: JobReporter,
    /// Set when everything in the sandbox has ended.
    pub(super) ended: Arc<AtomicBool>,
}

/// What the pump has to say at the end.
#[derive(Debug)]
pub(super) struct Pumped {
    pub(super) totals: LogTotals,
    /// What was not told yet.
    pub(super) events: Vec<Event>,
    pub(super) warnings: Vec<Reason>,
    /// True if cargo said that it needs something it may not download: a job without a network has it
    /// offline, so that the kernel sees no attempt.
    pub(super) missed_download: bool,
}

/// What cargo says then, on standard error: where the index is missing, and where a package is.
const CARGO_IS_OFFLINE: [&[u8]; 2] = [b"offline mode", b"--offline was specified"];
/// As much of a piece as can be the beginning of one of these.
const WORDS_BYTES_MAX: usize = 32;

impl Pump {
    /// Runs until the output is closed. The spool is finished then.
    pub(super) fn run(mut self) -> Pumped {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut state = Flow {
            notes: LogNotes::new(now()),
            told: None,
            warnings: Vec::new(),
            spool_complained: false,
            missed_download: false,
            last_words: Vec::new(),
        };
        let mut over_since = None;
        // A piece of the other stream that ended a run of pieces.
        let mut carried: Option<(Stream, usize)> = None;
        let mut spare = vec![0; BUFFER_BYTES];
        loop {
            let (stream, length) = if let Some(carried) = carried.take() {
                std::mem::swap(&mut buffer, &mut spare);
                carried
            } else {
                match self.output.next(&mut buffer, Some(state.sleep())) {
                    Ok(Next::Piece { stream, length }) => (stream, length),
                    Ok(Next::Closed) => break,
                    Ok(Next::TimedOut) => {
                        self.tell_if_due(&mut state);
                        if self.is_stuck(&mut over_since) {
                            break;
                        }
                        continue;
                    }
                    Err(error) => {
                        state.warnings.push(Reason::new(
                            ReasonCode::Log,
                            format!("the job's output could not be read to its end: {error}"),
                        ));
                        break;
                    }
                }
            };
            let (filled, other, closed) = self.gather(&mut buffer, &mut spare, stream, length);
            self.give(&mut state, stream, &buffer[..filled]);
            self.tell_if_due(&mut state);
            carried = other;
            if closed {
                break;
            }
        }
        self.end(state)
    }

    /// Fills the buffer with more of the same stream, as long as some is there. Gives how much is in
    /// it, a piece of the other stream that came instead (in `spare`), and whether that was all.
    fn gather(
        &mut self,
        buffer: &mut [u8],
        spare: &mut [u8],
        stream: Stream,
        length: usize,
    ) -> (usize, Option<(Stream, usize)>, bool) {
        let mut filled = length;
        let mut last = length;
        while last >= COALESCE_FROM && buffer.len() - filled >= PIECE_BYTES_MIN {
            // It is read beside the buffer: whose it is is known only afterwards.
            match self.output.next(spare, Some(Duration::ZERO)) {
                Ok(Next::Piece {
                    stream: next,
                    length,
                }) => {
                    if next != stream || length > buffer.len() - filled {
                        return (filled, Some((next, length)), false);
                    }
                    buffer[filled..filled + length].copy_from_slice(&spare[..length]);
                    filled += length;
                    last = length;
                }
                Ok(Next::Closed) => return (filled, None, true),
                // An error is met again by the next read.
                Ok(Next::TimedOut) | Err(_) => break,
            }
        }
        (filled, None, false)
    }

    fn give(&mut self, flow: &mut Flow, stream: Stream, bytes: &[u8]) {
        let at = now();
        let offset = self.spool.position();
        if let Err(error) = self.spool.append(stream, at, bytes) {
            flow.complain(&error);
        }
        if let Some(live) = &mut self.live
            && let Err(error) = live.write(stream, offset, bytes)
        {
            tracing::debug!(%error, "live listener gone");
            self.live = None;
        }
        flow.notes.add(stream, offset, bytes, at);
        if stream == Stream::Stderr && !flow.missed_download {
            flow.missed_download = flow.says_offline(bytes);
        }
    }

    /// Tells what is due, unless what was told before is not on the disk yet: then there is more in
    /// the next one.
    fn tell_if_due(&self, flow: &mut Flow) {
        let now = now();
        if flow.notes.patience(now) != Some(Duration::ZERO) {
            return;
        }
        if let Some(told) = &mut flow.told
            && !told.is_here()
        {
            return;
        }
        let events = flow.notes.take(now, false);
        if !events.is_empty() {
            flow.told = Some(self.reporter.report(events));
        }
    }

    fn is_stuck(&self, over_since: &mut Option<Timestamp>) -> bool {
        if !self.ended.load(Ordering::Acquire) {
            return false;
        }
        let since = *over_since.get_or_insert_with(now);
        now().since(since) >= DRAIN_MAX
    }

    fn end(mut self, mut flow: Flow) -> Pumped {
        if let Some(live) = &mut self.live {
            live.end();
        }
        let before = self.spool.totals();
        let totals = self.spool.finish().unwrap_or_else(|error| {
            flow.complain(&error);
            before
        });
        Pumped {
            totals,
            events: flow.notes.take(now(), true),
            warnings: flow.warnings,
            missed_download: flow.missed_download,
        }
    }
}

/// What the pump carries from piece to piece.
struct Flow {
    notes: LogNotes,
    /// The last events that were told.
    told: Option<Receipt>,
    warnings: Vec<Reason>,
    spool_complained: bool,
    missed_download: bool,
    /// The end of what was last written to standard error.
    last_words: Vec<u8>,
}

impl Flow {
    /// True if cargo says in these bytes, or across the border to those before, that it is offline.
    fn says_offline(&mut self, bytes: &[u8]) -> bool {
        self.last_words
            .extend_from_slice(&bytes[..bytes.len().min(WORDS_BYTES_MAX)]);
        let says = |text: &[u8]| {
            CARGO_IS_OFFLINE
                .iter()
                .any(|words| memmem::find(text, words).is_some())
        };
        let found = says(bytes) || says(&self.last_words);
        let all = if bytes.len() < WORDS_BYTES_MAX {
            &self.last_words[..]
        } else {
            bytes
        };
        self.last_words = all[all.len().saturating_sub(WORDS_BYTES_MAX)..].to_vec();
        found
    }

    /// How long nothing has to be done.
    fn sleep(&self) -> Duration {
        match self.notes.patience(now()) {
            // It is due and was not told, because the record is slow.
            Some(Duration::ZERO) => Duration::from_millis(50),
            Some(patience) => patience.min(SLEEP_MAX),
            None => SLEEP_MAX,
        }
    }

    /// Bytes of the log could not be kept; said once.
    fn complain(&mut self, error: &SpoolError) {
        if std::mem::replace(&mut self.spool_complained, true) {
            return;
        }
        tracing::warn!(error = %chain(error), "log not kept");
        let reason = Reason::new(
            ReasonCode::Log,
            format!("a part of the log could not be kept: {}", chain(error)),
        )
        .with_hint("check the space on the disk of the state directory");
        self.warnings.push(reason);
    }
}
