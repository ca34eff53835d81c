//! What a layer makes out of nothing: empty files, directories and symbolic links.
//!
//! Each entry goes to where its path leads in the root as it is at that moment. Directories that are there
//! keep their owners and modes: the tiny trees with the new entries are laid over the deepest of them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown, symlink};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use tidemill_core::braces::expand;
use tidemill_core::check::ENTRIES_MAX;
use tidemill_core::root::Owners;
use tidemill_core::{Attributes, Digest};

use crate::host_view::HostView;
use crate::layer::whole;
use crate::layer_fault::LayerFault;
use crate::overlay::{Found, names};
use crate::plan::PlanError;
use crate::stack::{MADE_BY_SANDBOX, Source, Stack, TEMPORARY};
use crate::tree_store::{TreeNote, TreeStore, TreeStoreError};

/// What trees are said to be that only make places for others.
pub(crate) const PLACES: &str = "places to mount on";
/// What the descriptions of trees with empty files and of trees with links begin with.
const STUBS: &str = "stubs ";
const LINKS: &str = "symlinks ";
/// Entries of a tree that its description names.
const DESCRIBED_MAX: usize = 3;

/// True for what a tree was made of, if that is nothing: it has but empty files, directories and links that a
/// job's root needs.
pub fn is_helper(from: &str) -> bool {
    from == PLACES || [STUBS, LINKS].iter().any(|kind| from.starts_with(kind))
}

/// Something that is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placed {
    /// An empty directory.
    Dir,
    /// An empty file.
    File,
    /// A symbolic link to this.
    Link(String),
}

/// Adds empty files and directories.
pub(crate) fn add_stubs(
    patterns: &[String],
    attributes: &Attributes,
    host: &HostView,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    let mut entries = Vec::new();
    for pattern in patterns {
        let paths = expand(pattern, ENTRIES_MAX).map_err(|source| LayerFault::Braces {
            pattern: pattern.clone(),
            source,
        })?;
        entries.extend(paths.into_iter().map(|path| {
            let what = if path.ends_with('/') {
                Placed::Dir
            } else {
                Placed::File
            };
            (path, what)
        }));
    }
    add(entries, attributes, whole(host), trees, stack)
}

/// Adds symbolic links.
pub(crate) fn add_links(
    links: &BTreeMap<String, String>,
    host: &HostView,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    let entries = links
        .iter()
        .map(|(path, target)| (path.clone(), Placed::Link(target.clone())));
    add(entries, &Attributes::default(), whole(host), trees, stack)
}

/// Adds one entry, with the owners that trees of this process have.
pub(crate) fn add_one(
    path: &str,
    what: Placed,
    owners: Owners,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    let entries = [(path.to_owned(), what)];
    add(entries, &Attributes::default(), owners, trees, stack)
}

/// Adds entries, those with the shorter paths first.
fn add(
    entries: impl IntoIterator<Item = (String, Placed)>,
    attributes: &Attributes,
    owners: Owners,
    trees: &TreeStore,
    stack: &mut Stack,
) -> Result<(), PlanError> {
    // By the directory that is there, then by what is missing below it.
    let mut groups: BTreeMap<String, BTreeMap<String, Placed>> = BTreeMap::new();
    for (path, what) in entries {
        let Some((at, rest)) = find_place(&path, &what, stack)? else {
            continue;
        };
        groups.entry(at).or_default().insert(rest, what);
    }
    for (at, entries) in groups {
        if let Some(first) = entries.keys().next()
            && TEMPORARY.contains(&at.as_str())
        {
            return Err(PlanError::Layer(LayerFault::InTemporary {
                path: format!("{at}/{first}"),
                dir: at,
            }));
        }
        refuse_below_files(&at, &entries)?;
        let tree = Made {
            at: &at,
            entries: &entries,
            attributes,
        };
        let source = Source {
            path: tree.build(trees)?,
            owners,
            known_as: "a layer".to_owned(),
            why: "made by a layer".to_owned(),
        };
        stack.lay_dir(&source, &at, trees)?;
    }
    Ok(())
}

/// Refuses an entry that would lie in one that is no directory.
fn refuse_below_files(at: &str, entries: &BTreeMap<String, Placed>) -> Result<(), PlanError> {
    for path in entries.keys() {
        let above = path.match_indices('/').map(|(index, _)| &path[..index]);
        for above in above {
            if entries.get(above).is_some_and(|what| *what != Placed::Dir) {
                let whole = |path: &str| format!("{}/{path}", at.trim_end_matches('/'));
                return Err(PlanError::Layer(LayerFault::BelowFile {
                    path: whole(path),
                    above: whole(above),
                }));
            }
        }
    }
    Ok(())
}

/// The deepest directory on the way that is there, and the path from it on. `None` if there is nothing
/// to do.
fn find_place(
    path: &str,
    what: &Placed,
    stack: &Stack,
) -> Result<Option<(String, String)>, PlanError> {
    let mut todo: Vec<&str> = names(path).collect();
    let Some(last) = todo.pop() else {
        return Ok(None);
    };
    let parent = stack.resolve(&format!("/{}", todo.join("/")))?;
    let mut missing = vec![last.to_owned()];
    let place = parent.path.clone();
    let mut at = parent.path;
    let mut found = parent.found;
    // A directory that is only made because something lies below it is no place to mount on: that would
    // cover what lies there.
    let is_missing = |found: &Found, at: &str| match found {
        Found::Nothing => true,
        Found::Dir(lower) => lower.is_empty() && at != "/" && !MADE_BY_SANDBOX.contains(&at),
        Found::Link(_) | Found::File(_) => false,
    };
    while is_missing(&found, &at) {
        let (above, name) = at.rsplit_once('/').unwrap_or(("", &at));
        missing.push(name.to_owned());
        at = if above.is_empty() { "/" } else { above }.to_owned();
        found = stack.resolve(&at)?.found;
    }
    if !matches!(found, Found::Dir(_)) {
        return Err(PlanError::NotADirectory {
            path: at,
            rest: missing.pop().unwrap_or_default(),
        });
    }
    let is_dir = |found: &Found| matches!(found, Found::Dir(_));
    let here = stack.look_at(&place, last)?;
    match what {
        Placed::Dir if is_dir(&stack.resolve(path)?.found) => return Ok(None),
        Placed::Dir if here != Found::Nothing => {
            return Err(PlanError::Layer(LayerFault::IsFile {
                path: path.to_owned(),
            }));
        }
        Placed::File | Placed::Link(_) if is_dir(&here) => {
            return Err(PlanError::Layer(LayerFault::IsDir {
                path: path.to_owned(),
                is_link: matches!(what, Placed::Link(_)),
            }));
        }
        Placed::Dir | Placed::File | Placed::Link(_) => {}
    }
    missing.reverse();
    Ok(Some((at, missing.join("/"))))
}

/// A tree of such entries.
struct Made<'a> {
    /// Where it goes, for people: the tree is the same wherever it goes.
    at: &'a str,
    entries: &'a BTreeMap<String, Placed>,
    attributes: &'a Attributes,
}

impl Made<'_> {
    /// Builds it, or finds the one that was built before.
    fn build(&self, trees: &TreeStore) -> Result<String, PlanError> {
        let name = format!(
            "placed 1 {:?} {:?} {:?}",
            trees.owners(),
            self.attributes,
            self.entries
        );
        let root = trees.get_or_build(&Digest::of(name.as_bytes()), |root| {
            self.fill(root).map_err(|source| TreeStoreError::Store {
                step: "make what a layer asks for in",
                path: root.to_owned(),
                source,
            })?;
            Ok::<_, TreeStoreError>(TreeNote {
                from: self.describe(),
                entries: self.entries.len() as u64,
                ..TreeNote::default()
            })
        });
        PlanError::utf8(&root.map_err(PlanError::Trees)?)
    }

    /// What it is, for people.
    fn describe(&self) -> String {
        let at = self.at.trim_end_matches('/');
        let shown = |(path, what): (&String, &Placed)| match what {
            Placed::Dir => format!("{at}/{path}/"),
            Placed::File => format!("{at}/{path}"),
            Placed::Link(target) => format!("{at}/{path} -> {target}"),
        };
        let first: Vec<String> = self.entries.iter().take(DESCRIBED_MAX).map(shown).collect();
        let is_link = |what: &Placed| matches!(what, Placed::Link(_));
        let kind = if self.entries.values().all(is_link) {
            LINKS
        } else {
            STUBS
        };
        let more = match self.entries.len() - first.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{kind}{}{more}", first.join(", "))
    }

    fn fill(&self, root: &Path) -> io::Result<()> {
        let mut made = vec![(root.to_owned(), None)];
        for (path, what) in self.entries {
            let mut at = root.to_owned();
            let mut rest = names(path).peekable();
            while let Some(name) = rest.next() {
                at.push(name);
                if rest.peek().is_some() || *what == Placed::Dir {
                    let was_there = at.is_dir();
                    if !was_there {
                        fs::DirBuilder::new().mode(0o700).create(&at)?;
                        made.push((at.clone(), None));
                    }
                    continue;
                }
                match what {
                    Placed::Link(target) => symlink(target, &at)?,
                    Placed::File | Placed::Dir => drop(File::create_new(&at)?),
                }
                made.push((at.clone(), Some(what)));
            }
        }
        for (path, what) in made.iter().rev() {
            self.dress(path, *what)?;
        }
        // It stands for a directory that is there, and whoever stacks the trees has to look into it.
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))
    }

    /// Gives an entry its owner, mode and time; without a kind, a directory.
    fn dress(&self, path: &Path, what: Option<&Placed>) -> io::Result<()> {
        let attributes = self.attributes;
        if let Some(owner) = attributes.owner
            && rustix::process::geteuid().is_root()
        {
            lchown(path, Some(owner.uid), Some(owner.gid))?;
        }
        let mode = match what {
            None => Some(attributes.mode.map_or(0o755, |rule| rule.of_dir())),
            Some(Placed::Link(_)) => None,
            Some(_) => Some(attributes.mode.map_or(0o644, |rule| rule.of_file(0o644))),
        };
        if let Some(mode) = mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        let time = Timespec {
            tv_sec: attributes.mtime.unwrap_or(0),
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An image with some directories, a file and links.
    fn image(at: &Path) -> Source {
        for dir in ["a", "a/a", "b"] {
            fs::create_dir(at.join(dir)).unwrap();
            fs::set_permissions(at.join(dir), fs::Permissions::from_mode(0o711)).unwrap();
        }
        fs::write(at.join("a/f"), "").unwrap();
        symlink("a", at.join("l")).unwrap();
        symlink("/b/gone", at.join("a/g")).unwrap();
        Source {
            path: at.to_str().unwrap().to_owned(),
            owners: Owners::AsIs,
            known_as: "an image".to_owned(),
            why: "a test".to_owned(),
        }
    }

    fn entry() -> impl Strategy<Value = (String, Placed)> {
        let names =
            prop::collection::vec(prop::sample::select(vec!["a", "b", "f", "g", "l"]), 1..4);
        let what = prop_oneof![
            Just(Placed::Dir),
            Just(Placed::File),
            Just(Placed::Link("/b".to_owned())),
        ];
        (names, what).prop_map(|(names, what)| (format!("/{}", names.join("/")), what))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_was_made_is_there_and_directories_stay_as_they_are(
            entries in prop::collection::vec(entry(), 1..6)
        ) {
            let base = tempfile::tempdir().unwrap();
            let at = fs::canonicalize(base.path()).unwrap().join("image");
            fs::create_dir(&at).unwrap();
            let trees = TreeStore::open(base.path().join("trees")).unwrap();
            let mut stack = Stack::new(true);
            stack.add_image_tree(&image(&at));
            let attributes = Attributes::default();
            for (path, what) in &entries {
                let one = [(path.clone(), what.clone())];
                if let Err(error) = add(one, &attributes, Owners::AsIs, &trees, &mut stack) {
                    prop_assert!(!error.hint().is_empty());
                    continue;
                }
                let (above, name) = path.rsplit_once('/').unwrap();
                let above = if above.is_empty() { "/" } else { above };
                let parent = stack.resolve(above).unwrap().path;
                let found = stack.look_at(&parent, name).unwrap();
                let is_there = match what {
                    Placed::Dir => matches!(found, Found::Dir(_)) || stack.resolve(path).is_ok(),
                    Placed::File => matches!(found, Found::File(_)),
                    Placed::Link(target) => found == Found::Link(target.clone()),
                };
                prop_assert!(is_there, "{path} {what:?}: {found:?}");
            }
            // What is overlaid shows the attributes of its top, which has to be as the image's own.
            for mount in &stack.mounts {
                let lowest = fs::symlink_metadata(&mount.source).unwrap();
                let is_of_image = Path::new(&mount.source).starts_with(&at);
                prop_assert!(!is_of_image || lowest.permissions().mode() & 0o777 == 0o711);
            }
        }
    }

    #[test]
    fn nothing_lies_in_a_file_of_the_same_layer() {
        let base = tempfile::tempdir().unwrap();
        let trees = TreeStore::open(base.path().join("trees")).unwrap();
        let entries = ["/x", "/x/y"].map(|path| (path.to_owned(), Placed::File));
        let mut stack = Stack::new(true);
        let error = add(
            entries,
            &Attributes::default(),
            Owners::AsIs,
            &trees,
            &mut stack,
        );
        let error = error.unwrap_err();
        assert!(
            error.to_string().contains("`/x/y` cannot lie in `/x`"),
            "{error}"
        );
        assert!(error.hint().contains("write /x/"), "{}", error.hint());
    }
}
