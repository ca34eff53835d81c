//! What becomes of the owners and the extended attributes in an archive.

use rustix::fs::{Gid, Uid};

use super::record::{Dress, Xattr};

/// What becomes of the owners in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveOwners {
    /// All belongs to the caller: only root can give files away.
    Lost,
    /// Files belong to the ids that the archive names.
    Kept,
    /// Files belong to the caller's sub-ids: the archive's id `n` to id `n + 1` of a user namespace in
    /// which the caller is 0 and the sub-ids follow. Such a tree can only be built in that namespace.
    SubIds,
}

/// The largest id that sub-ids stand for: a range has 65,536 of them.
const SUB_ID_MAX: u32 = 65_535;
/// Whom a file belongs to whose owner cannot be kept: nobody.
const NOBODY: u32 = 65_534;

impl ArchiveOwners {
    /// What this process can do.
    pub fn of_this_process() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Kept
        } else {
            Self::Lost
        }
    }

    /// A word for names of trees.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Lost => "false",
            Self::Kept => "true",
            Self::SubIds => "sub-ids",
        }
    }

    /// The ids as this process gives them. None if it gives nothing away.
    pub(crate) fn ids(self, dress: &Dress) -> Option<(u32, u32)> {
        let sub = |id: u32| if id > SUB_ID_MAX { NOBODY } else { id } + 1;
        match self {
            Self::Lost => None,
            Self::Kept => Some((dress.uid, dress.gid)),
            Self::SubIds => Some((sub(dress.uid), sub(dress.gid))),
        }
    }

    pub(crate) fn of(self, dress: &Dress) -> Option<(Option<Uid>, Option<Gid>)> {
        let (uid, gid) = self.ids(dress)?;
        Some((Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))))
    }

    /// True if what has this dress belongs to somebody else afterwards.
    pub(crate) fn is_lost(self, dress: &Dress) -> bool {
        match self {
            Self::Lost => {
                dress.uid != rustix::process::geteuid().as_raw()
                    || dress.gid != rustix::process::getegid().as_raw()
            }
            Self::Kept => false,
            Self::SubIds => dress.uid > SUB_ID_MAX || dress.gid > SUB_ID_MAX,
        }
    }

    /// The extended attributes that this process may set, as it has to give them.
    pub(crate) fn xattrs(self, xattrs: &[Xattr]) -> Vec<Xattr> {
        let may_set = |name: &[u8]| match self {
            Self::Kept => true,
            // Capabilities and lists of access count in the namespace; what is trusted does not.
            Self::SubIds => !name.starts_with(b"trusted."),
            Self::Lost => name.starts_with(b"user."),
        };
        let kept = xattrs.iter().filter(|(name, _)| may_set(name));
        kept.map(|(name, value)| {
            let is_list = name.starts_with(b"system.posix_acl_");
            let value = if is_list && self == Self::SubIds {
                shift_list(value)
            } else {
                value.clone()
            };
            (name.clone(), value)
        })
        .collect()
    }
}

/// An access list whose ids are the namespace's: four bytes of version, then eight for each entry, of which
/// the last four are an id if the entry names one. See linux/posix_acl_xattr.h.
fn shift_list(list: &[u8]) -> Vec<u8> {
    /// Tags of entries that name a user or a group.
    const NAMED: [u16; 2] = [0x02, 0x08];
    let mut shifted = list.to_owned();
    for entry in shifted.get_mut(4..).unwrap_or_default().chunks_exact_mut(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        if NAMED.contains(&tag) {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let id = if id > SUB_ID_MAX { NOBODY } else { id } + 1;
            entry[4..].copy_from_slice(&id.to_le_bytes());
        }
    }
    shifted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_access_are_shifted_as_owners_are() {
        let entry =
            |tag: u16, id: u32| [&tag.to_le_bytes()[..], &[7, 0], &id.to_le_bytes()[..]].concat();
        let list = |user, group| {
            [
                vec![2, 0, 0, 0],
                entry(1, u32::MAX),
                entry(2, user),
                entry(8, group),
                entry(32, u32::MAX),
            ]
            .concat()
        };
        assert_eq!(shift_list(&list(0, 70_000)), list(1, 65_535));
        assert_eq!(shift_list(&[2, 0]), [2, 0]);
    }
}
