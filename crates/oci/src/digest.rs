//! SHA-256 digests as OCI writes them: `sha256:` and 64 lower-case hexadecimal digits.
//! <https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests>

use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const BYTES: usize = 32;

/// The SHA-256 digest of a blob of an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OciDigest([u8; BYTES]);

impl OciDigest {
    /// The digest of bytes that are all in memory.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// The 64 hexadecimal digits, without the prefix: safe as a file name.
    pub fn to_hex(&self) -> String {
        self.0.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a string takes all that is written");
            hex
        })
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.as_bytes();
        if digits.len() != 2 * BYTES {
            return None;
        }
        let mut bytes = [0; BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

const fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.to_hex())
    }
}

impl fmt::Debug for OciDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Says why a text is not a digest that can be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseOciDigestError {
    /// An algorithm that OCI allows and that is not supported.
    #[error("the digest `{text}` is made with {algorithm}, and only sha256 is supported")]
    Algorithm {
        /// What was written.
        text: String,
        /// The part before the colon.
        algorithm: String,
    },
    /// Not a digest at all.
    #[error("`{0}` is not a digest: `sha256:` and 64 lower-case hexadecimal digits are expected")]
    Malformed(String),
}

impl FromStr for OciDigest {
    type Err = ParseOciDigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(digest) = text.strip_prefix(PREFIX).and_then(Self::from_hex) {
            return Ok(digest);
        }
        let shown = || text.escape_debug().to_string();
        match text.split_once(':') {
            Some((algorithm @ ("sha384" | "sha512" | "blake3"), _)) => {
                Err(ParseOciDigestError::Algorithm {
                    text: shown(),
                    algorithm: algorithm.to_owned(),
                })
            }
            _ => Err(ParseOciDigestError::Malformed(shown())),
        }
    }
}

impl TryFrom<String> for OciDigest {
    type Error = ParseOciDigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<OciDigest> for String {
    fn from(digest: OciDigest) -> Self {
        digest.to_string()
    }
}

/// Hashes bytes that come piece by piece.
#[derive(Debug, Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> OciDigest {
        OciDigest(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of no bytes at all, FIPS 180-4.
    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn it_is_written_and_read_as_oci_does() {
        let digest = OciDigest::of(b"");
        assert_eq!(digest.to_string(), EMPTY);
        assert_eq!(EMPTY.parse(), Ok(digest));
        assert_eq!(OciDigest::from_hex(&digest.to_hex()), Some(digest));
    }

    #[test]
    fn what_could_be_a_path_or_is_not_exact_is_refused() {
        for text in [
            "",
            "sha256:",
            "sha256:../../etc/passwd",
            &EMPTY.to_uppercase(),
            &EMPTY[..70],
            &format!("{EMPTY}0"),
            &EMPTY.replace("e3", "é"),
        ] {
            let error = text.parse::<OciDigest>().expect_err(text);
            assert!(error.to_string().contains("is not a digest"), "{error}");
        }
        let error = format!("sha512:{}", "0".repeat(128)).parse::<OciDigest>();
        let error = error.expect_err("another algorithm").to_string();
        assert!(error.contains("made with sha512"), "{error}");
    }
}
