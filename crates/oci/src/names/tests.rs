//! Names that are given, taken, moved and collected, by several at once.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::thread;

use super::*;
use crate::digest::digest_of;
use crate::media_type::{OCI_CONFIG, OCI_LAYER, OCI_MANIFEST};

fn store() -> (tempfile::TempDir, Content, Names) {
    let directory = tempfile::tempdir().unwrap();
    let content = Content::open(directory.path()).unwrap();
    let names = Names::new(&content);
    (directory, content, names)
}

fn describe(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len() })
}

/// Stores an image with one layer of these bytes.
fn image(content: &Content, layer: &[u8]) -> Descriptor {
    content.put(layer).unwrap();
    content.put(b"{}").unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": describe(OCI_CONFIG, b"{}"),
        "layers": [describe(OCI_LAYER, layer)],
    });
    let bytes = serde_json::to_vec(&manifest).unwrap();
    content.put(&bytes).unwrap();
    Descriptor::deserialize(describe(OCI_MANIFEST, &bytes)).unwrap()
}

fn name(text: &str, manifest: &Descriptor) -> Named {
    Named {
        reference: text.parse().unwrap(),
        manifest: manifest.clone(),
        platform: Platform::new("linux", "arm", Some("v7")),
        index: Some(digest_of(text.as_bytes())),
        is_local: text.len() > 1,
    }
}

#[test]
fn a_name_is_given_moved_and_taken() {
    let (_directory, content, names) = store();
    assert_eq!(names.list().unwrap(), []);
    let (first, second) = (image(&content, b"1"), image(&content, b"2"));
    let old = name("x.y/a:b", &first);
    assert_eq!(names.set(&old).unwrap(), None);
    assert_eq!(names.set(&name("busybox", &first)).unwrap(), None);
    let new = name("x.y/a:b", &second);
    assert_eq!(names.set(&new).unwrap(), Some(old));
    assert_eq!(names.get(&new.reference).unwrap(), Some(new.clone()));
    let listed: Vec<_> = (names.list().unwrap().iter())
        .map(|named| named.reference.to_short())
        .collect();
    assert_eq!(listed, ["busybox:latest", "x.y/a:b"]);
    assert_eq!(names.remove(&new.reference).unwrap(), Some(new.clone()));
    assert_eq!(names.remove(&new.reference).unwrap(), None);
}

#[test]
fn a_digest_means_the_image_or_its_index() {
    let (_directory, content, names) = store();
    let manifest = image(&content, b"1");
    let named = name("x.y/a:b", &manifest);
    names.set(&named).unwrap();
    let meant = |text: String| names.get(&text.parse().unwrap()).unwrap().is_some();
    assert!(meant(format!("x.y/a@{}", manifest.digest)));
    assert!(meant(format!("x.y/a:other@{}", named.index.unwrap())));
    assert!(!meant(format!("x.y/a:b@{}", digest_of(b"none"))));
    assert!(!meant(format!("x.y/c@{}", manifest.digest)));
    let held = name(&format!("x.y/a@{}", manifest.digest), &manifest);
    names.set(&held).unwrap();
    assert_eq!(
        names.get(&held.reference).unwrap(),
        Some(held),
        "the very name goes first"
    );
}

#[test]
fn what_no_name_leads_to_is_collected() {
    let (_directory, content, names) = store();
    let (kept, gone) = (image(&content, b"kept"), image(&content, b"gone"));
    names.set(&name("a", &kept)).unwrap();
    names.set(&name("b", &gone)).unwrap();
    assert_eq!(names.collect().unwrap(), Some(0));
    names.remove(&"b".parse().unwrap()).unwrap();
    let hold = content.hold().unwrap();
    assert_eq!(names.collect().unwrap(), None);
    drop(hold);
    assert_eq!(names.collect().unwrap(), Some(gone.size + 4));
    assert_eq!(content.list().unwrap().len(), 3);
}

#[test]
fn what_others_named_is_kept() {
    let (_directory, content, names) = store();
    let manifest = image(&content, b"theirs");
    let mut theirs = describe(OCI_MANIFEST, b"");
    theirs["digest"] = json!(manifest.digest);
    theirs["size"] = json!(manifest.size);
    theirs["annotations"] = json!({ REF_NAME: "latest", "other": "kept" });
    let index = json!({ "schemaVersion": 2, "manifests": [theirs] });
    fs::write(names.path(), index.to_string()).unwrap();
    assert_eq!(names.list().unwrap(), []);
    names.set(&name("a", &image(&content, b"ours"))).unwrap();
    names.remove(&"a".parse().unwrap()).unwrap();
    assert!(names.collect().unwrap().unwrap() > 0);
    assert!(content.has(&manifest).unwrap());
    let text = fs::read_to_string(names.path()).unwrap();
    assert!(text.contains(r#""other":"kept""#), "{text}");
}

#[test]
fn nothing_is_collected_by_an_index_that_cannot_be_read() {
    let (_directory, content, names) = store();
    image(&content, b"x");
    fs::write(names.path(), "{").unwrap();
    let error = names.collect().unwrap_err();
    assert!(error.to_string().contains("failed to read"), "{error}");
    assert!(matches!(names.list(), Err(NamesError::Malformed { .. })));
    assert_eq!(content.list().unwrap().len(), 3);
}

#[test]
fn a_damaged_entry_is_told_with_its_place_and_costs_no_blob() {
    let (_directory, content, names) = store();
    for text in ["a", "b"] {
        let manifest = image(&content, text.as_bytes());
        names.set(&name(text, &manifest)).unwrap();
    }
    let whole = fs::read_to_string(names.path()).unwrap();
    let blobs = content.list().unwrap();
    let at = whole.rfind("sha256:").unwrap() + "sha256:".len();
    let damaged = format!("{}?{}", &whole[..at], &whole[at + 1..]);
    for (damaged, place) in [
        (
            damaged,
            "entry 2 of `manifests` (`docker.io/library/b:latest`): ",
        ),
        (
            whole.replacen(r#""size":"#, r#""seize":"#, 1),
            "entry 1 of `manifests`",
        ),
        (whole[..whole.len() / 2].to_owned(), "line 1 column"),
        (
            whole.replace("[{", "[7,{"),
            "entry 1 of `manifests`: it is not an object",
        ),
        (String::new(), "line 1 column 0"),
        (
            whole.replacen(r#""annotations":{"#, r#""annotations":[],"else":{"#, 1),
            "entry 1 of `manifests`: its `annotations` are not an object",
        ),
        (
            whole.replacen(r#""docker.io/library/a:latest""#, "7", 1),
            "is not a text",
        ),
    ] {
        fs::write(names.path(), &damaged).unwrap();
        let error = names.list().unwrap_err();
        let text = error.to_string();
        assert!(text.contains(place), "no {place:?}: {text}");
        assert!(text.contains("index.json"), "{text}");
        names.collect().unwrap_err();
        names.remove(&"a".parse().unwrap()).unwrap_err();
        assert_eq!(fs::read_to_string(names.path()).unwrap(), damaged);
        assert_eq!(content.list().unwrap(), blobs);
    }
    // By another size it would lead nowhere.
    fs::write(names.path(), whole.replacen(r#""size":"#, r#""size":1"#, 1)).unwrap();
    let error = names.collect().unwrap_err();
    assert!(error.to_string().contains("index.json"), "{error}");
    assert_eq!(content.list().unwrap(), blobs);
    fs::write(names.path(), whole).unwrap();
    assert_eq!(names.list().unwrap().len(), 2);
}

#[test]
fn several_give_names_at_once() {
    const EACH: usize = 10;
    let (_directory, content, names) = store();
    let manifest = image(&content, b"x");
    thread::scope(|scope| {
        for thread in 0..4 {
            let (names, manifest) = (names.clone(), &manifest);
            scope.spawn(move || {
                for number in 0..EACH {
                    names
                        .set(&name(&format!("a{thread}:{number}"), manifest))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(names.list().unwrap().len(), 4 * EACH);
}
