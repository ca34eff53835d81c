//! Files that patterns match.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use tidemill_core::root::Owners;

use crate::layer::is_state;
use crate::layer_fault::LayerFault;
use crate::plan::PlanError;

/// Files and directories that one pattern looks at, at most.
pub const LOOKED_AT_MAX: usize = 1_000_000;

/// What of a directory a glob takes, and under which paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patterns<'a> {
    /// A file is in if one of these matches.
    pub(crate) include: &'a [String],
    /// What is left out all the same, directories with all that is in them.
    pub(crate) exclude: &'a [String],
    /// Leading directories that are taken off.
    pub(crate) strip: Option<&'a str>,
}

impl Patterns<'_> {
    /// What was looked for, for people.
    fn shown(&self) -> String {
        self.include.join("`, `")
    }
}

/// A file that a pattern matched, as it was at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Match {
    path: PathBuf,
    appears: PathBuf,
    is_link: bool,
    is_utf8: bool,
    uid: u32,
    gid: u32,
}

impl Match {
    /// The path relative to the pattern's directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path under which it appears.
    pub(crate) fn appears(&self) -> &Path {
        &self.appears
    }

    /// True for a regular file whose name can be written in a plan.
    pub(crate) const fn is_plain(&self) -> bool {
        !self.is_link && self.is_utf8
    }

    pub(crate) const fn owner(&self) -> Owners {
        Owners::Job {
            uid: self.uid,
            gid: self.gid,
        }
    }

    fn new(path: PathBuf, appears: PathBuf, metadata: &Metadata) -> Self {
        Self {
            is_utf8: path.to_str().is_some(),
            path,
            appears,
            is_link: metadata.is_symlink(),
            uid: metadata.uid(),
            gid: metadata.gid(),
        }
    }
}

/// Everything that tells one content of a file from another, short of reading it.
pub(crate) fn identity(metadata: &Metadata) -> String {
    format!(
        "{} {}.{}",
        content_identity(metadata),
        metadata.ctime(),
        metadata.ctime_nsec(),
    )
}

/// The same, but for the time of the last change, which another name of the file changes too.
pub(crate) fn content_identity(metadata: &Metadata) -> String {
    format!(
        "{} {} {} {} {}.{}",
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mode(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

/// The regular files and symbolic links below a directory that fit a pattern, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matches {
    base: String,
    pattern: String,
    owners: Owners,
    files: Vec<Match>,
}

impl Matches {
    /// Looks for files. Links are matched and never followed.
    pub(crate) fn find(
        base: String,
        patterns: &Patterns<'_>,
        owners: Owners,
        state_dir: Option<&Path>,
    ) -> Result<Self, PlanError> {
        let (include, exclude) = (compile(patterns.include)?, compile(patterns.exclude)?);
        let mut files = Vec::new();
        let mut looked_at = 0;
        let failed = |path: &Path, source| PlanError::Source {
            what: "glob's directory",
            path: path.to_string_lossy().into_owned(),
            source,
        };
        let mut todo = starts(&base, patterns.include);
        while let Some(relative) = todo.pop() {
            looked_at += 1;
            if looked_at > LOOKED_AT_MAX {
                return Err(PlanError::TooManyFiles {
                    pattern: patterns.shown(),
                    base,
                    max: LOOKED_AT_MAX,
                });
            }
            if is_left_out(&exclude, &relative) {
                continue;
            }
            let path = Path::new(&base).join(&relative);
            let metadata = match fs::symlink_metadata(&path) {
                // It went away while we looked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                other => other.map_err(|source| failed(&path, source))?,
            };
            if metadata.is_dir() {
                if is_state(&path, state_dir) {
                    continue;
                }
                for entry in fs::read_dir(&path).map_err(|source| failed(&path, source))? {
                    let entry = entry.map_err(|source| failed(&path, source))?;
                    todo.push(relative.join(entry.file_name()));
                }
            } else if (metadata.is_file() || metadata.is_symlink()) && include.is_match(&relative) {
                let appears = stripped(&relative, patterns)?;
                files.push(Match::new(relative, appears, &metadata));
            }
        }
        if files.is_empty() {
            return Err(PlanError::NoMatch {
                pattern: patterns.shown(),
                base,
            });
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Self {
            base,
            pattern: patterns.shown(),
            owners,
            files,
        })
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    pub(crate) const fn owners(&self) -> Owners {
        self.owners
    }

    pub(crate) fn files(&self) -> &[Match] {
        &self.files
    }
}

/// Opens a file without following a link that took its place, or that of a directory above it, and
/// without waiting for a FIFO.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?.into())
}

fn compile(patterns: &[String]) -> Result<GlobSet, PlanError> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(compile_one(pattern)?);
    }
    set.build().map_err(|source| PlanError::Pattern {
        pattern: patterns.join("`, `"),
        source,
    })
}

fn compile_one(pattern: &str) -> Result<Glob, PlanError> {
    GlobBuilder::new(&without_dots(pattern))
        .literal_separator(true)
        .backslash_escape(true)
        .build()
        .map_err(|source| PlanError::Pattern {
            pattern: pattern.to_owned(),
            source,
        })
}

/// True if a path or a directory above it is left out. Only the path itself is looked at: what is above
/// was looked at before.
fn is_left_out(exclude: &GlobSet, relative: &Path) -> bool {
    !relative.as_os_str().is_empty() && exclude.is_match(relative)
}

/// The path without the leading directories that are to be taken off.
fn stripped(relative: &Path, patterns: &Patterns<'_>) -> Result<PathBuf, PlanError> {
    let Some(strip) = patterns.strip else {
        return Ok(relative.to_owned());
    };
    match relative.strip_prefix(strip) {
        Ok(rest) if !rest.as_os_str().is_empty() => Ok(rest.to_owned()),
        _ => Err(PlanError::Layer(LayerFault::NotBelow {
            pattern: patterns.shown(),
            path: relative.to_string_lossy().into_owned(),
            strip: strip.to_owned(),
        })),
    }
}

/// Where to look: the plain beginnings of the patterns that are there, none of them below another one
/// and none behind a link. A pattern without wildcards begins with the one file that it names.
fn starts(base: &str, include: &[String]) -> Vec<PathBuf> {
    let mut starts: Vec<PathBuf> = include
        .iter()
        .map(|pattern| plain_start(pattern))
        .filter(|start| {
            let top = Path::new(base).join(start);
            let is_behind_link = top
                .ancestors()
                .skip(1)
                .take_while(|above| above.as_os_str().len() > base.len())
                .any(Path::is_symlink);
            !is_behind_link && fs::symlink_metadata(&top).is_ok()
        })
        .collect();
    starts.sort();
    starts.dedup_by(|below, above| below.starts_with(above));
    starts
}

/// The directories at the beginning of a pattern that have no wildcard: only there is looked.
fn plain_start(pattern: &str) -> PathBuf {
    let mut start = PathBuf::new();
    for name in without_dots(pattern).split('/') {
        if name.is_empty() || name.contains(['*', '?', '[', ']', '{', '}', '\\']) || name == ".." {
            break;
        }
        start.push(name);
    }
    start
}

/// The pattern without `.` as a name, which stands for the directory that it is in.
fn without_dots(pattern: &str) -> String {
    let names: Vec<&str> = pattern.split('/').filter(|name| *name != ".").collect();
    names.join("/")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn find(base: &Path, patterns: &Patterns<'_>) -> Result<Vec<String>, PlanError> {
        let owners = Owners::Job { uid: 0, gid: 0 };
        let base = base.to_str().unwrap().to_owned();
        let matches = Matches::find(base, patterns, owners, None)?;
        let paths = matches.files.iter().map(|file| file.appears.to_str());
        Ok(paths.map(|path| path.unwrap().to_owned()).collect())
    }

    fn found(base: &Path, pattern: &str) -> Vec<String> {
        let patterns = Patterns {
            include: &[pattern.to_owned()],
            exclude: &[],
            strip: None,
        };
        match find(base, &patterns) {
            Ok(files) => files,
            Err(PlanError::NoMatch { .. }) => Vec::new(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn several_patterns_take_in_leave_out_and_take_off() {
        let world = tempfile::tempdir().unwrap();
        for path in ["src/a.rs", "src/a.o", "src/gen/b.rs", "docs/c.md", "x.rs"] {
            let path = world.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let try_one = |include: &[&str], exclude: &[&str], strip| {
            let list = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
            let patterns = Patterns {
                include: &list(include),
                exclude: &list(exclude),
                strip,
            };
            find(world.path(), &patterns)
        };
        let all = try_one(&["src/**", "src/gen/*.rs", "docs/*"], &[], None).unwrap();
        assert_eq!(all, ["docs/c.md", "src/a.o", "src/a.rs", "src/gen/b.rs"]);
        // A directory is left out with all that is in it.
        let some = try_one(&["**"], &["**/*.o", "src/gen", "docs/**"], None).unwrap();
        assert_eq!(some, ["src/a.rs", "x.rs"]);
        let off = try_one(&["src/**/*.rs"], &[], Some("src")).unwrap();
        assert_eq!(off, ["a.rs", "gen/b.rs"]);
        let error = try_one(&["**/*.rs"], &[], Some("src")).unwrap_err();
        assert!(error.to_string().contains("`x.rs`"), "{error}");
        assert!(error.hint().contains("`src/`"), "{}", error.hint());
        let error = try_one(&["src/*"], &["**"], None).unwrap_err();
        assert!(matches!(error, PlanError::NoMatch { .. }), "{error}");
    }

    #[test]
    fn no_plain_beginning_leads_through_a_link() {
        let world = tempfile::tempdir().unwrap();
        let base = world.path().join("base");
        fs::create_dir_all(base.join("sub")).unwrap();
        fs::create_dir(world.path().join("other")).unwrap();
        fs::write(world.path().join("other/key"), "").unwrap();
        fs::write(base.join("sub/f"), "").unwrap();
        symlink("../other", base.join("out")).unwrap();
        for pattern in ["out/key", "out/./key", "out/./*", "out/*", "out/./**"] {
            assert_eq!(found(&base, pattern), [""; 0], "{pattern}");
        }
        assert_eq!(found(&base, "out"), ["out"]);
        for pattern in ["sub/f", "./sub/./f", "sub/./*", "././sub/*"] {
            assert_eq!(found(&base, pattern), ["sub/f"], "{pattern}");
        }
    }
}
