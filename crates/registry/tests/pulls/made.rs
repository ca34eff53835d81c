//! Images that are made for a test, and what it takes to pull them.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tidemill_oci::media_type::{OCI_CONFIG, OCI_INDEX, OCI_LAYER, OCI_MANIFEST};
use tidemill_oci::{Content, Names, OciDigest, Reference, digest_of};
use tidemill_registry::{Client, ClientOptions, Credentials, Patience, PullError, Pulled, Watch};

use crate::fake::Fake;

/// The repository that everything is in.
pub(crate) const REPOSITORY: &str = "some/image";

/// An image and what a registry serves of it.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) served: HashMap<String, (String, Vec<u8>)>,
    pub(crate) manifest: Value,
    pub(crate) layers: Vec<OciDigest>,
}

/// Bytes that do not repeat, another sequence for each seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn describe(media_type: &str, bytes: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest_of(bytes), "size": bytes.len() })
}

impl Made {
    /// An image of these layers, tagged `latest`.
    pub(crate) fn of(layers: &[Vec<u8>]) -> Self {
        Self::for_platform(layers, std::env::consts::ARCH)
    }

    pub(crate) fn for_platform(layers: &[Vec<u8>], architecture: &str) -> Self {
        let architecture = match architecture {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let digests: Vec<_> = layers.iter().map(|layer| digest_of(layer)).collect();
        let config = json!({
            "architecture": architecture, "os": "linux", "config": {},
            "rootfs": { "type": "layers", "diff_ids": digests },
        })
        .to_string()
        .into_bytes();
        let described: Vec<_> = layers
            .iter()
            .map(|layer| describe(OCI_LAYER, layer))
            .collect();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": describe(OCI_CONFIG, &config), "layers": described,
        });
        let mut made = Self {
            served: HashMap::new(),
            manifest: manifest.clone(),
            layers: digests,
        };
        for blob in layers.iter().chain([&config]) {
            let path = format!("/v2/{REPOSITORY}/blobs/{}", digest_of(blob));
            let kind = "application/octet-stream".to_owned();
            made.served.insert(path, (kind, blob.clone()));
        }
        made.serve_manifest("latest", OCI_MANIFEST, &manifest);
        made
    }

    /// Serves a manifest by a tag and by its digest.
    pub(crate) fn serve_manifest(&mut self, tag: &str, media_type: &str, manifest: &Value) {
        let bytes = manifest.to_string().into_bytes();
        let digest = digest_of(&bytes).to_string();
        for name in [tag, &digest] {
            let path = format!("/v2/{REPOSITORY}/manifests/{name}");
            self.served
                .insert(path, (media_type.to_owned(), bytes.clone()));
        }
    }

    pub(crate) fn manifest_digest(&self) -> OciDigest {
        digest_of(self.manifest.to_string().as_bytes())
    }

    /// Puts images for several architectures behind one tag.
    pub(crate) fn index(images: &[(&str, &Self)]) -> (Self, OciDigest) {
        let entries: Vec<_> = images
            .iter()
            .map(|(architecture, made)| {
                let mut entry = describe(OCI_MANIFEST, made.manifest.to_string().as_bytes());
                entry["platform"] = json!({ "os": "linux", "architecture": architecture });
                entry
            })
            .collect();
        let index = json!({ "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries });
        let mut all = images[0].1.clone();
        for (_, made) in images {
            all.served.extend(made.served.clone());
        }
        all.serve_manifest("latest", OCI_INDEX, &index);
        (all, digest_of(index.to_string().as_bytes()))
    }
}

/// A store, and how it is pulled into.
#[derive(Debug)]
pub(crate) struct Puller {
    _directory: tempfile::TempDir,
    pub(crate) content: Content,
    pub(crate) options: ClientOptions,
    pub(crate) watch: Watch,
}

impl Puller {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let content = Content::open(directory.path().join("images")).unwrap();
        let patience = Patience {
            connect: Duration::from_secs(5),
            stall: Duration::from_millis(400),
            document: Duration::from_secs(2),
            pace_every: Duration::from_secs(2),
            pace_bytes: 1000,
            tries: 4,
            first_wait: Duration::from_millis(2),
            longest_wait: Duration::from_millis(10),
            asked_wait_max: Duration::from_secs(3),
        };
        Self {
            _directory: directory,
            content,
            options: ClientOptions {
                patience,
                ..ClientOptions::default()
            },
            watch: Watch::nobody(),
        }
    }

    /// One that is signed in by this configuration of docker's.
    pub(crate) fn signed_in(config: &Value) -> Self {
        let mut puller = Self::new();
        let path = puller.content.base().join("config.json");
        std::fs::write(&path, config.to_string()).unwrap();
        puller.options.credentials = Credentials::read(&path).unwrap();
        puller
    }

    pub(crate) async fn pull_async(&self, reference: &str) -> Result<Pulled, PullError> {
        let client = Client::new(self.options.clone()).unwrap();
        let reference: Reference = reference.parse().unwrap();
        let platform = tidemill_oci::Platform::host();
        client
            .pull(&reference, &platform, &self.content, &self.watch)
            .await
    }

    /// Pulls `some/image:latest`.
    pub(crate) fn pull(&self, fake: &Fake) -> Result<Pulled, PullError> {
        self.pull_name(&format!("{}/{REPOSITORY}", fake.host()))
    }

    pub(crate) fn pull_name(&self, reference: &str) -> Result<Pulled, PullError> {
        runtime().block_on(self.pull_async(reference))
    }

    /// What the error says, with its causes and the hint. No name leads anywhere.
    pub(crate) fn refused(&self, fake: &Fake) -> String {
        let error = self.pull(fake).unwrap_err();
        assert_eq!(Names::new(&self.content).list().unwrap(), []);
        let mut text = error.to_string();
        let mut next: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        format!("{text} ({})", error.hint())
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
