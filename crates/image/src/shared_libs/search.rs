//! Where the dynamic loader looks for a library, in its order.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use globset::Glob;

use crate::elf::{ElfFile, ElfMachine};
use crate::layer_fault::LayerFault;

/// Bytes of one file of the loader's configuration at most.
const CONFIGURATION_BYTES_MAX: u64 = 1 << 20;
/// Files that one configuration includes at most.
const INCLUDED_MAX: usize = 1000;

/// A program or library, and where it wants its libraries to be looked for.
pub(super) struct Object {
    /// Without links.
    pub(super) path: PathBuf,
    pub(super) file: ElfFile,
    /// The directories that whoever loads it wants searched too.
    inherited: Vec<String>,
}

/// A library that was found.
pub(super) struct Library {
    /// The path that the loader opens.
    pub(super) path: PathBuf,
    file: ElfFile,
    real: PathBuf,
    /// True if it was found because the host's configuration names its directory.
    pub(super) by_configuration: bool,
}

impl Object {
    pub(super) fn program(path: PathBuf, file: ElfFile) -> Self {
        Self {
            path,
            file,
            inherited: Vec::new(),
        }
    }

    /// The library as an object that may need further ones.
    pub(super) fn loads(&self, root: &Path, library: &Library) -> Result<Self, LayerFault> {
        let mut inherited = self.own_rpath(root);
        inherited.extend(self.inherited.iter().cloned());
        Ok(Self {
            path: library.real.clone(),
            file: library.file.clone(),
            inherited,
        })
    }

    /// Its own RPATH, which counts only without a RUNPATH.
    fn own_rpath(&self, root: &Path) -> Vec<String> {
        if self.file.runpath.is_some() {
            return Vec::new();
        }
        self.expanded(&self.file.rpath, root)
    }

    fn own_runpath(&self, root: &Path) -> Vec<String> {
        self.expanded(self.file.runpath.as_deref().unwrap_or_default(), root)
    }

    /// The directories with the names that stand for something replaced, as in ld.so(8).
    fn expanded(&self, directories: &[String], root: &Path) -> Vec<String> {
        let inside = self.path.strip_prefix(root).unwrap_or(&self.path);
        let origin = Path::new("/").join(inside);
        let origin = origin.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let mut expanded = Vec::new();
        for directory in directories {
            let directory = replaced(directory, "ORIGIN", &origin);
            let directory = replaced(&directory, "PLATFORM", "x86_64");
            let mut libs = vec!["lib64".to_owned(), "lib".to_owned()];
            if let Some(tuple) = self.file.machine.multiarch() {
                libs.insert(0, format!("lib/{tuple}"));
            }
            if replaced(&directory, "LIB", "") == directory {
                libs.truncate(1);
            }
            for lib in libs {
                expanded.push(replaced(&directory, "LIB", &lib));
            }
        }
        // Relative ones would depend on where the program is started.
        expanded.retain(|directory| directory.starts_with('/'));
        expanded
    }
}

/// The text with `$NAME` and `${NAME}` replaced.
fn replaced(text: &str, name: &str, value: &str) -> String {
    let text = text.replace(&format!("${{{name}}}"), value);
    let mut out = String::new();
    let mut rest = text.as_str();
    let wanted = format!("${name}");
    while let Some(at) = rest.find(&wanted) {
        let (before, behind) = rest.split_at(at);
        let behind = &behind[wanted.len()..];
        let is_whole = !behind.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        out.push_str(before);
        out.push_str(if is_whole { value } else { &wanted });
        rest = behind;
    }
    out + rest
}

/// How one program's libraries are looked for.
pub(super) struct Loader {
    root: PathBuf,
    machine: ElfMachine,
    is_musl: bool,
    configured: Vec<String>,
    standard: Vec<String>,
}

impl Loader {
    pub(super) fn new(root: &Path, program: &ElfFile) -> Self {
        let interpreter = program.interpreter.as_deref().unwrap_or_default();
        let is_musl = interpreter.contains("/ld-musl-");
        let machine = program.machine;
        if is_musl {
            return Self {
                root: root.to_owned(),
                machine,
                is_musl,
                configured: musl_directories(root, interpreter),
                standard: Vec::new(),
            };
        }
        let mut standard = Vec::new();
        if let Some(tuple) = machine.multiarch() {
            standard.extend([format!("/lib/{tuple}"), format!("/usr/lib/{tuple}")]);
        }
        let wide = if machine.is_64 { "lib64" } else { "lib32" };
        for lib in [wide, "lib"] {
            standard.extend([format!("/{lib}"), format!("/usr/{lib}")]);
        }
        Self {
            root: root.to_owned(),
            machine,
            is_musl,
            configured: configured_directories(root),
            standard,
        }
    }

    /// True for the C library where it is the loader itself.
    pub(super) fn is_itself(&self, name: &str) -> bool {
        self.is_musl && (name.starts_with("libc.") || name.starts_with("ld-musl-"))
    }

    /// Finds a library that an object needs, or says where it was looked for.
    pub(super) fn find(&self, name: &str, object: &Object) -> Result<Library, Vec<String>> {
        if name.contains('/') {
            let found = self.look(Path::new(name), false);
            return found.ok_or_else(|| vec![name.to_owned()]);
        }
        let mut wanted = object.own_rpath(&self.root);
        if object.file.runpath.is_none() || self.is_musl {
            wanted.extend(object.inherited.iter().cloned());
        }
        wanted.extend(object.own_runpath(&self.root));
        let mut searched: Vec<String> = Vec::new();
        let configured = self.configured.iter().map(|directory| (directory, true));
        let standard = self.standard.iter().map(|directory| (directory, false));
        let directories = wanted
            .iter()
            .map(|directory| (directory, false))
            .chain(configured)
            .chain(standard);
        for (directory, is_configured) in directories {
            if searched.contains(directory) {
                continue;
            }
            // musl's own list comes along with its loader only if it is the standard one.
            let by_configuration = is_configured && !self.standard.contains(directory);
            let path = Path::new(directory).join(name);
            if let Some(library) = self.look(&path, by_configuration) {
                return Ok(library);
            }
            searched.push(directory.clone());
        }
        Err(searched)
    }

    /// Looks for a library of the same machine at a path.
    fn look(&self, path: &Path, by_configuration: bool) -> Option<Library> {
        let here = self.root.join(path.strip_prefix("/").ok()?);
        let real = fs::canonicalize(here).ok()?;
        let file = ElfFile::read(&real).ok()?;
        (file.machine == self.machine).then(|| Library {
            path: path.to_owned(),
            file,
            real,
            by_configuration,
        })
    }
}

/// What `/etc/ld.so.conf` names: directories, and patterns of further files.
fn configured_directories(root: &Path) -> Vec<String> {
    let mut directories = Vec::new();
    let mut seen = BTreeSet::new();
    let mut todo = vec![PathBuf::from("/etc/ld.so.conf")];
    while let Some(path) = todo.pop() {
        if !seen.insert(path.clone()) || seen.len() > INCLUDED_MAX {
            continue;
        }
        let mut included = Vec::new();
        for line in read(root, &path).lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if let Some(patterns) = line.strip_prefix("include ") {
                for pattern in patterns.split_whitespace() {
                    let above = path.parent().unwrap_or(Path::new("/"));
                    included.extend(files_like(root, &above.join(pattern)));
                }
                continue;
            }
            // A directory may have a kind behind it, which no loader of today reads.
            let directory = line.split('=').next().unwrap_or_default().trim_end();
            if directory.starts_with('/') {
                directories.push(directory.trim_end_matches('/').to_owned());
            }
        }
        todo.extend(included.into_iter().rev());
    }
    directories
}

/// The files whose last name fits a pattern, sorted.
fn files_like(root: &Path, pattern: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else {
        return Vec::new();
    };
    let Ok(matcher) = Glob::new(&name.to_string_lossy()).map(|glob| glob.compile_matcher()) else {
        return Vec::new();
    };
    let here = root.join(directory.strip_prefix("/").unwrap_or(directory));
    let entries = fs::read_dir(here).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.file_name())
        .filter(|name| matcher.is_match(name))
        .map(|name| directory.join(name))
        .collect();
    files.sort();
    files
}

/// musl reads `/etc/ld-musl-ARCH.path`, and without one looks into three directories.
fn musl_directories(root: &Path, interpreter: &str) -> Vec<String> {
    let name = Path::new(interpreter).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let stem = name.split(".so").next().unwrap_or_default();
    let text = read(root, Path::new(&format!("/etc/{stem}.path")));
    let named: Vec<String> = text
        .split([':', '\n'])
        .map(str::trim)
        .filter(|directory| directory.starts_with('/'))
        .map(str::to_owned)
        .collect();
    if named.is_empty() {
        return ["/lib", "/usr/local/lib", "/usr/lib"]
            .map(str::to_owned)
            .to_vec();
    }
    named
}

/// A small text file of the host, empty if there is none.
fn read(root: &Path, path: &Path) -> String {
    let path = root.join(path.strip_prefix("/").unwrap_or(path));
    let is_small = fs::metadata(&path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= CONFIGURATION_BYTES_MAX);
    if !is_small {
        return String::new();
    }
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_stand_for_something_are_whole_words() {
        assert_eq!(replaced("$ORIGIN/../lib", "ORIGIN", "/a"), "/a/../lib");
        assert_eq!(
            replaced("${ORIGIN}x:$ORIGINAL", "ORIGIN", "/a"),
            "/ax:$ORIGINAL"
        );
        assert_eq!(replaced("/$LIB/$LIBX", "LIB", "lib64"), "/lib64/$LIBX");
    }
}
