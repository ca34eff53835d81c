//! The spool of a log: segments, their indexes and the mark of the end, as a crash may leave them.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use tempfile::TempDir;
use tidemill_log::{LogReader, seal};

use crate::input::Input;
use crate::sealed_log::put_head;
use crate::walk::{in_memory, walk};

const SEGMENTS_MAX: usize = 5;

thread_local! {
    static DIR: RefCell<Option<TempDir>> = const { RefCell::new(None) };
}

/// A spool that is damaged in any way is read to an end or is an error; and if it can be sealed, what
/// comes of it can be read.
pub fn spool(bytes: &[u8]) {
    DIR.with_borrow_mut(|dir| {
        let dir = dir.get_or_insert_with(|| tempfile::tempdir().expect("there is a place"));
        try_spool(&dir.path().join("spool"), &mut Input::new(bytes));
    });
}

fn try_spool(dir: &Path, input: &mut Input<'_>) {
    fs::create_dir(dir).expect("the last one was removed");
    let ways = [input.bytes(12), input.bytes(12)];
    fill(dir, input);
    for way in ways {
        let mut way = Input::new(way);
        let mut reader = LogReader::of_spool(dir.to_owned());
        walk(&mut reader, &mut way);
        walk(&mut reader, &mut way);
    }
    let mut object = Vec::new();
    if let Ok(Some(_)) = seal(dir, &mut object) {
        let file = in_memory(&object);
        let mut reader = LogReader::of_sealed(file, Path::new("fuzz")).expect("we have sealed it");
        for way in ways {
            walk(&mut reader, &mut Input::new(way));
        }
    }
    fs::remove_dir_all(dir).expect("it has plain files only");
}

fn fill(dir: &Path, input: &mut Input<'_>) {
    let mut next = 0;
    for _ in 0..usize::from(input.byte()) % SEGMENTS_MAX {
        let kind = input.byte();
        let start = if kind & 4 == 0 { next } else { input.number() };
        let mut index = Vec::new();
        if kind & 8 == 0 {
            put_head(&mut index, input, kind, start);
        }
        index.extend_from_slice(input.piece());
        let data = input.piece();
        next = start.saturating_add(data.len() as u64);
        let write = |ending: &str, bytes: &[u8]| {
            let path = dir.join(format!("{start:020}.{ending}"));
            fs::write(path, bytes).expect("there is room");
        };
        write("index", &index);
        if kind & 16 == 0 {
            write("data", data);
        }
    }
    if input.byte() & 1 == 1 {
        fs::write(dir.join("end"), input.rest()).expect("there is room");
    }
}
