//! What a tree may come to whose files somebody else writes.

use std::os::fd::BorrowedFd;

use tidemill_core::limits::inodes_for;
use tidemill_core::{ByteSize, Limits};

/// Bytes that the command of a layer may leave where its job has no disk limit: several times what a compiler
/// with its libraries takes up, and less than what an archive may become.
pub const COMMAND_BYTES_DEFAULT: ByteSize = ByteSize::gib(16);

/// Bounds of what the command of a layer leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimit {
    bytes: ByteSize,
    /// True if the job asked for this many.
    is_asked: bool,
}

/// What was too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outgrown {
    /// The bytes of its files.
    Bytes,
    /// Its files, links and directories.
    Entries,
    /// Nobody knows: it has a directory that may not be looked into.
    Closed,
}

impl OutputLimit {
    /// Its job's disk limit, or [`COMMAND_BYTES_DEFAULT`].
    pub fn of(limits: &Limits) -> Self {
        Self {
            bytes: limits.disk.unwrap_or(COMMAND_BYTES_DEFAULT),
            is_asked: limits.disk.is_some(),
        }
    }

    /// How many files, links and directories there may be.
    fn entries(&self) -> u64 {
        inodes_for(self.bytes.0)
    }

    /// What is too much in a directory that is being written, if anything is: bytes count as they are on
    /// the disk. Takes as long as there are entries, and no longer than there may be.
    pub fn look(&self, output: BorrowedFd<'_>) -> Option<Outgrown> {
        match tidemill_tree::measure(output, self.entries(), |_| true) {
            // Such a directory cannot be copied in the end either.
            Ok(used) if used.closed > 0 => Some(Outgrown::Closed),
            Ok(used) => self.judge(used.bytes, used.entries),
            Err(_) => Some(Outgrown::Closed),
        }
    }

    /// What is too much, if anything is.
    pub(crate) fn judge(&self, bytes: u64, entries: u64) -> Option<Outgrown> {
        if bytes > self.bytes.0 {
            Some(Outgrown::Bytes)
        } else {
            (entries > self.entries()).then_some(Outgrown::Entries)
        }
    }

    /// What happened, and which limit it was.
    pub fn message(&self, what: Outgrown) -> String {
        let limit = match (self.is_asked, self.bytes) {
            (true, bytes) => format!("the job's disk limit of {bytes}"),
            (false, bytes) => format!("{bytes}, the limit for a job without a disk limit"),
        };
        match what {
            Outgrown::Bytes => format!("what it left in /layer outgrew {limit}"),
            Outgrown::Entries => format!(
                "it left more than {} files in /layer, too many for {limit}",
                self.entries()
            ),
            Outgrown::Closed => format!(
                "it made a directory in /layer that its owner may not look into, so that what it left \
                 cannot be held to {limit}"
            ),
        }
    }

    /// What to do next.
    pub fn hint(&self, what: Outgrown) -> String {
        if what == Outgrown::Closed {
            return "have the command leave its directories readable and searchable for their owner".into();
        }
        let enough = ByteSize(self.bytes.0.saturating_mul(2)).to_string();
        format!(
            "if the layer needs more, raise the job's limit, for example with --disk {}",
            enough.replace(' ', "")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(disk: Option<ByteSize>) -> OutputLimit {
        OutputLimit::of(&Limits {
            disk,
            ..Limits::default()
        })
    }

    #[test]
    fn bytes_and_entries_are_bounded_and_the_limit_is_named() {
        let asked = limit(Some(ByteSize::mib(100)));
        assert_eq!(asked.judge(100 << 20, 51_200), None);
        assert_eq!(asked.judge((100 << 20) + 1, 0), Some(Outgrown::Bytes));
        assert_eq!(asked.judge(0, 51_201), Some(Outgrown::Entries));
        let said = asked.message(Outgrown::Bytes);
        assert!(said.contains("the job's disk limit of 100 MiB"), "{said}");
        let said = asked.message(Outgrown::Entries);
        assert!(said.contains("more than 51200 files"), "{said}");
        assert!(asked.hint(Outgrown::Bytes).ends_with("--disk 200MiB"));
    }

    #[test]
    fn a_job_without_a_limit_has_one_all_the_same() {
        let default = limit(None);
        assert_eq!(default.judge(16 << 30, 8 << 20), None);
        assert_eq!(default.judge((16 << 30) + 1, 0), Some(Outgrown::Bytes));
        let said = default.message(Outgrown::Bytes);
        assert!(said.contains("16 GiB"), "{said}");
        assert!(said.contains("without a disk limit"), "{said}");
    }
}
