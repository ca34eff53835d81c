use tidemill_core::Digest;

use super::*;
use crate::script::job;

fn key() -> Key {
    Key::Blob(Digest::of(b"key"))
}

#[test]
fn the_first_gets_it_the_others_wait_and_all_hold_it() {
    let mut table = CacheTable::new();
    assert_eq!(table.get(&key(), job(1)), Get::YouGet);
    assert_eq!(table.get(&key(), job(2)), Get::Wait);
    assert_eq!(table.references(&key()), 0);
    assert_eq!(table.got(&key()), [job(1), job(2)]);
    assert_eq!(table.get(&key(), job(3)), Get::Here);
    assert_eq!(table.references(&key()), 3);
    assert!(table.got(&key()).is_empty(), "it has arrived already");
}

#[test]
fn what_failed_is_forgotten() {
    let mut table = CacheTable::new();
    table.get(&key(), job(1));
    assert_eq!(table.failed(&key()), [job(1)]);
    assert!(table.failed(&key()).is_empty());
    assert_eq!(table.get(&key(), job(2)), Get::YouGet);
}

#[test]
fn only_what_nobody_holds_can_be_removed() {
    let mut table = CacheTable::new();
    table.get(&key(), job(1));
    assert!(!table.remove(&key()), "it is being got");
    table.got(&key());
    table.get(&key(), job(2));
    assert!(!table.release(&key()));
    assert!(!table.remove(&key()), "one reference is left");
    assert!(table.idle().next().is_none());
    assert!(table.release(&key()), "that was the last one");
    assert!(table.idle().eq([&key()]));
    assert!(table.remove(&key()));
    assert!(!table.remove(&key()), "it is not there any more");
}

#[test]
fn what_was_found_at_the_start_is_here_and_idle() {
    let mut table = CacheTable::new();
    table.found(key(), ByteSize(1));
    assert!(table.idle().eq([&key()]));
    assert_eq!(table.get(&key(), job(1)), Get::Here);
    table.found(key(), ByteSize(1));
    assert_eq!(
        table.references(&key()),
        1,
        "finding it again changes nothing"
    );
}

#[test]
#[should_panic(expected = "released without a reference")]
#[cfg(debug_assertions)]
fn a_release_too_many_is_a_defect() {
    let mut table = CacheTable::new();
    table.found(key(), ByteSize(1));
    table.release(&key());
}

/// Keys `a`, `b`, … of so many bytes, in this order of use.
fn table(sizes: &[u64]) -> (CacheTable, Vec<Key>) {
    let mut table = CacheTable::new();
    let keys: Vec<_> = (0_u8..)
        .zip(sizes)
        .map(|(name, _)| Key::Blob(Digest::of(&[name])))
        .collect();
    for (key, size) in keys.iter().zip(sizes) {
        table.found(key.clone(), ByteSize(*size));
    }
    (table, keys)
}

#[test]
fn eviction_takes_the_least_recently_used_that_nobody_holds() {
    let (mut table, keys) = table(&[10, 10, 10, 10]);
    assert_eq!(table.get(&keys[0], job(1)), Get::Here);
    assert_eq!(table.get(&keys[1], job(1)), Get::Here);
    table.release(&keys[1]);
    assert_eq!(table.size(), ByteSize(40));
    let evicted = table.evict(Bounds::at_most(ByteSize(15)), ByteSize(0));
    assert_eq!(
        evicted.remove,
        [&keys[2], &keys[3], &keys[1]].map(Clone::clone),
        "the second was used since it was found, the first is held"
    );
    assert_eq!((evicted.left, evicted.over), (ByteSize(10), ByteSize(0)));
    assert_eq!(table.size(), ByteSize(10));
    assert_eq!(table.get(&keys[2], job(2)), Get::YouGet, "it is gone");
    let evicted = table.evict(Bounds::at_most(ByteSize(0)), ByteSize(5));
    assert!(evicted.remove.is_empty(), "what is held stays");
    assert_eq!((evicted.left, evicted.over), (ByteSize(10), ByteSize(15)));
}

#[test]
fn eviction_leaves_what_is_being_got_and_the_floor() {
    let (mut table, keys) = table(&[10, 10]);
    assert_eq!(table.get(&key(), job(1)), Get::YouGet);
    let bounds = Bounds {
        max: ByteSize(0),
        floor: ByteSize(10),
    };
    assert_eq!(table.evict(bounds, ByteSize(0)).remove, [keys[0].clone()]);
    assert!(table.evict(bounds, ByteSize(0)).remove.is_empty());
    assert_eq!(table.got(&key()), [job(1)], "it was not forgotten");
}

#[test]
fn a_key_counts_once_it_is_measured() {
    let mut table = CacheTable::new();
    table.measured(&key(), ByteSize(7));
    table.get(&key(), job(1));
    table.measured(&key(), ByteSize(7));
    table.got(&key());
    assert_eq!(table.size(), ByteSize(0), "it was not here when measured");
    table.measured(&key(), ByteSize(7));
    assert_eq!(table.size(), ByteSize(7));
}

#[test]
fn within_the_bound_nothing_is_evicted() {
    let (mut table, _) = table(&[10, 10]);
    let evicted = table.evict(Bounds::at_most(ByteSize(25)), ByteSize(5));
    assert_eq!(evicted.remove, []);
    assert_eq!((evicted.left, evicted.over), (ByteSize(20), ByteSize(0)));
}
