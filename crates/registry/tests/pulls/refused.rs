//! What is no image, or none for us: clear errors, and no name that leads to it.

use serde_json::json;
use tidemill_oci::media_type::{OCI_CONFIG, OCI_MANIFEST};

use crate::fake::{Fake, Reply};
use crate::made::{Made, Puller, describe, noise};

/// What is said to a manifest that was changed.
fn with_manifest(change: impl Fn(&mut serde_json::Value)) -> String {
    let mut made = Made::of(&[noise(7, 1000)]);
    let mut manifest = made.manifest.clone();
    change(&mut manifest);
    made.serve_manifest("latest", OCI_MANIFEST, &manifest);
    let fake = Fake::start(made.served);
    let error = Puller::new().refused(&fake);
    let layers = fake.requests_for(&made.layers[0].to_hex());
    assert!(
        layers.is_empty(),
        "no layer is fetched for nothing: {layers:?}"
    );
    error
}

#[test]
fn kinds_that_are_not_read_are_named() {
    let error = with_manifest(|manifest| {
        let encrypted = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
        manifest["layers"][0]["mediaType"] = encrypted.into();
    });
    assert!(
        error.starts_with("layer 1 of sha256:") && error.contains("is encrypted"),
        "{error}"
    );
    let error = with_manifest(|manifest| {
        manifest["layers"][0]["mediaType"] = "application/x-squashfs".into();
    });
    assert!(
        error.contains("is `application/x-squashfs`, which is not read"),
        "{error}"
    );
    let error = with_manifest(|manifest| {
        manifest["config"]["mediaType"] = "application/vnd.cncf.helm.config.v1+json".into();
    });
    assert!(error.contains("is no container image"), "{error}");
    let error = with_manifest(|manifest| manifest["config"]["size"] = (9 << 20).into());
    assert!(error.contains("more than the 8 MiB"), "{error}");
    let error = with_manifest(|manifest| manifest["layers"] = json!([]));
    assert!(
        error.contains("has 0 layers, and its configuration names 1"),
        "{error}"
    );
}

#[test]
fn other_platforms_are_told() {
    let made = Made::for_platform(&[noise(7, 1000)], "s390x");
    let fake = Fake::start(made.served.clone());
    let error = Puller::new().refused(&fake);
    assert!(
        error.contains("is an image for linux/s390x, and linux/"),
        "{error}"
    );
    assert!(error.contains("--platform linux/s390x"), "{error}");
    let (index, _) = Made::index(&[("s390x", &made), ("riscv64", &made)]);
    let fake = Fake::start(index.served);
    let error = Puller::new().refused(&fake);
    assert!(
        error.contains("there are images for: linux/s390x, linux/riscv64"),
        "{error}"
    );
}

#[test]
fn manifests_that_are_none_are_told() {
    let with = |reply: Reply| {
        let fake = Fake::with_rule(Made::of(&[]).served, move |_, _| Some(reply.clone()));
        Puller::new().refused(&fake)
    };
    assert!(with(Reply::new(200).body("<html>")).contains("is not a manifest: expected value"));
    let huge = Reply::new(200).body(vec![b' '; (4 << 20) + 1]);
    assert!(with(huge).contains("a manifest of more than 4194304 bytes"));
    let other = Reply::new(200).body("{}").header(
        "Docker-Content-Digest",
        format!("sha256:{}", "0".repeat(64)),
    );
    assert!(with(other).contains("its digest is sha256:44136f"));
    let first = json!({ "schemaVersion": 1, "fsLayers": [] }).to_string();
    assert!(with(Reply::new(200).body(first)).contains("schema 1"));
    let missing = with(Reply::new(404).body(r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#));
    assert!(
        missing.contains("has no some/image:latest: MANIFEST_UNKNOWN"),
        "{missing}"
    );
}

#[test]
fn a_missing_layer_is_named() {
    let mut made = Made::of(&[noise(7, 1000)]);
    let layer = made.layers[0].to_string();
    made.served.retain(|path, _| !path.ends_with(&layer));
    let fake = Fake::start(made.served);
    let error = Puller::new().refused(&fake);
    assert!(
        error.contains(&format!("has no {layer}: UNKNOWN, it is not here")),
        "{error}"
    );
}

#[test]
fn a_digest_is_held_to() {
    let made = Made::of(&[noise(7, 1000)]);
    let other = json!({ "schemaVersion": 2, "config": describe(OCI_CONFIG, b"x"), "layers": [] });
    let body = other.to_string();
    let fake = Fake::with_rule(made.served.clone(), move |request, _| {
        (request.is_for("manifests")).then(|| Reply::new(200).body(body.clone()))
    });
    let name = format!("{}/some/image@{}", fake.host(), made.manifest_digest());
    let error = Puller::new().pull_name(&name).unwrap_err().to_string();
    assert!(
        error.contains(&format!("not {}", made.manifest_digest())),
        "{error}"
    );
}
