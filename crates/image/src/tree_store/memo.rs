//! Digests of files elsewhere, remembered.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use tidemill_core::Digest;

use super::TreeStore;

/// How long before it was remembered a file must have been left alone.
const MARGIN_SECONDS: i64 = 2;

impl TreeStore {
    /// The digest of a file that was remembered, if the file has not changed (`changed_at`, in
    /// seconds) around the time when it was taken: times are too coarse to see a second change
    /// at the same moment.
    pub(crate) fn recall(&self, memo: &Digest, changed_at: i64) -> Option<Digest> {
        let path = self.layout.memo().join(memo.to_hex());
        let remembered_at = fs::metadata(&path).ok()?.mtime();
        if remembered_at <= changed_at.saturating_add(MARGIN_SECONDS) {
            return None;
        }
        fs::read_to_string(path).ok()?.parse().ok()
    }

    /// Remembers the digest of a file. Only a help: that it failed is no error.
    pub(crate) fn remember(&self, memo: &Digest, content: &Digest) {
        let directory = self.layout.memo();
        let path = directory.join(memo.to_hex());
        let written = tempfile::NamedTempFile::new_in(directory).and_then(|mut file| {
            file.write_all(content.to_string().as_bytes())?;
            file.persist(&path).map(drop).map_err(|error| error.error)
        });
        if let Err(error) = written {
            tracing::debug!(path = %path.display(), %error, "a digest could not be remembered");
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_remembered_only_of_files_at_rest() {
        let base = tempfile::tempdir().unwrap();
        let store = TreeStore::open(base.path().join("trees")).unwrap();
        let (memo, content) = (Digest::of(b"memo"), Digest::of(b"content"));
        store.remember(&memo, &content);
        let now = fs::metadata(store.layout.memo().join(memo.to_hex()))
            .unwrap()
            .mtime();
        assert_eq!(store.recall(&memo, now), None);
        assert_eq!(store.recall(&memo, now - 60), Some(content));
        assert_eq!(store.recall(&Digest::of(b"other"), now - 60), None);
    }
}
