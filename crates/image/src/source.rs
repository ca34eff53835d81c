//! Paths of the host that a spec names.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidemill_core::root::Owners;

use crate::followed::{Followed, follow, follow_from_cwd};
use crate::host_view::HostView;
use crate::plan::PlanError;

/// A path without symbolic links, and what is there.
pub(crate) fn canonical(path: &str, what: &'static str) -> Result<(String, Metadata), PlanError> {
    let Followed { path, metadata, .. } = walk(path, what, follow)?;
    Ok((PlanError::utf8(&path)?, metadata))
}

/// What the job may write for real, or not.
pub(crate) struct Wish<'a> {
    /// The path, as it was named.
    pub(crate) path: &'a str,
    /// What the spec calls it.
    pub(crate) what: &'static str,
    /// True if the job writes the host's own.
    pub(crate) write: bool,
    /// The flag that names it in its real name's place.
    pub(crate) flag: &'a dyn Fn(&str) -> String,
}

/// What of the host is granted under a name.
#[derive(Debug)]
pub(crate) struct Granted {
    /// The path without symbolic links.
    pub(crate) real: String,
    pub(crate) metadata: Metadata,
    /// The first symbolic link in the name that a job may have made, be it one by which the caller
    /// came to stand where they do.
    pub(crate) link: Option<String>,
}

/// A path that the job gets as it is on the host. It is not written through a symbolic link that
/// another job may have made: then whoever meant one directory would have another one changed.
pub(crate) fn granted(wish: &Wish<'_>, host: &HostView) -> Result<Granted, PlanError> {
    let &Wish {
        path, what, write, ..
    } = wish;
    let followed = walk(path, what, |path| follow_from_cwd(path, host))?;
    let real = PlanError::utf8(&followed.path)?;
    let first = |followed: &Followed| {
        let link = followed.planted.first()?;
        Some(link.to_string_lossy().into_owned())
    };
    if write && let Some(link) = first(&followed) {
        return Err(PlanError::WrittenLink {
            what,
            path: path.to_owned(),
            link,
            hint: format!("if that is meant, name it itself: {}", (wish.flag)(&real)),
            leads_to: real,
        });
    }
    Ok(Granted {
        real,
        metadata: followed.metadata,
        link: follow(Path::new(path)).ok().as_ref().and_then(first),
    })
}

fn walk(
    path: &str,
    what: &'static str,
    follow: impl Fn(&Path) -> io::Result<Followed>,
) -> Result<Followed, PlanError> {
    if !path.starts_with('/') {
        return Err(PlanError::NotAbsolute {
            what,
            path: path.to_owned(),
        });
    }
    let failed = |source| PlanError::Source {
        what,
        path: path.to_owned(),
        source,
    };
    let followed = follow(Path::new(path)).map_err(failed)?;
    if what != "workspace" && is_kernels(&followed.path).map_err(failed)? {
        return Err(failed(io::Error::other(
            "this is a view into the kernel and all its processes, not a directory of files",
        )));
    }
    Ok(followed)
}

/// True if a path lies on a file system through which the kernel shows or changes the host. A
/// workspace there is refused by its own rule.
pub(crate) fn is_kernels(path: &Path) -> io::Result<bool> {
    /// The magic numbers of statfs(2): proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs,
    /// configfs, bpf, devpts, efivarfs.
    const KERNEL: [u64; 11] = [
        0x9fa0,
        0x6265_6572,
        0x0027_e0eb,
        0x6367_7270,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0x6265_6570,
        0xcafe_4a11,
        0x1cd1,
        0xde5e_81e4,
    ];
    let kind = rustix::fs::statfs(path)?.f_type.cast_unsigned();
    Ok(KERNEL.contains(&kind))
}

/// The same for a directory that can be listed.
pub(crate) fn canonical_dir(
    path: &str,
    what: &'static str,
) -> Result<(String, Metadata), PlanError> {
    let (real, metadata) = canonical(path, what)?;
    check_listed(path, what, &real, &metadata)?;
    Ok((real, metadata))
}

/// Refuses what is no directory, or one that cannot be listed.
pub(crate) fn check_listed(
    path: &str,
    what: &'static str,
    real: &str,
    metadata: &Metadata,
) -> Result<(), PlanError> {
    if !metadata.is_dir() {
        let path = path.to_owned();
        return Err(PlanError::WrongKind {
            what,
            path,
            wanted: "directory",
        });
    }
    fs::read_dir(real).map_err(|source| PlanError::Source {
        what,
        path: path.to_owned(),
        source,
    })?;
    Ok(())
}

/// The same for a regular file.
pub(crate) fn canonical_file(
    path: &str,
    what: &'static str,
) -> Result<(String, Metadata), PlanError> {
    let (real, metadata) = canonical(path, what)?;
    if !metadata.is_file() {
        return Err(PlanError::WrongKind {
            what,
            path: path.to_owned(),
            wanted: "file",
        });
    }
    Ok((real, metadata))
}

/// The owner of a directory or file as the one whose files are the job's own.
pub(crate) fn owner(metadata: &Metadata) -> Owners {
    Owners::Job {
        uid: metadata.uid(),
        gid: metadata.gid(),
    }
}

/// Refuses a directory that would show the state of other jobs.
pub(crate) fn refuse_state(
    path: &str,
    state_dir: Option<&Path>,
    what: &'static str,
) -> Result<(), PlanError> {
    let Some(state_dir) = state_dir.map(real) else {
        return Ok(());
    };
    if Path::new(&state_dir).starts_with(path) {
        return Err(PlanError::HoldsState {
            what,
            path: path.to_owned(),
            state_dir,
        });
    }
    Ok(())
}

/// The state directory without symbolic links.
pub(crate) fn state_dir(host: &HostView) -> Option<String> {
    host.state_dir.as_deref().map(real)
}

fn real(dir: &Path) -> String {
    let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    real.to_string_lossy().into_owned()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_file_systems_are_no_source() {
        assert!(is_kernels(Path::new("/proc")).unwrap());
        let error = canonical("/proc/self", "layer").unwrap_err();
        assert!(matches!(error, PlanError::Source { .. }), "{error}");
        assert!(!is_kernels(Path::new("/")).unwrap());
    }
}
