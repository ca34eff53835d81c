//! The most that the store takes up, without looking at it: what was measured last, and what was built
//! since. What was removed since is not taken off, so the true sum is never larger.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::TreeStore;

/// Digits of the number in the file: always as many, so that writing it needs no room.
const DIGITS: usize = 20;

impl TreeStore {
    /// Adds bytes to the sum, if one was noted.
    pub(super) fn add_usage(&self, bytes: u64) {
        let added = self.locked_usage(false).and_then(|file| {
            let Some(file) = file else { return Ok(()) };
            let sum = read(&file)?.saturating_add(bytes);
            write(&file, sum)
        });
        if let Err(error) = added {
            tracing::debug!(%error, "what was built is not in the sum of the store");
        }
    }

    /// The sum. `None` if nothing was ever measured, or the note of it cannot be read.
    pub(super) fn usage(&self) -> Option<u64> {
        let file = self.locked_usage(false).ok()??;
        read(&file).ok()
    }

    /// Notes what was measured. `before` is the sum that was noted when that began: what others have
    /// built since is added.
    pub(super) fn set_usage(&self, before: Option<u64>, bytes: u64) {
        let set = self.locked_usage(true).and_then(|file| {
            let Some(file) = file else { return Ok(()) };
            let since = match (before, read(&file)) {
                (Some(before), Ok(now)) => now.saturating_sub(before),
                _ => 0,
            };
            write(&file, bytes.saturating_add(since))
        });
        if let Err(error) = set {
            tracing::debug!(%error, "the sum of the store could not be noted");
        }
    }

    /// The file, locked as long as it is open.
    fn locked_usage(&self, make: bool) -> io::Result<Option<File>> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(make)
            .truncate(false)
            .mode(0o600)
            .open(self.layout.usage());
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        }
        Ok(Some(file))
    }
}

fn read(file: &File) -> io::Result<u64> {
    let mut digits = [0; DIGITS];
    file.read_exact_at(&mut digits, 0)?;
    std::str::from_utf8(&digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn write(file: &File, bytes: u64) -> io::Result<()> {
    file.write_all_at(format!("{bytes:0DIGITS$}\n").as_bytes(), 0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_kept_and_one_that_cannot_be_read_is_none() {
        let base = tempfile::tempdir().unwrap();
        let store = TreeStore::open(base.path().join("trees")).unwrap();
        store.add_usage(5);
        assert_eq!(store.usage(), None);
        store.set_usage(None, 100);
        store.add_usage(11);
        store.add_usage(0);
        assert_eq!(store.usage(), Some(111));
        // Eleven came while the fifty were counted.
        store.set_usage(Some(100), 50);
        assert_eq!(store.usage(), Some(61));
        store.add_usage(u64::MAX);
        assert_eq!(store.usage(), Some(u64::MAX));
        std::fs::write(store.layout.usage(), "12").unwrap();
        store.add_usage(1);
        assert_eq!(store.usage(), None);
        store.set_usage(None, 7);
        assert_eq!(store.usage(), Some(7));
    }
}
