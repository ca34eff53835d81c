//! Trees that may not have reached the disk yet.
//!
//! A tree is published without waiting for the disk: whatever process is killed, the kernel has the files.
//! After a crash of the machine it may not have them, and the names may be there without the bytes. So a
//! tree has a mark with the id of this boot of the kernel (`/proc/sys/kernel/random/boot_id`) until a sync
//! came after it. Whoever finds a mark of another boot reads the tree whole before it is used.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::OnceLock;

use super::layout::{FRESH, Layout, digest_of};

/// How long after it was published a tree is waited for: twice the age at which Linux writes what was
/// changed, see `dirty_expire_centisecs` in proc_sys_vm(5).
const WRITTEN_AFTER_SECONDS: i64 = 60;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The id of this boot, if the kernel tells it.
pub(crate) fn boot() -> Option<&'static str> {
    static BOOT: OnceLock<Option<String>> = OnceLock::new();
    BOOT.get_or_init(|| {
        let text = fs::read_to_string(BOOT_ID).ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    })
    .as_deref()
}

/// What a place's mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It has reached the disk.
    Settled,
    /// It was made since the machine was started.
    ThisBoot,
    /// It was made before, and may not be whole.
    Doubtful,
}

/// Marks a place that is not published yet.
///
/// # Errors
/// If the mark cannot be written, or the disk cannot be waited for where there are no marks.
pub(crate) fn mark(place: &Path) -> io::Result<()> {
    match boot() {
        Some(boot) => fs::write(place.join(FRESH), boot),
        None => Ok(rustix::fs::syncfs(File::open(place)?)?),
    }
}

pub(crate) fn of(place: &Path) -> Freshness {
    match fs::read_to_string(place.join(FRESH)) {
        Ok(marked) if boot() == Some(marked.as_str()) => Freshness::ThisBoot,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Freshness::Settled,
        // A mark that was not written whole is one of a machine that crashed.
        _ => Freshness::Doubtful,
    }
}

/// Takes the mark off.
pub(crate) fn settle(place: &Path) {
    match fs::remove_file(place.join(FRESH)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(place = %place.display(), %error, "a mark of a new tree could not be removed");
        }
        _ => {}
    }
}

/// Waits for the disk, and takes the marks off the trees of this boot.
///
/// # Errors
/// If the disk does not take what was written.
pub(crate) fn settle_all(layout: &Layout) -> io::Result<()> {
    settle_made_before(layout, i64::MAX)
}

/// The same if there are trees of this boot that were made some time before `now` (in seconds): by then the
/// kernel has written them by itself, and the wait is short.
///
/// # Errors
/// If the disk does not take what was written.
pub(crate) fn settle_older(layout: &Layout, now: i64) -> io::Result<()> {
    settle_made_before(layout, now.saturating_sub(WRITTEN_AFTER_SECONDS))
}

fn settle_made_before(layout: &Layout, time: i64) -> io::Result<()> {
    let ready = layout.ready();
    let made_at = |place: &Path| fs::metadata(place.join(FRESH)).map(|mark| mark.mtime());
    let marked: Vec<_> = fs::read_dir(&ready)?
        .flatten()
        .filter(|entry| digest_of(&entry.file_name()).is_some())
        .map(|entry| entry.path())
        .filter(|place| made_at(place).is_ok_and(|made_at| made_at < time))
        .filter(|place| of(place) == Freshness::ThisBoot)
        .collect();
    if marked.is_empty() {
        return Ok(());
    }
    rustix::fs::syncfs(File::open(&ready)?)?;
    for place in marked {
        settle(&place);
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use tidemill_core::Digest;

    use super::*;

    #[test]
    fn a_mark_of_another_boot_or_half_a_mark_is_doubtful() {
        let base = tempfile::tempdir().unwrap();
        assert_eq!(of(base.path()), Freshness::Settled);
        mark(base.path()).unwrap();
        assert_eq!(of(base.path()), Freshness::ThisBoot);
        for other in ["", "00000000-0000-0000-0000-000000000000"] {
            fs::write(base.path().join(FRESH), other).unwrap();
            assert_eq!(of(base.path()), Freshness::Doubtful);
        }
        settle(base.path());
        assert_eq!(of(base.path()), Freshness::Settled);
    }

    #[test]
    fn only_marks_of_this_boot_go_after_a_sync() {
        let base = tempfile::tempdir().unwrap();
        let layout = Layout::at(base.path().to_owned());
        let [new, old] = [&b"new"[..], b"old"].map(|name| layout.place(&Digest::of(name)));
        for place in [&new, &old] {
            fs::create_dir_all(place).unwrap();
            mark(place).unwrap();
        }
        fs::write(old.join(FRESH), "another").unwrap();
        let now = fs::metadata(new.join(FRESH)).unwrap().mtime();
        settle_older(&layout, now + WRITTEN_AFTER_SECONDS).unwrap();
        assert_eq!(of(&new), Freshness::ThisBoot);
        settle_older(&layout, now + WRITTEN_AFTER_SECONDS + 1).unwrap();
        assert_eq!(of(&new), Freshness::Settled);
        mark(&new).unwrap();
        settle_all(&layout).unwrap();
        assert_eq!(
            [of(&new), of(&old)],
            [Freshness::Settled, Freshness::Doubtful]
        );
    }
}
