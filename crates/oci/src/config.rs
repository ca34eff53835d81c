//! The configuration of an image: what runs in it, as whom, and the digests of its layers unpacked.
//! <https://github.com/opencontainers/image-spec/blob/main/config.md>

use std::collections::BTreeMap;

use oci_spec::image as spec;
use serde::Serialize;

use crate::digest::{OciDigest, ParseOciDigestError, digest_of};
use crate::platform::Platform;
use crate::shown::shown;

/// Bytes of a configuration.
pub const CONFIG_BYTES_MAX: u64 = 8 << 20;

/// What an image says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImageConfig {
    /// What it is for. Parts that it does not tell are empty.
    pub platform: Platform,
    /// When it was made, as it stands there (RFC 3339), unchecked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// `NAME=VALUE`, in order.
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group`, …; names are those of the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where the program starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// What a command is put behind.
    pub entrypoint: Vec<String>,
    /// What runs if no command is given.
    pub command: Vec<String>,
    /// The signal that asks it to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
    /// Any words about it.
    pub labels: BTreeMap<String, String>,
    /// The digests of its layers without compression, the lowest first.
    pub diff_ids: Vec<OciDigest>,
}

/// Why bytes are not the configuration of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON, or something is missing in it.
    #[error("{digest} is not the configuration of an image: {problem}")]
    Malformed {
        /// The configuration.
        digest: OciDigest,
        /// What is wrong, with its line and column.
        problem: String,
    },
    /// A layer's digest cannot be checked.
    #[error("{digest} names a layer that cannot be checked")]
    DiffId {
        /// The configuration.
        digest: OciDigest,
        /// Why.
        #[source]
        source: ParseOciDigestError,
    },
}

impl ImageConfig {
    /// Reads a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let digest = digest_of(bytes);
        let read: spec::ImageConfiguration =
            serde_json::from_slice(bytes).map_err(|error| ConfigError::Malformed {
                digest,
                problem: shown(&error),
            })?;
        let diff_ids = (read.rootfs().diff_ids().iter())
            .map(|text| text.parse())
            .collect::<Result<_, _>>()
            .map_err(|source| ConfigError::DiffId { digest, source })?;
        let said = read.config().clone().unwrap_or_default();
        // Docker writes an empty text where nothing was said.
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Ok(Self {
            platform: Platform::new(
                &read.os().to_string(),
                &read.architecture().to_string(),
                read.variant().as_deref(),
            ),
            created: filled(read.created()),
            env: said.env().clone().unwrap_or_default(),
            user: filled(said.user()),
            working_dir: filled(said.working_dir()),
            entrypoint: said.entrypoint().clone().unwrap_or_default(),
            command: said.cmd().clone().unwrap_or_default(),
            stop_signal: filled(said.stop_signal()),
            labels: said
                .labels()
                .clone()
                .unwrap_or_default()
                .into_iter()
                .collect(),
            diff_ids,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn docker_s_nulls_and_empty_texts_are_nothing() {
        let text = json!({
            "architecture": "amd64", "os": "linux", "created": "2024-01-01T00:00:00Z",
            "config": {
                "Hostname": "", "User": "", "Env": ["PATH=/bin"], "Cmd": ["sh"], "Entrypoint": null,
                "WorkingDir": "/w", "Labels": null, "OnBuild": null, "Volumes": null,
                "ExposedPorts": { "80/tcp": {} }, "StopSignal": "SIGINT",
            },
            "history": [{ "created": "2024-01-01T00:00:00Z", "empty_layer": true }],
            "rootfs": { "type": "layers", "diff_ids": [digest_of(b"")] },
        });
        let config = ImageConfig::parse(text.to_string().as_bytes()).expect("a configuration");
        assert_eq!(config.platform, Platform::new("linux", "amd64", None));
        assert_eq!(config.user, None);
        assert_eq!(config.env, ["PATH=/bin"]);
        assert_eq!(config.entrypoint, Vec::<String>::new());
        assert_eq!(config.command, ["sh"]);
        assert_eq!(config.working_dir.as_deref(), Some("/w"));
        assert_eq!(config.stop_signal.as_deref(), Some("SIGINT"));
        assert_eq!(config.diff_ids, [digest_of(b"")]);
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = ImageConfig::parse(b"{}").expect_err("nothing in it");
        assert!(error.to_string().contains("missing field"), "{error}");
        let text = json!({ "architecture": "a", "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": ["md5:0"] } });
        let error = ImageConfig::parse(text.to_string().as_bytes()).expect_err("md5");
        assert!(error.to_string().contains("cannot be checked"), "{error}");
    }
}
