//! Extended attributes of files of the host, and which of them their copies have.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::link_xattrs;
use crate::unpack::{ArchiveOwners, Lacks, Xattr};

/// Attributes that the host gives to files by itself, and that say nothing of their content.
const HOSTS_OWN: [&[u8]; 3] = [b"security.selinux", b"security.ima", b"security.evm"];
/// What overlayfs obeys.
const OVERLAYS: [&[u8]; 2] = [b"user.overlay.", b"trusted.overlay."];
/// Rights that a program has whoever runs it.
const CAPABILITY: &[u8] = b"security.capability";

/// Which attributes copies have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// None, and nobody misses them: owner, mode and time are all given, so that copies are the same
    /// whatever else there is.
    None,
    /// All but the rights of programs.
    Unprivileged,
    /// All that this process may set.
    All,
}

/// Reads attributes, and counts those that copies lack.
pub(super) struct Xattrs {
    kept: Kept,
    owners: ArchiveOwners,
    root: OwnedFd,
    lacks: Lacks,
}

impl Xattrs {
    pub(super) fn new(kept: Kept, owners: ArchiveOwners) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            kept,
            owners,
            root: rustix::fs::open("/", flags, Mode::empty())?,
            lacks: Lacks::default(),
        })
    }

    /// Those of a file, directory, link or pipe that its copy is to have.
    pub(super) fn of(&mut self, path: &Path) -> io::Result<Vec<Xattr>> {
        if self.kept == Kept::None {
            return Ok(Vec::new());
        }
        let name = path.strip_prefix("/").unwrap_or(path).as_os_str();
        let found = link_xattrs::of(self.root.as_fd(), name.as_encoded_bytes())?;
        let mut wanted = Vec::new();
        for (name, value) in found {
            if OVERLAYS.iter().any(|overlays| name.starts_with(overlays)) {
                self.lacks.overlay_xattrs += 1;
            } else if name.starts_with(b"system.") {
                // Lists of access name ids of the host, and go with a mode that is another one.
                self.lacks.xattrs += 1;
            } else if !HOSTS_OWN.contains(&&name[..])
                && (self.kept == Kept::All || name != CAPABILITY)
            {
                wanted.push((name, value));
            }
        }
        let given = self.owners.xattrs(&wanted);
        self.lost((wanted.len() - given.len()) as u64);
        Ok(given)
    }

    /// Counts some that could not be set.
    pub(super) const fn lost(&mut self, count: u64) {
        self.lacks.xattrs += count;
    }

    /// What copies lack, in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        self.lacks.sentences()
    }
}
