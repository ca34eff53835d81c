//! Whether an image leaves room for what the sandbox puts into every root. An image that does not is
//! told as what it is: later, a step of the sandbox would fail, as if the host were at fault.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::overlay::{Found, names};
use crate::plan::PlanError;
use crate::stack::Stack;

/// Directories that must be themselves: the sandbox follows no link to its own file systems.
const OWN: &[&str] = &["/proc", "/dev"];
/// Directories that may be links to others.
const DIRS: &[&str] = &["/tmp", "/var/tmp"];

/// Checks the directories that every root gets.
pub(crate) fn check(stack: &Stack) -> Result<(), PlanError> {
    if stack.trees.is_empty() {
        return Ok(());
    }
    let bare = stack.bare();
    for path in OWN {
        check_dir(&bare, path)?;
        if let Some(link) = first_link(&bare, path) {
            return Err(wrong(
                &bare,
                &link,
                path,
                "is a symbolic link, and the sandbox needs a directory there",
            ));
        }
    }
    DIRS.iter().try_for_each(|path| check_dir(&bare, path))
}

/// Checks that a directory can be made or is there.
pub(crate) fn check_home(stack: &Stack, home: &str) -> Result<(), PlanError> {
    if stack.trees.is_empty() {
        return Ok(());
    }
    check_dir(&stack.bare(), home)
}

/// Checks that a file can be written, and be read where it is there.
pub(crate) fn check_file(stack: &Stack, path: &str) -> Result<(), PlanError> {
    if stack.trees.is_empty() {
        return Ok(());
    }
    let bare = stack.bare();
    let parent = path.rfind('/').map_or("/", |slash| &path[..slash]);
    if let Found::Dir(trees) = check_dir_found(&bare, parent)? {
        for tree in trees {
            if accessat(CWD, &tree.path, Access::EXEC_OK, AtFlags::EACCESS).is_err() {
                let host = Path::new(&tree.path);
                let what = "may not be entered by the user that runs Tidemill";
                return Err(wrong(&bare, host, parent, what));
            }
        }
    }
    match bare.resolve(path) {
        Ok(resolved) => match resolved.found {
            Found::Dir(trees) => {
                let host = trees.last().map_or(path, |tree| tree.path.as_str());
                let what = "is a directory, and the sandbox needs a file there";
                Err(wrong(&bare, Path::new(host), path, what))
            }
            _ => Ok(()),
        },
        // It is written anew, link or not.
        Err(PlanError::TooManyLinks { .. }) => Ok(()),
        Err(other) => Err(other),
    }
}

/// Checks that a file that is read before it is written does not lead round in a circle.
pub(crate) fn check_read(stack: &Stack, path: &str) -> Result<(), PlanError> {
    check_file(stack, path)?;
    match stack.resolve(path) {
        Err(PlanError::TooManyLinks { .. }) => Err(round(&stack.bare(), path)),
        _ => Ok(()),
    }
}

fn check_dir(bare: &Stack, path: &str) -> Result<(), PlanError> {
    check_dir_found(bare, path).map(|_| ())
}

fn check_dir_found(bare: &Stack, path: &str) -> Result<Found, PlanError> {
    let resolved = match bare.resolve(path) {
        Ok(resolved) => resolved,
        Err(PlanError::TooManyLinks { .. }) => return Err(round(bare, path)),
        Err(PlanError::NotADirectory { path: file, .. }) => {
            return match bare.resolve(&file)?.found {
                Found::File(host) => Err(file_in_the_way(bare, &host, &file)),
                _ => Ok(Found::Nothing),
            };
        }
        Err(other) => return Err(other),
    };
    match resolved.found {
        Found::File(host) => Err(file_in_the_way(bare, &host, path)),
        Found::Nothing => match first_link(bare, path) {
            Some(link) => check_target(bare, &link, path),
            None => Ok(Found::Nothing),
        },
        found => Ok(found),
    }
}

/// What is behind a link can be made, and what the link itself leads to cannot.
fn check_target(bare: &Stack, link: &Path, path: &str) -> Result<Found, PlanError> {
    let Some(place) = bare
        .tree_of(link)
        .and_then(|(tree, _)| link.strip_prefix(tree).ok())
    else {
        return Ok(Found::Nothing);
    };
    let target = bare.resolve(&format!("/{}", place.display()))?;
    if target.found == Found::Nothing {
        let what = format!(
            "is a symbolic link to `{}`, which is not there",
            target.path
        );
        return Err(wrong(bare, link, path, &what));
    }
    Ok(Found::Nothing)
}

fn file_in_the_way(bare: &Stack, host: &Path, path: &str) -> PlanError {
    let what = "is a file, and the sandbox needs a directory there";
    wrong(bare, host, path, what)
}

fn round(bare: &Stack, path: &str) -> PlanError {
    let link = first_link(bare, path).unwrap_or_default();
    wrong(
        bare,
        &link,
        path,
        "is a symbolic link that leads round in a circle",
    )
}

fn wrong(bare: &Stack, host: &Path, path: &str, what: &str) -> PlanError {
    let (place, known_as) = match bare.tree_of(host) {
        Some((tree, known_as)) => {
            let place = host.strip_prefix(tree).unwrap_or(host);
            (format!("/{}", place.display()), known_as)
        }
        None => (path.to_owned(), "the image"),
    };
    PlanError::Image {
        place,
        known_as: known_as.to_owned(),
        what: what.to_owned(),
    }
}

/// The place on the host of the first symbolic link on the way to a path.
fn first_link(bare: &Stack, path: &str) -> Option<PathBuf> {
    let mut dirs: Vec<PathBuf> = bare
        .trees
        .iter()
        .map(|tree| PathBuf::from(&tree.path))
        .collect();
    for name in names(path) {
        let there: Vec<PathBuf> = dirs.iter().map(|dir| dir.join(name)).collect();
        let top = there
            .iter()
            .rev()
            .find(|path| fs::symlink_metadata(path).is_ok())?;
        if top.is_symlink() {
            return Some(top.clone());
        }
        dirs = there;
    }
    None
}
