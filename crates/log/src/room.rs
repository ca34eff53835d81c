//! The room that a spool leaves on its disk. A log grows for as long as its job runs, and others fill the
//! same disk meanwhile: what was free at the start says nothing an hour later.

use std::fmt;
use std::io;
use std::path::Path;

use tidemill_core::ByteSize;

/// The room is measured again after this many bytes of log.
const STEP_BYTES: u64 = 128 * 1024;

/// Asks how many bytes are free on the disk that a path is on; `None` if that is not known.
type Ask = Box<dyn FnMut(&Path) -> Option<u64> + Send>;

/// Measures the room on a disk now and then.
pub(crate) struct Room {
    ask: Ask,
    /// The position of the log at the last measurement that found enough.
    measured_at: Option<u64>,
}

impl Room {
    /// The room on the real disk.
    pub(crate) fn on_disk() -> Self {
        Self::asked_of(Box::new(free))
    }

    pub(crate) fn asked_of(ask: Ask) -> Self {
        Self {
            ask,
            measured_at: None,
        }
    }

    /// True if it is time to measure again.
    pub(crate) fn is_due(&self, position: u64) -> bool {
        self.measured_at
            .is_none_or(|at| position.saturating_sub(at) >= STEP_BYTES)
    }

    /// Refuses to write where the room is needed: sealing takes up to as much again as is kept, and the
    /// record of how the job ended must find room beside it.
    pub(crate) fn measure(&mut self, dir: &Path, position: u64, kept: u64) -> io::Result<()> {
        // A directory that is not made yet will be on the disk of the one above it.
        let free = dir.ancestors().find_map(|path| (self.ask)(path));
        let needed = kept.saturating_add(kept / 4).saturating_add(STEP_BYTES);
        if let Some(free) = free.filter(|free| *free < needed) {
            self.measured_at = None;
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!(
                    "its disk is almost full: {} are left, and sealing the log needs up to {}",
                    ByteSize(free),
                    ByteSize(needed)
                ),
            ));
        }
        self.measured_at = Some(position);
        Ok(())
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room")
            .field("measured_at", &self.measured_at)
            .finish_non_exhaustive()
    }
}

fn free(path: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(path).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn it_is_measured_once_a_step_and_after_each_refusal() {
        let (free, asked) = (
            Arc::new(AtomicU64::new(u64::MAX)),
            Arc::new(AtomicU64::new(0)),
        );
        let (disk, count) = (Arc::clone(&free), Arc::clone(&asked));
        let mut room = Room::asked_of(Box::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Some(disk.load(Ordering::Relaxed))
        }));
        let dir = Path::new("/");
        let mut check =
            |position, kept| !room.is_due(position) || room.measure(dir, position, kept).is_ok();
        assert!(check(0, 0) && check(1, 1) && check(STEP_BYTES - 1, 1));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        free.store(STEP_BYTES * 2, Ordering::Relaxed);
        assert!(check(STEP_BYTES, STEP_BYTES / 2));
        // As much again as is kept does not fit any more.
        assert!(!check(STEP_BYTES * 2, STEP_BYTES * 2));
        assert!(!check(STEP_BYTES * 2 + 1, STEP_BYTES * 2));
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        free.store(STEP_BYTES * 8, Ordering::Relaxed);
        assert!(check(STEP_BYTES * 2 + 2, STEP_BYTES * 2));
    }

    #[test]
    fn a_disk_that_does_not_answer_refuses_nothing() {
        let mut room = Room::asked_of(Box::new(|_| None));
        room.measure(Path::new("/no/such"), 0, u64::MAX / 2)
            .unwrap();
    }

    #[test]
    fn the_disk_of_a_directory_that_is_not_made_yet_is_asked() {
        assert!(free(Path::new("/no/such")).is_none());
        let huge = Room::on_disk().measure(Path::new("/no/such"), 0, u64::MAX / 2);
        let error = huge.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("almost full"), "{error}");
    }
}
