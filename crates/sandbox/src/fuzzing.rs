//! Ways into this crate's inside for the fuzz targets. No part of its interface.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::init::Report;
use crate::request::{Notice, Order, ToWarden, Work, in_memory};
use crate::serve::{Demand, Hello, Settings};

/// Reads bytes as every message that owner, launcher, wardens and process 1 send each other, and as a body
/// that comes beside one as a file. Says which of them they are.
///
/// # Panics
/// If what was read is not written and read again as the same.
pub fn read_message(bytes: &[u8]) -> Vec<&'static str> {
    let mut kinds = Vec::new();
    for (kind, is_one) in [
        ("hello", is_the_same::<Hello>(bytes)),
        ("settings", is_the_same::<Settings>(bytes)),
        ("demand", is_the_same::<Demand>(bytes)),
        ("to a warden", is_the_same::<ToWarden>(bytes)),
        ("order", is_the_same::<Order>(bytes)),
        ("work", is_the_same::<Work>(bytes)),
        ("report", is_the_same::<Report>(bytes)),
        ("notice", is_the_same::<Notice>(bytes)),
    ] {
        kinds.extend(is_one.then_some(kind));
    }
    if let Ok(file) = in_memory(bytes)
        && let Ok(work) = Work::unpack(b"null", Some(file))
    {
        let (message, file) = work.pack().expect("there is room for it");
        let again = Work::unpack(&message, file).expect("what was packed can be unpacked");
        assert_eq!(text(&again), text(&work));
    }
    if let Ok(ToWarden::Spawn(spawn)) = serde_json::from_slice::<ToWarden>(bytes) {
        // Without its body it is refused, and not waited for.
        kinds.extend(spawn.unpack(None).is_ok().then_some("request"));
    }
    kinds
}

fn is_the_same<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(message) = serde_json::from_slice::<T>(bytes) else {
        return false;
    };
    let written = text(&message);
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(text(&again), written);
    true
}

fn text(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("a message can be written")
}
