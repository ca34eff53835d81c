//! The end of a build: the whole tree is looked at, and what was not handed over is shared too.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Stat, Timespec};
use tidemill_tree::WalkError;

use super::building::{Building, Offer, times};
use super::listing::{Listing, What};
use super::pool::{Linked, Look, Pool, bytes_of};
use super::survey::{Inside, Knowledge, Survey, Surveyed, above};

/// What a finished tree is.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) listing: Listing,
    /// Bytes on disk that no other tree had before.
    pub(crate) new_bytes: u64,
    /// Bytes on disk of what is not in the pool.
    pub(crate) unshared_bytes: u64,
}

impl Building {
    /// Looks at the whole tree, shares what was not added, and gives the list.
    pub(crate) fn finish(&self) -> Result<Finished, WalkError> {
        let survey = Survey {
            owned: self.owned,
            is_private: true,
        };
        let surveyed = survey.of(self.opened.as_fd(), self)?;
        self.share_others(&surveyed);
        self.clear_pool(&surveyed);
        let (mut new_bytes, mut unshared_bytes) = (0, 0);
        let books = self.books();
        for (entry, stat) in surveyed.listing.entries.iter().zip(&surveyed.stats) {
            if matches!(entry.what, What::Again(_)) {
                continue;
            }
            let known = books.known.get(&stat.st_ino);
            if known.is_none_or(|known| !known.is_linked) {
                new_bytes += bytes_of(stat);
            }
            if known.is_none_or(|known| known.key.is_none()) {
                unshared_bytes += bytes_of(stat);
            }
        }
        drop(books);
        Ok(Finished {
            listing: surveyed.listing,
            new_bytes,
            unshared_bytes,
        })
    }

    /// Shares the files that were put into the tree without asking.
    fn share_others(&self, surveyed: &Surveyed) {
        let Some(pool) = &self.pool else { return };
        let mut names: HashMap<u64, Vec<&[u8]>> = HashMap::new();
        let known: HashSet<u64> = self.books().known.keys().copied().collect();
        let entries = || surveyed.listing.entries.iter().zip(&surveyed.stats);
        for (entry, stat) in entries() {
            let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if is_file && !known.contains(&stat.st_ino) {
                names.entry(stat.st_ino).or_default().push(&entry.path);
            }
        }
        let mut touched = BTreeSet::new();
        for (entry, stat) in entries() {
            let (What::Node(node), Some(names)) = (&entry.what, names.get(&stat.st_ino)) else {
                continue;
            };
            let offer = Offer {
                node: node.clone(),
                look: Look::of(stat),
                key: self.claim(node),
            };
            if let Err(error) = self.share_other(pool, &offer, stat, names, &mut touched) {
                self.withdraw(&offer);
                let path = String::from_utf8_lossy(&entry.path).into_owned();
                tracing::debug!(path, %error, "a file is not shared");
            }
        }
        self.restore_times(surveyed, &touched);
    }

    fn share_other(
        &self,
        pool: &Pool,
        offer: &Offer,
        stat: &Stat,
        names: &[&[u8]],
        touched: &mut BTreeSet<Vec<u8>>,
    ) -> io::Result<()> {
        let Some(claim) = offer.key else {
            return Ok(());
        };
        let spare = self.spare_name();
        let place = self.place.as_fd();
        let theirs = match pool.link(&claim.key, &offer.look, place, spare.as_ref())? {
            Linked::Yes(theirs) => theirs,
            looked => {
                let (parent, name) = above(self.opened.as_fd(), names[0])?;
                let name = OsStr::from_bytes(name);
                if matches!(looked, Linked::Full) {
                    pool.replace(&claim.key, parent.as_fd(), name)?;
                } else if !pool.add(&claim.key, parent.as_fd(), name)? {
                    return Ok(());
                }
                self.know(stat, offer, false);
                return Ok(());
            }
        };
        let exchanged = self.exchange(&spare, names, touched);
        rustix::fs::unlinkat(place, &spare, AtFlags::empty())?;
        exchanged?;
        self.know(&theirs, offer, true);
        // The list of inodes was made before.
        self.know(stat, offer, true);
        Ok(())
    }

    /// Puts the file with this name in the place under all these names.
    fn exchange(
        &self,
        spare: &str,
        names: &[&[u8]],
        touched: &mut BTreeSet<Vec<u8>>,
    ) -> io::Result<()> {
        let place = self.place.as_fd();
        for (index, path) in names.iter().enumerate() {
            let (parent, name) = above(self.opened.as_fd(), path)?;
            let link = format!("{spare}-{index}");
            rustix::fs::linkat(place, spare, place, &link, AtFlags::empty())?;
            if let Err(errno) = rustix::fs::renameat(place, &link, &parent, name) {
                // The name lies beside the tree and goes with the directory at the latest.
                rustix::fs::unlinkat(place, &link, AtFlags::empty()).ok();
                return Err(errno.into());
            }
            let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            touched.insert(path[..slash].to_owned());
        }
        Ok(())
    }

    /// Gives directories in which files were exchanged the times that they had.
    fn restore_times(&self, surveyed: &Surveyed, touched: &BTreeSet<Vec<u8>>) {
        for (entry, stat) in surveyed.listing.entries.iter().zip(&surveyed.stats) {
            if !touched.contains(&entry.path) {
                continue;
            }
            let mtime = Timespec {
                tv_sec: stat.st_mtime,
                tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
            };
            let restored = above(self.opened.as_fd(), &entry.path).and_then(|(parent, name)| {
                let name = if name.is_empty() { b"." } else { name };
                let times = times(mtime);
                Ok(rustix::fs::utimensat(
                    &parent,
                    name,
                    &times,
                    AtFlags::empty(),
                )?)
            });
            if let Err(error) = restored {
                let path = String::from_utf8_lossy(&entry.path).into_owned();
                tracing::warn!(path, %error, "a directory did not get its time back");
            }
        }
    }

    /// Takes out of the pool what was added and is not in the tree any more.
    fn clear_pool(&self, surveyed: &Surveyed) {
        let Some(pool) = &self.pool else { return };
        let there: HashSet<u64> = surveyed.stats.iter().map(|stat| stat.st_ino).collect();
        let books = self.books();
        for (_, known) in books
            .known
            .iter()
            .filter(|(inode, known)| !there.contains(inode) && !known.is_linked)
        {
            if let Some(key) = known.key
                && let Err(error) = pool.remove_if_unused(&key)
            {
                tracing::debug!(%key, %error, "a file that no tree has stays in the pool");
            }
        }
    }
}

impl Knowledge for Building {
    fn known(&self, stat: &Stat) -> Option<Inside> {
        let mut books = self.books();
        let known = books.known.get(&stat.st_ino)?;
        if Look::of(stat) == known.look {
            return Some(known.inside.clone());
        }
        // Somebody changed it, or its inode is another file's now.
        let key = known.key;
        books.known.remove(&stat.st_ino);
        drop(books);
        if let (Some(pool), Some(key)) = (&self.pool, key)
            && let Err(error) = pool.remove(&key)
        {
            tracing::warn!(%key, %error, "a changed file stays in the pool");
        }
        None
    }

    fn learn(&self, _: &Stat, _: &Inside) {}

    fn assumed(&self, _: &[u8]) -> Option<Inside> {
        None
    }
}
