//! Both output streams of a job in the one order in which they were written.
//!
//! Two pipes have no common order, and one pipe does not tell its writers apart. So each stream is a
//! pipe in packet mode (`O_DIRECT`, pipe(2)) with room for a single packet: a writer can be ahead of
//! us by one packet per stream, and which of two came first is told by the order in which an
//! edge-triggered epoll instance queued them, which is the order of the writes.
//!
//! That costs a wake-up per packet of 4 KiB. A stream that writes full packets in a row gets room for
//! sixteen, for as long as the other stream is silent. When it speaks, what the first has written by
//! then is taken first: that is the order of any single writer.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tidemill_core::Stream;

/// Bytes of one packet at most: `PIPE_BUF` of Linux, and one page.
const PACKET: usize = 4096;
/// Room of a stream that writes much.
const WIDE: usize = 16 * PACKET;
/// So many full packets in a row make a stream wide.
const FULL_PACKETS_TO_WIDEN: u32 = 16;

/// A packet of a wide stream that is shorter than this ends its being wide: it writes lines again.
const SHORT_PACKET: usize = PACKET / 4;

/// The reading side.
#[derive(Debug)]
pub struct OutputReader {
    epoll: OwnedFd,
    lanes: [Lane; 2],
    /// A wide lane of which so many bytes come before anything else.
    draining: Option<(usize, u64)>,
    /// The lane whose packet is next.
    urgent: Option<usize>,
}

#[derive(Debug)]
struct Lane {
    stream: Stream,
    /// `None` once all writers are gone.
    pipe: Option<OwnedFd>,
    full_packets: u32,
    wide: bool,
    /// True while there may be more to read than the last event announced.
    pending: bool,
    hung_up: bool,
}

/// What [`OutputReader::next`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// So many bytes of one stream are at the beginning of the buffer.
    Piece {
        /// The stream.
        stream: Stream,
        /// How many bytes.
        length: usize,
    },
    /// Nothing came in time.
    TimedOut,
    /// All writers of both streams are gone, and all was read.
    Closed,
}

/// Makes the two pipes: the reader, the writing end for stdout, the one for stderr.
///
/// # Errors
/// What the kernel answers.
pub fn output_pipes() -> io::Result<(OutputReader, OwnedFd, OwnedFd)> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let make = |stream: Stream, key: u64| -> io::Result<(Lane, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::DIRECT)?;
        fcntl_setpipe_size(&writer, PACKET)?;
        let flags = rustix::fs::fcntl_getfl(&reader)?;
        rustix::fs::fcntl_setfl(&reader, flags | OFlags::NONBLOCK)?;
        epoll::add(
            &epoll,
            &reader,
            EventData::new_u64(key),
            EventFlags::IN | EventFlags::ET,
        )?;
        let lane = Lane {
            stream,
            pipe: Some(reader),
            full_packets: 0,
            wide: false,
            pending: false,
            hung_up: false,
        };
        Ok((lane, writer))
    };
    let (stdout_lane, stdout) = make(Stream::Stdout, 0)?;
    let (stderr_lane, stderr) = make(Stream::Stderr, 1)?;
    Ok((
        OutputReader {
            epoll,
            lanes: [stdout_lane, stderr_lane],
            draining: None,
            urgent: None,
        },
        stdout,
        stderr,
    ))
}

impl OutputReader {
    /// The next piece in the order in which it was written. Waits for it, at most `timeout` if given.
    ///
    /// # Errors
    /// What the kernel answers; `EINVAL` if the buffer holds less than one packet of 4 KiB.
    pub fn next(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<Next> {
        if buffer.len() < PACKET {
            return Err(Errno::INVAL.into());
        }
        loop {
            if let Some((index, left)) = self.draining {
                let taken = self.read(index, buffer)?;
                let left = taken.map_or(0, |length| left.saturating_sub(length as u64));
                self.draining = (left > 0).then_some((index, left));
                if left == 0 {
                    self.lanes[index].narrow();
                }
                if let Some(length) = taken {
                    return Ok(self.piece(index, length));
                }
            }
            if let Some(index) = self.urgent.take()
                && let Some(length) = self.read(index, buffer)?
            {
                return Ok(self.piece(index, length));
            }
            if self.lanes.iter().all(|lane| lane.pipe.is_none()) {
                return Ok(Next::Closed);
            }
            let pending = self.lanes.iter().position(|lane| lane.pending);
            let patience = if pending.is_some() {
                Some(Duration::ZERO)
            } else {
                timeout
            };
            match (self.wait(patience)?, pending) {
                (Some(index), _) => self.hear(index)?,
                (None, Some(index)) => {
                    if let Some(length) = self.read(index, buffer)? {
                        return Ok(self.piece(index, length));
                    }
                }
                (None, None) => return Ok(Next::TimedOut),
            }
        }
    }

    fn piece(&self, index: usize, length: usize) -> Next {
        Next::Piece {
            stream: self.lanes[index].stream,
            length,
        }
    }

    /// Decides whose turn it is after an event of a lane.
    fn hear(&mut self, index: usize) -> io::Result<()> {
        let other = 1 - index;
        if self.lanes[index].wide {
            self.lanes[index].pending = true;
            return Ok(());
        }
        self.urgent = Some(index);
        if self.lanes[other].wide
            && let Some(pipe) = &self.lanes[other].pipe
        {
            let queued = rustix::io::ioctl_fionread(pipe)?;
            if queued > 0 {
                self.draining = Some((other, queued));
            } else {
                self.lanes[other].narrow();
            }
        }
        Ok(())
    }

    /// Waits for the next event and gives the lane that it is about.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<Option<usize>> {
        let timeout = timeout.and_then(|limit| rustix::event::Timespec::try_from(limit).ok());
        let mut room = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }];
        loop {
            match epoll::wait(&self.epoll, room.as_mut_slice(), timeout.as_ref()) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (flags, data) = (room[0].flags, room[0].data);
        let index = usize::from(data.u64() == 1);
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            self.lanes[index].hung_up = true;
        }
        Ok(Some(index))
    }

    /// Takes one packet of a lane. `None` if there is none.
    fn read(&mut self, index: usize, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let lane = &mut self.lanes[index];
        let Some(pipe) = &lane.pipe else {
            lane.pending = false;
            return Ok(None);
        };
        loop {
            match rustix::io::read(pipe, &mut *buffer) {
                Ok(0) => {
                    lane.pipe = None;
                    lane.pending = false;
                    lane.wide = false;
                    return Ok(None);
                }
                Ok(length) => {
                    lane.took(length);
                    return Ok(Some(length));
                }
                Err(Errno::AGAIN) => {
                    lane.pending = false;
                    return Ok(None);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Lane {
    /// Notes a packet. A narrow pipe held that one, so its event is used up; one that was hung up or is
    /// wide may hold more and gives no further event for it.
    fn took(&mut self, length: usize) {
        self.full_packets = if length >= PACKET {
            self.full_packets.saturating_add(1)
        } else {
            0
        };
        if self.wide && length < SHORT_PACKET {
            self.narrow();
        } else if !self.wide
            && self.full_packets >= FULL_PACKETS_TO_WIDEN
            && let Some(pipe) = &self.pipe
        {
            self.wide = fcntl_setpipe_size(pipe, WIDE).is_ok();
        }
        self.pending = self.hung_up || self.wide || self.pending;
    }

    /// Takes the room away again. If the writer has already used it (EBUSY), it keeps it for now. The
    /// lane stays pending until it was seen empty, since events may have been merged while it was wide.
    fn narrow(&mut self) {
        if let Some(pipe) = &self.pipe {
            self.wide = fcntl_setpipe_size(pipe, PACKET).is_err();
            self.full_packets = 0;
            self.pending = true;
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::thread;

    use super::*;

    fn collect(reader: &mut OutputReader) -> Vec<(Stream, Vec<u8>)> {
        let mut buffer = vec![0; 1 << 16];
        let mut pieces: Vec<(Stream, Vec<u8>)> = Vec::new();
        loop {
            match reader
                .next(&mut buffer, Some(Duration::from_secs(20)))
                .unwrap()
            {
                Next::Piece { stream, length } => match pieces.last_mut() {
                    Some((last, bytes)) if *last == stream => {
                        bytes.extend_from_slice(&buffer[..length]);
                    }
                    _ => pieces.push((stream, buffer[..length].to_vec())),
                },
                Next::TimedOut => panic!("nothing came for 20 s"),
                Next::Closed => return pieces,
            }
        }
    }

    #[test]
    fn alternating_writes_come_in_the_order_of_the_writes() {
        const ROUNDS: u32 = 5_000;
        let (mut reader, stdout, stderr) = output_pipes().unwrap();
        let writer = thread::spawn(move || {
            let (mut stdout, mut stderr) = (File::from(stdout), File::from(stderr));
            for round in 0..ROUNDS {
                stdout.write_all(format!("o{round}\n").as_bytes()).unwrap();
                stderr.write_all(format!("e{round}\n").as_bytes()).unwrap();
            }
        });
        let pieces = collect(&mut reader);
        writer.join().unwrap();
        assert_eq!(pieces.len(), 2 * ROUNDS as usize);
        for (place, (stream, bytes)) in pieces.iter().enumerate() {
            let (letter, expected) = if place % 2 == 0 {
                ('o', Stream::Stdout)
            } else {
                ('e', Stream::Stderr)
            };
            assert_eq!(*stream, expected);
            assert_eq!(bytes, format!("{letter}{}\n", place / 2).as_bytes());
        }
    }

    #[test]
    fn much_data_arrives_whole_and_the_end_of_it_is_in_order() {
        let (mut reader, stdout, stderr) = output_pipes().unwrap();
        let block: Vec<u8> = (0..1_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
        let expected = block.clone();
        let writer = thread::spawn(move || {
            let (mut stdout, mut stderr) = (File::from(stdout), File::from(stderr));
            stdout.write_all(&block).unwrap();
            stderr.write_all(b"between").unwrap();
            stdout.write_all(b"after").unwrap();
            stderr.write_all(b"end").unwrap();
        });
        let pieces = collect(&mut reader);
        writer.join().unwrap();
        let whole: Vec<u8> = pieces
            .iter()
            .filter(|(stream, _)| *stream == Stream::Stdout)
            .flat_map(|(_, bytes)| bytes.clone())
            .collect();
        assert_eq!(whole.len(), expected.len() + 5);
        assert!(whole.starts_with(&expected));
        let errors: Vec<&[u8]> = pieces
            .iter()
            .filter(|(stream, _)| *stream == Stream::Stderr)
            .map(|(_, bytes)| bytes.as_slice())
            .collect();
        assert_eq!(errors.concat(), b"betweenend");
    }

    #[test]
    fn a_busy_stream_does_not_keep_the_other_waiting() {
        let (mut reader, stdout, stderr) = output_pipes().unwrap();
        let flood = thread::spawn(move || {
            let mut stdout = File::from(stdout);
            // Ends when the reader is dropped.
            while stdout.write_all(&[b'x'; 8192]).is_ok() {}
        });
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..200 {
            reader.next(&mut buffer, None).unwrap();
        }
        File::from(stderr).write_all(b"now").unwrap();
        let heard = (0..64).any(|_| {
            let next = reader.next(&mut buffer, None).unwrap();
            matches!(
                next,
                Next::Piece {
                    stream: Stream::Stderr,
                    ..
                }
            )
        });
        assert!(heard, "stderr was not heard among 64 packets");
        drop(reader);
        flood.join().unwrap();
    }
}
