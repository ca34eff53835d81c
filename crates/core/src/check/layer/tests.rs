use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Modes;
use crate::check::{PathProblem, check};
use crate::job::{JobSpec, User};

const BASE: &str = "/home/ada/jobs";

fn check_layers(layers: &Value) -> (Option<JobSpec>, Vec<String>) {
    let surroundings = Surroundings {
        pattern_error: &|pattern| pattern.contains("[[").then(|| "unclosed class".into()),
        host_path: &|path, kind| match path {
            "/gone" => Err(PathProblem::Missing),
            "/dir" if kind == PathKind::File => Err(PathProblem::NotFile),
            _ => Ok(()),
        },
        ..Surroundings::default()
    };
    let job = json!({ "program": "true", "layers": layers });
    let (spec, found) = check(&Draft::from_json(&job, BASE), &surroundings);
    for diagnostic in &found {
        assert!(diagnostic.hint.is_some(), "needs advice: {diagnostic:?}");
    }
    let codes = found
        .iter()
        .map(|found| format!("{} {}", found.place, found.code))
        .collect();
    (spec, codes)
}

fn accepts(layer: Value) -> Layer {
    let (spec, codes) = check_layers(&json!([layer]));
    assert_eq!(codes, [""; 0], "{layer}");
    let spec = spec.expect("no diagnostic");
    let again: JobSpec = serde_json::from_slice(&spec.to_canonical()).expect("the form is read");
    assert_eq!(again, spec);
    spec.layers.into_iter().next().expect("one layer")
}

fn refuses(layer: Value, expected: &str) {
    let (spec, codes) = check_layers(&json!([layer]));
    assert_eq!(codes, [expected], "{layer}");
    assert!(spec.is_none(), "{layer}");
}

#[test]
fn a_text_and_an_object_say_the_same() {
    for (text, object) in [
        (
            "dir:a=/b",
            json!({ "kind": "dir", "source": "a", "dest": "/b" }),
        ),
        (
            "file,mode=0755,owner=1.2:a=/b",
            json!({ "kind": "file", "source": "a", "dest": "/b", "mode": "0755", "owner": "1:2" }),
        ),
        (
            "glob,strip=src,exclude=*.o:src/**",
            json!({ "kind": "glob", "include": ["src/**"], "exclude": ["*.o"], "strip": "./src/" }),
        ),
        (
            "glob:/data/in/*.csv=/in",
            json!({ "kind": "glob", "base": "/data/in", "include": ["*.csv"], "dest": "/in" }),
        ),
        (
            "tar,strip=node-20,canonical:n.tar.xz=/usr/local",
            json!({
                "kind": "tar", "source": "n.tar.xz", "strip": "node-20", "dest": "/usr/local",
                "canonical": true
            }),
        ),
        (
            "stubs:/etc/{a,b}/",
            json!({ "kind": "stubs", "paths": ["/etc/{a,b}/"] }),
        ),
        (
            "symlinks:busybox=/bin/sh",
            json!({ "kind": "symlinks", "links": { "/bin/sh": "busybox" } }),
        ),
        (
            "shared-libs:/usr/bin/git",
            json!({ "kind": "shared-libs", "binaries": ["/usr/bin/git"] }),
        ),
        (
            "oci,strip=usr,platform=linux/arm64:ghcr.io/a/b:1=/opt",
            json!({
                "kind": "oci", "reference": "ghcr.io/a/b:1", "strip": "usr", "platform": "linux/arm64",
                "dest": "/opt"
            }),
        ),
        (
            "command:make install DESTDIR=/layer",
            json!({
                "kind": "command", "program": "sh", "args": ["-c", "make install DESTDIR=/layer"]
            }),
        ),
    ] {
        assert_eq!(accepts(json!(text)), accepts(object), "{text}");
    }
}

/// The form that outlives a process: it is only ever added to.
#[test]
fn each_kind_has_one_form_in_a_spec() {
    for (text, form) in [
        (
            "dir:/a",
            json!({ "kind": "dir", "source": "/a", "dest": "/" }),
        ),
        (
            "file,mtime=5:/a=/b",
            json!({ "kind": "file", "source": "/a", "dest": "/b", "attributes": { "mtime": 5 } }),
        ),
        (
            "glob,strip=s,exclude=x:s/*=/g",
            json!({
                "kind": "glob", "base": BASE, "include": ["s/*"], "exclude": ["x"], "strip": "s",
                "dest": "/g"
            }),
        ),
        (
            "tar,strip=s,mode=0600:/a",
            json!({
                "kind": "tar", "source": "/a", "strip": "s", "dest": "/",
                "attributes": { "mode": "0600" }
            }),
        ),
        (
            "stubs,owner=1.2:/a/",
            json!({
                "kind": "stubs", "paths": ["/a/"], "attributes": { "owner": { "uid": 1, "gid": 2 } }
            }),
        ),
        (
            "symlinks:b=/a",
            json!({ "kind": "symlinks", "links": { "/a": "b" } }),
        ),
        (
            "shared-libs:/a",
            json!({ "kind": "shared_libs", "binaries": ["/a"], "dest": "/" }),
        ),
        (
            "oci,canonical,platform=linux/arm64:debian:12",
            json!({
                "kind": "oci", "reference": "debian:12", "platform": "linux/arm64", "dest": "/",
                "attributes": { "owner": { "uid": 0, "gid": 0 }, "mode": "normal", "mtime": 1 }
            }),
        ),
        (
            "command:x",
            json!({
                "kind": "command", "program": "sh", "args": ["-c", "x"], "env": {}, "dest": "/"
            }),
        ),
    ] {
        let layer = accepts(json!(text));
        assert_eq!(serde_json::to_value(&layer).expect("it has a form"), form);
        let again: Layer = serde_json::from_value(form).expect("the form is read");
        assert_eq!(again, layer);
    }
}

#[test]
fn what_is_canonical_can_still_be_said_otherwise() {
    let attributes = |more: Value| {
        let mut layer = json!({ "kind": "dir", "source": "a", "canonical": true });
        layer
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        match accepts(layer) {
            Layer::Dir { attributes, .. } => attributes,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(attributes(json!({})), Attributes::CANONICAL);
    let expected = Attributes {
        owner: Some(User { uid: 7, gid: 7 }),
        mode: Some(Modes::Exact(0o600)),
        mtime: Some(0),
    };
    let said = json!({ "owner": 7, "mode": "0600", "mtime": 0 });
    assert_eq!(attributes(said), expected);
}

#[test]
fn a_layer_with_mistakes_is_told_where_and_what() {
    for (layer, expected) in [
        (json!({ "source": "a" }), "/layers/0/kind missing_field"),
        (json!({ "kind": "dri" }), "/layers/0/kind layer_form"),
        (json!({ "kind": 1 }), "/layers/0/kind wrong_type"),
        (json!({ "kind": "dir" }), "/layers/0/source missing_field"),
        (
            json!({ "kind": "dir", "source": "/gone" }),
            "/layers/0/source host_path",
        ),
        (
            json!({ "kind": "dir", "source": "a", "dets": "/b" }),
            "/layers/0/dets unknown_field",
        ),
        (
            json!({ "kind": "dir", "source": "a", "exclude": ["b"] }),
            "/layers/0/exclude layer_form",
        ),
        (
            json!({ "kind": "dir", "source": "a", "dest": "b" }),
            "/layers/0/dest relative_path",
        ),
        (
            json!({ "kind": "file", "source": "a" }),
            "/layers/0 layer_form",
        ),
        (
            json!({ "kind": "file", "source": "a", "dest": "/b/" }),
            "/layers/0/dest layer_form",
        ),
        (
            json!({ "kind": "file", "source": "/dir", "dest": "/b" }),
            "/layers/0/source host_path",
        ),
        (json!({ "kind": "glob" }), "/layers/0/include missing_field"),
        (
            json!({ "kind": "glob", "include": ["a", "[[b"] }),
            "/layers/0/include/1 pattern",
        ),
        (
            json!({ "kind": "glob", "include": ["a"], "exclude": ["../b"] }),
            "/layers/0/exclude/0 pattern",
        ),
        (
            json!({ "kind": "glob", "include": ["a", "/b/*"] }),
            "/layers/0/include/1 pattern",
        ),
        (
            json!({ "kind": "glob", "include": ["a"], "base": "/gone" }),
            "/layers/0/base host_path",
        ),
        (
            json!({ "kind": "tar", "source": "a", "strip": "../b" }),
            "/layers/0/strip layer_form",
        ),
        (json!("tar,strip=/b:a"), "/layers/0 layer_form"),
        (json!({ "kind": "stubs" }), "/layers/0/paths missing_field"),
        (json!("stubs:/a{b"), "/layers/0 pattern"),
        (json!("stubs:a"), "/layers/0 relative_path"),
        (json!("stubs:/{a,../b}"), "/layers/0 parent_component"),
        (json!("stubs:/{proc,sys}/x"), "/layers/0 reserved_path"),
        (
            json!({ "kind": "stubs", "paths": ["/a", "/dev/{a,b}"] }),
            "/layers/0/paths/1 reserved_path",
        ),
        (
            json!({ "kind": "symlinks", "links": { "/a": "" } }),
            "/layers/0/links/~1a empty",
        ),
        (json!("symlinks:x=/a/"), "/layers/0 layer_form"),
        (
            json!({ "kind": "symlinks", "links": { "/a": "b" }, "canonical": true }),
            "/layers/0/canonical layer_form",
        ),
        (
            json!({ "kind": "shared-libs" }),
            "/layers/0/binaries missing_field",
        ),
        (json!("shared-libs:/gone"), "/layers/0 host_path"),
        (json!("command:"), "/layers/0 missing_field"),
        (json!("oci:"), "/layers/0 missing_field"),
        (json!("oci:Debian"), "/layers/0 image_form"),
        (json!("oci:./image.tar=/a"), "/layers/0 image_form"),
        (
            json!({ "kind": "oci", "reference": "a", "platform": "linux" }),
            "/layers/0/platform image_form",
        ),
        (
            json!({ "kind": "oci", "reference": "a", "source": "a" }),
            "/layers/0/source layer_form",
        ),
        (
            json!({ "kind": "command", "program": "" }),
            "/layers/0/program empty",
        ),
        (
            json!({ "kind": "command", "program": "a", "env": { "A=B": "" } }),
            "/layers/0/env/A=B variable_name",
        ),
        (json!("dir,mode=4755:a"), "/layers/0 out_of_range"),
        (json!("dir,owner=ada:a"), "/layers/0 user_form"),
        (json!("dir,owner=70000:a"), "/layers/0 out_of_range"),
        (json!("dir,mtime=-1:a"), "/layers/0 out_of_range"),
        (
            json!({ "kind": "dir", "source": "a", "mtime": "1" }),
            "/layers/0/mtime wrong_type",
        ),
        (json!(["dir"]), "/layers/0 wrong_type"),
    ] {
        refuses(layer, expected);
    }
}

#[test]
fn a_layer_stands_for_no_more_paths_than_is_allowed() {
    let digits = "{0,1,2,3,4,5,6,7,8,9}";
    let many = format!("/{}", digits.repeat(4));
    accepts(json!(format!("stubs:{many}")));
    refuses(json!(format!("stubs:{many}{{a,b}}")), "/layers/0 pattern");
    let one_more = json!({ "kind": "stubs", "paths": [many, "/a"] });
    refuses(one_more, "/layers/0/paths/1 too_many");
}

proptest! {
    #[test]
    fn any_text_is_a_layer_or_gets_advice(text in "[a-z,:={}/ \\[]{0,40}") {
        let (spec, codes) = check_layers(&json!([text]));
        prop_assert_eq!(spec.is_none(), !codes.is_empty());
    }
}
