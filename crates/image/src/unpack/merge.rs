//! Layers laid over each other, in memory.
//!
//! [`Merged`] takes the records of one layer after the other and holds the tree that results. It does
//! no I/O: the tree is made of it afterwards, by hard links to the layers' files (`build`). Paths
//! are resolved as by a program whose root directory the tree is: links are followed within it, and
//! `..` ends at it. So each place of the result is a chain of real directories, and nothing that
//! an archive says leads anywhere else.
//!
//! What a whiteout removes is what lower layers have there, wherever it stands among the entries of its
//! own layer; what the layer itself brought stays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_tree::split_path;

use super::record::{Content, Dress, Record, RecordKind, Xattr};

/// Bytes of a path in the tree at most: what the kernel takes, without the NUL.
const PATH_BYTES_MAX: usize = 4095;
/// Bytes of one name at most.
const NAME_BYTES_MAX: usize = 255;
/// Symbolic links on the way to one entry at most, as for the kernel.
const LINKS_MAX: u32 = 40;
/// Names that are walked on all ways together, for each entry: deep trees need tens, and an archive whose links
/// lead to and fro through long paths would need thousands.
const STEPS_PER_ENTRY: u64 = 256;
/// Names that may be walked before that is looked at.
const STEPS_FREE: u64 = 50_000_000;

/// A node's number.
pub(crate) type NodeId = u32;
/// The root's.
pub(crate) const ROOT: NodeId = 0;

/// A tree in memory.
#[derive(Debug)]
pub(crate) struct Merged {
    nodes: Vec<Node>,
    /// The number of the layer whose records come in, from 1.
    layer: u32,
    /// Files of this layer that are there for hard links only.
    aside: BTreeMap<Vec<u8>, NodeId>,
    limits: MergeLimits,
    name_bytes: u64,
    entries: u64,
    /// Names that were walked.
    steps: AtomicU64,
}

/// What is held in memory at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeLimits {
    /// Entries and the directories that they imply, over all layers.
    pub(crate) nodes: u64,
    /// Bytes of names, link targets and extended attributes.
    pub(crate) name_bytes: u64,
}

/// One file, directory or other thing; it may have several names.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) what: What,
    pub(crate) dress: Dress,
    /// Of a file they are where its content is already.
    pub(crate) xattrs: Vec<Xattr>,
}

/// What a node is.
#[derive(Debug)]
pub(crate) enum What {
    Dir(Dir),
    File(FileAt),
    Symlink(Vec<u8>),
    Fifo,
    Device,
}

/// A directory.
#[derive(Debug, Default)]
pub(crate) struct Dir {
    pub(crate) children: BTreeMap<Vec<u8>, Child>,
    /// The layer that had an entry for it last.
    entry_of: u32,
    /// The layer that had an entry for it or for something below it last.
    touched_by: u32,
}

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Child {
    pub(crate) node: NodeId,
    /// The layer that brought it; of a directory its own word counts.
    layer: u32,
}

/// A file's content: where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileAt {
    /// From 0.
    pub(crate) layer: u32,
    pub(crate) content: Content,
}

/// Why a record has no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MergeError {
    /// The entry itself is wrong.
    BadEntry(&'static str),
    /// A hard link is wrong.
    BadLink { target: Vec<u8>, why: &'static str },
    /// Something on the way is no directory.
    NotADirectory { place: Vec<u8> },
    /// A limit was reached.
    TooLarge { what: &'static str, max: u64 },
}

/// Where a path leads.
struct Way {
    /// The directories from the root on.
    dirs: Vec<NodeId>,
    /// Names that are not there yet, below the last directory.
    missing: Vec<Vec<u8>>,
    /// Bytes of the path that it comes to.
    bytes: usize,
}

impl Way {
    fn last(&self) -> NodeId {
        self.dirs.last().copied().unwrap_or(ROOT)
    }
}

impl Merged {
    /// An empty tree.
    pub(crate) fn new(limits: MergeLimits) -> Self {
        let root = Node {
            what: What::Dir(Dir::default()),
            dress: Dress::IMPLIED,
            xattrs: Vec::new(),
        };
        Self {
            nodes: vec![root],
            layer: 0,
            aside: BTreeMap::new(),
            limits,
            name_bytes: 0,
            entries: 0,
            steps: AtomicU64::new(0),
        }
    }

    /// What comes now is of the next layer.
    pub(crate) fn start_layer(&mut self) {
        self.layer += 1;
        self.aside.clear();
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    /// The directory with this number, if it is one.
    pub(crate) fn dir(&self, id: NodeId) -> Option<&Dir> {
        match &self.node(id).what {
            What::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    fn dir_mut(&mut self, id: NodeId) -> Option<&mut Dir> {
        match &mut self.nodes[id as usize].what {
            What::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    /// The directory at a path that has no links in it.
    pub(crate) fn find(&self, path: &[u8]) -> Option<NodeId> {
        let mut at = ROOT;
        for name in names(path) {
            at = self.dir(at)?.children.get(name)?.node;
        }
        Some(at)
    }

    /// The nodes that have several names in the tree, with how many.
    pub(crate) fn names_of_files(&self) -> BTreeMap<NodeId, u32> {
        let mut counts = vec![0_u32; self.nodes.len()];
        let mut todo = vec![ROOT];
        while let Some(id) = todo.pop() {
            for child in self
                .dir(id)
                .into_iter()
                .flat_map(|dir| dir.children.values())
            {
                counts[child.node as usize] += 1;
                if self.dir(child.node).is_some() {
                    todo.push(child.node);
                }
            }
        }
        let counts = (0..).zip(counts);
        counts.filter(|(_, count)| *count > 1).collect()
    }

    /// Lays one entry over what is there.
    pub(crate) fn apply(&mut self, record: Record) -> Result<(), MergeError> {
        debug_assert!(self.layer > 0, "a layer was started");
        self.entries += 1;
        let steps_max = STEPS_FREE + self.entries * STEPS_PER_ENTRY;
        if *self.steps.get_mut() > steps_max {
            return Err(MergeError::TooLarge {
                what: "too many names lie on the ways to its entries",
                max: steps_max,
            });
        }
        match record.what {
            RecordKind::Whiteout => self.white_out(&record.path),
            RecordKind::Opaque => self.clear_dir(&record.path),
            RecordKind::Aside(content) => {
                let file = self.file(content);
                let id = self.add_node(file, record.dress, Vec::new())?;
                self.aside.insert(record.path, id);
                Ok(())
            }
            RecordKind::HardLink(target) => self.link(&record.path, &target),
            RecordKind::Dir => self.make_dir(&record.path, record.dress, record.xattrs),
            RecordKind::File(content) => {
                let file = self.file(content);
                self.make(&record.path, file, record.dress, Vec::new())
            }
            RecordKind::Symlink(target) if target.len() > PATH_BYTES_MAX => Err(
                MergeError::BadEntry("is a link to a path of more than 4,095 bytes"),
            ),
            RecordKind::Symlink(target) => {
                let link = What::Symlink(target);
                self.make(&record.path, link, record.dress, record.xattrs)
            }
            RecordKind::Fifo => self.make(&record.path, What::Fifo, record.dress, record.xattrs),
            RecordKind::Device => self.make(&record.path, What::Device, record.dress, Vec::new()),
        }
    }

    const fn file(&self, content: Content) -> What {
        What::File(FileAt {
            layer: self.layer - 1,
            content,
        })
    }

    fn make(
        &mut self,
        path: &[u8],
        what: What,
        dress: Dress,
        xattrs: Vec<Xattr>,
    ) -> Result<(), MergeError> {
        let (dir, name) = self.place_of(path)?;
        let node = self.add_node(what, dress, xattrs)?;
        self.put(dir, name, node)
    }

    fn make_dir(
        &mut self,
        path: &[u8],
        dress: Dress,
        xattrs: Vec<Xattr>,
    ) -> Result<(), MergeError> {
        let layer = self.layer;
        let existing = if path.is_empty() {
            Some(ROOT)
        } else {
            let (dir, name) = self.place_of(path)?;
            let child = self.dir(dir).and_then(|dir| dir.children.get(name));
            let existing = child.map(|child| child.node);
            match existing.filter(|id| self.dir(*id).is_some()) {
                Some(id) => Some(id),
                None => {
                    let id = self.add_node(What::Dir(Dir::default()), dress, Vec::new())?;
                    self.put(dir, name, id)?;
                    Some(id)
                }
            }
        };
        if let Some(id) = existing {
            self.count_xattrs(&xattrs)?;
            let node = &mut self.nodes[id as usize];
            (node.dress, node.xattrs) = (dress, xattrs);
            if let What::Dir(dir) = &mut node.what {
                (dir.entry_of, dir.touched_by) = (layer, layer);
            }
        }
        Ok(())
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), MergeError> {
        let bad = |why| MergeError::BadLink {
            target: target.to_owned(),
            why,
        };
        if let Some(id) = self.aside.get(target).copied() {
            let (dir, name) = self.place_of(path)?;
            return self.put(dir, name, id);
        }
        if target.is_empty() {
            return Err(bad("is the root itself"));
        }
        let missing = "is not in the archive before it";
        let (above, last) = split_path(target);
        let way = self.resolve(above).map_err(|_| bad(missing))?;
        let found = (self.dir(way.last()).filter(|_| way.missing.is_empty()))
            .and_then(|dir| dir.children.get(last));
        let Some(Child { node, .. }) = found.copied() else {
            return Err(bad(missing));
        };
        if self.dir(node).is_some() {
            return Err(bad("is a directory"));
        }
        // A link to itself is nothing new.
        if path == target {
            return Ok(());
        }
        let (dir, name) = self.place_of(path)?;
        self.put(dir, name, node)
    }

    /// The directory of an entry, made if it is missing, and the entry's last name.
    fn place_of<'a>(&mut self, path: &'a [u8]) -> Result<(NodeId, &'a [u8]), MergeError> {
        if path.is_empty() {
            return Err(MergeError::BadEntry("is the root itself and no directory"));
        }
        let (above, name) = split_path(path);
        let mut way = self.resolve(above)?;
        let names = way.missing.iter().map(Vec::as_slice).chain([name]);
        if names.clone().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(MergeError::BadEntry("has a name of more than 255 bytes"));
        }
        if way.bytes + names.map(|name| name.len() + 1).sum::<usize>() > PATH_BYTES_MAX {
            return Err(MergeError::BadEntry("has a path of more than 4,095 bytes"));
        }
        for name in std::mem::take(&mut way.missing) {
            let id = self.add_node(What::Dir(Dir::default()), Dress::IMPLIED, Vec::new())?;
            self.put(way.last(), &name, id)?;
            way.dirs.push(id);
        }
        let layer = self.layer;
        for id in &way.dirs {
            if let Some(dir) = self.dir_mut(*id) {
                dir.touched_by = layer;
            }
        }
        Ok((way.last(), name))
    }

    /// Follows a path to a directory, through links and within the root.
    fn resolve(&self, path: &[u8]) -> Result<Way, MergeError> {
        let mut way = Way {
            dirs: vec![ROOT],
            missing: Vec::new(),
            bytes: 0,
        };
        // The lengths of the names that led to each directory.
        let mut lengths: Vec<usize> = Vec::new();
        // What is still to be walked, the next one last.
        let mut todo: Vec<&[u8]> = names(path).rev().collect();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            self.steps.fetch_add(1, Ordering::Relaxed);
            if name == b".." {
                if way.missing.pop().is_none() && way.dirs.len() > 1 {
                    way.dirs.pop();
                    way.bytes -= lengths.pop().unwrap_or(0);
                }
                continue;
            }
            if !way.missing.is_empty() {
                way.missing.push(name.to_owned());
                continue;
            }
            let here = self.dir(way.last());
            let Some(child) = here.and_then(|dir| dir.children.get(name)) else {
                way.missing.push(name.to_owned());
                continue;
            };
            match &self.node(child.node).what {
                What::Dir(_) => {
                    way.dirs.push(child.node);
                    lengths.push(name.len() + 1);
                    way.bytes += name.len() + 1;
                }
                What::Symlink(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        let why = "leads through too many symbolic links";
                        return Err(MergeError::BadEntry(why));
                    }
                    if target.starts_with(b"/") {
                        way.dirs.truncate(1);
                        lengths.clear();
                        way.bytes = 0;
                    }
                    todo.extend(names(target).rev());
                }
                _ => {
                    let place = name.to_owned();
                    return Err(MergeError::NotADirectory { place });
                }
            }
        }
        Ok(way)
    }

    fn add_node(
        &mut self,
        what: What,
        dress: Dress,
        xattrs: Vec<Xattr>,
    ) -> Result<NodeId, MergeError> {
        let too_many = MergeError::TooLarge {
            what: "it has too many entries",
            max: self.limits.nodes,
        };
        // The root is no entry.
        if self.nodes.len() as u64 > self.limits.nodes {
            return Err(too_many);
        }
        let Ok(id) = NodeId::try_from(self.nodes.len()) else {
            return Err(too_many);
        };
        if let What::Symlink(target) = &what {
            self.count_names(target.len())?;
        }
        self.count_xattrs(&xattrs)?;
        self.nodes.push(Node {
            what,
            dress,
            xattrs,
        });
        Ok(id)
    }

    /// Gives a node a name; what had the name before is replaced.
    fn put(&mut self, dir: NodeId, name: &[u8], node: NodeId) -> Result<(), MergeError> {
        self.count_names(name.len())?;
        let layer = self.layer;
        if let Some(dir) = self.dir_mut(dir) {
            dir.children.insert(name.to_owned(), Child { node, layer });
        }
        if let Some(new) = self.dir_mut(node) {
            new.touched_by = layer;
        }
        Ok(())
    }

    fn count_names(&mut self, bytes: usize) -> Result<(), MergeError> {
        self.name_bytes += bytes as u64;
        if self.name_bytes > self.limits.name_bytes {
            return Err(MergeError::TooLarge {
                what: "its names are too large together",
                max: self.limits.name_bytes,
            });
        }
        Ok(())
    }

    fn count_xattrs(&mut self, xattrs: &[Xattr]) -> Result<(), MergeError> {
        let bytes = xattrs.iter().map(|(name, value)| name.len() + value.len());
        self.count_names(bytes.sum())
    }

    /// Removes what lower layers have at a path. That there is nothing is no mistake: another
    /// whiteout may have removed what was above.
    fn white_out(&mut self, path: &[u8]) -> Result<(), MergeError> {
        let (above, name) = split_path(path);
        let Some(above) = self.find_dir(above) else {
            return Ok(());
        };
        let child = self.dir(above).and_then(|dir| dir.children.get(name));
        let Some(child) = child.copied() else {
            return Ok(());
        };
        if self.is_of_layer(child) {
            self.strip(child.node);
            self.clear(child.node);
        } else if let Some(dir) = self.dir_mut(above) {
            dir.children.remove(name);
        }
        Ok(())
    }

    fn clear_dir(&mut self, path: &[u8]) -> Result<(), MergeError> {
        if let Some(dir) = self.find_dir(path) {
            self.clear(dir);
        }
        Ok(())
    }

    fn find_dir(&self, path: &[u8]) -> Option<NodeId> {
        // A way that ends in a file has nothing of lower layers below it.
        let way = self.resolve(path).ok()?;
        way.missing.is_empty().then(|| way.last())
    }

    /// Removes everything of lower layers below a directory.
    fn clear(&mut self, dir: NodeId) {
        let mut todo = vec![dir];
        while let Some(id) = todo.pop() {
            let Some(dir) = self.dir_mut(id) else {
                continue;
            };
            let children = std::mem::take(&mut dir.children);
            let kept: BTreeMap<_, _> = children
                .into_iter()
                .filter(|(_, child)| self.is_of_layer(*child))
                .collect();
            for child in kept.values() {
                self.strip(child.node);
                todo.push(child.node);
            }
            if let Some(dir) = self.dir_mut(id) {
                dir.children = kept;
            }
        }
    }

    /// Takes from a directory what a lower one had: it is there because of what is in it.
    fn strip(&mut self, id: NodeId) {
        let layer = self.layer;
        let node = &mut self.nodes[id as usize];
        if matches!(&node.what, What::Dir(dir) if dir.entry_of != layer) {
            (node.dress, node.xattrs) = (Dress::IMPLIED, Vec::new());
        }
    }

    /// True if the layer that comes in brought it, or something in it.
    fn is_of_layer(&self, child: Child) -> bool {
        match self.dir(child.node) {
            Some(dir) => dir.touched_by == self.layer,
            None => child.layer == self.layer,
        }
    }
}

/// The names of a path, without empty ones and `.`.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
}
