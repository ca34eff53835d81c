//! The pool of files that trees share: one inode for each content with its owner, mode, times and extended
//! attributes, under a name that is made of all these.
//!
//! ```text
//! files/ab/<62 digits>    a hard link to the file that the trees have
//! ```
//!
//! A name in the pool keeps nothing alive that matters: when its inode has no other name, no tree has the
//! file any more. Whoever unlinks such a name in the moment when somebody links it takes the file out of the
//! pool and not out of the tree. So no lock is needed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use tidemill_core::Digest;
use tidemill_tree::{Walk, WalkError};

/// Hexadecimal digits of a key that name the directory: 256 directories.
const SHARD_DIGITS: usize = 2;
const BLOCK: u64 = 512;

/// The pool's directory.
#[derive(Debug)]
pub(crate) struct Pool {
    directory: OwnedFd,
}

/// What a file of the pool must look like for its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) size: u64,
    pub(crate) mode: u32,
    /// The ids on disk, as this process sees them.
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) mtime: (i64, u32),
}

impl Look {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            user: stat.st_uid,
            group: stat.st_gid,
            mtime: (
                stat.st_mtime,
                u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            ),
        }
    }
}

/// What became of the wish for a link.
#[derive(Debug, Clone)]
pub(crate) enum Linked {
    /// It was made.
    Yes(Stat),
    /// The pool has no such file, or none that may be linked.
    No,
    /// The file has as many names as one can have.
    Full,
}

/// A file of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pooled {
    pub(crate) key: Digest,
    pub(crate) inode: u64,
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Trees that have it, as names outside the pool.
    pub(crate) users: u64,
}

impl Pool {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { directory })
    }

    fn path(key: &Digest) -> PathBuf {
        let hex = key.to_hex();
        let (shard, rest) = hex.split_at(SHARD_DIGITS);
        Path::new(shard).join(rest)
    }

    /// Makes a name in a tree for the file of a key. A file that does not look as it must is taken out of
    /// the pool.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken; anything else that has to do with the tree.
    pub(crate) fn link(
        &self,
        key: &Digest,
        look: &Look,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<Linked> {
        let path = Self::path(key);
        match rustix::fs::linkat(&self.directory, &path, parent, name, AtFlags::empty()) {
            Ok(()) => {}
            Err(Errno::MLINK) => return Ok(Linked::Full),
            // The last two: another file system, or a file that one may not link.
            Err(Errno::NOENT | Errno::XDEV | Errno::PERM) => return Ok(Linked::No),
            Err(errno) => return Err(errno.into()),
        }
        let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if is_file && Look::of(&stat) == *look {
            return Ok(Linked::Yes(stat));
        }
        tracing::warn!(%key, "a shared file was changed; it is shared no more");
        rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
        self.remove(key)?;
        Ok(Linked::No)
    }

    /// Makes a name in the pool for a file of a tree. False if there is one already.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn add(
        &self,
        key: &Digest,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<bool> {
        let path = Self::path(key);
        let link = || rustix::fs::linkat(parent, name, &self.directory, &path, AtFlags::empty());
        let linked = match link() {
            Err(Errno::NOENT) => {
                let shard = path.parent().unwrap_or(Path::new("."));
                match rustix::fs::mkdirat(&self.directory, shard, Mode::RWXU) {
                    Ok(()) | Err(Errno::EXIST) => link(),
                    Err(errno) => Err(errno),
                }
            }
            other => other,
        };
        match linked {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The same for a key whose file cannot have more names: the trees keep that one, and those to come
    /// get this one.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn replace(
        &self,
        key: &Digest,
        parent: BorrowedFd<'_>,
        name: &OsStr,
    ) -> io::Result<()> {
        self.remove(key)?;
        // Whoever has put another one there meanwhile has done the same.
        self.add(key, parent, name).map(drop)
    }

    /// Takes a key out of the pool. The trees keep the file.
    ///
    /// # Errors
    /// What the file system answers, but for that there is none.
    pub(crate) fn remove(&self, key: &Digest) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.directory, Self::path(key), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Takes a key out of the pool if no tree has its file. Gives the bytes on disk that this frees, and
    /// nothing if there is no such key.
    ///
    /// # Errors
    /// What the file system answers.
    pub(crate) fn remove_if_unused(&self, key: &Digest) -> io::Result<Option<u64>> {
        let stat = rustix::fs::statat(&self.directory, Self::path(key), AtFlags::SYMLINK_NOFOLLOW);
        match stat {
            Ok(stat) if stat.st_nlink <= 1 => {
                self.remove(key)?;
                Ok(Some(bytes_of(&stat)))
            }
            Ok(_) => Ok(Some(0)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Every file of the pool, looked at from all cores. Those that come and go meanwhile may be missing.
    ///
    /// # Errors
    /// If a directory cannot be listed.
    pub(crate) fn list(&self) -> Result<Vec<Pooled>, WalkError> {
        let found = Walk::all_cores().run(self.directory.as_fd(), |visit| {
            Ok::<_, WalkError>(key_of(visit.path).map(|key| Pooled {
                key,
                inode: visit.stat.st_ino,
                bytes: bytes_of(visit.stat),
                users: visit.stat.st_nlink.saturating_sub(1),
            }))
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Takes out of the pool what no tree has. Gives the bytes on disk that this frees.
    ///
    /// # Errors
    /// If the pool cannot be listed or changed.
    pub(crate) fn sweep(&self) -> io::Result<u64> {
        let mut freed = 0;
        for pooled in self.list().map_err(|error| error.source)? {
            if pooled.users == 0 {
                // It is looked at once more: somebody may have linked it since.
                freed += self.remove_if_unused(&pooled.key)?.unwrap_or(0);
            }
        }
        Ok(freed)
    }

    /// Takes these inodes out of the pool: nobody else shall get them.
    ///
    /// # Errors
    /// If the pool cannot be listed or changed.
    pub(crate) fn remove_inodes(&self, inodes: &BTreeSet<u64>) -> io::Result<()> {
        for pooled in self.list().map_err(|error| error.source)? {
            if inodes.contains(&pooled.inode) {
                self.remove(&pooled.key)?;
            }
        }
        Ok(())
    }
}

/// Bytes on disk, as stat(2) counts them.
pub(crate) fn bytes_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK
}

fn key_of(path: &[u8]) -> Option<Digest> {
    let text = OsStr::from_bytes(path).to_str()?;
    let (shard, rest) = text.split_once('/')?;
    (shard.len() == SHARD_DIGITS)
        .then(|| format!("b3:{shard}{rest}").parse().ok())
        .flatten()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    struct World {
        base: tempfile::TempDir,
        pool: Pool,
        tree: File,
    }

    fn world() -> World {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("files")).unwrap();
        fs::create_dir(base.path().join("tree")).unwrap();
        World {
            pool: Pool::open(&base.path().join("files")).unwrap(),
            tree: File::open(base.path().join("tree")).unwrap(),
            base,
        }
    }

    impl World {
        fn file(&self, name: &str) -> Look {
            let path = self.base.path().join("tree").join(name);
            fs::write(&path, "content").unwrap();
            let stat = rustix::fs::statat(&self.tree, name, AtFlags::empty()).unwrap();
            Look::of(&stat)
        }

        fn inode(&self, name: &str) -> u64 {
            fs::metadata(self.base.path().join("tree").join(name))
                .unwrap()
                .ino()
        }

        /// True if there was something to link.
        fn link(&self, key: &Digest, look: &Look, name: &str) -> io::Result<bool> {
            let linked = self
                .pool
                .link(key, look, self.tree.as_fd(), name.as_ref())?;
            Ok(matches!(linked, Linked::Yes(_)))
        }
    }

    #[test]
    fn a_file_is_found_by_its_key_until_no_tree_has_it() {
        let world = world();
        let key = Digest::of(b"key");
        let look = world.file("one");
        assert!(!world.link(&key, &look, "two").unwrap());
        let tree = world.tree.as_fd();
        assert!(world.pool.add(&key, tree, "one".as_ref()).unwrap());
        assert!(!world.pool.add(&key, tree, "one".as_ref()).unwrap());
        assert!(world.link(&key, &look, "two").unwrap());
        assert_eq!(world.inode("one"), world.inode("two"));
        let taken = world.link(&key, &look, "two").unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(world.pool.remove_if_unused(&key).unwrap(), Some(0));
        assert_eq!(world.pool.list().unwrap()[0].users, 2);
        for name in ["one", "two"] {
            fs::remove_file(world.base.path().join("tree").join(name)).unwrap();
        }
        assert!(world.pool.sweep().unwrap() > 0);
        assert_eq!(world.pool.list().unwrap(), []);
        assert_eq!(world.pool.remove_if_unused(&key).unwrap(), None);
    }

    #[test]
    fn a_file_that_was_changed_is_not_given_out() {
        let world = world();
        let key = Digest::of(b"key");
        let look = world.file("one");
        let path = world.base.path().join("tree/one");
        let tree = world.tree.as_fd();
        for change in 0..3 {
            assert!(world.pool.add(&key, tree, "one".as_ref()).unwrap());
            let before = fs::metadata(&path).unwrap();
            match change {
                0 => fs::write(&path, "more content").unwrap(),
                1 => fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap(),
                _ => File::options()
                    .write(true)
                    .open(&path)
                    .unwrap()
                    .set_modified(before.modified().unwrap() + std::time::Duration::from_secs(1))
                    .unwrap(),
            }
            assert!(!world.link(&key, &look, "two").unwrap());
            assert!(!world.base.path().join("tree/two").exists());
            assert_eq!(world.pool.list().unwrap(), []);
            fs::write(&path, "content").unwrap();
            fs::set_permissions(&path, before.permissions()).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
        }
    }

    #[test]
    fn where_a_file_can_have_no_more_names_another_takes_its_place() {
        let world = world();
        let key = Digest::of(b"key");
        let look = world.file("one");
        let tree = world.tree.as_fd();
        assert!(world.pool.add(&key, tree, "one".as_ref()).unwrap());
        let other = world.base.path().join("tree/two");
        fs::copy(world.base.path().join("tree/one"), &other).unwrap();
        let time = fs::metadata(world.base.path().join("tree/one")).unwrap();
        File::options()
            .write(true)
            .open(&other)
            .unwrap()
            .set_modified(time.modified().unwrap())
            .unwrap();
        world.pool.replace(&key, tree, "two".as_ref()).unwrap();
        assert!(world.link(&key, &look, "three").unwrap());
        assert_eq!(world.inode("three"), world.inode("two"));
        assert_ne!(world.inode("three"), world.inode("one"));
    }

    #[test]
    fn damaged_inodes_are_taken_out_under_every_key() {
        let world = world();
        let tree = world.tree.as_fd();
        for name in ["one", "two"] {
            world.file(name);
            let key = Digest::of(name.as_bytes());
            assert!(world.pool.add(&key, tree, name.as_ref()).unwrap());
        }
        let damaged = BTreeSet::from([world.inode("one")]);
        world.pool.remove_inodes(&damaged).unwrap();
        let left: Vec<_> = world.pool.list().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].key, Digest::of(b"two"));
    }
}
