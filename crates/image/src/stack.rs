//! A root under construction: trees, mounts over them, and what a path shows.
//!
//! Nothing is copied to merge two directories. A directory layer becomes a tree of the root, a mount
//! of its own, or a tree that is stacked over the mount that already fills its place; which one
//! follows from what the path shows at that moment.

use std::path::{Path, PathBuf};

use tidemill_core::Grant;
use tidemill_core::grant::PathAccess;
use tidemill_core::root::{Node, Owners, RootMount, Tree};

use crate::layer_fault::LayerFault;
use crate::overlay::{Found, Way, below, look_down, look_in_trees, names, walk};
use crate::plan::PlanError;
use crate::skeleton::{Skeleton, SkeletonStep};
use crate::tree_store::TreeStore;

/// Directories that the sandbox makes by itself, over everything that an image has there.
pub(crate) const MADE_BY_SANDBOX: &[&str] = &["/proc", "/dev", "/tmp", "/var/tmp"];
/// Those among them that are the job's own, empty when it starts.
pub(crate) const TEMPORARY: &[&str] = &["/tmp", "/var/tmp"];
/// Those among them in which nothing of the host may appear.
const CLOSED: &[&str] = &["/proc", "/dev", "/sys"];
/// Symbolic links that are followed on one path, as in the kernel.
const LINKS_MAX: u32 = 40;

/// Something of the host that goes into a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// An absolute path on the host without symbolic links.
    pub(crate) path: String,
    /// How its owners appear.
    pub(crate) owners: Owners,
    /// What people know it as: the path itself, or the archive that it was unpacked from.
    pub(crate) known_as: String,
    /// Why it is there.
    pub(crate) why: String,
}

/// A path after all symbolic links, and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) path: String,
    pub(crate) found: Found,
}

/// A root under construction.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    pub(crate) trees: Vec<Tree>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) mounts: Vec<RootMount>,
    pub(crate) grants: Vec<Grant>,
    /// True if what is in no mount may be written.
    pub(crate) root_writable: bool,
    /// Where layers put something.
    layered: Vec<String>,
    /// The directories of the host that layers brought.
    layer_dirs: Vec<String>,
    /// Each tree that was put in, and what people know it as.
    known: Vec<(String, String)>,
    /// True if the directories that the sandbox makes by itself count only where a tree has them.
    is_bare: bool,
}

impl Stack {
    /// An empty root.
    pub(crate) fn new(root_writable: bool) -> Self {
        Self {
            root_writable,
            ..Self::default()
        }
    }

    /// The same root without what the sandbox makes by itself: what the trees have in its place.
    pub(crate) fn bare(&self) -> Self {
        Self {
            trees: self.trees.clone(),
            nodes: self.nodes.clone(),
            mounts: self.mounts.clone(),
            known: self.known.clone(),
            is_bare: true,
            ..Self::default()
        }
    }

    /// The tree that a path of the host lies in, and what people know it as.
    pub(crate) fn tree_of(&self, host: &Path) -> Option<(&str, &str)> {
        self.known
            .iter()
            .filter(|(tree, _)| host.starts_with(tree))
            .max_by_key(|(tree, _)| tree.len())
            .map(|(tree, known_as)| (tree.as_str(), known_as.as_str()))
    }

    /// Adds a directory to the bottom of the root.
    pub(crate) fn add_image_tree(&mut self, source: &Source) {
        self.know(source);
        self.trees.push(Tree {
            path: source.path.clone(),
            owners: source.owners,
        });
        self.grant(source, "/", self.access_of_root());
    }

    /// Adds a mount of the image, a tool or the workspace. It goes before the mounts that lie below
    /// it, so that it does not cover them.
    pub(crate) fn add_mount(&mut self, mount: RootMount) {
        self.grants.push(Grant::Path {
            host: mount.source.clone(),
            sandbox: mount.dest.clone(),
            access: mount.access,
            why: mount.why.clone(),
        });
        self.insert(mount);
    }

    /// Adds a node, once. A directory of the job's own goes before one of the system's.
    pub(crate) fn add_node(&mut self, node: Node) {
        match self
            .nodes
            .iter_mut()
            .find(|known| node_path(known) == node_path(&node))
        {
            None => self.nodes.push(node),
            Some(known) => {
                if matches!(
                    node,
                    Node::Dir {
                        job_owned: true,
                        ..
                    }
                ) {
                    *known = node;
                }
            }
        }
    }

    /// Makes the directories between `above` and `path` the job's own, so that programs can put
    /// their files beside what is mounted there.
    pub(crate) fn own_way(&mut self, above: &str, path: &str) {
        let Some(rest) = below(path, above) else {
            return;
        };
        let mut at = above.trim_end_matches('/').to_owned();
        let names: Vec<&str> = rest.split('/').collect();
        for name in &names[..names.len().saturating_sub(1)] {
            at = format!("{at}/{name}");
            self.add_node(Node::Dir {
                path: at.clone(),
                mode: 0o755,
                job_owned: true,
            });
        }
    }

    /// Lays a directory of the host over what `dest` shows.
    pub(crate) fn add_dir(
        &mut self,
        source: &Source,
        dest: &str,
        trees: &TreeStore,
    ) -> Result<(), PlanError> {
        let (at, access) = self.lay_dir(source, dest, trees)?;
        self.grant(source, &at, access);
        Ok(())
    }

    /// The same for what was made and is nothing of the host. Says where it is, and what the job may do
    /// there.
    pub(crate) fn lay_dir(
        &mut self,
        source: &Source,
        dest: &str,
        trees: &TreeStore,
    ) -> Result<(String, PathAccess), PlanError> {
        let resolved = self.resolve(dest)?;
        let at = resolved.path;
        refuse_closed(&at)?;
        let tree = Tree {
            path: source.path.clone(),
            owners: source.owners,
        };
        self.know(source);
        self.layered.push(at.clone());
        self.layer_dirs.push(tree.path.clone());
        if at == "/" {
            self.lay_over_all(&tree)?;
            self.trees.push(tree);
            return Ok((at, self.access_of_root()));
        }
        let access = match &resolved.found {
            Found::File(_) | Found::Link(_) => {
                return Err(PlanError::DestIsFile {
                    source_path: source.known_as.clone(),
                    dest: at,
                });
            }
            Found::Nothing => {
                self.make_way(&at, SkeletonStep::Dir, trees)?;
                PathAccess::ReadOnly
            }
            Found::Dir(lower) if lower.is_empty() => PathAccess::ReadOnly,
            Found::Dir(_) => self.access_at(&at),
        };
        self.refuse_real_write(&at, &source.known_as)?;
        if let Some(mount) = self.mounts.iter_mut().find(|mount| mount.dest == at) {
            lay_over(mount, tree.clone());
            self.lay_over_below(&tree, &at)?;
            return Ok((at, access));
        }
        let (lowest, over) = match resolved.found {
            Found::Dir(mut lower) if !lower.is_empty() => {
                let lowest = lower.remove(0);
                lower.push(tree.clone());
                (lowest, lower)
            }
            _ => (tree.clone(), Vec::new()),
        };
        let mut hidden = self.hidden_below(&at);
        reveal(&mut hidden, &tree);
        self.lay_over_below(&tree, &at)?;
        let waiting: Vec<String> = self
            .mounts_below(&at)
            .map(|mount| mount.dest.clone())
            .collect();
        self.insert(RootMount {
            source: lowest.path,
            dest: at.clone(),
            over,
            access,
            owners: lowest.owners,
            hidden,
            why: source.why.clone(),
        });
        for made in self.made_below(&at) {
            self.make_way(&made, SkeletonStep::Dir, trees)?;
        }
        // What is mounted below needs a place to stand on in the new mount.
        for dest in waiting {
            let kind = self.kind_of_mount(&dest);
            self.make_way(&dest, kind, trees)?;
        }
        Ok((at, access))
    }

    /// The directories below a path that the sandbox or the image has there in any case: a mount on the
    /// path must not be without them.
    fn made_below(&self, path: &str) -> Vec<String> {
        let of_image = self.nodes.iter().filter_map(|node| match node {
            Node::Dir { path, .. } => Some(path.as_str()),
            Node::Symlink { .. } => None,
        });
        let of_sandbox = MADE_BY_SANDBOX.iter().copied().filter(|_| !self.is_bare);
        of_image
            .chain(of_sandbox)
            .filter(|made| below(made, path).is_some())
            .map(str::to_owned)
            .collect()
    }

    /// Puts a file at `dest`.
    pub(crate) fn add_file(
        &mut self,
        source: &Source,
        dest: &str,
        trees: &TreeStore,
    ) -> Result<(), PlanError> {
        let resolved = self.resolve(dest)?;
        let at = resolved.path;
        refuse_closed(&at)?;
        match resolved.found {
            Found::Dir(_) => {
                return Err(PlanError::DestIsDir {
                    source_path: source.known_as.clone(),
                    dest: at,
                });
            }
            Found::Nothing => self.make_way(&at, SkeletonStep::File, trees)?,
            Found::File(_) | Found::Link(_) => {}
        }
        self.refuse_real_write(&at, &source.known_as)?;
        self.grant(source, &at, PathAccess::ReadOnly);
        self.layered.push(at.clone());
        self.mounts.retain(|mount| mount.dest != at);
        self.insert(RootMount {
            source: source.path.clone(),
            dest: at,
            over: Vec::new(),
            access: PathAccess::ReadOnly,
            owners: source.owners,
            hidden: Vec::new(),
            why: source.why.clone(),
        });
        Ok(())
    }

    /// Mounts the directory that a command leaves its output in.
    pub(crate) fn add_output(&mut self, mount: RootMount) -> Result<(), PlanError> {
        let Resolved { path, found } = self.resolve(&mount.dest)?;
        if path != mount.dest || matches!(found, Found::File(_) | Found::Link(_)) {
            return Err(PlanError::Layer(LayerFault::NoPlaceForOutput));
        }
        self.mounts
            .retain(|known| known.dest != path && below(&known.dest, &path).is_none());
        self.insert(mount);
        Ok(())
    }

    /// True if what a path shows was put there by a layer.
    pub(crate) fn is_layered(&self, path: &str) -> bool {
        let Ok(resolved) = self.resolve(path) else {
            return false;
        };
        self.layered.contains(&resolved.path)
            || matches!(resolved.found, Found::File(host)
                if self.layer_dirs.iter().any(|dir| host.starts_with(dir)))
    }

    /// Makes sure that the job can write in its home, whatever is mounted around it.
    pub(crate) fn open_home(&mut self, home: &str, trees: &TreeStore) -> Result<(), PlanError> {
        self.add_node(Node::Dir {
            path: home.to_owned(),
            mode: 0o755,
            job_owned: true,
        });
        let above = self.mount_above(home).map(|mount| mount.dest.clone());
        let Some(mount) = self
            .mounts
            .iter_mut()
            .find(|mount| mount.dest == home || above.as_ref() == Some(&mount.dest))
        else {
            return Ok(());
        };
        if mount.access == PathAccess::ReadOnly {
            mount.access = PathAccess::CopyOnWrite;
        }
        let layers = layers_of(mount);
        let rest = below(home, &mount.dest).unwrap_or("");
        let missing = look_down(&layers, rest) == Found::Nothing;
        if missing && mount.access == PathAccess::CopyOnWrite {
            let skeleton = Skeleton::over(&layers, rest, SkeletonStep::Dir);
            let path = skeleton.build(trees)?;
            // Where no mount's ids are mapped, a place to mount on does not make the job the caller.
            let owners = match mount.owners {
                Owners::AsIs if !rustix::process::geteuid().is_root() => Owners::AsIs,
                _ => skeleton.owners(Owners::Job { uid: 0, gid: 0 }),
            };
            mount.over.push(Tree { path, owners });
        }
        Ok(())
    }

    /// Follows all symbolic links of an absolute path as the job would. Names behind a missing
    /// directory are taken as they are.
    pub(crate) fn resolve(&self, path: &str) -> Result<Resolved, PlanError> {
        let mut todo: Vec<String> = names(path).rev().map(str::to_owned).collect();
        let mut at = String::new();
        let mut dirs = self.trees.clone();
        let mut links = 0;
        let mut found = Found::Dir(dirs.clone());
        while let Some(name) = todo.pop() {
            if name == ".." {
                at.truncate(at.rfind('/').unwrap_or(0));
                let here = self.resolve(if at.is_empty() { "/" } else { &at })?;
                found = here.found;
                dirs = if let Found::Dir(dirs) = &found {
                    dirs.clone()
                } else {
                    Vec::new()
                };
                continue;
            }
            let next = format!("{at}/{name}");
            found = self.look(&next, &name, &dirs);
            match &found {
                Found::Link(target) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(PlanError::TooManyLinks {
                            path: path.to_owned(),
                        });
                    }
                    todo.extend(names(target).rev().map(str::to_owned));
                    if target.starts_with('/') {
                        at.clear();
                        dirs.clone_from(&self.trees);
                        found = Found::Dir(dirs.clone());
                    } else {
                        found = Found::Dir(dirs.clone());
                    }
                }
                Found::Dir(below) => {
                    dirs.clone_from(below);
                    at = next;
                }
                Found::Nothing => {
                    dirs.clear();
                    at = next;
                }
                Found::File(_) => {
                    at = next;
                    if let Some(rest) = todo.pop() {
                        return Err(PlanError::NotADirectory { path: at, rest });
                    }
                }
            }
        }
        let path = if at.is_empty() { "/".to_owned() } else { at };
        Ok(Resolved { path, found })
    }

    /// What a directory, which is no link, has under a name: a link is not followed.
    pub(crate) fn look_at(&self, directory: &str, name: &str) -> Result<Found, PlanError> {
        let dirs = match self.resolve(directory)?.found {
            Found::Dir(dirs) => dirs,
            Found::Nothing | Found::Link(_) | Found::File(_) => return Ok(Found::Nothing),
        };
        let path = format!("{}/{name}", directory.trim_end_matches('/'));
        Ok(self.look(&path, name, &dirs))
    }

    /// What `path` shows, whose last name is `name` and whose directory is the overlay of `dirs`.
    pub(crate) fn look(&self, path: &str, name: &str, dirs: &[Tree]) -> Found {
        if let Some(mount) = self.mounts.iter().rev().find(|mount| mount.dest == path) {
            return look_in_mount(mount);
        }
        let in_mount = self.mount_above(path).is_some();
        if !in_mount
            && let Some(Node::Symlink { target, .. }) =
                self.nodes.iter().find(|node| node_path(node) == path)
        {
            return Found::Link(target.clone());
        }
        if !self.is_bare && MADE_BY_SANDBOX.contains(&path) {
            return Found::Dir(Vec::new());
        }
        match look_in_trees(dirs, name) {
            Found::Nothing if self.is_made(path, in_mount) => Found::Dir(Vec::new()),
            found => found,
        }
    }

    /// True for a directory that the sandbox makes because something is below it.
    fn is_made(&self, path: &str, in_mount: bool) -> bool {
        let is_here_or_below = |other: &str| other == path || below(other, path).is_some();
        self.mounts
            .iter()
            .any(|mount| below(&mount.dest, path).is_some())
            || (!in_mount
                && self
                    .nodes
                    .iter()
                    .any(|node| is_here_or_below(node_path(node))))
            || (!self.is_bare
                && MADE_BY_SANDBOX
                    .iter()
                    .any(|made| below(made, path).is_some()))
    }

    /// The mount that a path lies in (and that is not the path itself).
    pub(crate) fn mount_above(&self, path: &str) -> Option<&RootMount> {
        self.mounts
            .iter()
            .filter(|mount| below(path, &mount.dest).is_some())
            .max_by_key(|mount| mount.dest.len())
    }

    pub(crate) fn mounts_below<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a RootMount> {
        self.mounts
            .iter()
            .filter(move |mount| below(&mount.dest, path).is_some())
    }

    /// What may be done with files at a path now.
    fn access_at(&self, path: &str) -> PathAccess {
        self.mounts
            .iter()
            .find(|mount| mount.dest == path)
            .or_else(|| self.mount_above(path))
            .map_or_else(|| self.access_of_root(), |mount| mount.access)
    }

    const fn access_of_root(&self) -> PathAccess {
        if self.root_writable {
            PathAccess::CopyOnWrite
        } else {
            PathAccess::ReadOnly
        }
    }

    /// What the mount around a path hides below that path.
    fn hidden_below(&self, path: &str) -> Vec<String> {
        let Some(mount) = self.mount_above(path) else {
            return Vec::new();
        };
        let inside = below(path, &mount.dest).unwrap_or("");
        mount
            .hidden
            .iter()
            .filter_map(|hidden| below(hidden, inside))
            .map(str::to_owned)
            .collect()
    }

    /// Lays a tree of the whole root over the mounts.
    fn lay_over_all(&mut self, tree: &Tree) -> Result<(), PlanError> {
        // A root of the host has links such as `/bin` where the tree may have directories.
        let mut moved = Vec::new();
        for node in &self.nodes {
            let Node::Symlink { path, .. } = node else {
                continue;
            };
            if let Way::Dir(inside) = walk(&tree.path, path) {
                moved.push((
                    path.clone(),
                    Tree {
                        path: inside,
                        owners: tree.owners,
                    },
                ));
            }
        }
        self.lay_over_below(tree, "/")?;
        for (path, tree) in moved {
            let Resolved { path: at, found } = self.resolve(&path)?;
            let Found::Dir(mut lower) = found else {
                continue;
            };
            if lower.is_empty() {
                continue;
            }
            let access = self.access_at(&at);
            if let Some(mount) = self.mounts.iter_mut().find(|mount| mount.dest == at) {
                lay_over(mount, tree);
                continue;
            }
            let mut hidden = self.hidden_below(&at);
            reveal(&mut hidden, &tree);
            let lowest = lower.remove(0);
            lower.push(tree);
            self.insert(RootMount {
                source: lowest.path,
                dest: at.clone(),
                over: lower,
                access,
                owners: lowest.owners,
                hidden,
                why: format!("what a layer has in {path}"),
            });
        }
        Ok(())
    }

    /// Lays a tree that stands for `at` over the mounts below `at`.
    fn lay_over_below(&mut self, tree: &Tree, at: &str) -> Result<(), PlanError> {
        let mut covered = Vec::new();
        for mount in &mut self.mounts {
            let Some(rest) = below(&mount.dest, at) else {
                continue;
            };
            match walk(&tree.path, rest) {
                Way::Nothing => {}
                Way::Dir(path) if Path::new(&mount.source).is_dir() => {
                    if mount.access == PathAccess::Write {
                        return Err(PlanError::LayerInWritableWorkspace {
                            source_path: tree.path.clone(),
                            dest: mount.dest.clone(),
                        });
                    }
                    lay_over(
                        mount,
                        Tree {
                            path,
                            owners: tree.owners,
                        },
                    );
                }
                Way::Dir(_) | Way::Other => covered.push(mount.dest.clone()),
            }
        }
        for dest in covered {
            if !self.is_layered(&dest) {
                return Err(PlanError::CoversMount {
                    source_path: tree.path.clone(),
                    dest,
                });
            }
            self.mounts.retain(|mount| mount.dest != dest);
        }
        Ok(())
    }

    /// Makes sure that there is something to mount on at `path`, which shows nothing: in the root
    /// itself the sandbox makes it; in a mount it has to be in a tree, because that may be read-only or
    /// belong to somebody in whose name nothing can be made.
    pub(crate) fn make_way(
        &mut self,
        path: &str,
        last: SkeletonStep,
        trees: &TreeStore,
    ) -> Result<(), PlanError> {
        let Some(mount) = self.mount_above(path) else {
            return Ok(());
        };
        let dest = mount.dest.clone();
        let rest = below(path, &dest).unwrap_or("").to_owned();
        let layers = layers_of(mount);
        if look_down(&layers, &rest) != Found::Nothing {
            return Ok(());
        }
        if mount.access == PathAccess::Write {
            return Err(PlanError::LayerInWritableWorkspace {
                source_path: path.to_owned(),
                dest,
            });
        }
        let skeleton = Skeleton::over(&layers, &rest, last);
        let path = skeleton.build(trees)?;
        let owners = skeleton.owners(mount.owners);
        if let Some(mount) = self.mounts.iter_mut().find(|mount| mount.dest == dest) {
            mount.over.push(Tree { path, owners });
        }
        Ok(())
    }

    pub(crate) fn kind_of_mount(&self, dest: &str) -> SkeletonStep {
        let is_file = self
            .mounts
            .iter()
            .any(|mount| mount.dest == dest && !Path::new(&mount.source).is_dir());
        if is_file {
            SkeletonStep::File
        } else {
            SkeletonStep::Dir
        }
    }

    fn refuse_real_write(&self, at: &str, source: &str) -> Result<(), PlanError> {
        if self.access_at(at) == PathAccess::Write {
            return Err(PlanError::LayerInWritableWorkspace {
                source_path: source.to_owned(),
                dest: at.to_owned(),
            });
        }
        Ok(())
    }

    fn know(&mut self, source: &Source) {
        self.known
            .push((source.path.clone(), source.known_as.clone()));
    }

    fn grant(&mut self, source: &Source, at: &str, access: PathAccess) {
        self.grants.push(Grant::Path {
            host: source.known_as.clone(),
            sandbox: at.to_owned(),
            access,
            why: source.why.clone(),
        });
    }

    /// Adds a mount before those that lie below it.
    pub(crate) fn insert(&mut self, mount: RootMount) {
        let place = self
            .mounts
            .iter()
            .position(|known| below(&known.dest, &mount.dest).is_some())
            .unwrap_or(self.mounts.len());
        self.mounts.insert(place, mount);
    }
}

fn node_path(node: &Node) -> &str {
    match node {
        Node::Dir { path, .. } | Node::Symlink { path, .. } => path,
    }
}

/// Refuses destinations that belong to the kernel.
pub(crate) fn refuse_closed(at: &str) -> Result<(), PlanError> {
    let closed = CLOSED
        .iter()
        .any(|path| at == *path || below(at, path).is_some());
    if closed || MADE_BY_SANDBOX.contains(&at) {
        return Err(PlanError::DestIsSandbox {
            dest: at.to_owned(),
        });
    }
    Ok(())
}

/// Lays a tree over a mount.
fn lay_over(mount: &mut RootMount, tree: Tree) {
    reveal(&mut mount.hidden, &tree);
    mount.over.push(tree);
}

/// Takes what a layer brings off the list of what is hidden: the layer was asked for by name.
fn reveal(hidden: &mut Vec<String>, tree: &Tree) {
    hidden.retain(|path| matches!(walk(&tree.path, path), Way::Nothing));
}

/// The directories that a mount overlays, the lowest first.
fn layers_of(mount: &RootMount) -> Vec<Tree> {
    let lowest = Tree {
        path: mount.source.clone(),
        owners: mount.owners,
    };
    std::iter::once(lowest)
        .chain(mount.over.iter().cloned())
        .collect()
}

fn look_in_mount(mount: &RootMount) -> Found {
    if Path::new(&mount.source).is_dir() {
        Found::Dir(layers_of(mount))
    } else {
        Found::File(PathBuf::from(&mount.source))
    }
}

#[cfg(test)]
mod tests;
