//! Manifests of both families, and everything that is not one.

use serde_json::{Value, json};

use super::*;
use crate::media_type::{DOCKER_CONFIG, DOCKER_INDEX, DOCKER_MANIFEST, OCI_CONFIG, OCI_MANIFEST};

const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn descriptor(media_type: &str, content: &str) -> Value {
    json!({
        "mediaType": media_type,
        "digest": digest_of(content.as_bytes()),
        "size": content.len(),
    })
}

fn manifest(config: &str, layers: &[&str]) -> Value {
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| descriptor(layer, layer))
        .collect();
    json!({
        "schemaVersion": 2,
        "config": descriptor(config, "config"),
        "layers": layers,
    })
}

fn parse_value(value: &Value, media_type: Option<&str>) -> Result<Document, ManifestError> {
    Document::parse(value.to_string().as_bytes(), media_type)
}

/// Whether the error says this.
fn refused(value: &Value, media_type: Option<&str>, expected: &str) {
    let error = parse_value(value, media_type)
        .expect_err(expected)
        .to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn both_families_are_read() {
    let zstd = "application/vnd.oci.image.layer.v1.tar+zstd";
    let Ok(Document::Manifest(oci)) = parse_value(&manifest(OCI_CONFIG, &[GZIP, zstd, GZIP]), None)
    else {
        panic!("not a manifest");
    };
    assert_eq!(oci.descriptor.media_type, OCI_MANIFEST);
    let compressions: Vec<_> = oci.layers.iter().map(|layer| layer.compression).collect();
    assert_eq!(
        compressions,
        [Compression::Gzip, Compression::Zstd, Compression::Gzip]
    );
    assert_eq!(oci.blobs().len(), 3);
    let layers = (GZIP.len() + zstd.len()) as u64;
    assert_eq!(oci.size(), oci.descriptor.size + layers + 6);
    let mut docker = manifest(
        DOCKER_CONFIG,
        &["application/vnd.docker.image.rootfs.diff.tar.gzip"],
    );
    docker["mediaType"] = DOCKER_MANIFEST.into();
    let Ok(Document::Manifest(docker)) = parse_value(&docker, Some("application/json")) else {
        panic!("not a manifest");
    };
    assert_eq!(docker.descriptor.media_type, DOCKER_MANIFEST);
}

#[test]
fn an_index_tells_platforms_and_names() {
    let mut first = descriptor(OCI_MANIFEST, "a");
    first["platform"] = json!({ "os": "linux", "architecture": "arm64", "variant": "v8" });
    let mut second = descriptor(OCI_MANIFEST, "b");
    second["annotations"] = json!({ REF_NAME: "x:y" });
    let index =
        json!({ "schemaVersion": 2, "mediaType": DOCKER_INDEX, "manifests": [first, second] });
    let Ok(Document::Index(index)) = parse_value(&index, None) else {
        panic!("not an index");
    };
    assert_eq!(
        index.entries[0].platform,
        Some(Platform::new("linux", "arm64", None))
    );
    assert_eq!(index.entries[1].name.as_deref(), Some("x:y"));
}

#[test]
fn what_is_no_image_is_refused_by_name() {
    let layer = "layer 2 of sha256:";
    refused(
        &manifest(OCI_CONFIG, &[GZIP, &format!("{GZIP}+encrypted")]),
        None,
        "is encrypted (`application/vnd.oci.image.layer.v1.tar+gzip+encrypted`)",
    );
    refused(
        &manifest(OCI_CONFIG, &[GZIP, &format!("{GZIP}+encrypted")]),
        None,
        layer,
    );
    refused(&manifest(OCI_CONFIG, &[GZIP, "text/x"]), None, layer);
    refused(
        &manifest(OCI_CONFIG, &["text/x"]),
        None,
        "is `text/x`, which is not read",
    );
    refused(
        &manifest("application/vnd.cncf.helm.config.v1+json", &[GZIP]),
        None,
        "is no container image",
    );
    refused(
        &json!({ "schemaVersion": 1, "fsLayers": [], "history": [] }),
        None,
        "schema 1",
    );
    refused(
        &manifest(OCI_CONFIG, &[]),
        Some(DOCKER_INDEX),
        "is not the manifest of an image",
    );
    let mut odd = manifest(OCI_CONFIG, &[]);
    odd["mediaType"] = "application/x".into();
    refused(
        &odd,
        None,
        "is `application/x`, which is not the manifest of an image",
    );
    refused(&json!({}), None, "is not the manifest of an image");
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let mut both = manifest(OCI_CONFIG, &[GZIP]);
    both["manifests"] = json!([]);
    refused(&both, None, "it is both a manifest and an index");
    let twice = br#"{"schemaVersion":2,"mediaType":"a","mediaType":"b"}"#;
    let error = Document::parse(twice, None).expect_err("the same key twice");
    assert!(error.to_string().contains("duplicate field"), "{error}");
}

#[test]
fn numbers_and_digests_are_bounded() {
    let layers = vec![GZIP; LAYERS_MAX + 1];
    refused(
        &manifest(OCI_CONFIG, &layers),
        None,
        "has 513 layers, and 512 are read at most",
    );
    let mut huge = manifest(OCI_CONFIG, &[GZIP]);
    huge["layers"][0]["size"] = u64::MAX.into();
    refused(&huge, None, "would have 18446744073709551615 bytes");
    let mut path = manifest(OCI_CONFIG, &[GZIP]);
    path["layers"][0]["digest"] = "sha256:../../../etc/passwd".into();
    refused(&path, None, "is not a manifest");
    let mut other = manifest(OCI_CONFIG, &[GZIP]);
    other["layers"][0]["digest"] = format!("sha512:{}", "0".repeat(128)).into();
    refused(&other, None, "is not a digest: `sha256:`");
    let Err(error) = Document::parse(b"{\"a\":", None) else {
        panic!("half of a document");
    };
    assert!(error.to_string().contains("line 1 column"), "{error}");
}
