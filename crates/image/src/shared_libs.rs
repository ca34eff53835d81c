//! The shared libraries that programs load, found as the dynamic loader finds them and without running
//! anything: see ld.so(8) for the GNU C library, and <https://wiki.musl-libc.org/functional-differences-from-glibc.html>
//! for musl.
//!
//! A library is needed under the path that the loader opens. That path may lead through links; the links
//! come too, and so does the file at their end under its own path.

mod search;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use tidemill_core::Attributes;
use tidemill_core::root::Owners;

use crate::copies::Copies;
use crate::elf::{ElfError, ElfFile};
use crate::layer_fault::LayerFault;
use crate::overlay::Found;
use crate::placed::{self, Placed};
use crate::plan::PlanError;
use crate::source::canonical_file;
use crate::stack::{Source, Stack};
use crate::tree_store::TreeStore;
use search::{Loader, Object};

/// Libraries that the programs of one layer load together, at most.
pub(crate) const LIBRARIES_MAX: usize = 4096;
/// Links that lead to one file, at most, as in the kernel.
const LINKS_MAX: usize = 40;

/// Libraries and the loader, as paths of the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Libraries {
    root: PathBuf,
    /// The programs, for people.
    programs: String,
    /// Files and links, whose directories have no links in them.
    entries: BTreeSet<PathBuf>,
    /// The paths that the loader opens, and which of the entries each of them is.
    opened: BTreeMap<PathBuf, PathBuf>,
}

/// The tree of copies, and where it goes.
struct Ours<'a> {
    tree: &'a str,
    dest: &'a str,
    owners: Owners,
}

/// Finds what some programs load. `root` is the host's root directory.
pub(crate) fn find(binaries: &[String], root: &Path) -> Result<Libraries, PlanError> {
    let mut libraries = Libraries {
        root: root.to_owned(),
        programs: binaries.join(", "),
        ..Libraries::default()
    };
    for binary in binaries {
        let (path, _) = canonical_file(binary, "program")?;
        libraries.add_program(binary, &path)?;
    }
    Ok(libraries)
}

impl Libraries {
    fn add_program(&mut self, named: &str, path: &str) -> Result<(), PlanError> {
        let unread = |path: &Path, source| LayerFault::Program {
            path: path.to_string_lossy().into_owned(),
            source,
        };
        let program =
            ElfFile::read(Path::new(path)).map_err(|source| unread(Path::new(named), source))?;
        let loader = Loader::new(&self.root, &program);
        if let Some(interpreter) = &program.interpreter {
            self.open(Path::new(interpreter))
                .map_err(|source| unread(Path::new(interpreter), ElfError::Read(source)))?;
        }
        let mut found: BTreeSet<String> = BTreeSet::new();
        let mut todo = VecDeque::from([Object::program(PathBuf::from(path), program)]);
        while let Some(object) = todo.pop_front() {
            for name in &object.file.needed {
                // What has this name already is used, wherever it was found.
                if loader.is_itself(name) || !found.insert(name.clone()) {
                    continue;
                }
                if found.len() > LIBRARIES_MAX {
                    return Err(LayerFault::TooManyLibraries {
                        path: named.to_owned(),
                        max: LIBRARIES_MAX,
                    }
                    .into());
                }
                let library =
                    loader
                        .find(name, &object)
                        .map_err(|searched| LayerFault::LibraryMissing {
                            library: name.clone(),
                            needed_by: object.path.to_string_lossy().into_owned(),
                            searched: searched.join(", "),
                        })?;
                let unreadable = |source| unread(&library.path, ElfError::Read(source));
                let entry = self.open(&library.path).map_err(unreadable)?;
                if library.by_configuration {
                    // The list of the host's loader does not come along, but the directory that it looks
                    // into without one does.
                    self.open_beside_loader(name, entry);
                }
                todo.push_back(object.loads(&self.root, &library)?);
            }
        }
        Ok(())
    }

    /// Notes a path that the loader opens, with all links that it leads through. Says which entry it is.
    fn open(&mut self, path: &Path) -> io::Result<PathBuf> {
        let first = self.add(path)?;
        self.opened.insert(path.to_owned(), first.clone());
        let mut at = first.clone();
        for _ in 0..LINKS_MAX {
            let here = self.on_host(&at);
            if !fs::symlink_metadata(&here)?.is_symlink() {
                return Ok(first);
            }
            let target = fs::read_link(&here)?;
            let above = at.parent().unwrap_or(Path::new("/"));
            at = self.add(&above.join(target))?;
        }
        Err(io::Error::other("it leads through too many symbolic links"))
    }

    /// Notes a path under the real name of its directory.
    fn add(&mut self, path: &Path) -> io::Result<PathBuf> {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let real = fs::canonicalize(self.on_host(directory))?;
        let inside = real.strip_prefix(&self.root).unwrap_or(&real);
        let entry = Path::new("/").join(inside).join(name);
        self.entries.insert(entry.clone());
        Ok(entry)
    }

    fn open_beside_loader(&mut self, name: &str, entry: PathBuf) {
        let loaders = self.opened.iter().filter(|(path, _)| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("ld-") || name.starts_with("ld.so") || name.starts_with("ld64.so")
        });
        let directory = loaders
            .map(|(_, loader)| {
                let end = fs::canonicalize(self.on_host(loader)).unwrap_or_else(|_| loader.clone());
                let inside = end.strip_prefix(&self.root).unwrap_or(&end);
                Path::new("/").join(inside.parent().unwrap_or(Path::new("")))
            })
            .next();
        if let Some(directory) = directory {
            self.opened.insert(directory.join(name), entry);
        }
    }

    fn on_host(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Copies of all files and links, under their own paths.
    pub(crate) fn copies(&self, attributes: Attributes) -> Result<Copies, PlanError> {
        let files = self.entries.iter().map(|entry| {
            let inside = entry.strip_prefix("/").unwrap_or(entry);
            (self.on_host(entry), inside.to_owned())
        });
        let from = format!("of {}", self.programs);
        Copies::of_files("shared-libs", from, files, attributes)
    }

    /// Adds the tree of copies to a root whose own links may lead elsewhere than the host's.
    pub(crate) fn add_to(
        &self,
        tree: &str,
        dest: &str,
        owners: Owners,
        trees: &TreeStore,
        stack: &mut Stack,
    ) -> Result<(), PlanError> {
        let dest = dest.trim_end_matches('/');
        for directory in self.directories() {
            let inside = PlanError::utf8(&directory)?;
            let source = Source {
                path: format!("{tree}{inside}"),
                owners,
                known_as: PlanError::utf8(&self.on_host(&directory))?,
                why: format!("a layer: libraries of {}", self.programs),
            };
            stack.add_dir(&source, &format!("{dest}{inside}"), trees)?;
        }
        for (path, entry) in &self.opened {
            let ours = Ours { tree, dest, owners };
            self.add_way(path, entry, &ours, trees, stack)?;
        }
        Ok(())
    }

    /// The directories of the entries, without those below another one.
    fn directories(&self) -> Vec<PathBuf> {
        let mut directories: Vec<PathBuf> = self
            .entries
            .iter()
            .filter_map(|entry| entry.parent().map(Path::to_owned))
            .collect();
        directories.sort();
        directories.dedup_by(|below, above| below.starts_with(above));
        directories
    }

    /// Sees to it that a path that the loader opens shows what we brought: first by the link that the host
    /// has on the way, where nothing is in its place, else by a link of our own.
    fn add_way(
        &self,
        path: &Path,
        entry: &Path,
        ours: &Ours<'_>,
        trees: &TreeStore,
        stack: &mut Stack,
    ) -> Result<(), PlanError> {
        let &Ours { tree, dest, owners } = ours;
        let wanted = format!("{dest}{}", PlanError::utf8(path)?);
        let is_there = |stack: &Stack| {
            let found = stack.resolve(&wanted).map(|resolved| resolved.found);
            matches!(found, Ok(Found::File(file)) if file.starts_with(tree))
        };
        if is_there(stack) {
            return Ok(());
        }
        if let Some((link, target)) = self.first_link(path) {
            let place = format!("{dest}{}", PlanError::utf8(&link)?);
            let (above, name) = place.rsplit_once('/').unwrap_or(("", &place));
            let above = if above.is_empty() { "/" } else { above };
            if stack.look_at(above, name)? == Found::Nothing {
                placed::add_one(&place, Placed::Link(target), owners, trees, stack)?;
                if is_there(stack) {
                    return Ok(());
                }
            }
        }
        let target = Placed::Link(format!("{dest}{}", PlanError::utf8(entry)?));
        placed::add_one(&wanted, target, owners, trees, stack)
    }

    /// The first directory on a path that is a link on the host.
    fn first_link(&self, path: &Path) -> Option<(PathBuf, String)> {
        let mut at = PathBuf::from("/");
        for part in path.parent()?.components() {
            let Component::Normal(name) = part else {
                continue;
            };
            at.push(name);
            if let Ok(target) = fs::read_link(self.on_host(&at)) {
                return Some((at, target.to_str()?.to_owned()));
            }
        }
        None
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
