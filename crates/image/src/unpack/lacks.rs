//! What a tree lacks of its source.

use super::entries::Tally;

/// What was left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lacks {
    pub(crate) devices: u64,
    pub(crate) owners: u64,
    /// Of `owners`, those whose ids are too large.
    pub(crate) large_ids: bool,
    pub(crate) xattrs: u64,
    pub(crate) overlay_xattrs: u64,
}

impl Lacks {
    /// Adds what was left out while an archive was read.
    pub(crate) const fn read(&mut self, tally: &Tally) {
        self.xattrs += tally.lost_xattrs;
        self.overlay_xattrs += tally.overlay_xattrs;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.devices += other.devices;
        self.owners += other.owners;
        self.large_ids |= other.large_ids;
        self.xattrs += other.xattrs;
        self.overlay_xattrs += other.overlay_xattrs;
    }

    pub(crate) fn sentences(&self) -> Vec<String> {
        let owners = if self.large_ids {
            "entries belong to nobody instead of their owners: only ids up to 65535 can be kept"
        } else {
            "entries belong to the caller instead of their owners: to give files away takes root or sub-ids \
             (`tidemill doctor` says how to get them)"
        };
        [
            (
                self.devices,
                "device nodes were left out: the sandbox has its own /dev",
            ),
            (self.owners, owners),
            (self.xattrs, "extended attributes could not be kept"),
            (
                self.overlay_xattrs,
                "extended attributes of overlayfs were left out: they would be interpreted",
            ),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
    }
}
