//! Readers beside a writer, damage, a disk that refuses, and how large things get.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use tempfile::TempDir;
use tidemill_core::{ByteSize, Stream, Timestamp};
use tidemill_log::{LogReader, LogSpool, Next, seal, spool};

const MIB: u64 = 1 << 20;

fn spool_in(root: &TempDir, limit: u64) -> (PathBuf, LogSpool) {
    let dir = root.path().join("log");
    (dir.clone(), LogSpool::new(dir, ByteSize(limit)))
}

/// Everything that can be read now, and how it ended.
fn read_text(mut reader: LogReader) -> (String, Vec<u64>, Next) {
    let mut buffer = vec![0; 64 * 1024];
    let (mut text, mut gaps) = (Vec::new(), Vec::new());
    loop {
        match reader.next(&mut buffer).unwrap() {
            Next::Piece(piece) => text.extend_from_slice(&buffer[..piece.length]),
            Next::Gap(gap) => gaps.push(gap.length),
            end => return (String::from_utf8(text).unwrap(), gaps, end),
        }
    }
}

/// The byte that stands at a position, and its stream: a reader can check both by itself.
fn byte_at(position: u64) -> (Stream, u8) {
    let block = position / 97;
    let stream = if block.is_multiple_of(3) {
        Stream::Stderr
    } else {
        Stream::Stdout
    };
    (stream, position.wrapping_mul(31).to_le_bytes()[0])
}

#[test]
fn readers_beside_a_writer_never_see_torn_data() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    let done = AtomicBool::new(false);
    let total = 6 * MIB;
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reader = LogReader::of_spool(dir.clone());
                    let mut buffer = vec![0; 10_000];
                    let (mut read, mut skipped) = (0, 0);
                    loop {
                        let was_done = done.load(Ordering::Acquire);
                        match reader.next(&mut buffer).unwrap() {
                            Next::Piece(piece) => {
                                assert_eq!(piece.offset, read + skipped);
                                for (index, byte) in buffer[..piece.length].iter().enumerate() {
                                    let expected = byte_at(piece.offset + index as u64);
                                    assert_eq!((piece.stream, *byte), expected);
                                }
                                read += piece.length as u64;
                            }
                            Next::Gap(gap) => skipped += gap.length,
                            Next::Pending => {
                                assert!(!was_done, "a finished log has an end");
                                thread::yield_now();
                            }
                            Next::End => return read + skipped,
                        }
                    }
                })
            })
            .collect();
        let mut position = 0;
        while position < total {
            // Each write is the rest of a block of one stream, or a part of it.
            let room = (97 - position % 97)
                .min(1 + position % 41)
                .min(total - position);
            let bytes: Vec<u8> = (position..position + room)
                .map(|at| byte_at(at).1)
                .collect();
            spool
                .append(byte_at(position).0, Timestamp(0), &bytes)
                .unwrap();
            position += room;
        }
        spool.finish().unwrap();
        done.store(true, Ordering::Release);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), total);
        }
    });
}

#[test]
fn single_bytes_of_two_streams_cost_two_bytes_of_index_each() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    for step in 0..100_000_i64 {
        let stream = if step % 2 == 0 {
            Stream::Stdout
        } else {
            Stream::Stderr
        };
        spool.append(stream, Timestamp(step * 50), b".").unwrap();
    }
    assert!(index_bytes(&dir) <= 2 * 100_000 + 20 * 100);
}

#[test]
fn single_bytes_of_one_stream_cost_next_to_nothing() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    for step in 0..100_000_i64 {
        // 100 seconds, a byte per millisecond: a piece per 100 ms.
        let at = Timestamp(step * 1000);
        spool.append(Stream::Stdout, at, b".").unwrap();
    }
    assert!(index_bytes(&dir) <= 1000 * 4 + 20 * 100);
}

fn index_bytes(dir: &Path) -> u64 {
    fs::read_dir(dir)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_name().to_str().unwrap().ends_with(".index"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum()
}

#[test]
fn an_index_that_was_cut_anywhere_is_never_read_wrongly() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    for step in 0..50 {
        let stream = if step % 3 == 0 {
            Stream::Stderr
        } else {
            Stream::Stdout
        };
        let letter: &[u8] = if step % 3 == 0 { b"e" } else { b"o" };
        spool
            .append(stream, Timestamp(step * 200_000), letter)
            .unwrap();
    }
    drop(spool);
    let index = dir.join("00000000000000000000.index");
    let whole = fs::metadata(&index).unwrap().len();
    for length in (0..=whole).rev() {
        OpenOptions::new()
            .write(true)
            .open(&index)
            .unwrap()
            .set_len(length)
            .unwrap();
        let mut reader = LogReader::of_spool(dir.clone());
        let mut buffer = [0; 64];
        // An entry that was cut off leaves its bytes to the piece before it, which is all that can
        // be known; with no entry at all it is an error, and without a head there is nothing.
        if let Ok(Next::Piece(piece)) = reader.next(&mut buffer) {
            assert_eq!((piece.stream, piece.offset), (Stream::Stderr, 0));
            assert_eq!(buffer[0], b'e');
        }
    }
}

#[test]
fn what_a_full_disk_refused_is_counted_and_the_end_is_kept() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    // A file in the way of the directory refuses every write.
    fs::write(&dir, "in the way").unwrap();
    let error = spool
        .append(Stream::Stdout, Timestamp(0), b"lost\n")
        .unwrap_err();
    assert!(error.to_string().contains("failed to create"), "{error}");
    // It is not tried again at once, and nothing is said again.
    spool
        .append(Stream::Stdout, Timestamp(10), b"lost too\n")
        .unwrap();
    fs::remove_file(&dir).unwrap();
    spool
        .append(Stream::Stderr, Timestamp(20), b"still lost\n")
        .unwrap();
    spool
        .append(Stream::Stdout, Timestamp(2_000_000), b"LAST\n")
        .unwrap();
    let totals = spool.finish().unwrap();
    assert_eq!((totals.bytes, totals.dropped_bytes), (30, 25));
    let read = read_text(LogReader::of_spool(dir.clone()));
    assert_eq!(read, ("LAST\n".to_owned(), vec![25], Next::End));

    let path = root.path().join("sealed");
    assert_eq!(
        seal(&dir, &mut File::create(&path).unwrap())
            .unwrap()
            .map(|sealed| (sealed.totals, sealed.lines)),
        Some((totals, 4))
    );
    let sealed = LogReader::of_sealed(File::open(&path).unwrap(), &path).unwrap();
    assert_eq!(read_text(sealed).1, vec![25]);
}

#[test]
fn a_disk_that_fills_meanwhile_cuts_the_log_before_it_takes_what_sealing_needs() {
    let root = TempDir::new().unwrap();
    let (dir, spool) = spool_in(&root, 64 * MIB);
    // Somebody else fills the disk when the job has written a mebibyte.
    let free = Arc::new(AtomicU64::new(8 * MIB));
    let disk = Arc::clone(&free);
    let mut spool = spool.with_free_space(move |_| Some(disk.load(Ordering::Relaxed)));
    let line = [b'x'; 64 * 1024];
    let mut write = |at: i64| spool.append(Stream::Stdout, Timestamp(at), &line);
    for at in 0..16 {
        write(at).unwrap();
    }
    free.store(MIB, Ordering::Relaxed);
    let error = (16..32).find_map(|at| write(at).err()).unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("its disk is almost full: 1 MiB"), "{cause}");
    // Nothing is tried for a while; then there is room again, and the end of the log is kept.
    write(33).unwrap();
    free.store(8 * MIB, Ordering::Relaxed);
    write(5_000_000).unwrap();
    let totals = spool.finish().unwrap();
    assert!(totals.dropped_bytes >= 64 * 1024, "{totals:?}");
    let kept = totals.bytes - totals.dropped_bytes;
    assert!((MIB..2 * MIB).contains(&kept), "{totals:?}");
    let (text, gaps, last) = read_text(LogReader::of_spool(dir));
    assert_eq!((text.len() as u64, last), (kept, Next::End));
    assert_eq!(gaps, [totals.dropped_bytes]);
}

#[test]
fn a_log_without_output_needs_no_file() {
    let root = TempDir::new().unwrap();
    let (dir, spool) = spool_in(&root, MIB);
    assert_eq!(read_text(LogReader::of_spool(dir.clone())).2, Next::Pending);
    assert_eq!(spool.finish().unwrap().bytes, 0);
    assert!(!dir.exists());
    assert_eq!(seal(&dir, &mut Vec::new()).unwrap(), None);
    spool::remove(&dir).unwrap();
}

#[test]
fn a_limit_of_nothing_keeps_nothing_and_says_so() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, 0);
    spool.append(Stream::Stdout, Timestamp(0), b"gone").unwrap();
    assert_eq!(spool.finish().unwrap().dropped_bytes, 4);
    assert_eq!(
        read_text(LogReader::of_spool(dir)),
        (String::new(), vec![4], Next::End)
    );
}

#[test]
fn a_follower_goes_on_in_the_sealed_log() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    spool.append(Stream::Stdout, Timestamp(0), b"one ").unwrap();
    let mut reader = LogReader::of_spool(dir.clone());
    let mut buffer = [0; 64];
    assert!(matches!(reader.next(&mut buffer).unwrap(), Next::Piece(piece) if piece.length == 4));
    spool.append(Stream::Stderr, Timestamp(9), b"two").unwrap();
    spool.finish().unwrap();
    let path = root.path().join("sealed");
    seal(&dir, &mut File::create(&path).unwrap()).unwrap();
    spool::remove(&dir).unwrap();
    reader.go_on_in(File::open(&path).unwrap(), &path).unwrap();
    let next = reader.next(&mut buffer).unwrap();
    assert!(
        matches!(next, Next::Piece(piece) if (piece.offset, piece.stream) == (4, Stream::Stderr)),
        "{next:?}"
    );
    assert_eq!(&buffer[..3], b"two");
    assert_eq!(reader.next(&mut buffer).unwrap(), Next::End);
}

#[test]
fn a_spool_that_vanishes_is_not_one_that_lacks_bytes() {
    let root = TempDir::new().unwrap();
    for _ in 0..200 {
        let (dir, mut spool) = spool_in(&root, MIB);
        spool.append(Stream::Stdout, Timestamp(0), b"text").unwrap();
        spool.finish().unwrap();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                spool::remove(&dir).unwrap();
            });
            start.wait();
            let mut reader = LogReader::of_spool(dir.clone());
            let mut buffer = [0; 64];
            let next = reader.next(&mut buffer).unwrap();
            let whole = matches!(next, Next::Piece(piece) if piece.length == 4);
            assert!(whole || next == Next::Pending, "{next:?}");
        });
        assert!(!dir.exists());
    }
}

#[test]
fn what_was_left_in_the_middle_of_removing_is_removed_next_time() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    spool.append(Stream::Stdout, Timestamp(0), b"text").unwrap();
    let left = dir.with_added_extension(spool::GONE);
    fs::create_dir(&left).unwrap();
    fs::write(left.join("rest"), "").unwrap();
    spool::remove(&dir).unwrap();
    assert!(!dir.exists() && !left.exists());
}

#[test]
fn damage_of_a_sealed_log_is_an_error_and_never_a_panic() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, 4096);
    for step in 0..2000 {
        let text = format!("line {step}\n");
        spool
            .append(Stream::Stdout, Timestamp(step * 1000), text.as_bytes())
            .unwrap();
    }
    spool.finish().unwrap();
    let mut object = Vec::new();
    seal(&dir, &mut object).unwrap();
    let path = root.path().join("damaged");
    let mut refused = 0;
    for place in 0..object.len() {
        let mut damaged = object.clone();
        damaged[place] ^= 0x55;
        fs::write(&path, &damaged).unwrap();
        let Ok(mut reader) = LogReader::of_sealed(File::open(&path).unwrap(), &path) else {
            refused += 1;
            continue;
        };
        let mut buffer = vec![0; 64 * 1024];
        for _ in 0..10_000 {
            match reader.next(&mut buffer) {
                Ok(Next::End) => break,
                Ok(_) => {}
                Err(_) => {
                    refused += 1;
                    break;
                }
            }
        }
    }
    assert!(
        refused > object.len() * 9 / 10,
        "{refused} of {}",
        object.len()
    );
    for length in [0, 10, object.len() - 1] {
        fs::write(&path, &object[..length]).unwrap();
        LogReader::of_sealed(File::open(&path).unwrap(), &path).unwrap_err();
    }
}

#[test]
fn chunks_that_lie_over_each_other_are_not_sealed() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    spool
        .append(Stream::Stdout, Timestamp(0), b"one\n")
        .unwrap();
    spool.finish().unwrap();
    let segment = |start: u64, ending: &str| dir.join(format!("{start:020}.{ending}"));
    fs::copy(segment(0, "index"), segment(4, "index")).unwrap();
    fs::write(segment(4, "data"), "one\ntwo\n").unwrap();
    seal(&dir, &mut Vec::new()).unwrap_err();
}

#[test]
fn b3_a_limit_keeps_head_and_tail() {
    let root = TempDir::new().unwrap();
    let (dir, mut spool) = spool_in(&root, MIB);
    let block = "y\n".repeat(32 * 1024);
    for _ in 0..80 {
        spool
            .append(Stream::Stdout, Timestamp(0), block.as_bytes())
            .unwrap();
    }
    spool
        .append(Stream::Stdout, Timestamp(0), b"LAST\n")
        .unwrap();
    let totals = spool.finish().unwrap();
    assert_eq!(totals.bytes, 5 * MIB + 5);
    assert_eq!(ByteSize(totals.dropped_bytes).to_string(), "4.0 MiB");
    let (text, gaps, end) = read_text(LogReader::of_spool(dir));
    assert!(text.ends_with("y\nLAST\n"));
    assert_eq!((gaps.len(), end), (1, Next::End));
}
