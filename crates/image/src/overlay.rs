//! What an overlay of directories of the host shows, without mounting it, and paths in it.

use std::fs;
use std::path::{Path, PathBuf};

use tidemill_core::root::Tree;

/// What a path of the root shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A directory: the overlay of these, the lowest first. None if it only exists because the
    /// sandbox makes it.
    Dir(Vec<Tree>),
    /// A symbolic link.
    Link(String),
    /// A file, or something else that is no directory, at this path of the host.
    File(PathBuf),
}

/// The rest of `path` below `above`, if it lies strictly below. Both absolute, or both relative with
/// an empty `above` as the top.
pub(crate) fn below<'a>(path: &'a str, above: &str) -> Option<&'a str> {
    let rest = if above == "/" || above.is_empty() {
        path.trim_start_matches('/')
    } else {
        path.strip_prefix(above)?.strip_prefix('/')?
    };
    (!rest.is_empty()).then_some(rest)
}

/// The names of a path, without empty ones and `.`.
pub(crate) fn names(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/')
        .filter(|name| !name.is_empty() && *name != ".")
}

/// What the overlay of some directories shows under a name.
pub(crate) fn look_in_trees(dirs: &[Tree], name: &str) -> Found {
    let mut found = Vec::new();
    for tree in dirs.iter().rev() {
        let path = Path::new(&tree.path).join(name);
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            let path = format!("{}/{name}", tree.path.trim_end_matches('/'));
            found.push(Tree {
                path,
                owners: tree.owners,
            });
        } else if found.is_empty() {
            return match fs::read_link(&path)
                .ok()
                .and_then(|to| to.to_str().map(str::to_owned))
            {
                Some(target) if metadata.is_symlink() => Found::Link(target),
                _ => Found::File(path),
            };
        } else {
            // A file under a directory of a higher tree: covered, with all that is below.
            break;
        }
    }
    if found.is_empty() {
        return Found::Nothing;
    }
    found.reverse();
    Found::Dir(found)
}

/// What the overlay of some directories shows at a relative path.
pub(crate) fn look_down(layers: &[Tree], path: &str) -> Found {
    let mut found = Found::Dir(layers.to_vec());
    for name in names(path) {
        let Found::Dir(dirs) = &found else {
            return found;
        };
        found = look_in_trees(dirs, name);
    }
    found
}

/// What one tree has at a path.
pub(crate) enum Way {
    /// Nothing at the path, and nothing on the way that would cover what is below.
    Nothing,
    /// A directory.
    Dir(String),
    /// Something else, there or on the way.
    Other,
}

/// Looks up a path in one tree without following links.
pub(crate) fn walk(tree: &str, path: &str) -> Way {
    let mut at = tree.trim_end_matches('/').to_owned();
    for name in names(path) {
        at = format!("{at}/{name}");
        match fs::symlink_metadata(&at) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Way::Other,
            Err(_) => return Way::Nothing,
        }
    }
    Way::Dir(at)
}
