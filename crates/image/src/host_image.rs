//! The `host` image: the host's own programs and libraries, without its secrets.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidemill_core::grant::PathAccess;
use tidemill_core::job::{Image, JobSpec, Network};
use tidemill_core::root::{Node, Owners, RootMount};

use crate::host_view::HostView;
use crate::plan::{HOSTNAME, PlanError, dir_node};
use crate::secret;
use crate::stack::Stack;

/// Top-level directories with programs and libraries. On most hosts they are links into `/usr`.
const PROGRAMS: &[&str] = &[
    "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec",
];

/// What else of the host is there, read-only, if it exists.
const EXTRA: &[(&str, &str)] = &[
    ("/opt", "software outside of the package manager"),
    ("/nix/store", "the store that programs are linked to"),
    ("/gnu/store", "the store that programs are linked to"),
    ("/var/lib/dpkg", "which packages are installed"),
    ("/var/lib/rpm", "which packages are installed"),
    ("/var/lib/pacman/local", "which packages are installed"),
    (
        "/var/lib/ca-certificates",
        "certificate authorities, which /etc/ssl links to",
    ),
    ("/var/lib/texmf", "formats and fonts of TeX"),
    ("/var/lib/gems", "Ruby packages of the system"),
    ("/var/lib/ghc", "Haskell packages of the system"),
];

/// Parts of `/usr` that are often file systems of their own, which the mount of `/usr` may lack.
const USR_PARTS: &[&str] = &["/usr/local", "/usr/lib", "/usr/share", "/usr/src"];

/// Empty directories that programs expect.
const DIRS: &[(&str, u32)] = &[
    ("/var", 0o755),
    ("/var/cache", 0o755),
    ("/var/lib", 0o755),
    ("/var/local", 0o755),
    ("/var/log", 0o755),
    ("/var/opt", 0o755),
    ("/var/spool", 0o755),
    ("/run", 0o755),
    ("/run/lock", 0o1777),
    ("/home", 0o755),
    ("/root", 0o755),
    ("/mnt", 0o755),
    ("/media", 0o755),
    ("/srv", 0o755),
];

/// Puts the host's programs, libraries and settings into a root.
pub(crate) fn add(host: &HostView, stack: &mut Stack) -> Result<(), PlanError> {
    for (path, mode) in DIRS {
        stack.add_node(dir_node(path, *mode));
    }
    for (path, target) in [("/var/run", "/run"), ("/var/lock", "/run/lock")] {
        stack.add_node(Node::Symlink {
            path: path.to_owned(),
            target: target.to_owned(),
        });
    }
    add_shared(host, stack, "/usr", "the host's programs and libraries")?;
    let usr_device = fs::metadata(host.system("/usr")).map(|usr| usr.dev()).ok();
    for path in USR_PARTS {
        let part = fs::symlink_metadata(host.system(path));
        if part.is_ok_and(|part| part.is_dir() && Some(part.dev()) != usr_device) {
            add_shared(
                host,
                stack,
                path,
                "a part of /usr on a file system of its own",
            )?;
        }
    }
    for path in PROGRAMS {
        add_shared(host, stack, path, "the host's programs and libraries")?;
    }
    for (path, why) in EXTRA {
        add_shared(host, stack, path, why)?;
    }
    add_system_profile(host, stack);
    add_settings(host, stack)
}

/// Adds a directory of the host as it is: a link as a link, anything else as a mount.
fn add_shared(host: &HostView, stack: &mut Stack, path: &str, why: &str) -> Result<(), PlanError> {
    let on_host = host.system(path);
    let Ok(metadata) = fs::symlink_metadata(&on_host) else {
        return Ok(());
    };
    if metadata.is_symlink() {
        let target = fs::read_link(&on_host)
            .ok()
            .and_then(|to| to.to_str().map(str::to_owned));
        if let Some(target) = target
            && PROGRAMS.contains(&path)
        {
            stack.add_node(Node::Symlink {
                path: path.to_owned(),
                target,
            });
            return Ok(());
        }
    }
    let Ok(real) = fs::canonicalize(&on_host) else {
        return Ok(());
    };
    if !real.is_dir() {
        return Ok(());
    }
    stack.add_mount(RootMount {
        source: PlanError::utf8(&real)?,
        dest: path.to_owned(),
        over: Vec::new(),
        access: PathAccess::ReadOnly,
        owners: Owners::AsIs,
        hidden: Vec::new(),
        why: why.to_owned(),
    });
    Ok(())
}

/// NixOS and Guix link everything through this one link into the store.
fn add_system_profile(host: &HostView, stack: &mut Stack) {
    let path = "/run/current-system";
    if let Ok(target) = fs::read_link(host.system(path))
        && let Some(target) = target.to_str()
    {
        stack.add_node(Node::Symlink {
            path: path.to_owned(),
            target: target.to_owned(),
        });
    }
}

fn add_settings(host: &HostView, stack: &mut Stack) -> Result<(), PlanError> {
    let Ok(etc) = fs::canonicalize(host.system("/etc")) else {
        return Ok(());
    };
    stack.add_mount(RootMount {
        source: PlanError::utf8(&etc)?,
        dest: "/etc".to_owned(),
        over: Vec::new(),
        access: PathAccess::CopyOnWrite,
        owners: Owners::AsIs,
        hidden: secret::etc_secrets(&etc),
        why: "the host's settings, without its secrets".to_owned(),
    });
    Ok(())
}

/// The files that name hosts: the sandbox's own names, and the host's resolver where the job has the
/// host's network. An image of its own keeps what it has beside them.
pub(crate) fn network_files(spec: &JobSpec, host: &HostView) -> Vec<(&'static str, String)> {
    let shares_network = spec.network == Network::Host;
    let read = |path: &str| read_small(&host.system(path)).unwrap_or_default();
    let mut hosts = format!(
        "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t{HOSTNAME}\n"
    );
    if shares_network {
        hosts += &read("/etc/hosts");
    }
    let resolver = if shares_network {
        read("/etc/resolv.conf")
    } else {
        String::new()
    };
    let mut files = vec![("/etc/hosts", hosts), ("/etc/resolv.conf", resolver)];
    if spec.image != Image::None {
        files.push(("/etc/hostname", format!("{HOSTNAME}\n")));
    }
    files
}

/// The largest of these files that is passed on.
const NETWORK_FILE_BYTES_MAX: u64 = 1 << 20;

fn read_small(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > NETWORK_FILE_BYTES_MAX {
        return None;
    }
    fs::read_to_string(path).ok()
}
