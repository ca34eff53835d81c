//! Names of images as people write them for docker: `registry/name:tag@digest`.
//!
//! The grammar is that of <https://github.com/distribution/reference>, with the same defaults: without a
//! registry it is `docker.io`, there a single word is in `library`, and without tag and digest the tag is
//! `latest`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::{OciDigest, ParseOciDigestError};

const DEFAULT_REGISTRY: &str = "docker.io";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";
/// What people wrote for Docker Hub once.
const LEGACY_REGISTRY: &str = "index.docker.io";
const NAME_BYTES_MAX: usize = 255;
const TAG_BYTES_MAX: usize = 128;

/// The whole name of an image: nothing is left to defaults.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<OciDigest>,
}

impl Reference {
    /// The host, with a port if there is one: `docker.io`, `localhost:5000`, `[::1]:5000`.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The name within the registry: `library/busybox`.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag. There is none only if there is a digest.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest of the manifest or index, which counts more than the tag.
    pub const fn digest(&self) -> Option<&OciDigest> {
        self.digest.as_ref()
    }

    /// The same image, held to a digest.
    #[must_use]
    pub fn with_digest(&self, digest: OciDigest) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// The name as people write it: without what the defaults would add.
    pub fn to_short(&self) -> String {
        let whole = self.to_string();
        let Some(rest) = whole.strip_prefix("docker.io/") else {
            return whole;
        };
        let short = rest.strip_prefix("library/").unwrap_or(rest);
        // `docker.io/x.y/a` would become the name of an image at another registry.
        match short.parse::<Self>() {
            Ok(reference) if reference == *self => short.to_owned(),
            _ => whole,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        if let Some(digest) = &self.digest {
            write!(f, "@{digest}")?;
        }
        Ok(())
    }
}

/// Says what of a text is not the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the name of an image: {problem}")]
pub struct ParseReferenceError {
    /// What was written.
    pub text: String,
    /// What is wrong with it.
    pub problem: ReferenceProblem,
}

/// What can be wrong with the name of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceProblem {
    /// Nothing where the name should be.
    #[error("there is no name")]
    Empty,
    /// Before the first slash.
    #[error("`{0}` is not the host of a registry")]
    Registry(String),
    /// Names are in lower case.
    #[error("`{0}` has capital letters, which names never have")]
    Capitals(String),
    /// Between the slashes.
    #[error(
        "`{0}` is not a part of a name: lower-case letters and digits, joined by `.`, `_`, `__` or `-`"
    )]
    Part(String),
    /// All of it.
    #[error("it is longer than {NAME_BYTES_MAX} characters")]
    TooLong,
    /// Behind the colon.
    #[error(
        "`{0}` is not a tag: up to 128 letters, digits, `_`, `.` and `-`, not beginning with `.` or `-`"
    )]
    Tag(String),
    /// Behind the at sign.
    #[error("{0}")]
    Digest(ParseOciDigestError),
}

impl FromStr for Reference {
    type Err = ParseReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| ParseReferenceError {
            text: text
                .chars()
                .take(NAME_BYTES_MAX)
                .collect::<String>()
                .escape_debug()
                .to_string(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Reference, ReferenceProblem> {
    let (rest, digest) = match text.split_once('@') {
        None => (text, None),
        Some((rest, digest)) => {
            let digest = digest.parse().map_err(ReferenceProblem::Digest)?;
            (rest, Some(digest))
        }
    };
    // A colon before a slash belongs to a port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if let Some(tag) = tag.filter(|tag| !is_tag(tag)) {
        return Err(ReferenceProblem::Tag(shown(tag)));
    }
    let (registry, repository) = split_registry(name)?;
    if registry.len() + repository.len() > NAME_BYTES_MAX {
        return Err(ReferenceProblem::TooLong);
    }
    for part in repository.split('/') {
        if part.is_empty() && repository.is_empty() {
            return Err(ReferenceProblem::Empty);
        }
        if part.chars().any(|c| c.is_ascii_uppercase()) {
            return Err(ReferenceProblem::Capitals(shown(part)));
        }
        if !is_part(part) {
            return Err(ReferenceProblem::Part(shown(part)));
        }
    }
    let tag = match (tag, digest) {
        (Some(tag), _) => Some(tag.to_owned()),
        (None, None) => Some(DEFAULT_TAG.to_owned()),
        (None, Some(_)) => None,
    };
    Ok(Reference {
        registry,
        repository,
        tag,
        digest,
    })
}

fn shown(part: &str) -> String {
    part.escape_debug().to_string()
}

/// The first part is a host if it could not be a part of a name, or is `localhost`.
fn split_registry(name: &str) -> Result<(String, String), ReferenceProblem> {
    let looks_like_host = |first: &str| {
        first.contains(['.', ':', '[']) || first == "localhost" || first.to_lowercase() != first
    };
    let (registry, repository) = match name.split_once('/') {
        Some((first, rest)) if looks_like_host(first) => {
            if !is_host(first) {
                return Err(ReferenceProblem::Registry(shown(first)));
            }
            // Hosts are the same in any letters, unless these are all that tells it from a name.
            let host = match first.to_lowercase() {
                lower if looks_like_host(&lower) => lower,
                _ => first.to_owned(),
            };
            (host, rest.to_owned())
        }
        _ => (DEFAULT_REGISTRY.to_owned(), name.to_owned()),
    };
    let registry = match registry.as_str() {
        LEGACY_REGISTRY => DEFAULT_REGISTRY.to_owned(),
        _ => registry,
    };
    if registry == DEFAULT_REGISTRY && !repository.is_empty() && !repository.contains('/') {
        return Ok((registry, format!("{DEFAULT_NAMESPACE}/{repository}")));
    }
    Ok((registry, repository))
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => (
                "ipv6",
                port.strip_prefix(':').or(port.is_empty().then_some("1")),
            ),
            _ => return false,
        },
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("1")),
        },
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_port = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|n| n > 0)
    };
    host.split('.').all(is_label) && port.is_some_and(is_port)
}

fn is_tag(tag: &str) -> bool {
    tag.len() <= TAG_BYTES_MAX
        && !tag.is_empty()
        && !tag.starts_with(['.', '-'])
        && (tag.bytes()).all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// Letters and digits, with one `.`, one or two `_`, or any number of `-` between them.
fn is_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !part.starts_with(is_word) || !part.ends_with(is_word) {
        return false;
    }
    part.split(is_word)
        .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

impl TryFrom<String> for Reference {
    type Error = ParseReferenceError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests;
