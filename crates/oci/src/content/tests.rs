//! Blobs that come whole, in parts, twice at once, or wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use super::*;
use crate::media_type::OCI_LAYER;

fn store() -> (tempfile::TempDir, Content) {
    let directory = tempfile::tempdir().unwrap();
    let content = Content::open(directory.path().join("images")).unwrap();
    (directory, content)
}

fn describe(bytes: &[u8]) -> Descriptor {
    Descriptor {
        media_type: OCI_LAYER.to_owned(),
        digest: digest_of(bytes),
        size: bytes.len() as u64,
    }
}

fn partial(content: &Content, descriptor: &Descriptor) -> Partial {
    match content.try_begin(descriptor).unwrap() {
        Begun::Partial(partial) => partial,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_is_an_image_layout() {
    let (_directory, content) = store();
    let text = fs::read_to_string(content.base().join("oci-layout")).unwrap();
    assert_eq!(text, r#"{"imageLayoutVersion":"1.0.0"}"#);
    let digest = content.put(b"hello").unwrap();
    assert_eq!(
        content.path(&digest).strip_prefix(content.base()).unwrap(),
        Path::new("blobs/sha256/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    );
    fs::write(
        content.base().join("oci-layout"),
        r#"{"imageLayoutVersion":"2.0.0"}"#,
    )
    .unwrap();
    assert!(matches!(
        Content::open(content.base()),
        Err(ContentError::NotALayout { .. })
    ));
}

#[test]
fn a_part_is_gone_on_with() {
    let (_directory, content) = store();
    let descriptor = describe(b"hello world");
    let mut first = partial(&content, &descriptor);
    first.write(b"hello").unwrap();
    drop(first);
    assert_eq!(content.partials().unwrap()[0].size, 5);
    assert!(!content.has(&descriptor).unwrap());
    let mut second = partial(&content, &descriptor);
    assert_eq!(second.offset(), 5);
    second.write(b" world").unwrap();
    second.commit().unwrap();
    assert_eq!(
        content.read_small(&descriptor, 100).unwrap(),
        b"hello world"
    );
    assert!(matches!(
        content.begin(&descriptor).unwrap(),
        Begun::Present
    ));
    assert!(content.partials().unwrap().is_empty());
    assert_eq!(content.verify(&descriptor.digest).unwrap(), 11);
}

#[test]
fn wrong_bytes_never_become_a_blob() {
    let (_directory, content) = store();
    let descriptor = describe(b"hello");
    let mut short = partial(&content, &descriptor);
    short.write(b"hel").unwrap();
    let error = short.commit().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("{} should have 5 bytes, and 3 came", descriptor.digest)
    );
    let mut wrong = partial(&content, &descriptor);
    assert_eq!(wrong.offset(), 3);
    assert!(matches!(
        wrong.write(b"lo and more"),
        Err(ContentError::WrongSize { found: 14, .. })
    ));
    wrong.write(b"LO").unwrap();
    assert!(matches!(
        wrong.commit(),
        Err(ContentError::WrongDigest { .. })
    ));
    let mut again = partial(&content, &descriptor);
    assert_eq!(again.offset(), 0, "wrong bytes are forgotten");
    again.write(b"HE").unwrap();
    again.restart().unwrap();
    again.write(b"hello").unwrap();
    again.commit().unwrap();
    assert_eq!(content.list().unwrap().len(), 1);
}

#[test]
fn a_part_that_is_too_long_is_begun_anew() {
    let (_directory, content) = store();
    let descriptor = describe(b"hello");
    fs::write(content.partial_path(&descriptor.digest), b"far too long").unwrap();
    assert_eq!(partial(&content, &descriptor).offset(), 0);
}

#[test]
fn damage_on_disk_is_found_and_repaired() {
    let (_directory, content) = store();
    let descriptor = describe(b"hello");
    content.put(b"hello").unwrap();
    fs::write(content.path(&descriptor.digest), b"jello").unwrap();
    assert!(matches!(
        content.read_small(&descriptor, 100),
        Err(ContentError::Damaged { .. })
    ));
    assert!(content.verify(&descriptor.digest).is_err());
    fs::write(content.path(&descriptor.digest), b"hell").unwrap();
    assert!(!content.has(&descriptor).unwrap());
    assert!(content.read_small(&descriptor, 100).is_err());
    let mut anew = partial(&content, &descriptor);
    anew.write(b"hello").unwrap();
    anew.commit().unwrap();
    assert!(content.has(&descriptor).unwrap());
    let error = content.read_small(&descriptor, 4).unwrap_err().to_string();
    assert!(error.contains("has 5 B, more than the 4 B"), "{error}");
}

#[test]
fn one_writes_and_the_others_wait_for_it() {
    const WRITERS: usize = 8;
    let (_directory, content) = store();
    let bytes = vec![7; 100_000];
    let descriptor = describe(&bytes);
    let start = Barrier::new(WRITERS);
    let written: usize = thread::scope(|scope| {
        let work = || {
            start.wait();
            match content.begin(&descriptor).unwrap() {
                Begun::Present => 0,
                Begun::Busy => panic!("begin waits"),
                Begun::Partial(mut partial) => {
                    assert!(matches!(
                        content.try_begin(&descriptor).unwrap(),
                        Begun::Busy
                    ));
                    partial.write(&bytes).unwrap();
                    partial.commit().unwrap();
                    1
                }
            }
        };
        let threads: Vec<_> = (0..WRITERS).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(written, 1);
    assert!(content.has(&descriptor).unwrap());
}

#[test]
fn what_is_new_is_kept_only_if_it_is_finished() {
    let (_directory, content) = store();
    let mut dropped = content.create().unwrap();
    dropped.write_all(b"x").unwrap();
    drop(dropped);
    let mut wrong = content.create().unwrap();
    wrong.write_all(b"x").unwrap();
    assert!(wrong.commit_as(&digest_of(b"y")).is_err());
    // As a process that was killed leaves it.
    fs::write(content.partial_dir().join("new-left"), b"x").unwrap();
    let mut kept = content.create().unwrap();
    kept.write_all(b"x").unwrap();
    let kept = kept.commit().unwrap();
    assert_eq!(
        (kept.digest, kept.size, kept.is_new),
        (digest_of(b"x"), 1, true)
    );
    assert_eq!(fs::read_dir(content.partial_dir()).unwrap().count(), 0);
    assert_eq!(content.list().unwrap().len(), 1);
}

#[test]
fn nothing_is_collected_while_somebody_brings_blobs() {
    let (_directory, content) = store();
    let kept = content.put(b"kept").unwrap();
    content.put(b"unneeded").unwrap();
    let hold = content.hold().unwrap();
    let second = content.hold().unwrap();
    let nothing = || Ok(|_: &OciDigest| false);
    assert_eq!(content.collect(nothing).unwrap(), None);
    drop((hold, second));
    let needed = || Ok(move |digest: &OciDigest| *digest == kept);
    assert_eq!(content.collect(needed).unwrap(), Some(8));
    assert_eq!(content.list().unwrap()[0].digest, kept);
}

#[test]
fn parts_are_removed_unless_somebody_is_at_them() {
    let (_directory, content) = store();
    let descriptor = describe(b"hello");
    let mut busy = partial(&content, &descriptor);
    busy.write(b"he").unwrap();
    assert!(!content.remove_partial(&descriptor.digest).unwrap());
    drop(busy);
    assert!(content.remove_partial(&descriptor.digest).unwrap());
    assert!(!content.remove_partial(&descriptor.digest).unwrap());
}

#[test]
fn times_of_use_are_noted() {
    let (_directory, content) = store();
    let digest = content.put(b"x").unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    content.touch(&digest, at).unwrap();
    assert_eq!(content.list().unwrap()[0].used, at);
    assert!(content.remove(&digest).unwrap());
    assert!(matches!(
        content.open_blob(&digest),
        Err(ContentError::Missing { .. })
    ));
}
