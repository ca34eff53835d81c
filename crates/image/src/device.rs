//! Devices of the host that a job asks for.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat};
use tidemill_core::GrantRequest;
use tidemill_core::job::JobSpec;

use crate::host_view::HostView;
use crate::plan::PlanError;

/// Why a device cannot be given to a job.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It is not there, or something on the way to it is not.
    #[error("this host does not have it")]
    Missing(#[source] io::Error),
    /// It is no character device at this very path.
    #[error("it is not a character device of that name")]
    WrongKind,
    /// The caller may not use it.
    #[error("the user that runs Tidemill may not read and write it")]
    NotAllowed(#[source] io::Error),
    /// It is there, and nothing answers.
    #[error("it does not work on this host")]
    Dead(#[source] io::Error),
}

impl DeviceError {
    /// What to do next.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing(_) | Self::Dead(_) => {
                "load its driver, or leave the grant out; `tidemill doctor` says what this host has"
            }
            Self::WrongKind => "name the device itself, not a link to it",
            Self::NotAllowed(_) => {
                "let that user read and write it; mostly this means to join the group that owns it"
            }
        }
        .to_owned()
    }
}

/// The devices that a job asks for: each is there and can be used by the caller.
pub(crate) fn find(spec: &JobSpec, host: &HostView) -> Result<Vec<String>, PlanError> {
    let mut devices = BTreeSet::new();
    for grant in &spec.grants {
        let Some(path) = grant.device() else {
            continue;
        };
        let failed = |source| PlanError::Device {
            path: path.to_owned(),
            source,
        };
        let on_host = host.system(path);
        check(&on_host).map_err(failed)?;
        // Opening these has no effect, which is not so for every device.
        if matches!(grant, GrantRequest::Kvm | GrantRequest::Fuse) {
            let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
            rustix::fs::open(&on_host, flags, Mode::empty())
                .map_err(|error| failed(DeviceError::Dead(error.into())))?;
        }
        devices.insert(path.to_owned());
    }
    Ok(devices.into_iter().collect())
}

fn check(path: &Path) -> Result<(), DeviceError> {
    let real = fs::canonicalize(path).map_err(DeviceError::Missing)?;
    let metadata = fs::symlink_metadata(path).map_err(DeviceError::Missing)?;
    if real != path || !metadata.file_type().is_char_device() {
        return Err(DeviceError::WrongKind);
    }
    accessat(
        CWD,
        path,
        Access::READ_OK | Access::WRITE_OK,
        AtFlags::EACCESS,
    )
    .map_err(|error| DeviceError::NotAllowed(error.into()))
}
