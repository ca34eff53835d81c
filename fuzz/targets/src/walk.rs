//! Reads a log in every way that there is.

use std::fs::File;
use std::io::{Seek, Write};

use rustix::fs::{MemfdFlags, memfd_create};
use tidemill_core::Stream;
use tidemill_log::{LogReader, Next};

use crate::input::Input;

/// More than any log of a fuzzer has pieces.
const STEPS_MAX: usize = 1 << 20;

/// A file in memory with these bytes.
pub(crate) fn in_memory(bytes: &[u8]) -> File {
    let fd = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("there is memory");
    let mut file = File::from(fd);
    file.write_all(bytes).expect("there is memory");
    file.rewind().expect("a file in memory can be rewound");
    file
}

/// Goes somewhere and reads on to the end, which must come. What is damaged may be an error.
pub(crate) fn walk(reader: &mut LogReader, input: &mut Input<'_>) {
    reader.select(match input.byte() % 3 {
        0 => None,
        1 => Some(Stream::Stdout),
        _ => Some(Stream::Stderr),
    });
    let place = input.number();
    let went = match input.byte() % 4 {
        0 => Ok(()),
        1 => reader.seek(place),
        2 => reader.seek_line(place),
        _ => reader.seek_tail(place),
    };
    if input.byte() % 8 == 7 {
        reader.stop_at(input.number());
    }
    if went.is_err() {
        return;
    }
    let mut buffer = [0; 300];
    let mut position = reader.position();
    for _ in 0..STEPS_MAX {
        match reader.next(&mut buffer) {
            Ok(Next::Piece(piece)) => {
                assert!((1..=buffer.len()).contains(&piece.length));
                assert!(piece.offset >= position);
                position = piece.offset + piece.length as u64;
            }
            Ok(Next::Gap(gap)) => {
                assert!(gap.length > 0 && gap.offset >= position);
                position = gap.offset + gap.length;
            }
            Ok(Next::Pending | Next::End) | Err(_) => return,
        }
    }
    panic!("the log never ends");
}
