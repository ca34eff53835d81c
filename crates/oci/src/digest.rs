//! SHA-256 over bytes, as the digests of OCI want it.

use sha2::{Digest as _, Sha256};
pub use tidemill_core::oci::{OciDigest, ParseOciDigestError};

/// The digest of bytes that are all in memory.
pub fn digest_of(bytes: &[u8]) -> OciDigest {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// Reads the 64 hexadecimal digits of a digest, as they name a file.
pub(crate) fn from_hex(hex: &str) -> Option<OciDigest> {
    format!("sha256:{hex}").parse().ok()
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
        OciDigest::from_bytes(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_digest_of_the_standard() {
        // Of `abc`, FIPS 180-2, B.1.
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = digest_of(b"abc");
        assert_eq!(digest.to_hex(), hex);
        assert_eq!(from_hex(hex), Some(digest));
        assert_eq!(from_hex("../../etc/passwd"), None);
        let mut hasher = Hasher::default();
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), digest);
    }
}
