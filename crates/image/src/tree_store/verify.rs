//! Checking trees against their lists: the whole store when somebody asks, one tree when there is doubt.
//!
//! A tree with a mistake in it is put aside, with the files of it that other trees would get; whoever asks
//! for it next builds it anew.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use tidemill_core::Digest;
use tidemill_tree::remove_tree;

use super::damage::Damage;
use super::layout::{LIST, ROOT};
use super::listing::{Kind, Listing, Node, What};
use super::pool::{Look, Pool};
use super::publish::in_tree;
use super::record::Record;
use super::survey::{Inside, Knowledge, Owned, Survey, Surveyed};
use super::{TreeStore, TreeStoreError, failed, fault, fresh};
use crate::tree_use::{self, Wanted};
use crate::unpack::ArchiveOwners;

/// Mistakes of one tree that are told.
const TOLD_MAX: usize = 100;

/// What checking the store gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// Trees that were compared with their lists.
    pub trees: u64,
    /// Files that were read, each once however many trees have it.
    pub files: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Files that this user may not read, of which only size, mode and time were compared.
    pub unread: u64,
    /// Trees of older versions, which have no list to compare with.
    pub unlisted: Vec<Digest>,
    /// What is wrong. The trees have been put aside.
    pub findings: Vec<Finding>,
    /// What could not be checked or put aside, and why.
    pub failures: Vec<String>,
}

/// Something wrong in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The digest of all that should be in the tree.
    pub tree: Digest,
    /// What it was made of.
    pub from: String,
    /// The path in the tree, as text; the list itself has none.
    pub path: Option<String>,
    /// What is wrong with it.
    pub what: String,
}

/// What is known of files that several trees have.
#[derive(Debug, Default)]
struct Read {
    by_inode: HashMap<u64, (Look, Inside)>,
    bytes: u64,
}

/// A tree that was compared.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Paths and what is wrong with them.
    mistakes: Vec<(Option<Vec<u8>>, String)>,
    /// Inodes with another content than the list says.
    damaged: BTreeSet<u64>,
    unread: u64,
}

impl Compared {
    /// What is wrong, in words, up to a bound.
    pub(super) fn told(&self) -> impl Iterator<Item = String> {
        let mistakes = self.mistakes.iter().take(TOLD_MAX);
        mistakes.map(|(path, what)| match path {
            Some(path) => format!("{}: {what}", shown(path)),
            None => what.clone(),
        })
    }
}

impl TreeStore {
    /// Reads all files of all trees with all cores and compares them with the lists. Trees with a mistake
    /// are put aside. `progress` is called with the trees that are done and those that there are.
    ///
    /// # Errors
    /// If the store cannot be listed.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64)) -> Result<Verified, TreeStoreError> {
        let ids = self.published_ids()?;
        let read = Mutex::new(Read::default());
        let mut verified = Verified::default();
        for (done, id) in ids.iter().enumerate() {
            progress(done as u64, ids.len() as u64);
            match self.compare(id, &read) {
                Ok(None) if self.published(id).is_some() => verified.unlisted.push(*id),
                // It went meanwhile.
                Ok(None) => {}
                Err(error) if self.published(id).is_none() => {
                    tracing::debug!(tree = %id, %error, "a tree went while it was looked at");
                }
                Err(error) => verified.failures.push(error.in_one_line()),
                Ok(Some(compared)) => {
                    verified.trees += 1;
                    verified.unread += compared.unread;
                    if compared.mistakes.is_empty() {
                        continue;
                    }
                    let from = Record::read(&self.layout.place(id)).from;
                    let told = compared.mistakes.iter().take(TOLD_MAX);
                    verified.findings.extend(told.map(|(path, what)| Finding {
                        tree: *id,
                        from: from.clone(),
                        path: path.as_deref().map(shown),
                        what: what.clone(),
                    }));
                    if let Err(error) = self.put_aside(id, &compared) {
                        verified.failures.push(error.in_one_line());
                    }
                }
            }
        }
        let read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
        verified.files = read.by_inode.len() as u64;
        verified.bytes = read.bytes;
        // All that is left was read from the disk or the cache of the kernel; after a sync it is on the disk.
        if let Err(error) = fresh::settle_all(&self.layout) {
            let message = format!("the disk does not take what was written: {error}");
            verified.failures.push(message);
        }
        Ok(verified)
    }

    /// True if a tree is as its list says. If not, it is put aside. One that this process may not read is
    /// left as it is to whoever builds such trees.
    pub(super) fn is_whole(&self, id: &Digest) -> bool {
        let owners = Record::read(&self.layout.place(id)).owners();
        if owners == Some(ArchiveOwners::SubIds) && self.is_beside_sub_ids() {
            return false;
        }
        self.is_as_listed(id)
    }

    /// The same for a tree that this process has just built once more: so it sees all that there is.
    pub(super) fn is_as_listed(&self, id: &Digest) -> bool {
        let compared = match self.compare(id, &Mutex::default()) {
            Ok(Some(compared)) => compared,
            // One without a list cannot be checked.
            Ok(None) => return self.published(id).is_some(),
            Err(error) => {
                tracing::warn!(tree = %id, error = error.in_one_line(), "a tree could not be checked");
                return false;
            }
        };
        if compared.mistakes.is_empty() {
            fresh::settle(&self.layout.place(id));
            return true;
        }
        for (path, what) in compared.mistakes.iter().take(TOLD_MAX) {
            let path = path.as_deref().map(shown);
            tracing::warn!(tree = %id, path, what, "a tree is damaged");
        }
        if let Err(error) = self.put_aside(id, &compared) {
            tracing::warn!(tree = %id, error = error.in_one_line(), "a damaged tree stays");
        }
        false
    }

    /// Compares a tree with its list. `None` if it has none.
    fn compare(&self, id: &Digest, read: &Mutex<Read>) -> Result<Option<Compared>, TreeStoreError> {
        let place = self.layout.place(id);
        let list = place.join(LIST);
        let text = match fs::read(&list) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed("read", &list))?,
        };
        let listing = Listing::decode(&text)
            .ok()
            .filter(|_| Digest::of(&text) == *id);
        let Some(listing) = listing else {
            return Ok(Some(Compared {
                mistakes: vec![(None, "the list of the tree is damaged".to_owned())],
                ..Compared::default()
            }));
        };
        // Nobody removes it as long as it is read.
        let path = self.layout.lock(id);
        let _used = tree_use::lock(&path, Wanted::Shared).map_err(failed("lock", &path))?;
        let record = Record::read(&place);
        let owners = record.owners().unwrap_or(self.owners);
        let root = place.join(ROOT);
        let opened = File::open(&root).map_err(failed("open", &root))?;
        let builder = fs::metadata(&place).map_err(failed("look at", &place))?;
        let survey = Survey {
            owned: Owned {
                owners,
                builder: (builder.uid(), builder.gid()),
            },
            is_private: false,
        };
        let checker = Checker {
            read,
            expected: listing
                .entries
                .iter()
                .map(|entry| (&*entry.path, &entry.what))
                .collect(),
        };
        let mut found = survey
            .of(opened.as_fd(), &checker)
            .map_err(|error| in_tree(&root, error))?;
        if !self.sees_owners(owners) {
            adopt_owners(&mut found.listing, &listing);
        }
        Ok(Some(differences(&listing, &found)))
    }

    /// True if this process surely sees the ids that the builder saw. Of a user with sub-ids some trees are
    /// built among them and some outside, where the same file has other ids: there owners are not compared.
    pub(super) fn sees_owners(&self, owners: ArchiveOwners) -> bool {
        self.owners != ArchiveOwners::SubIds && owners == self.owners
    }

    /// Puts a damaged tree where nobody finds it, and takes its damaged files out of the pool.
    fn put_aside(&self, id: &Digest, compared: &Compared) -> Result<(), TreeStoreError> {
        let damaged = &compared.damaged;
        let place = self.layout.place(id);
        let aside = self.layout.damaged().join(id.to_hex());
        match remove_tree(&aside) {
            // What only that one had is in the pool for nobody.
            Ok(()) => {
                self.sweep_pool(&mut Vec::new());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("remove", &aside)(error)),
        }
        if let Err(error) = Damage::of(compared).write(&place) {
            tracing::debug!(tree = %id, %error, "what is wrong with a tree could not be noted");
        }
        fault::here()
            .and_then(|()| fs::rename(&place, &aside))
            .map_err(failed("put aside", &place))?;
        if damaged.is_empty() {
            return Ok(());
        }
        let files = self.layout.files();
        match Pool::open(&files) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            pool => pool
                .and_then(|pool| pool.remove_inodes(damaged))
                .map_err(failed("take damaged files out of", &files)),
        }
    }
}

/// Knows the files that were read before.
struct Checker<'a> {
    read: &'a Mutex<Read>,
    expected: HashMap<&'a [u8], &'a What>,
}

impl Checker<'_> {
    fn read(&self) -> MutexGuard<'_, Read> {
        // A map of what was read is whole at any time.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Knowledge for Checker<'_> {
    fn known(&self, stat: &Stat) -> Option<Inside> {
        let read = self.read();
        let (look, inside) = read.by_inode.get(&stat.st_ino)?;
        (*look == Look::of(stat)).then(|| inside.clone())
    }

    fn learn(&self, stat: &Stat, inside: &Inside) {
        let look = Look::of(stat);
        let mut read = self.read();
        read.bytes += look.size;
        read.by_inode.insert(stat.st_ino, (look, inside.clone()));
    }

    fn assumed(&self, path: &[u8]) -> Option<Inside> {
        match self.expected.get(path)? {
            What::Node(node) => match node.kind {
                Kind::File { content, .. } => Some(Inside {
                    content,
                    xattrs: node.xattrs.clone(),
                }),
                _ => None,
            },
            What::Again(_) => None,
        }
    }
}

/// Where this process does not see what the builder saw, owners are taken as they should be.
fn adopt_owners(found: &mut Listing, expected: &Listing) {
    let owners: HashMap<&[u8], (i64, i64)> = expected
        .entries
        .iter()
        .filter_map(|entry| match &entry.what {
            What::Node(node) => Some((&*entry.path, (node.user, node.group))),
            What::Again(_) => None,
        })
        .collect();
    for entry in &mut found.entries {
        if let What::Node(node) = &mut entry.what
            && let Some((user, group)) = owners.get(&*entry.path)
        {
            (node.user, node.group) = (*user, *group);
        }
    }
}

/// What a tree has that its list has not, and the other way round.
fn differences(expected: &Listing, found: &Surveyed) -> Compared {
    let mut compared = Compared {
        unread: found.unread.len() as u64,
        ..Compared::default()
    };
    if *expected == found.listing {
        return compared;
    }
    let mut mistake = |path: &[u8], what: String| {
        compared.mistakes.push((Some(path.to_owned()), what));
    };
    let there: HashMap<&[u8], (&What, &Stat)> = found
        .listing
        .entries
        .iter()
        .zip(&found.stats)
        .map(|(entry, stat)| (&*entry.path, (&entry.what, stat)))
        .collect();
    for entry in &expected.entries {
        match there.get(&*entry.path) {
            None => mistake(&entry.path, "it is missing".to_owned()),
            Some((what, _)) if **what == entry.what => {}
            Some((what, stat)) => {
                mistake(&entry.path, difference(&entry.what, what));
                if let What::Node(Node {
                    kind: Kind::File { .. },
                    ..
                }) = what
                {
                    compared.damaged.insert(stat.st_ino);
                }
            }
        }
    }
    let known: BTreeSet<&[u8]> = expected.entries.iter().map(|entry| &*entry.path).collect();
    for entry in &found.listing.entries {
        if !known.contains(&*entry.path) {
            let what = "it does not belong to the tree".to_owned();
            compared.mistakes.push((Some(entry.path.clone()), what));
        }
    }
    compared
}

/// The first thing in which two entries differ, in words.
fn difference(expected: &What, found: &What) -> String {
    let (What::Node(expected), What::Node(found)) = (expected, found) else {
        return "it is a hard link to another file than it should be".to_owned();
    };
    match (&expected.kind, &found.kind) {
        (Kind::File { size: one, .. }, Kind::File { size: other, .. }) if one != other => {
            return format!("it has {other} bytes instead of {one}");
        }
        (Kind::File { content: one, .. }, Kind::File { content: other, .. }) if one != other => {
            return "its content is another one".to_owned();
        }
        (Kind::Symlink(one), Kind::Symlink(other)) if one != other => {
            return format!(
                "it points to `{}` instead of `{}`",
                shown(other),
                shown(one)
            );
        }
        (one, other) if std::mem::discriminant(one) != std::mem::discriminant(other) => {
            return format!("it is {} instead of {}", kind(other), kind(one));
        }
        _ => {}
    }
    if expected.mode != found.mode {
        return format!(
            "its mode is {:04o} instead of {:04o}",
            found.mode, expected.mode
        );
    }
    if (expected.user, expected.group) != (found.user, found.group) {
        return format!(
            "it belongs to {}:{} instead of {}:{}",
            found.user, found.group, expected.user, expected.group
        );
    }
    if expected.mtime != found.mtime {
        return "its time of modification is another one".to_owned();
    }
    "its extended attributes are others".to_owned()
}

const fn kind(kind: &Kind) -> &'static str {
    match kind {
        Kind::Directory => "a directory",
        Kind::File { .. } => "a file",
        Kind::Symlink(_) => "a symbolic link",
        Kind::Fifo => "a named pipe",
        Kind::Socket => "a socket",
        Kind::Character(..) | Kind::Block(..) => "a device",
    }
}

fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    String::from_utf8_lossy(path).into_owned()
}
