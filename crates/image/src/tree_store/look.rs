//! Looking at a tree when a process begins to use it: what lstat(2) says of its entries against the list.
//!
//! The first process that uses a tree after the machine was started looks at every entry, and so does the
//! first one a minute after the last such look. In between each one looks at a few, other ones each time. When
//! the last whole look was is noted in the tree's lock file: the id of the boot, and the time.
//!
//! A file that was cut or written to has another size or time, and a directory in which something was made
//! or removed another time. What changed without either is found by `verify` alone.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use tidemill_core::Digest;
use tidemill_tree::{all_cores, map_all};

use super::layout::{LIST, ROOT};
use super::listing::{Entry, Kind, Node, What, decode_line};
use super::pool::Look;
use super::record::Record;
use super::survey::{Owned, above};
use super::{TreeStore, fresh};
use crate::unpack::ArchiveOwners;

/// How long a whole look counts. One at a tree of 12,000 entries takes 20 ms with two cores, and 60 ms from a
/// disk (docs/design/009): once a minute that is nothing, and in each of a thousand jobs it would be much.
const LOOKED_FOR_SECONDS: i64 = 60;
/// Entries that are looked at in between: a fraction of a millisecond.
const GLANCE_ENTRIES: usize = 48;
/// Lines that a thread takes at a time. A tree of fewer is not worth a second thread.
const LINES_AT_ONCE: usize = 64;
/// The longest path that the kernel takes at once, see PATH_MAX in limits.h.
const PATH_BYTES_MAX: usize = 4096;

/// What a look gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// What was looked at is as the list says.
    Right,
    /// As `Right`, but for what this process may not look at.
    InPart,
    /// Something is not.
    Wrong,
}

/// A tree that is looked at.
struct Looker {
    root: OwnedFd,
    /// How its owners are to be read, if this process sees them as they are.
    owned: Option<Owned>,
}

impl TreeStore {
    /// Decides whether a tree can be used: by a whole look where one is due, else by a glance, and where
    /// there is doubt by reading all of it. One that is damaged is put aside. Among its sub-ids somebody else may
    /// see more: then it cannot be used here until that one has looked. `draw` chooses where a glance goes; the
    /// lock's time is now.
    pub(super) fn is_fit(&self, id: &Digest, lock: &File, draw: u64) -> io::Result<bool> {
        let now = lock.metadata()?.mtime();
        let is_doubtful = fresh::of(&self.layout.place(id)) == fresh::Freshness::Doubtful;
        if !is_doubtful {
            let is_due = !LastLook::read(lock).is_some_and(|last| last.counts(now));
            let seen = if is_due {
                self.look_at_all(id)
            } else {
                self.glance(id, draw)
            };
            match seen {
                Seen::Right if is_due => {
                    LastLook::note(lock);
                    return Ok(true);
                }
                Seen::Right => return Ok(true),
                Seen::InPart if is_due && self.is_beside_sub_ids() => return Ok(false),
                Seen::InPart => {
                    if is_due {
                        LastLook::note(lock);
                    }
                    return Ok(true);
                }
                // Whoever is asked next looks at all of it too.
                Seen::Wrong => LastLook::forget(lock),
            }
        }
        let is_whole = self.is_whole(id);
        if is_whole {
            LastLook::note(lock);
        }
        Ok(is_whole)
    }

    /// True if trees of this store belong to sub-ids, and this process is not where those are at hand.
    pub(super) fn is_beside_sub_ids(&self) -> bool {
        self.owners == ArchiveOwners::SubIds && !rustix::process::geteuid().is_root()
    }

    /// Has all of a tree looked at, now or with its next use: another one is to be made of it, and what that
    /// costs is little beside the making.
    pub(crate) fn doubt(&self, name: &Digest) {
        let id = self.resolve(name);
        if self.in_use.root(name).is_some() {
            // Whoever else uses it here keeps it, if nothing is wrong.
            if self.look_at_all(&id) != Seen::Wrong {
                return;
            }
            self.in_use.let_go(name);
        }
        // Without a lock file it was never looked at.
        if let Ok(lock) = File::options().write(true).open(self.layout.lock(&id)) {
            LastLook::forget(&lock);
        }
    }

    /// True if a tree is there that [`TreeStore::find`] does not give because somebody else has to look at it.
    pub fn is_unseen(&self, name: &Digest) -> bool {
        self.is_beside_sub_ids() && self.published(&self.resolve(name)).is_some()
    }

    /// Looks at every entry of a tree, large ones with all cores. Trees of older versions have no list.
    fn look_at_all(&self, id: &Digest) -> Seen {
        let place = self.layout.place(id);
        let text = match fs::read(place.join(LIST)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Seen::Right,
            Err(_) => return Seen::Wrong,
            Ok(text) => text,
        };
        let Some(text) = std::str::from_utf8(&text)
            .ok()
            .filter(|text| Digest::of(text.as_bytes()) == *id)
        else {
            return Seen::Wrong;
        };
        let Ok(looker) = self.looker(id) else {
            return Seen::Wrong;
        };
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let portions: Vec<&[&str]> = lines.chunks(LINES_AT_ONCE).collect();
        let threads = if portions.len() > 8 {
            all_cores()
        } else {
            NonZeroUsize::MIN
        };
        let seen = map_all(&portions, threads, || (), |(), lines| looker.see(lines));
        seen.into_iter().fold(Seen::Right, worse)
    }

    /// Looks at a few entries of a tree, from a place that `draw` chooses.
    fn glance(&self, id: &Digest, draw: u64) -> Seen {
        let (Ok(lines), Ok(looker)) = (self.some_lines(id, draw), self.looker(id)) else {
            return Seen::Right;
        };
        if lines.is_empty() {
            // A list has the root at least.
            return Seen::Wrong;
        }
        looker.see(&lines)
    }

    fn looker(&self, id: &Digest) -> io::Result<Looker> {
        let place = self.layout.place(id);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(place.join(ROOT), flags, Mode::empty())?;
        // Of trees among sub-ids it is not known here who built them where.
        let owned = if self.owners == ArchiveOwners::SubIds {
            None
        } else {
            let owners = Record::read(&place).owners();
            let owners = owners.filter(|owners| self.sees_owners(*owners));
            let builder = fs::metadata(&place)?;
            owners.map(|owners| Owned {
                owners,
                builder: (builder.uid(), builder.gid()),
            })
        };
        Ok(Looker { root, owned })
    }

    /// A few lines of a tree's list.
    fn some_lines(&self, id: &Digest, draw: u64) -> io::Result<Vec<String>> {
        let mut file = File::open(self.layout.place(id).join(LIST))?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(draw % length.max(1)))?;
        let mut reader = BufReader::new(file);
        // The first one is hardly ever whole, and at the end it goes on at the beginning.
        let behind: Vec<String> = (&mut reader)
            .lines()
            .skip(1)
            .take(GLANCE_ENTRIES)
            .collect::<Result<_, _>>()?;
        if behind.len() == GLANCE_ENTRIES {
            return Ok(behind);
        }
        reader.rewind()?;
        let before = reader.lines().skip(1).take(GLANCE_ENTRIES - behind.len());
        let mut lines = before.collect::<Result<Vec<_>, _>>()?;
        lines.extend(behind);
        Ok(lines)
    }
}

const fn worse(one: Seen, other: Seen) -> Seen {
    match (one, other) {
        (Seen::Wrong, _) | (_, Seen::Wrong) => Seen::Wrong,
        (Seen::InPart, _) | (_, Seen::InPart) => Seen::InPart,
        (Seen::Right, Seen::Right) => Seen::Right,
    }
}

impl Looker {
    fn see(&self, lines: &[impl AsRef<str>]) -> Seen {
        let mut seen = Seen::Right;
        for line in lines {
            seen = worse(seen, self.see_line(line.as_ref()));
            if seen == Seen::Wrong {
                break;
            }
        }
        seen
    }

    fn see_line(&self, line: &str) -> Seen {
        let Some(Entry { path, what }) = decode_line(line) else {
            return Seen::Wrong;
        };
        let is_right = self.stat(&path).and_then(|stat| match &what {
            What::Node(node) => Ok(self.looks_like(&stat, node)),
            What::Again(first) => Ok(self.stat(first)?.st_ino == stat.st_ino),
        });
        match is_right {
            Ok(true) => Seen::Right,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Seen::InPart,
            Ok(false) | Err(_) => Seen::Wrong,
        }
    }

    /// Nothing is opened or followed at the end; that a directory on the way became a link is seen at itself.
    fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        if path.len() < PATH_BYTES_MAX {
            return Ok(rustix::fs::statat(&self.root, path, flags)?);
        }
        let (parent, name) = above(self.root.as_fd(), path)?;
        Ok(rustix::fs::statat(&parent, name, flags)?)
    }

    /// True if what stat(2) says is what the list says, as far as anybody sees it.
    fn looks_like(&self, stat: &Stat, node: &Node) -> bool {
        let look = Look::of(stat);
        let (kind, size) = match &node.kind {
            Kind::File { size, .. } => (FileType::RegularFile, Some(*size)),
            Kind::Symlink(target) => (FileType::Symlink, Some(target.len() as u64)),
            Kind::Directory => (FileType::Directory, None),
            Kind::Fifo => (FileType::Fifo, None),
            Kind::Socket => (FileType::Socket, None),
            Kind::Character(..) => (FileType::CharacterDevice, None),
            Kind::Block(..) => (FileType::BlockDevice, None),
        };
        let is_owned = self.owned.is_none_or(|owned| {
            (owned.user(stat.st_uid), owned.group(stat.st_gid)) == (node.user, node.group)
        });
        FileType::from_raw_mode(stat.st_mode) == kind
            && size.is_none_or(|size| size == look.size)
            && look.mtime == node.mtime
            && (kind == FileType::Symlink || look.mode == node.mode)
            && is_owned
    }
}

/// When a whole tree was last looked at, as the lock file has it: `<boot> <seconds>`, of one length always.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LastLook {
    boot: String,
    /// Since 1970.
    at: i64,
}

impl LastLook {
    /// More than is ever written.
    const BYTES_MAX: usize = 128;

    fn read(lock: &File) -> Option<Self> {
        let mut bytes = [0; Self::BYTES_MAX];
        let length = lock.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).ok()?;
        let (boot, at) = text.trim_end().split_once(' ')?;
        Some(Self {
            boot: boot.to_owned(),
            at: at.trim_start().parse().ok()?,
        })
    }

    /// True if no other one is due. A clock that was put back says nothing.
    fn counts(&self, now: i64) -> bool {
        let age = now.saturating_sub(self.at);
        self.boot == this_boot() && (0..LOOKED_FOR_SECONDS).contains(&age)
    }

    /// Notes that all of a tree was looked at, at the time that the lock file has. Only a help: without it all
    /// is looked at again.
    fn note(lock: &File) {
        let noted = lock
            .metadata()
            .and_then(|used| Self::write(lock, this_boot(), used.mtime()));
        if let Err(error) = noted {
            tracing::debug!(%error, "a look at a tree could not be noted");
        }
    }

    fn forget(lock: &File) {
        if let Err(error) = Self::write(lock, "-", 0) {
            tracing::debug!(%error, "a look at a tree could not be forgotten");
        }
    }

    fn write(lock: &File, boot: &str, at: i64) -> io::Result<()> {
        lock.write_all_at(format!("{boot:<36} {at:>20}\n").as_bytes(), 0)
    }
}

/// Where the kernel does not tell, only the time counts.
fn this_boot() -> &'static str {
    fresh::boot().unwrap_or("-")
}

/// Notes that a tree that was just built or read is as its list says.
pub(super) fn note_whole(lock: &File) {
    LastLook::note(lock);
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::tree_store::tests::{World, name_of, set_times};
    use crate::tree_store::{TreeNote, TreeStoreError};

    /// Enough for several threads.
    const FILES: usize = 700;

    fn fill(root: &Path) -> Result<TreeNote, TreeStoreError> {
        for number in 0..FILES {
            fs::write(root.join(format!("file-{number:05}")), "content").unwrap();
        }
        fs::create_dir(root.join("empty")).unwrap();
        symlink("file-00000", root.join("link")).unwrap();
        fs::hard_link(root.join("file-00001"), root.join("name")).unwrap();
        set_times(root);
        Ok(TreeNote::default())
    }

    /// Cuts a file of which a glance at the place that is drawn first knows nothing.
    fn cut(root: &Path) -> PathBuf {
        let name = PathBuf::from(format!("file-{:05}", FILES / 2));
        fs::write(root.join(&name), "").unwrap();
        name
    }

    fn lock_of(store: &TreeStore, name: &Digest) -> File {
        let path = store.layout.lock(&store.resolve(name));
        File::options().read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn the_first_who_uses_a_tree_after_a_boot_looks_at_all_of_it() {
        let world = World::new();
        let name = name_of("tree");
        let root = world.open().get_or_build(&name, fill).unwrap();
        let lock = lock_of(&world.open(), &name);
        let built = LastLook::read(&lock).unwrap();
        assert_eq!(built.boot, this_boot());
        // In the minute after the build a glance is all, and it goes elsewhere.
        let cut = cut(&root);
        assert!(
            world
                .open()
                .is_fit(&world.open().resolve(&name), &lock, 0)
                .unwrap()
        );
        LastLook::write(&lock, "another-boot", built.at).unwrap();
        assert_eq!(world.open().find(&name), None);
        let again = world.open().get_or_build(&name, fill).unwrap();
        assert_eq!(fs::read(again.join(cut)).unwrap(), b"content");
    }

    #[test]
    fn a_minute_after_a_whole_look_there_is_another_one() {
        let world = World::new();
        let name = name_of("tree");
        let root = world.open().get_or_build(&name, fill).unwrap();
        let (store, lock) = (world.open(), lock_of(&world.open(), &name));
        let id = store.resolve(&name);
        let now = lock.metadata().unwrap().mtime();
        LastLook::write(&lock, this_boot(), now - LOOKED_FOR_SECONDS).unwrap();
        assert!(store.is_fit(&id, &lock, 0).unwrap());
        // That was noted, so that the next one looks at a few entries only.
        assert_eq!(LastLook::read(&lock).unwrap().at, now);
        cut(&root);
        let young = now - LOOKED_FOR_SECONDS + 10;
        LastLook::write(&lock, this_boot(), young).unwrap();
        assert!(store.is_fit(&id, &lock, 0).unwrap());
        for old in [now - LOOKED_FOR_SECONDS, now + 1000] {
            LastLook::write(&lock, this_boot(), old).unwrap();
            assert_eq!(store.look_at_all(&id), Seen::Wrong);
        }
        assert!(!store.is_fit(&id, &lock, 0).unwrap());
    }

    #[test]
    fn a_whole_look_sees_whatever_lstat_tells() {
        type Change = fn(&Path);
        let keep = |root: &Path, act: &dyn Fn()| {
            act();
            set_times(root);
        };
        let changes: &[(&str, Change)] = &[
            ("a file is longer", |root| {
                fs::write(root.join("file-00600"), "content and more").unwrap();
            }),
            ("a file is missing", |root| {
                fs::remove_file(root.join("file-00600")).unwrap();
            }),
            ("a directory is a file", |root| {
                fs::remove_dir(root.join("empty")).unwrap();
                fs::write(root.join("empty"), "").unwrap();
            }),
            ("a link leads elsewhere", |root| {
                fs::remove_file(root.join("link")).unwrap();
                symlink("file-00000-and-on", root.join("link")).unwrap();
            }),
            ("a name is another file's", |root| {
                fs::remove_file(root.join("name")).unwrap();
                fs::hard_link(root.join("file-00002"), root.join("name")).unwrap();
            }),
            ("a mode is another", |root| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o751);
                fs::set_permissions(root.join("empty"), mode).unwrap();
            }),
        ];
        for (what, change) in changes {
            let world = World::new();
            let name = name_of("tree");
            let root = world.open().get_or_build(&name, fill).unwrap();
            let store = world.open();
            let id = store.resolve(&name);
            assert_eq!(store.look_at_all(&id), Seen::Right);
            keep(&root, &|| change(&root));
            assert_eq!(store.look_at_all(&id), Seen::Wrong, "{what}");
        }
        let world = World::new();
        let name = name_of("tree");
        let root = world.open().get_or_build(&name, fill).unwrap();
        fs::write(root.join("new"), "").unwrap();
        let store = world.open();
        // The time of the directory tells.
        assert_eq!(store.look_at_all(&store.resolve(&name)), Seen::Wrong);
    }

    #[test]
    fn what_is_no_note_of_a_look_counts_for_nothing() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(LastLook::read(&file), None);
        for text in ["", "boot", "boot \n", "boot 1 2", "boot x\n", "\u{fffd}"] {
            file.set_len(0).unwrap();
            file.write_all_at(text.as_bytes(), 0).unwrap();
            assert_eq!(LastLook::read(&file), None, "{text:?}");
        }
        LastLook::write(&file, this_boot(), 1_700_000_000).unwrap();
        let last = LastLook::read(&file).unwrap();
        assert!(last.counts(1_700_000_000));
        assert!(!last.counts(1_699_999_999));
        assert!(!last.counts(1_700_000_000 + LOOKED_FOR_SECONDS));
        LastLook::forget(&file);
        assert_eq!(LastLook::read(&file).unwrap().at, 0);
    }
}
