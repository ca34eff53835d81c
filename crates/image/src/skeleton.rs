//! Empty directories and files that exist only to be mounted on.
//!
//! In a read-only mount nothing can be made, so a place for a further mount comes from a tiny tree
//! that is stacked over it. Its directories repeat the modes of those that they cover.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use tidemill_core::Digest;
use tidemill_core::root::{Owners, Tree};

use crate::overlay::names;
use crate::placed;
use crate::plan::PlanError;
use crate::tree_store::{TreeNote, TreeStore, TreeStoreError};

/// What the last name of a skeleton is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkeletonStep {
    /// An empty directory.
    Dir,
    /// An empty file.
    File,
}

/// How the owners of a tree that this process made appear over a mount: as those of the mount's own files.
pub(crate) fn over_mount(mount: Owners) -> Owners {
    match mount {
        Owners::Job { .. } => Owners::Job {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        other => other,
    }
}

/// A chain of directories, and what stands at its end.
#[derive(Debug)]
pub(crate) struct Skeleton {
    /// The mode of the topmost directory.
    top_mode: u32,
    /// Each directory on the way with its mode, then the last name.
    way: Vec<(String, u32)>,
    last: SkeletonStep,
}

impl Skeleton {
    /// The way to `path` (relative) over some directories, the lowest first.
    pub(crate) fn over(dirs: &[Tree], path: &str, last: SkeletonStep) -> Self {
        let mode_of = |relative: &str| {
            dirs.iter()
                .rev()
                .find_map(|tree| fs::symlink_metadata(Path::new(&tree.path).join(relative)).ok())
                .filter(fs::Metadata::is_dir)
                .map_or(0o755, |metadata| metadata.mode() & 0o7777)
        };
        let mut at = String::new();
        let mut way = Vec::new();
        for name in names(path) {
            if !at.is_empty() {
                at.push('/');
            }
            at += name;
            way.push((name.to_owned(), mode_of(&at)));
        }
        Self {
            top_mode: mode_of(""),
            way,
            last,
        }
    }

    /// Builds it, or finds the one that was built before.
    pub(crate) fn build(&self, trees: &TreeStore) -> Result<String, PlanError> {
        let root = trees.get_or_build(&self.name(), |root| {
            self.fill(root).map_err(|source| TreeStoreError::Store {
                step: "make a place to mount on in",
                path: root.to_owned(),
                source,
            })?;
            Ok::<_, TreeStoreError>(TreeNote {
                from: placed::PLACES.to_owned(),
                entries: self.way.len() as u64,
                ..TreeNote::default()
            })
        });
        let root = root.map_err(PlanError::Trees)?;
        PlanError::utf8(&root)
    }

    /// How its owners appear over a mount.
    pub(crate) fn owners(&self, mount: Owners) -> Owners {
        over_mount(mount)
    }

    fn name(&self) -> Digest {
        let text = format!(
            "skeleton 1\n{:o}\n{:?}\n{:?}",
            self.top_mode, self.way, self.last
        );
        Digest::of(text.as_bytes())
    }

    fn fill(&self, root: &Path) -> std::io::Result<()> {
        let mut at = root.to_owned();
        let mut dirs = vec![(at.clone(), self.top_mode)];
        for (index, (name, mode)) in self.way.iter().enumerate() {
            at.push(name);
            if index + 1 == self.way.len() && self.last == SkeletonStep::File {
                File::create_new(&at)?.set_permissions(fs::Permissions::from_mode(0o644))?;
            } else {
                fs::DirBuilder::new().mode(0o700).create(&at)?;
                dirs.push((at.clone(), *mode));
            }
        }
        for (path, mode) in dirs.iter().rev() {
            fs::set_permissions(path, fs::Permissions::from_mode(*mode))?;
        }
        Ok(())
    }
}
