//! Links of a root that a layer has directories in the place of.
//!
//! A host whose `/bin` is a link to `usr/bin` keeps it when a layer of the whole root brings a `bin` of its
//! own: what is in there is laid over `usr/bin`, and a tiny tree on top of the layer has the link again.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use tidemill_core::Digest;
use tidemill_core::root::{Node, Owners, Tree};

use crate::overlay::{Way, walk};
use crate::plan::PlanError;
use crate::skeleton::over_mount;
use crate::stack::Stack;
use crate::tree_store::{TreeNote, TreeStore, TreeStoreError};

/// Puts the links of a root over the directories that its trees have in their place.
pub(crate) fn restore(stack: &mut Stack, trees: &TreeStore) -> Result<(), PlanError> {
    let mut owners = Owners::AsIs;
    let mut links: Vec<(String, String)> = Vec::new();
    for node in &stack.nodes {
        let Node::Symlink { path, target } = node else {
            continue;
        };
        let covered = stack
            .trees
            .iter()
            .rfind(|tree| matches!(walk(&tree.path, path), Way::Dir(_)));
        if let Some(tree) = covered {
            owners = tree.owners;
            links.push((path.clone(), target.clone()));
        }
    }
    if links.is_empty() {
        return Ok(());
    }
    links.sort();
    let name = Digest::of(format!("links 1\n{links:?}").as_bytes());
    let root = trees.get_or_build(&name, |root| {
        fill(root, &links).map_err(|source| TreeStoreError::Store {
            step: "make the links of a root in",
            path: root.to_owned(),
            source,
        })?;
        Ok::<_, TreeStoreError>(TreeNote {
            from: "links of a root".to_owned(),
            entries: links.len() as u64,
            ..TreeNote::default()
        })
    });
    let root = root.map_err(PlanError::Trees)?;
    stack.trees.push(Tree {
        path: PlanError::utf8(&root)?,
        owners: over_mount(owners),
    });
    Ok(())
}

fn fill(root: &Path, links: &[(String, String)]) -> io::Result<()> {
    for (path, target) in links {
        let at = root.join(path.trim_start_matches('/'));
        if let Some(parent) = at.parent() {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)?;
        }
        symlink(target, at)?;
    }
    Ok(())
}
