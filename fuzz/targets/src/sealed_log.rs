//! Sealed logs: damaged, or made by somebody else.

use std::path::Path;

use tidemill_log::LogReader;

use crate::input::Input;
use crate::walk::{in_memory, walk};

const CHUNKS_MAX: usize = 6;

/// A sealed log that is damaged in any way is read to an end or is an error.
pub fn sealed_log(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let ways = [input.bytes(12), input.bytes(12)];
    let object = if input.byte() == 0 {
        input.rest().to_vec()
    } else {
        object_of(&mut input)
    };
    for mut way in ways.map(Input::new) {
        let file = in_memory(&object);
        if let Ok(mut reader) = LogReader::of_sealed(file, Path::new("fuzz")) {
            // A reader is used again for another place.
            walk(&mut reader, &mut way);
            walk(&mut reader, &mut way);
        }
    }
}

/// An object whose compressed parts are whole, so that what is in them is read, with any numbers.
fn object_of(input: &mut Input<'_>) -> Vec<u8> {
    let mut object = Vec::new();
    let mut directory = Vec::new();
    for _ in 0..4 {
        put(&mut directory, input.number());
    }
    let mut next = 0;
    for _ in 0..usize::from(input.byte()) % CHUNKS_MAX {
        let kind = input.byte();
        let data = input.piece();
        let index = input.piece();
        let place = object.len() as u64;
        let packed = pack(data);
        let packed_index = pack(index);
        object.extend_from_slice(&packed);
        put_skippable(&mut object, &packed_index);
        put_head(&mut directory, input, kind, next);
        next += data.len() as u64;
        let numbers = [
            place,
            packed.len() as u64,
            data.len() as u64,
            packed_index.len() as u64,
            index.len() as u64,
        ];
        for number in numbers {
            let is_wrong = kind & 0xf0 == 0xf0 && input.byte() == 0xff;
            let number = if is_wrong { input.number() } else { number };
            put(&mut directory, number);
        }
    }
    let place = object.len() as u64;
    let packed = pack(&directory);
    put_skippable(&mut object, &packed);
    let mut footer = Vec::new();
    for number in [place, packed.len() as u64, directory.len() as u64] {
        let is_wrong = input.byte() == 0xff;
        let number = if is_wrong { input.number() } else { number };
        put(&mut footer, number);
    }
    footer.extend_from_slice(b"tmlogsl\x01");
    put_skippable(&mut object, &footer);
    object
}

/// The head of a chunk that begins at `offset`, as far as `kind` does not want it otherwise.
pub(crate) fn put_head(into: &mut Vec<u8>, input: &mut Input<'_>, kind: u8, offset: u64) {
    into.extend_from_slice(b"tmlogix\x01");
    put(into, input.number());
    let offset = if kind & 1 == 0 {
        offset
    } else {
        input.number()
    };
    put(into, offset);
    put(into, input.number());
    if kind & 2 == 0 {
        put(into, offset);
        put(into, 0);
    } else {
        put(into, input.number());
        put(into, input.number());
    }
    for _ in 0..3 {
        put(into, input.number());
    }
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).expect("there is memory")
}

fn put_skippable(into: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a fuzzer's input is small");
    into.extend_from_slice(&0x184D_2A5B_u32.to_le_bytes());
    into.extend_from_slice(&length.to_le_bytes());
    into.extend_from_slice(bytes);
}

fn put(into: &mut Vec<u8>, number: u64) {
    into.extend_from_slice(&number.to_le_bytes());
}
