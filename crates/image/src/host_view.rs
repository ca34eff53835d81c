//! What the planner may know of the caller and of the host.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use tidemill_core::job::{JobSpec, Workspace};

use crate::account::UserDatabase;
use crate::secret;

/// The caller, as far as a plan depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostView {
    /// Where the host's system directories are: `/`, or a directory that stands for it in tests.
    pub root: PathBuf,
    /// The caller's effective user id.
    pub uid: u32,
    /// The caller's effective group id.
    pub gid: u32,
    /// The caller's user name.
    pub name: String,
    /// The caller's home directory.
    pub home: PathBuf,
    /// The directory that the caller stands in, as the shell names it; absent if it is gone.
    pub cwd: Option<PathBuf>,
    /// The same directory as the kernel names it, without symbolic links.
    pub stands_in: Option<PathBuf>,
    /// The caller's environment.
    pub env: BTreeMap<OsString, OsString>,
    /// The state directory, which no job may see.
    pub state_dir: Option<PathBuf>,
    /// True if a workspace may contain the state directory (which is hidden in it then).
    pub allow_state_in_workspace: bool,
}

/// Why nothing can be said about the caller.
#[derive(Debug, thiserror::Error)]
pub enum HostViewError {
    /// The home directory is not known.
    #[error("the caller's home directory is not known: HOME is `{home}` and user {uid} has none")]
    NoHome {
        /// What HOME says.
        home: String,
        /// The caller's user id.
        uid: u32,
    },
}

impl HostView {
    /// The process that calls this, with this environment.
    pub fn current(
        env: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, HostViewError> {
        let env: BTreeMap<_, _> = env.into_iter().collect();
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let users = UserDatabase::read_host(Path::new("/"));
        let entry = users.by_uid(uid);
        let home = env
            .get(OsStr::new("HOME"))
            .map(PathBuf::from)
            .filter(|home| home.is_absolute())
            .or_else(|| entry.map(|entry| PathBuf::from(&entry.home)))
            .filter(|home| home.is_absolute())
            .ok_or_else(|| HostViewError::NoHome {
                home: env
                    .get(OsStr::new("HOME"))
                    .map_or_else(String::new, |home| home.to_string_lossy().into_owned()),
                uid,
            })?;
        let name = entry.map_or_else(
            || {
                ["USER", "LOGNAME"]
                    .iter()
                    .filter_map(|name| env.get(OsStr::new(name))?.to_str())
                    .find(|name| UserDatabase::is_name(name))
                    .unwrap_or("user")
                    .to_owned()
            },
            |entry| entry.name.clone(),
        );
        let stands_in = std::env::current_dir().ok();
        let cwd = stands_in
            .as_deref()
            .map(|real| shell_cwd(env.get(OsStr::new("PWD")), real));
        Ok(Self {
            root: PathBuf::from("/"),
            uid,
            gid,
            name,
            home,
            cwd,
            stands_in,
            env,
            state_dir: None,
            allow_state_in_workspace: false,
        })
    }

    /// The same view with a state directory that no job may see.
    #[must_use]
    pub fn with_state_dir(mut self, state_dir: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(state_dir.into());
        self
    }

    /// True if the caller is root.
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// The value of a variable of the caller, if it is set and UTF-8.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env.get(OsStr::new(name))?.to_str()
    }

    /// Where a system path (`/usr`, `/etc/passwd`) is on this host.
    pub fn system(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// The working directory as the shell names it: `PWD` if that is the same directory, because
/// people know it under this name, else what the kernel says.
fn shell_cwd(pwd: Option<&OsString>, real: &Path) -> PathBuf {
    pwd.map(PathBuf::from)
        .filter(|pwd| {
            pwd.is_absolute() && fs::canonicalize(pwd).is_ok_and(|canonical| canonical == real)
        })
        .unwrap_or_else(|| real.to_owned())
}

/// Why the directory that the caller stands in is not taken as the workspace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImplicitWorkspaceError {
    /// The directory is gone.
    #[error("the current directory does not exist any more")]
    Gone,
    /// Its name cannot be written in a spec.
    #[error("the current directory `{path}` has a name that is not UTF-8")]
    NotUtf8 {
        /// The name with replacement characters.
        path: String,
    },
    /// It holds more than a project.
    #[error("the current directory `{path}` is not taken as the workspace: it is {what}")]
    TooWide {
        /// The directory.
        path: String,
        /// What it is.
        what: &'static str,
    },
}

impl ImplicitWorkspaceError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Gone => "change to a directory that exists, or name one with `--workspace DIR`",
            Self::NotUtf8 { .. } => {
                "run it from a directory whose path is UTF-8, or with `--no-workspace`"
            }
            Self::TooWide { .. } => {
                "change to a project directory, name a directory with `--workspace DIR`, or run it \
                 with `--no-workspace`"
            }
        }
    }
}

/// Directories that are no project, with what is below them.
const NEVER_BELOW: &[(&str, &str)] = &[
    ("/proc", "the kernel's own"),
    ("/sys", "the kernel's own"),
    ("/dev", "for devices"),
    ("/run", "the host's run-time state"),
    ("/var/run", "the host's run-time state"),
    ("/boot", "the host's boot loader"),
    ("/etc", "the host's configuration"),
    ("/lost+found", "for repairs"),
];

/// Directories that are no project, while a directory below them may be one.
const NEVER_ITSELF: &[(&str, &str)] = &[
    ("/", "the whole host"),
    ("/home", "everybody's home"),
    ("/tmp", "shared by everybody"),
    ("/var/tmp", "shared by everybody"),
    ("/var", "the host's own state"),
    ("/usr", "the host's own programs"),
    ("/usr/local", "the host's own programs"),
    ("/opt", "the host's own programs"),
    ("/bin", "the host's own programs"),
    ("/usr/bin", "the host's own programs"),
    ("/sbin", "the host's own programs"),
    ("/usr/sbin", "the host's own programs"),
    ("/lib", "the host's own programs"),
    ("/usr/lib", "the host's own programs"),
    ("/mnt", "for mounts"),
    ("/media", "for mounts"),
];

/// The workspace of a job whose caller names none: the directory that the caller stands in, unless
/// that is plainly not a project.
pub fn implicit_workspace(host: &HostView) -> Result<Workspace, ImplicitWorkspaceError> {
    let cwd = host.cwd.as_deref().ok_or(ImplicitWorkspaceError::Gone)?;
    let real = fs::canonicalize(cwd).map_err(|_| ImplicitWorkspaceError::Gone)?;
    let path = cwd
        .to_str()
        .ok_or_else(|| ImplicitWorkspaceError::NotUtf8 {
            path: cwd.to_string_lossy().into_owned(),
        })?
        .to_owned();
    if let Some(what) = why_too_wide(&real, host) {
        return Err(ImplicitWorkspaceError::TooWide { path, what });
    }
    Ok(Workspace { path, write: false })
}

/// What a caller should know of a workspace that is written for real and is plainly no project.
pub fn written_workspace(spec: &JobSpec, host: &HostView) -> Option<String> {
    let workspace = spec
        .workspace
        .as_ref()
        .filter(|workspace| workspace.write)?;
    let real = fs::canonicalize(&workspace.path).ok()?;
    let what = why_too_wide(&real, host).or_else(|| {
        SYSTEM_BELOW
            .iter()
            .any(|path| real.starts_with(path))
            .then_some("a part of this machine's system")
    })?;
    Some(format!(
        "the job writes the real `{}`: {what}",
        real.display()
    ))
}

/// Whatever lies below these is the system's.
const SYSTEM_BELOW: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/var/lib"];

/// What a directory is that is no project, if that can be told from its path.
pub(crate) fn why_too_wide(real: &Path, host: &HostView) -> Option<&'static str> {
    let home = fs::canonicalize(&host.home).unwrap_or_else(|_| host.home.clone());
    if real == home {
        return Some("your home directory, with your keys and settings");
    }
    let itself = NEVER_ITSELF
        .iter()
        .find(|(path, _)| real == Path::new(path));
    let below = NEVER_BELOW.iter().find(|(path, _)| real.starts_with(path));
    if let Some((_, what)) = itself.or(below) {
        return Some(what);
    }
    if home.starts_with(real) {
        return Some("a directory that contains your home");
    }
    let in_home = real.strip_prefix(&home).ok()?;
    secret::home_secret_above(in_home).map(|_| "a place for credentials")
}
