//! For which machines an image is made, and which image of an index is taken.
//! <https://github.com/opencontainers/image-spec/blob/main/image-index.md#platform-variants>

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::manifest::{Index, IndexEntry};

/// Platforms of an index that are named in an error at most.
const NAMED_MAX: usize = 12;

/// An operating system and a processor, in the words of Go: `linux/arm64/v8`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Platform {
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`, `arm`, …
    pub architecture: String,
    /// A version of the architecture, where there are several: `v7`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// The platform that this program was built for.
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86" => "386",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            other => other,
        };
        Self::new("linux", architecture, None)
    }

    /// One of these names, brought to the usual ones: `aarch64` is `arm64`, and `arm64/v8` too.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let os = os.to_lowercase();
        let architecture = architecture.to_lowercase();
        let variant = variant.map(str::to_lowercase).unwrap_or_default();
        let (architecture, variant) = match (architecture.as_str(), variant.as_str()) {
            ("x86_64" | "x86-64" | "amd64", "" | "v1") => ("amd64", ""),
            ("x86_64" | "x86-64" | "amd64", variant) => ("amd64", variant),
            ("i386" | "i686", _) => ("386", ""),
            ("aarch64" | "arm64", "" | "8" | "v8") => ("arm64", ""),
            ("aarch64" | "arm64", variant) => ("arm64", variant),
            ("armhf", _) | ("arm", "" | "7") => ("arm", "v7"),
            ("armel", _) | ("arm", "6") => ("arm", "v6"),
            ("arm", "5") => ("arm", "v5"),
            (architecture, variant) => (architecture, variant),
        };
        Self {
            os,
            architecture: architecture.to_owned(),
            variant: (!variant.is_empty()).then(|| variant.to_owned()),
        }
    }

    /// How well an image for `offered` runs here: the smaller the better, `None` if not at all. A newer
    /// version of an architecture runs what was made for an older one.
    fn distance(&self, offered: &Self) -> Option<u32> {
        if self.os != offered.os || self.architecture != offered.architecture {
            return None;
        }
        let level = |platform: &Self| match &platform.variant {
            None => Some(if self.architecture == "arm64" { 8 } else { 1 }),
            Some(variant) => variant.strip_prefix('v')?.parse::<u32>().ok(),
        };
        if self.variant == offered.variant {
            return Some(0);
        }
        level(self)?.checked_sub(level(offered)?)
    }

    /// True if an image for this platform was asked for and one for `offered` will do. What an image
    /// does not tell is taken as right.
    pub fn accepts(&self, offered: &Self) -> bool {
        offered.os.is_empty() || offered.architecture.is_empty() || self.distance(offered).is_some()
    }

    /// Takes the best entry of an index.
    pub fn choose<'a>(&self, index: &'a Index) -> Result<&'a IndexEntry, PlatformError> {
        let best = index
            .entries
            .iter()
            .filter_map(|entry| Some((self.distance(entry.platform.as_ref()?)?, entry)))
            .min_by_key(|(distance, _)| *distance);
        if let Some((_, entry)) = best {
            return Ok(entry);
        }
        // One image that does not tell its platform here tells it in its configuration.
        match index.entries.as_slice() {
            [only] if only.platform.is_none() => Ok(only),
            _ => Err(PlatformError {
                wanted: self.clone(),
                offered: offered(index),
            }),
        }
    }
}

fn offered(index: &Index) -> String {
    let mut names: Vec<String> = index
        .entries
        .iter()
        .filter_map(|entry| entry.platform.as_ref())
        // Where builders put their attestations.
        .filter(|platform| platform.os != "unknown")
        .map(|platform| platform.to_string().escape_debug().to_string())
        .collect();
    names.dedup();
    if names.is_empty() {
        return "none that is named".to_owned();
    }
    let left_out = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    if left_out > 0 {
        names.push(format!("{left_out} more"));
    }
    names.join(", ")
}

/// An index has nothing for a platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no image for {wanted}; there are images for: {offered}")]
pub struct PlatformError {
    /// What was asked for.
    pub wanted: Platform,
    /// What there is, for people.
    pub offered: String,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// Says that a text is not a platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a platform: write `linux/arm64`, `linux/arm/v7` or just `arm64`")]
pub struct ParsePlatformError(String);

impl FromStr for Platform {
    type Err = ParsePlatformError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        let is_word = |part: &&str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric())
                && (part.chars()).all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        };
        if !parts.iter().all(is_word) {
            return Err(ParsePlatformError(text.escape_debug().to_string()));
        }
        match parts.as_slice() {
            [architecture] if *architecture != "linux" => {
                Ok(Self::new("linux", architecture, None))
            }
            [os, architecture] => Ok(Self::new(os, architecture, None)),
            [os, architecture, variant] => Ok(Self::new(os, architecture, Some(variant))),
            _ => Err(ParsePlatformError(text.escape_debug().to_string())),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::digest::digest_of;
    use crate::manifest::Descriptor;
    use crate::media_type::OCI_MANIFEST;

    fn index(platforms: &[&str]) -> Index {
        let entry = |name: &&str| IndexEntry {
            descriptor: Descriptor {
                media_type: OCI_MANIFEST.to_owned(),
                digest: digest_of(name.as_bytes()),
                size: 1,
            },
            platform: name.parse().ok(),
            name: None,
        };
        Index {
            entries: platforms.iter().map(entry).collect(),
        }
    }

    /// What is chosen for a platform among others.
    fn choose(wanted: &str, offered: &[&str]) -> Result<String, String> {
        let index = index(offered);
        match wanted.parse::<Platform>().unwrap().choose(&index) {
            Ok(entry) => Ok(entry
                .platform
                .as_ref()
                .map_or("?".to_owned(), Platform::to_string)),
            Err(error) => Err(error.offered),
        }
    }

    #[test]
    fn the_nearest_that_runs_is_taken() {
        let all = [
            "unknown/unknown",
            "linux/arm/v5",
            "linux/arm/v7",
            "linux/arm64/v8",
            "linux/amd64/v3",
            "linux/amd64",
            "windows/amd64",
        ];
        for (wanted, expected) in [
            ("amd64", "linux/amd64"),
            ("linux/x86_64", "linux/amd64"),
            ("linux/amd64/v2", "linux/amd64"),
            ("linux/amd64/v4", "linux/amd64/v3"),
            ("arm64", "linux/arm64"),
            ("linux/arm/v6", "linux/arm/v5"),
            ("armhf", "linux/arm/v7"),
        ] {
            assert_eq!(choose(wanted, &all).as_deref(), Ok(expected), "{wanted}");
        }
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        assert_eq!(
            choose(
                "s390x",
                &["unknown/unknown", "linux/arm64", "windows/amd64"]
            ),
            Err("linux/arm64, windows/amd64".to_owned())
        );
        assert_eq!(choose("amd64", &["?"]), Ok("?".to_owned()));
        assert_eq!(
            choose("amd64", &["?", "?"]),
            Err("none that is named".to_owned())
        );
        assert_eq!(
            choose("amd64", &["linux/amd64/v3"]),
            Err("linux/amd64/v3".to_owned())
        );
    }

    #[test]
    fn slips_are_refused() {
        for text in [
            "",
            "linux",
            "linux/",
            "a/b/c/d",
            "linux/../x",
            "linux/am d64",
        ] {
            assert!(text.parse::<Platform>().is_err(), "{text}");
        }
        assert!(Platform::host().accepts(&Platform::host()));
        assert!(Platform::host().accepts(&Platform::new("", "", None)));
    }
}
