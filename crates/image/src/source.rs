//! Paths of the host that a spec names.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidemill_core::root::Owners;

use crate::host_view::HostView;
use crate::plan::PlanError;

/// A path without symbolic links, and what is there.
pub(crate) fn canonical(path: &str, what: &'static str) -> Result<(String, Metadata), PlanError> {
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
    let real = fs::canonicalize(path).map_err(failed)?;
    let metadata = fs::metadata(&real).map_err(failed)?;
    if what != "workspace" && is_kernels(&real).map_err(failed)? {
        return Err(failed(io::Error::other(
            "this is a view into the kernel and all its processes, not a directory of files",
        )));
    }
    Ok((PlanError::utf8(&real)?, metadata))
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
    if !metadata.is_dir() {
        let path = path.to_owned();
        return Err(PlanError::WrongKind {
            what,
            path,
            wanted: "directory",
        });
    }
    fs::read_dir(&real).map_err(|source| PlanError::Source {
        what,
        path: path.to_owned(),
        source,
    })?;
    Ok((real, metadata))
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
    host: &HostView,
    what: &'static str,
) -> Result<(), PlanError> {
    let Some(state_dir) = state_dir(host) else {
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
    let dir = host.state_dir.as_deref()?;
    let real = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    Some(real.to_string_lossy().into_owned())
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
