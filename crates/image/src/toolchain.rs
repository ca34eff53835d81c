//! Tools of the caller that live outside of the system directories: found from PATH and from the
//! variables that name them, granted without their credentials.

use std::fs;
use std::path::{Component, Path, PathBuf};

use tidemill_core::Grant;
use tidemill_core::grant::PathAccess;
use tidemill_core::job::JobSpec;
use tidemill_core::root::{GeneratedFile, Node, RootMount};

use crate::host_view::HostView;
use crate::overlay::{Found, below};
use crate::plan::PlanError;
use crate::secret;
use crate::source::{owner, state_dir};
use crate::stack::Stack;
use crate::toolchain_table::{CACHES, MARKERS, TOOLCHAINS, Toolchain, VARIABLES, Variable};

/// Links of one PATH directory that are followed at most.
const LINKS_MAX: usize = 2048;
/// Single files that are granted because a link in a PATH directory leads to them, at most.
const FILES_MAX: usize = 64;

/// What the tools of the caller add to a plan beside mounts.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    /// Where programs are looked for, in order. Not all of it has to exist inside.
    pub(crate) path: Vec<String>,
    /// Variables that say where tools are.
    pub(crate) env: Vec<(String, String)>,
    /// Settings that are passed on in part.
    pub(crate) files: Vec<GeneratedFile>,
    /// Grants for what is no mount.
    pub(crate) notes: Vec<Grant>,
    /// True if cargo can build with what is downloaded.
    pub(crate) has_cargo: bool,
}

/// Grants the caller's tools.
pub(crate) fn add(spec: &JobSpec, host: &HostView, stack: &mut Stack) -> Result<Tools, PlanError> {
    let mut finder = Finder::new(spec, host, stack);
    finder.add_variables()?;
    finder.add_path()?;
    finder.add_virtual_environments()?;
    finder.add_caches()?;
    finder.pass_variables();
    Ok(finder.tools)
}

struct Finder<'a> {
    host: &'a HostView,
    stack: &'a mut Stack,
    tools: Tools,
    /// The caller's home without symbolic links.
    home: PathBuf,
    /// What the workspace shows anyway.
    workspace: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    /// Directories of PATH, as the caller has them.
    entries: Vec<PathBuf>,
    files: usize,
}

impl<'a> Finder<'a> {
    fn new(spec: &JobSpec, host: &'a HostView, stack: &'a mut Stack) -> Self {
        let entries = host
            .env
            .get(std::ffi::OsStr::new("PATH"))
            .map(|path| {
                std::env::split_paths(path)
                    .filter(|entry| entry.is_absolute())
                    .map(without_dots)
                    .collect()
            })
            .unwrap_or_default();
        let workspace = spec.workspace.as_ref().map(|workspace| {
            let named = PathBuf::from(&workspace.path);
            fs::canonicalize(&named).unwrap_or(named)
        });
        Self {
            host,
            stack,
            tools: Tools::default(),
            home: fs::canonicalize(&host.home).unwrap_or_else(|_| host.home.clone()),
            workspace,
            state_dir: state_dir(host).map(PathBuf::from),
            entries,
            files: 0,
        }
    }

    fn add_variables(&mut self) -> Result<(), PlanError> {
        for variable in VARIABLES {
            let Variable::Dir { name } = variable else {
                continue;
            };
            if let Some(dir) = self.variable_dir(name) {
                match *name {
                    "CARGO_HOME" => self.add_cargo(&dir)?,
                    "GOPATH" => self.add_table_entry("go", &dir)?,
                    "GOMODCACHE" => {
                        let why = "Go modules that are already downloaded";
                        self.mount(&dir, PathAccess::CopyOnWrite, why)?;
                    }
                    _ => self.grant(&dir)?,
                }
            }
        }
        Ok(())
    }

    fn variable_dir(&self, name: &str) -> Option<PathBuf> {
        let dir = without_dots(PathBuf::from(self.host.variable(name)?));
        (dir.is_absolute() && dir.is_dir()).then_some(dir)
    }

    fn add_path(&mut self) -> Result<(), PlanError> {
        for (index, entry) in self.entries.clone().into_iter().enumerate() {
            if self.entries[..index].contains(&entry) {
                continue;
            }
            if !self.on_host(&entry).is_dir() {
                continue;
            }
            if !self.is_visible(&entry) {
                if self.is_refused(&entry) {
                    continue;
                }
                self.grant(&entry)?;
            }
            let shown = if self.is_visible(&entry) {
                entry
            } else {
                // A link that is not there inside: what it leads to serves as well.
                let Ok(real) = fs::canonicalize(&entry) else {
                    continue;
                };
                if !self.is_visible(&real) {
                    self.grant(&real)?;
                }
                if !self.is_visible(&real) {
                    continue;
                }
                real
            };
            self.follow_links(&shown)?;
            if let Some(shown) = shown.to_str() {
                self.tools.path.push(shown.to_owned());
            }
        }
        Ok(())
    }

    /// Grants what the links in a directory of programs lead to. System directories are left out,
    /// except for the one in which people put links by hand.
    fn follow_links(&mut self, dir: &Path) -> Result<(), PlanError> {
        if self.is_system(dir) && dir != Path::new("/usr/local/bin") {
            return Ok(());
        }
        let Ok(entries) = fs::read_dir(self.on_host(dir)) else {
            return Ok(());
        };
        for entry in entries.flatten().take(LINKS_MAX) {
            if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                continue;
            }
            // A link to a neighbour leads nowhere new.
            let is_neighbour = fs::read_link(entry.path())
                .is_ok_and(|target| target.parent() == Some(Path::new("")));
            if !is_neighbour && let Ok(target) = fs::canonicalize(entry.path()) {
                self.grant_target(&target)?;
            }
        }
        Ok(())
    }

    /// Grants the tool that a program belongs to, or else the program alone.
    fn grant_target(&mut self, target: &Path) -> Result<(), PlanError> {
        if self.is_visible(target) || self.is_system(target) {
            return Ok(());
        }
        if let Some((tool, root)) = self.known_root(target) {
            return self.add_toolchain(tool, &root);
        }
        let marked = target.parent().and_then(|dir| self.marked_root(dir));
        if let Some(root) = marked {
            return self.mount(&root, PathAccess::ReadOnly, "a tool that PATH leads to");
        }
        if target.is_file() && self.files < FILES_MAX && !self.is_refused(target) {
            self.files += 1;
            return self.mount(target, PathAccess::ReadOnly, "a program that PATH leads to");
        }
        Ok(())
    }

    /// Python environments in the workspace lead to an interpreter elsewhere.
    fn add_virtual_environments(&mut self) -> Result<(), PlanError> {
        let Some(workspace) = self.workspace.clone() else {
            return Ok(());
        };
        for name in [".venv", "venv", "env"] {
            let python = workspace.join(name).join("bin/python");
            if let Ok(target) = fs::canonicalize(python) {
                self.grant_target(&target)?;
            }
        }
        Ok(())
    }

    fn add_caches(&mut self) -> Result<(), PlanError> {
        let cargo = self.host.home.join(".cargo");
        if !self.tools.has_cargo && cargo.is_dir() && self.has_program(&["cargo"]) {
            // The system's own cargo keeps its downloads in the same place.
            self.add_cargo(&cargo)?;
        }
        for cache in CACHES {
            let dir = self.host.home.join(cache.path);
            if dir.is_dir() && !self.is_visible(&dir) && self.has_program(cache.programs) {
                self.mount(&dir, PathAccess::CopyOnWrite, cache.why)?;
            }
        }
        Ok(())
    }

    fn has_program(&self, programs: &[&str]) -> bool {
        self.tools.path.iter().any(|dir| {
            let dir = self.on_host(Path::new(dir));
            programs.iter().any(|name| dir.join(name).exists())
        })
    }

    fn pass_variables(&mut self) {
        for variable in VARIABLES {
            let (name, is_dir) = match variable {
                Variable::Dir { name } => (name, true),
                Variable::Choice { name } => (name, false),
            };
            let Some(value) = self.host.variable(name) else {
                continue;
            };
            let plain = without_dots(PathBuf::from(value));
            let value = plain.to_str().filter(|_| is_dir).unwrap_or(value);
            let exists = || {
                let found = self.stack.resolve(value).map(|resolved| resolved.found);
                self.is_in_workspace(Path::new(value))
                    || found.is_ok_and(|found| found != Found::Nothing)
            };
            if !is_dir || (value.starts_with('/') && exists()) {
                self.tools.env.push(((*name).to_owned(), value.to_owned()));
            }
        }
    }

    /// Grants a directory that the caller has in PATH or in a variable.
    fn grant(&mut self, dir: &Path) -> Result<(), PlanError> {
        if self.is_visible(dir) || self.is_system(dir) {
            return Ok(());
        }
        if let Some((tool, root)) = self.known_root(dir) {
            return self.add_toolchain(tool, &root);
        }
        let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        if let Some(root) = self.marked_root(&real) {
            return self.mount(&root, PathAccess::ReadOnly, "a tool that PATH leads to");
        }
        let is_settings = self
            .in_home(&real)
            .is_some_and(|inside| secret::holds_home_secrets(&inside));
        if real == *dir && !is_settings && !self.is_refused(&real) {
            return self.mount(&real, PathAccess::ReadOnly, "a directory of PATH");
        }
        Ok(())
    }

    /// The tool of the table that a path of the home belongs to, and its directory.
    fn known_root(&self, path: &Path) -> Option<(&'static Toolchain, PathBuf)> {
        let inside = self.in_home(path)?;
        TOOLCHAINS
            .iter()
            .filter(|tool| inside.starts_with(tool.root))
            .max_by_key(|tool| tool.root.len())
            .map(|tool| (tool, self.host.home.join(tool.root)))
    }

    /// The directory above `bin` if it is plainly the whole of one tool.
    fn marked_root(&self, dir: &Path) -> Option<PathBuf> {
        let root = if dir.ends_with("bin") {
            dir.parent()?
        } else {
            dir
        };
        let is_tool = MARKERS.iter().any(|marker| root.join(marker).exists());
        (is_tool && !self.is_refused(root)).then(|| root.to_owned())
    }

    fn add_table_entry(&mut self, root: &str, dir: &Path) -> Result<(), PlanError> {
        match TOOLCHAINS.iter().find(|tool| tool.root == root) {
            Some(tool) => self.add_toolchain(tool, dir),
            None => Ok(()),
        }
    }

    fn add_toolchain(&mut self, tool: &Toolchain, root: &Path) -> Result<(), PlanError> {
        if tool.root == ".cargo" {
            return self.add_cargo(root);
        }
        if tool.parts.is_empty() {
            return self.mount(root, PathAccess::ReadOnly, tool.why);
        }
        for (part, access) in tool.parts {
            self.mount(&root.join(part), *access, tool.why)?;
        }
        Ok(())
    }

    /// Grants what cargo needs to build without a network, never its registry tokens. Its home is
    /// the job's own, because cargo takes locks there.
    fn add_cargo(&mut self, cargo: &Path) -> Result<(), PlanError> {
        if self.is_in_workspace(cargo) || self.is_refused(cargo) {
            return Ok(());
        }
        self.tools.has_cargo = true;
        let path = PlanError::utf8(cargo)?;
        self.own_way(&path);
        self.stack.add_node(Node::Dir {
            path,
            mode: 0o755,
            job_owned: true,
        });
        self.mount(&cargo.join("bin"), PathAccess::ReadOnly, "Rust's tools")?;
        for (part, why) in [
            ("registry", "crates that are already downloaded"),
            ("git", "crates from git that are already downloaded"),
        ] {
            self.mount(&cargo.join(part), PathAccess::CopyOnWrite, why)?;
        }
        for name in ["config.toml", "config"] {
            self.add_settings(&cargo.join(name), "cargo's settings")?;
        }
        let rustup = self
            .variable_dir("RUSTUP_HOME")
            .unwrap_or_else(|| self.host.home.join(".rustup"));
        self.mount(&rustup, PathAccess::ReadOnly, "Rust's compilers")
    }

    /// Passes a settings file on, without the lines that hold a token.
    fn add_settings(&mut self, file: &Path, why: &str) -> Result<(), PlanError> {
        if !file.is_file() {
            return Ok(());
        }
        if !secret::file_holds_secret(file) {
            return self.mount(file, PathAccess::ReadOnly, why);
        }
        let small = fs::metadata(file).is_ok_and(|file| file.len() <= secret::SETTINGS_BYTES_MAX);
        let Some(text) = small.then(|| fs::read_to_string(file).ok()).flatten() else {
            return Ok(());
        };
        let content: String = text
            .lines()
            .filter(|line| !secret::line_holds_secret(line))
            .flat_map(|line| [line, "\n"])
            .collect();
        let path = PlanError::utf8(file)?;
        self.tools.notes.push(Grant::Path {
            host: path.clone(),
            sandbox: path.clone(),
            access: PathAccess::ReadOnly,
            why: format!("{why}, without the lines that hold a password or token"),
        });
        self.tools.files.push(GeneratedFile { path, content });
        Ok(())
    }

    /// Mounts something of the caller's at its own path.
    fn mount(&mut self, path: &Path, access: PathAccess, why: &str) -> Result<(), PlanError> {
        let (Ok(real), Some(dest)) = (fs::canonicalize(path), path.to_str()) else {
            return Ok(());
        };
        let Ok(metadata) = fs::metadata(&real) else {
            return Ok(());
        };
        let is_refused = self.is_refused(path) || self.is_refused(&real);
        if self.is_mounted(dest) || self.is_in_workspace(path) || is_refused {
            return Ok(());
        }
        // The mount's place may not lead through a link of the root.
        if self.stack.resolve(dest)?.path != dest {
            return Ok(());
        }
        self.own_way(dest);
        let hidden = if metadata.is_dir() {
            self.hidden(path, &real)
        } else {
            Vec::new()
        };
        self.stack.add_mount(RootMount {
            source: PlanError::utf8(&real)?,
            dest: dest.to_owned(),
            over: Vec::new(),
            access,
            owners: owner(&metadata),
            hidden,
            why: why.to_owned(),
        });
        Ok(())
    }

    /// What to hide in a directory, whose place in the home may be a link to somewhere else.
    fn hidden(&self, path: &Path, real: &Path) -> Vec<String> {
        let mut hidden = Vec::new();
        for name in [path, real] {
            if let Some(inside) = self.in_home(name) {
                hidden.extend(secret::home_secrets_below(real, &inside));
            }
        }
        if self.known_root(path).is_none() {
            hidden.extend(secret::suspicious_entries(real));
        }
        hidden.sort();
        hidden.dedup();
        hidden
    }

    fn own_way(&mut self, path: &str) {
        for home in [self.host.home.clone(), self.home.clone()] {
            if let Some(home) = home.to_str() {
                self.stack.own_way(home, path);
            }
        }
    }

    /// The rest of a path in the caller's home.
    fn in_home(&self, path: &Path) -> Option<PathBuf> {
        [&self.host.home, &self.home]
            .into_iter()
            .find_map(|home| path.strip_prefix(home).ok())
            .map(Path::to_owned)
    }

    /// True for what is never granted because of a PATH: whatever holds the home or the state of
    /// jobs, is a place of credentials, or belongs to the kernel.
    fn is_refused(&self, path: &Path) -> bool {
        const NEVER: &[&str] = &[
            "/proc",
            "/sys",
            "/dev",
            "/run",
            "/boot",
            "/etc",
            "/var/run",
            "/lost+found",
        ];
        const NEVER_ITSELF: &[&str] = &[
            "/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/srv", "/mnt", "/media",
        ];
        let holds = |inner: &Path| inner.starts_with(path);
        holds(&self.home)
            || holds(&self.host.home)
            || self
                .state_dir
                .as_deref()
                .is_some_and(|state| holds(state) || path.starts_with(state))
            || NEVER.iter().any(|never| path.starts_with(never))
            || NEVER_ITSELF.iter().any(|never| path == Path::new(never))
            || self
                .in_home(path)
                .is_some_and(|inside| secret::home_secret_above(&inside).is_some())
    }

    fn is_in_workspace(&self, path: &Path) -> bool {
        self.workspace
            .as_deref()
            .is_some_and(|workspace| path.starts_with(workspace))
    }

    fn is_mounted(&self, dest: &str) -> bool {
        self.stack
            .mounts
            .iter()
            .any(|mount| mount.dest == dest || below(dest, &mount.dest).is_some())
    }

    /// True if the job sees a path already.
    fn is_visible(&self, path: &Path) -> bool {
        if self.is_in_workspace(path) {
            return true;
        }
        let Some(path) = path.to_str() else {
            return false;
        };
        match self.stack.resolve(path).map(|resolved| resolved.found) {
            Ok(Found::Dir(dirs)) => !dirs.is_empty(),
            Ok(Found::File(_)) => true,
            _ => false,
        }
    }

    /// Where a path is on this host: system directories may be elsewhere in tests.
    fn on_host(&self, path: &Path) -> PathBuf {
        match path.to_str() {
            Some(system) if self.is_system(path) => self.host.system(system),
            _ => path.to_owned(),
        }
    }

    /// True for what the system's own mounts cover.
    fn is_system(&self, path: &Path) -> bool {
        const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/etc"];
        SYSTEM.iter().any(|system| path.starts_with(system))
    }
}

/// The same place named without `..`, behind which a name says nothing about where it leads: what
/// begins like a path of the workspace need not be in it.
fn without_dots(path: PathBuf) -> PathBuf {
    let has_dots = path.components().any(|part| part == Component::ParentDir);
    if path.is_absolute() && has_dots {
        return fs::canonicalize(&path).unwrap_or(path);
    }
    path
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_name_with_dots_becomes_the_place_that_it_leads_to() {
        let base = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(base.path()).unwrap();
        for directory in ["work", "tools/bin"] {
            fs::create_dir_all(base.join(directory)).unwrap();
        }
        let named = base.join("work/../tools/bin");
        assert_eq!(without_dots(named), base.join("tools/bin"));
        for other in ["../tools", "/nowhere/../tools", "/usr/bin"].map(PathBuf::from) {
            assert_eq!(
                without_dots(other.clone()),
                other,
                "there is nothing to follow"
            );
        }
    }
}
