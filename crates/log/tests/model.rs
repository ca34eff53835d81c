//! The spool, its readers and the sealed object against a naive model: a list of all bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;
use tidemill_core::{ByteSize, Stream, Timestamp};
use tidemill_log::{Gap, LogReader, LogSpool, Next, seal};

/// One write of a job.
#[derive(Debug, Clone)]
struct Write {
    stream: Stream,
    bytes: Vec<u8>,
    micros_later: i64,
}

/// Everything a job wrote, byte by byte.
#[derive(Debug, Default)]
struct Model {
    bytes: Vec<(Stream, u8)>,
    times: Vec<i64>,
}

impl Model {
    fn append(&mut self, write: &Write, at: i64) {
        for byte in &write.bytes {
            self.bytes.push((write.stream, *byte));
            self.times.push(at);
        }
    }

    /// The positions that begin a line of what is selected.
    fn line_starts(&self, filter: Option<Stream>) -> Vec<u64> {
        let mut starts = Vec::new();
        let mut at_start = true;
        for (position, (stream, byte)) in self.bytes.iter().enumerate() {
            if filter.is_some_and(|filter| filter != *stream) {
                continue;
            }
            if at_start {
                starts.push(position as u64);
            }
            at_start = *byte == b'\n';
        }
        starts
    }
}

/// What a reader gave.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    bytes: Vec<(u64, Stream, u8)>,
    gaps: Vec<Gap>,
    ended: bool,
}

/// Reads until nothing comes any more, and checks each piece against the model.
fn drain(reader: &mut LogReader, model: &Model, read: &mut Read) {
    let mut buffer = vec![0; 701];
    loop {
        match reader.next(&mut buffer).unwrap() {
            Next::Piece(piece) => {
                let written = model.times[usize::try_from(piece.offset).unwrap()];
                // A piece has the time of its first byte, to the millisecond, and is at most
                // 100 ms long.
                assert!(
                    (-1..=101_000).contains(&(written - piece.at.0)),
                    "written at {written}, told {}",
                    piece.at.0
                );
                for (index, byte) in buffer[..piece.length].iter().enumerate() {
                    let position = piece.offset + index as u64;
                    let place = usize::try_from(position).unwrap();
                    assert_eq!(model.bytes[place], (piece.stream, *byte), "at {position}");
                    read.bytes.push((position, piece.stream, *byte));
                }
            }
            Next::Gap(gap) => read.gaps.push(gap),
            Next::Pending => return,
            Next::End => {
                read.ended = true;
                return;
            }
        }
    }
}

fn read_all(mut reader: LogReader, model: &Model) -> Read {
    let mut read = Read::default();
    drain(&mut reader, model, &mut read);
    read
}

/// Every byte that the model has and the filter selects is either there or in a gap, in order.
fn check_complete(read: &Read, model: &Model, from: u64, filter: Option<Stream>) {
    let missing = |position: u64| {
        read.gaps
            .iter()
            .any(|gap| (gap.offset..gap.offset + gap.length).contains(&position))
    };
    let expected: Vec<(u64, Stream, u8)> = model
        .bytes
        .iter()
        .enumerate()
        .map(|(position, (stream, byte))| (position as u64, *stream, *byte))
        .filter(|(position, stream, _)| {
            *position >= from && !missing(*position) && filter.is_none_or(|only| only == *stream)
        })
        .collect();
    assert_eq!(read.bytes, expected);
    for gap in &read.gaps {
        let start = usize::try_from(gap.offset).unwrap();
        let end = start + usize::try_from(gap.length).unwrap();
        let of = |stream| {
            let count = model.bytes[start..end]
                .iter()
                .filter(|(of, _)| *of == stream)
                .count();
            count as u64
        };
        assert_eq!(
            (gap.stdout_bytes, gap.stderr_bytes),
            (of(Stream::Stdout), of(Stream::Stderr))
        );
    }
}

fn sealed(dir: &Path, into: &Path) -> PathBuf {
    let path = into.join("sealed");
    let mut file = File::create(&path).unwrap();
    assert!(seal(dir, &mut file).unwrap().is_some());
    path
}

fn open_sealed(path: &Path) -> LogReader {
    LogReader::of_sealed(File::open(path).unwrap(), path).unwrap()
}

/// What of a log of `total` bytes is left out.
fn middle(limit: u64, total: u64) -> Option<(u64, u64)> {
    let (head, tail) = (limit - limit / 2, limit / 2);
    (total > limit).then(|| (head, total - tail - head))
}

fn write() -> impl Strategy<Value = Write> {
    let byte = prop_oneof![3 => Just(b'x'), 1 => Just(b'\n'), 1 => any::<u8>()];
    let length = prop_oneof![6 => 1..40_usize, 2 => 1..3000_usize, 1 => 3000..12_000_usize];
    (any::<bool>(), length, byte, any::<u8>(), 0..60_000_i64).prop_map(
        |(err, length, fill, seed, micros_later)| Write {
            stream: if err { Stream::Stderr } else { Stream::Stdout },
            bytes: (0..length)
                .map(|index| {
                    // A line end now and then, at places that differ from write to write.
                    if (index + usize::from(seed)).is_multiple_of(37) {
                        b'\n'
                    } else {
                        fill
                    }
                })
                .collect(),
            micros_later,
        },
    )
}

struct Scene {
    root: TempDir,
    dir: PathBuf,
    model: Model,
}

impl Scene {
    fn spool(limit: u64) -> (Self, LogSpool) {
        let root = TempDir::new().unwrap();
        let dir = root.path().join("logs/one");
        let spool = LogSpool::new(dir.clone(), ByteSize(limit));
        let scene = Self {
            root,
            dir,
            model: Model::default(),
        };
        (scene, spool)
    }

    fn reader(&self) -> LogReader {
        LogReader::of_spool(self.dir.clone())
    }

    fn disk_bytes(&self) -> u64 {
        let Ok(entries) = std::fs::read_dir(&self.dir) else {
            return 0;
        };
        entries
            .map(Result::unwrap)
            .filter(|entry| entry.file_name().to_str().unwrap().ends_with(".data"))
            .map(|entry| entry.metadata().unwrap().len())
            .sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn a_log_reads_as_it_was_written(
        writes in proptest::collection::vec(write(), 0..60),
        limit in prop_oneof![Just(0_u64), 1..200_u64, 1000..60_000_u64, Just(1 << 20)],
        look_every in 1..9_usize,
        probe in any::<prop::sample::Index>(),
        killed in any::<bool>(),
    ) {
        let (mut scene, mut spool) = Scene::spool(limit);
        let mut follower = scene.reader();
        let mut followed = Read::default();
        let mut now = 1_700_000_000_000_000;
        for (index, write) in writes.iter().enumerate() {
            now += write.micros_later;
            spool.append(write.stream, Timestamp(now), &write.bytes).unwrap();
            scene.model.append(write, now);
            if index % look_every == 0 && limit > 0 {
                drain(&mut follower, &scene.model, &mut followed);
                check_complete(&followed, &scene.model, 0, None);
                let fresh = read_all(scene.reader(), &scene.model);
                check_complete(&fresh, &scene.model, 0, None);
                prop_assert!(!fresh.ended);
                prop_assert!(fresh.gaps.len() <= 1);
            }
            // The limit, a segment, and what one write adds before the middle is dropped.
            prop_assert!(scene.disk_bytes() <= limit + (limit / 16).max(4096) + 4096);
        }
        let total = scene.model.bytes.len() as u64;
        let totals = spool.totals();
        prop_assert_eq!(totals.bytes, total);
        let left_out = middle(limit, total);
        prop_assert_eq!(totals.dropped_bytes, left_out.map_or(0, |(_, length)| length));
        if killed {
            drop(spool);
        } else {
            prop_assert_eq!(spool.finish().unwrap(), totals);
        }
        if total == 0 || (limit == 0 && killed) {
            return Ok(());
        }

        // The follower saw a prefix in full and goes on over whatever was dropped since.
        drain(&mut follower, &scene.model, &mut followed);
        check_complete(&followed, &scene.model, 0, None);
        prop_assert_eq!(followed.ended, !killed);

        let object = sealed(&scene.dir, scene.root.path());
        let whole = read_all(open_sealed(&object), &scene.model);
        prop_assert!(whole.ended);
        check_complete(&whole, &scene.model, 0, None);
        if !killed {
            let gaps: Vec<(u64, u64)> = whole.gaps.iter().map(|gap| (gap.offset, gap.length)).collect();
            prop_assert_eq!(gaps, left_out.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(open_sealed(&object).totals().unwrap(), Some(totals));
        }
        check_unpacks_with_any_tool(&object, &whole);

        for from_spool in [true, false] {
            let open = || if from_spool { scene.reader() } else { open_sealed(&object) };
            for filter in [None, Some(Stream::Stdout), Some(Stream::Stderr)] {
                check_places(&open, &scene.model, filter, probe.index(scene.model.bytes.len()) as u64);
            }
        }
    }
}

/// The object is a sequence of zstd frames whose content is what was kept.
fn check_unpacks_with_any_tool(object: &Path, read: &Read) {
    let bytes = zstd::stream::decode_all(File::open(object).unwrap()).unwrap();
    let kept: Vec<u8> = read.bytes.iter().map(|(_, _, byte)| *byte).collect();
    assert!(bytes == kept);
}

/// Seeking by byte, by line and to the last lines, against the model.
fn check_places(open: &dyn Fn() -> LogReader, model: &Model, filter: Option<Stream>, probe: u64) {
    let mut reader = open();
    reader.select(filter);
    let mut whole = Read::default();
    drain(&mut reader, model, &mut whole);
    check_complete(&whole, model, 0, filter);
    let gap_at = |position: u64| {
        whole
            .gaps
            .iter()
            .find(|gap| (gap.offset..gap.offset + gap.length).contains(&position))
    };

    let from = |position: u64| gap_at(position).map_or(position, |gap| gap.offset);
    let read_from = |reader: &mut LogReader| {
        reader.select(filter);
        let mut read = Read::default();
        drain(reader, model, &mut read);
        read
    };
    let expect_from = |position: u64| Read {
        bytes: whole
            .bytes
            .iter()
            .copied()
            .filter(|(at, ..)| *at >= position)
            .collect(),
        gaps: whole
            .gaps
            .iter()
            .copied()
            .filter(|gap| gap.offset >= position)
            .collect(),
        ended: whole.ended,
    };

    let mut reader = open();
    reader.seek(probe).unwrap();
    assert_eq!(
        read_from(&mut reader),
        expect_from(from(probe)),
        "byte {probe}"
    );

    let mut reader = open();
    reader.seek(probe).unwrap();
    reader.stop_at(probe + 100);
    let read = read_from(&mut reader);
    assert!(read.bytes.iter().all(|(at, ..)| *at < probe + 100));

    let starts = model.line_starts(filter);
    if starts.is_empty() {
        return;
    }
    let line = usize::try_from(probe).unwrap() % starts.len();
    let mut reader = open();
    reader.select(filter);
    reader.seek_line(line as u64).unwrap();
    assert_eq!(
        read_from(&mut reader),
        expect_from(from(starts[line])),
        "line {line}"
    );

    // Where the very end was left out, nobody knows how many lines that was.
    let total = model.bytes.len() as u64;
    if gap_at(total - 1).is_some() {
        return;
    }
    for count in [1, 3, line + 1, starts.len() + 5] {
        let first = starts.len().saturating_sub(count);
        let mut reader = open();
        reader.select(filter);
        reader.seek_tail(count as u64).unwrap();
        assert_eq!(
            read_from(&mut reader),
            expect_from(from(starts[first])),
            "last {count}"
        );
    }
}
