#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use proptest::prelude::*;
use tidemill_core::{ByteSize, Digest};

use super::{Blob, BlobError, Store};

const MAX: ByteSize = ByteSize::mib(64);

fn store() -> (tempfile::TempDir, Store) {
    let base = tempfile::tempdir().unwrap();
    let store = Store::open(base.path().join("blobs")).unwrap();
    (base, store)
}

fn files_in(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn keeps_bytes_under_their_digest() {
    let (_base, store) = store();
    let blob = store.put(b"hello").unwrap();
    assert_eq!(
        blob,
        Blob {
            digest: Digest::of(b"hello"),
            size: ByteSize(5)
        }
    );
    assert_eq!(store.get(&blob.digest, MAX).unwrap(), b"hello");
    assert_eq!(store.size(&blob.digest).unwrap(), Some(ByteSize(5)));
    assert_eq!(store.verify(&blob.digest).unwrap(), blob);
    let hex = blob.digest.to_hex();
    assert!(store.base.join(&hex[..2]).join(&hex[2..]).is_file());
    assert_eq!(files_in(&store.temporary()), 0);
}

#[test]
fn keeps_no_bytes_too() {
    let (_base, store) = store();
    let blob = store.put(b"").unwrap();
    assert_eq!(store.get(&blob.digest, MAX).unwrap(), b"");
}

#[test]
fn lists_and_deletes() {
    let (_base, store) = store();
    let blobs: BTreeSet<Digest> = (0..20_u8)
        .map(|number| store.put(&[number]).unwrap().digest)
        .collect();
    let listed: BTreeSet<Digest> = store
        .list()
        .unwrap()
        .into_iter()
        .map(|blob| blob.digest)
        .collect();
    assert_eq!(listed, blobs);
    let gone = blobs.first().unwrap();
    assert!(store.delete(gone).unwrap());
    assert!(!store.delete(gone).unwrap());
    assert!(
        matches!(store.get(gone, MAX), Err(BlobError::Missing { digest, .. }) if digest == *gone)
    );
    assert_eq!(store.list().unwrap().len(), 19);
}

#[test]
fn notices_damage_and_heals_a_wrong_size() {
    let (_base, store) = store();
    let blob = store.put(b"the right bytes").unwrap();
    fs::write(store.path(&blob.digest), b"the wrong bytes").unwrap();
    let found = Digest::of(b"the wrong bytes");
    for error in [
        store.get(&blob.digest, MAX).unwrap_err(),
        store.verify(&blob.digest).unwrap_err(),
    ] {
        assert!(
            matches!(error, BlobError::Damaged { found: f, .. } if f == found),
            "{error}"
        );
    }
    fs::write(store.path(&blob.digest), b"short").unwrap();
    store.put(b"the right bytes").unwrap();
    assert_eq!(store.get(&blob.digest, MAX).unwrap(), b"the right bytes");
}

#[test]
fn reads_no_more_into_memory_than_allowed() {
    let (_base, store) = store();
    let blob = store.put(&[7; 100]).unwrap();
    let error = store.get(&blob.digest, ByteSize(99)).unwrap_err();
    assert!(
        matches!(
            error,
            BlobError::TooLarge {
                size: ByteSize(100),
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let (_base, store) = store();
    let mut writer = store.writer().unwrap();
    writer.write_all(b"half").unwrap();
    assert_eq!(files_in(&store.temporary()), 1);
    drop(writer);
    assert_eq!(files_in(&store.temporary()), 0);
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn refuses_bytes_that_were_not_announced() {
    let (_base, store) = store();
    let mut writer = store.writer().unwrap();
    writer.write_all(b"other").unwrap();
    let expected = Digest::of(b"announced");
    let error = writer.finish_as(&expected).unwrap_err();
    assert!(matches!(error, BlobError::Unexpected { .. }), "{error}");
    assert_eq!(store.list().unwrap(), []);
    assert_eq!(files_in(&store.temporary()), 0);
}

#[test]
fn opening_sweeps_what_the_dead_left_and_nothing_else() {
    let (_base, store) = store();
    fs::write(store.temporary().join(".tmpdead"), b"left").unwrap();
    let mut alive = store.writer().unwrap();
    alive.write_all(b"alive").unwrap();
    let again = Store::open(store.base.clone()).unwrap();
    assert_eq!(files_in(&again.temporary()), 1);
    let blob = alive.finish().unwrap();
    assert_eq!(again.get(&blob.digest, MAX).unwrap(), b"alive");
}

#[test]
fn many_writers_of_the_same_blobs_agree() {
    let (_base, store) = store();
    let barrier = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                for number in 0..20_u8 {
                    // Every opening sweeps, while others write.
                    let store = Store::open(store.base.clone()).unwrap();
                    let bytes = vec![number; 5000];
                    let mut writer = store.writer().unwrap();
                    writer.write_all(&bytes).unwrap();
                    let blob = writer.finish().unwrap();
                    assert_eq!(store.get(&blob.digest, MAX).unwrap(), bytes);
                }
            });
        }
    });
    assert_eq!(store.list().unwrap().len(), 20);
    assert_eq!(files_in(&store.temporary()), 0);
}

#[test]
fn an_open_blob_outlives_its_deletion() {
    let (_base, store) = store();
    let blob = store.put(b"still here").unwrap();
    let mut reader = store.open_blob(&blob.digest).unwrap();
    store.delete(&blob.digest).unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
}

#[test]
fn errors_say_what_is_wrong_with_the_disk() {
    let sorted = |code| BlobError::of("write", Path::new("x"), io::Error::from_raw_os_error(code));
    let full = sorted(rustix::io::Errno::NOSPC.raw_os_error());
    assert!(matches!(full, BlobError::Full { .. }));
    assert_eq!(full.to_string(), "failed to write `x`: the disk is full");
    assert!(matches!(
        sorted(rustix::io::Errno::DQUOT.raw_os_error()),
        BlobError::Full { .. }
    ));
    for code in [rustix::io::Errno::ROFS, rustix::io::Errno::ACCESS] {
        assert!(matches!(
            sorted(code.raw_os_error()),
            BlobError::ReadOnly { .. }
        ));
    }
    assert!(matches!(
        sorted(rustix::io::Errno::IO.raw_os_error()),
        BlobError::Io { .. }
    ));
}

#[test]
fn a_full_disk_is_an_error_and_no_blob() {
    let (_base, store) = store();
    let mut writer = store.writer().unwrap();
    // The device that is always full stands for the disk.
    let error = File::options()
        .write(true)
        .open("/dev/full")
        .and_then(|mut full| full.write_all(b"x"))
        .unwrap_err();
    assert!(matches!(
        writer.error("write", error),
        BlobError::Full { .. }
    ));
    writer.write_all(b"x").unwrap();
    drop(writer);
    assert_eq!(store.list().unwrap(), []);
}

#[test]
fn a_file_in_the_place_of_the_store_is_an_error() {
    let base = tempfile::tempdir().unwrap();
    let place = base.path().join("blobs");
    fs::write(&place, b"not a directory").unwrap();
    let error = Store::open(&place).unwrap_err();
    assert!(error.to_string().contains("blobs"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However bytes are cut into writes and reads, they come back.
    #[test]
    fn any_cut_of_any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..20_000),
        cuts in prop::collection::vec(1_usize..5000, 1..8),
    ) {
        let (_base, store) = store();
        let mut writer = store.writer().unwrap();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            writer.write_all(piece).unwrap();
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        let blob = writer.finish_as(&Digest::of(&bytes)).unwrap();
        prop_assert_eq!(blob.size.0, bytes.len() as u64);
        prop_assert_eq!(store.get(&blob.digest, MAX).unwrap(), bytes);
    }
}
