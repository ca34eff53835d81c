//! Bounds what the command of a layer leaves, as process 1 of a sandbox bounds a private layer on disk: the
//! output is measured twice a second and the whole disk is looked at 20 times a second, and the command is
//! killed when it is too much. Room that nothing was written to is not given to it, and a file without a
//! name is met by the look at the disk.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use tidemill_core::limits::disk_reserve;
use tidemill_core::{Reason, ReasonCode};
use tidemill_image::{Outgrown, OutputLimit};

use crate::sandboxes::Killing;

/// How often the whole disk is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Looks at the disk for each time that the output is measured.
const LOOKS_PER_MEASURE: u32 = 10;

/// Somebody who looks at an output until he is told to stop.
pub(super) struct Watch {
    stop: SyncSender<()>,
    watching: JoinHandle<Option<TooMuch>>,
}

/// Why a command was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TooMuch {
    Output(Outgrown),
    DiskLow,
}

impl Watch {
    /// Begins to look at the directory of an output. What has to stay free of its disk is settled now.
    pub(super) fn start(
        output: &Path,
        limit: OutputLimit,
        killing: Box<dyn Killing>,
    ) -> io::Result<Self> {
        let output = File::open(output)?;
        let (total, free) = space(output.as_fd())?;
        let eye = Eye {
            output,
            limit,
            reserve: disk_reserve(total, free),
        };
        let (stop, stopped) = sync_channel(1);
        let watching = thread::Builder::new()
            .name("layer-watch".to_owned())
            .spawn(move || eye.watch(&stopped, &*killing))?;
        Ok(Self { stop, watching })
    }

    /// Stops looking. Tells why the command was killed, if it was.
    pub(super) fn end(self, limit: &OutputLimit) -> Option<Reason> {
        drop(self.stop);
        let too_much = self.watching.join().ok().flatten()?;
        Some(match too_much {
            TooMuch::Output(what) => {
                Reason::new(ReasonCode::Disk, limit.message(what)).with_hint(limit.hint(what))
            }
            TooMuch::DiskLow => Reason::new(
                ReasonCode::Disk,
                "the disk of the state directory was almost full, and what it left lies on it",
            )
            .with_hint("make room on that disk: `tidemill cache prune` removes what is not needed"),
        })
    }
}

struct Eye {
    output: File,
    limit: OutputLimit,
    reserve: u64,
}

impl Eye {
    fn watch(&self, stopped: &Receiver<()>, killing: &dyn Killing) -> Option<TooMuch> {
        let mut looks = 0;
        let mut found = None;
        while stopped.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            looks += 1;
            found = self.look(looks % LOOKS_PER_MEASURE == 0);
            if found.is_some() {
                killing.kill();
                break;
            }
        }
        found
    }

    fn look(&self, measures: bool) -> Option<TooMuch> {
        if space(self.output.as_fd()).is_ok_and(|(_, free)| free < self.reserve) {
            return Some(TooMuch::DiskLow);
        }
        if !measures {
            return None;
        }
        self.limit.look(self.output.as_fd()).map(TooMuch::Output)
    }
}

/// The bytes of a file system, and those of them that this process may still write.
fn space(file: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let space = rustix::fs::fstatvfs(file)?;
    let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
    Ok((bytes(space.f_blocks), bytes(space.f_bavail)))
}
