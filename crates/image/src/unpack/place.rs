//! From a tree in memory to one on disk.
//!
//! Every directory of a [`Merged`] tree is a real directory below real directories, and the root is ours
//! alone while it is built, so that paths lead where they say; the kernel is told all the same to follow
//! no link and to stay beneath. Several threads make one directory each at a time.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use tidemill_tree::split_path;

use super::contents::path_of;
use super::file::{set_xattrs, times};
use super::lacks::Lacks;
use super::merge::{Child, FileAt, Merged, Node, NodeId, ROOT, What};
use super::owners::ArchiveOwners;
use crate::beneath::open_root;
use crate::link_xattrs;
use crate::tree_store::{Building, SourceTree};

/// Threads that make directories.
const THREADS_MAX: usize = 4;

/// Where the files are that the tree is made of.
pub(crate) enum Files<'a> {
    /// In this directory, which is ours: they are moved.
    Move(OwnedFd),
    /// In the trees of the layers, below this directory of each: they are linked.
    Link(&'a Building, &'a [SourceTree], &'static str),
}

/// Why a tree could not be made.
#[derive(Debug)]
pub(crate) struct PlaceError {
    /// Where, relative to the root.
    pub(crate) place: Vec<u8>,
    pub(crate) step: &'static str,
    pub(crate) source: io::Error,
}

/// Makes the tree in an empty directory. Says what it lacks.
pub(crate) fn place(
    tree: &Merged,
    root: &Path,
    files: &Files<'_>,
    owners: ArchiveOwners,
) -> Result<Lacks, PlaceError> {
    let root = open_root(root).map_err(|source| PlaceError {
        place: Vec::new(),
        step: "open",
        source,
    })?;
    let placer = Placer {
        tree,
        root,
        files,
        owners,
        names: tree.names_of_files(),
    };
    let queue = Queue::default();
    queue.lock().todo.push((ROOT, Vec::new()));
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 1..threads.min(THREADS_MAX) {
            let work = || placer.work(&queue);
            // This thread does all the work if there is no other.
            thread::Builder::new().spawn_scoped(scope, work).ok();
        }
        placer.work(&queue);
    });
    let state = queue
        .state
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = state.failed {
        return Err(error);
    }
    let mut lacks = state.lacks;
    placer.link_others(state.later, &mut lacks)?;
    placer.close(state.closed)?;
    Ok(lacks)
}

struct Placer<'a> {
    tree: &'a Merged,
    root: OwnedFd,
    files: &'a Files<'a>,
    owners: ArchiveOwners,
    /// How many names the nodes have that have several.
    names: BTreeMap<NodeId, u32>,
}

/// What is left to be done.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    todo: Vec<(NodeId, Vec<u8>)>,
    /// Threads that may add to it.
    active: usize,
    failed: Option<PlaceError>,
    lacks: Lacks,
    /// Places of links and pipes that have several names.
    later: BTreeMap<NodeId, Vec<Vec<u8>>>,
    /// Directories that their owner may not enter, write or list.
    closed: Vec<(NodeId, Vec<u8>)>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // What a thread adds it adds at once.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of one directory.
#[derive(Default)]
struct Made {
    dirs: Vec<(NodeId, Vec<u8>)>,
    lacks: Lacks,
    later: Vec<(NodeId, Vec<u8>)>,
    is_closed: bool,
}

impl Placer<'_> {
    fn work(&self, queue: &Queue) {
        let mut state = queue.lock();
        loop {
            if state.failed.is_some() {
                return;
            }
            let Some((id, path)) = state.todo.pop() else {
                if state.active == 0 {
                    return;
                }
                state = queue
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.active += 1;
            drop(state);
            let made = self.fill(id, &path);
            state = queue.lock();
            state.active -= 1;
            match made {
                Ok(made) => {
                    state.todo.extend(made.dirs);
                    state.lacks.add(&made.lacks);
                    for (node, place) in made.later {
                        state.later.entry(node).or_default().push(place);
                    }
                    if made.is_closed {
                        state.closed.push((id, path));
                    }
                }
                Err(error) => {
                    state.failed.get_or_insert(error);
                }
            }
            queue.changed.notify_all();
        }
    }

    /// Makes what is in a directory, and then the directory what it is.
    fn fill(&self, id: NodeId, path: &[u8]) -> Result<Made, PlaceError> {
        let dir = self.open(path)?;
        let mut made = Made::default();
        for (name, child) in self.tree.dir(id).into_iter().flat_map(|dir| &dir.children) {
            let place = || join(path, name);
            self.make(&dir, name, *child, place, &mut made)
                .map_err(|(step, source)| PlaceError {
                    place: place(),
                    step,
                    source,
                })?;
        }
        let node = self.tree.node(id);
        made.lacks.owners += self.count_owner(node, &mut made.lacks.large_ids);
        let mode = node.dress.mode;
        made.is_closed = mode & 0o700 != 0o700;
        let attributes = || -> io::Result<u64> {
            if let Some((user, group)) = self.owners.of(&node.dress) {
                rustix::fs::fchown(&dir, user, group)?;
            }
            let lost = set_xattrs(&dir, self.owners, &node.xattrs)?;
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(mode | 0o700))?;
            rustix::fs::futimens(&dir, &times(&node.dress))?;
            Ok(lost)
        };
        made.lacks.xattrs += attributes().map_err(|source| PlaceError {
            place: path.to_owned(),
            step: "set the attributes of",
            source,
        })?;
        Ok(made)
    }

    fn make(
        &self,
        dir: &File,
        name: &[u8],
        child: Child,
        place: impl Fn() -> Vec<u8>,
        made: &mut Made,
    ) -> Result<(), (&'static str, io::Error)> {
        let node = self.tree.node(child.node);
        match &node.what {
            What::Dir(_) => {
                rustix::fs::mkdirat(dir, name, Mode::RWXU)
                    .map_err(|error| ("create", error.into()))?;
                made.dirs.push((child.node, place()));
                return Ok(());
            }
            What::Device => {
                made.lacks.devices += 1;
                return Ok(());
            }
            What::File(file) => self
                .put_file(dir, name, child.node, file)
                .map_err(|error| ("put the file in its place for", error))?,
            What::Symlink(_) | What::Fifo if self.names.contains_key(&child.node) => {
                made.later.push((child.node, place()));
                return Ok(());
            }
            What::Symlink(_) | What::Fifo => {
                made.lacks.xattrs += self.make_special(dir, name, node)?;
            }
        }
        made.lacks.owners += self.count_owner(node, &mut made.lacks.large_ids);
        Ok(())
    }

    fn put_file(&self, dir: &File, name: &[u8], id: NodeId, file: &FileAt) -> io::Result<()> {
        let from = path_of(file.content.number);
        match self.files {
            Files::Move(place) if !self.names.contains_key(&id) => {
                rustix::fs::renameat(place, &from, dir, name)?;
            }
            Files::Move(place) => {
                rustix::fs::linkat(place, &from, dir, name, AtFlags::empty())?;
            }
            Files::Link(building, layers, below) => {
                let layer = layers
                    .get(file.layer as usize)
                    .expect("each layer has its tree");
                let from = Path::new(below).join(from);
                let name = OsStr::from_bytes(name);
                building.add_link(dir.as_fd(), name, layer, from.as_os_str().as_bytes())?;
            }
        }
        Ok(())
    }

    /// Makes a symbolic link or a pipe. Gives how many extended attributes it could not be given.
    fn make_special(
        &self,
        dir: &File,
        name: &[u8],
        node: &Node,
    ) -> Result<u64, (&'static str, io::Error)> {
        let made = match &node.what {
            What::Symlink(target) => rustix::fs::symlinkat(target.as_slice(), dir, name),
            _ => {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(dir, name, FileType::Fifo, mode, 0)
            }
        };
        made.map_err(|error| ("create", error.into()))?;
        let dressed = || -> io::Result<u64> {
            let nofollow = AtFlags::SYMLINK_NOFOLLOW;
            if let Some((user, group)) = self.owners.of(&node.dress) {
                rustix::fs::chownat(dir, name, user, group, nofollow)?;
            }
            if matches!(node.what, What::Fifo) {
                let mode = Mode::from_raw_mode(node.dress.mode);
                rustix::fs::chmodat(dir, name, mode, AtFlags::empty())?;
            }
            let given = self.owners.xattrs(&node.xattrs);
            let lost = link_xattrs::set(dir.as_fd(), name, &given)?;
            rustix::fs::utimensat(dir, name, &times(&node.dress), nofollow)?;
            Ok(lost + (node.xattrs.len() - given.len()) as u64)
        };
        dressed().map_err(|error| ("set the attributes of", error))
    }

    /// Makes the links and pipes that have several names.
    fn link_others(
        &self,
        later: BTreeMap<NodeId, Vec<Vec<u8>>>,
        lacks: &mut Lacks,
    ) -> Result<(), PlaceError> {
        for (id, mut places) in later {
            // Which thread came first says nothing.
            places.sort();
            let node = self.tree.node(id);
            lacks.owners += self.count_owner(node, &mut lacks.large_ids);
            let mut first: Option<(File, Vec<u8>)> = None;
            for place in places {
                let (above, name) = split_path(&place);
                let dir = self.open(above)?;
                let made = match &first {
                    None => self.make_special(&dir, name, node),
                    Some((from, old)) => {
                        rustix::fs::linkat(from, old.as_slice(), &dir, name, AtFlags::empty())
                            .map(|()| 0)
                            .map_err(|error| ("link", error.into()))
                    }
                };
                lacks.xattrs += made.map_err(|(step, source)| PlaceError {
                    place: place.clone(),
                    step,
                    source,
                })?;
                let name = name.to_owned();
                self.restore_time(&dir, above)?;
                first.get_or_insert((dir, name));
            }
        }
        Ok(())
    }

    /// Gives a directory its time again, in which something was made late.
    fn restore_time(&self, dir: &File, path: &[u8]) -> Result<(), PlaceError> {
        let id = self
            .tree
            .find(path)
            .expect("the directory was made from it");
        let times = times(&self.tree.node(id).dress);
        rustix::fs::futimens(dir, &times).map_err(|error| PlaceError {
            place: path.to_owned(),
            step: "set the attributes of",
            source: error.into(),
        })
    }

    /// Gives the directories their modes that would have kept us out, the deepest first.
    fn close(&self, mut closed: Vec<(NodeId, Vec<u8>)>) -> Result<(), PlaceError> {
        closed.sort_by(|a, b| b.1.cmp(&a.1));
        for (id, path) in closed {
            let mode = Mode::from_raw_mode(self.tree.node(id).dress.mode);
            let dir = self.open(&path)?;
            rustix::fs::fchmod(dir.as_fd(), mode).map_err(|error| PlaceError {
                place: path,
                step: "set the attributes of",
                source: error.into(),
            })?;
        }
        Ok(())
    }

    fn open(&self, path: &[u8]) -> Result<File, PlaceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let at = if path.is_empty() {
            Path::new(".")
        } else {
            Path::new(OsStr::from_bytes(path))
        };
        rustix::fs::openat2(&self.root, at, flags, Mode::empty(), resolve)
            .map(File::from)
            .map_err(|error| PlaceError {
                place: path.to_owned(),
                step: "open",
                source: error.into(),
            })
    }

    fn count_owner(&self, node: &Node, large_ids: &mut bool) -> u64 {
        let is_lost = self.owners.is_lost(&node.dress);
        *large_ids |= is_lost && self.owners == ArchiveOwners::SubIds;
        u64::from(is_lost)
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() {
        return name.to_owned();
    }
    [path, b"/", name].concat()
}

/// The place of an error, for people.
pub(crate) fn shown(place: &[u8]) -> String {
    let path = PathBuf::from(OsStr::from_bytes(place));
    if place.is_empty() {
        ".".to_owned()
    } else {
        path.to_string_lossy().into_owned()
    }
}
