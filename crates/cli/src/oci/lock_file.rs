//! `tidemill.lock`: which digest each tag stands for, kept with a project so that its jobs run in the same
//! image tomorrow and on other machines.
//!
//! It is made by `image pull --lock`, and lies in the job's workspace. Where it is, jobs use what it has, and
//! change nothing in it; `image pull` renews its entries. JSON, sorted, one image after the other, so that
//! a change of one is a small change of the file.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidemill_core::JobSpec;
use tidemill_core::oci::OciDigest;
use tidemill_oci::Reference;

use crate::failure::{Failure, FailureKind};

/// The file's name.
pub(crate) const NAME: &str = "tidemill.lock";
/// The version of its format.
const VERSION: u32 = 1;
/// Bytes of it at most.
const BYTES_MAX: u64 = 1 << 20;

/// A lock file that is there, or is about to be.
#[derive(Debug)]
pub(crate) struct LockFile {
    path: PathBuf,
    images: BTreeMap<String, OciDigest>,
}

/// The file as it stands there.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u32,
    /// By reference, with everything that the defaults add.
    images: BTreeMap<String, OciDigest>,
}

impl LockFile {
    /// The lock file of a job: in its workspace, or where the caller stands if it has none.
    pub(crate) fn of(spec: &JobSpec) -> Result<Option<Self>, Failure> {
        match &spec.workspace {
            Some(workspace) => Self::read(Path::new(&workspace.path)),
            None => Self::here(),
        }
    }

    /// The lock file where the caller stands.
    pub(crate) fn here() -> Result<Option<Self>, Failure> {
        match env::current_dir() {
            Ok(directory) => Self::read(&directory),
            Err(_) => Ok(None),
        }
    }

    /// A new one where the caller stands.
    pub(crate) fn new_here() -> Result<Self, Failure> {
        let directory = env::current_dir().map_err(|error| {
            Failure::new(
                FailureKind::Usage,
                "the directory that you stand in cannot be used",
            )
            .because(&error)
        })?;
        Ok(Self {
            path: directory.join(NAME),
            images: BTreeMap::new(),
        })
    }

    fn read(directory: &Path) -> Result<Option<Self>, Failure> {
        let path = directory.join(NAME);
        let bytes = match read_bounded(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&path, "cannot be read").because(&error)),
        };
        let written: Written = serde_json::from_slice(&bytes)
            .map_err(|error| unusable(&path, "is not a lock file").because(&error))?;
        if written.version != VERSION {
            let what = format!("has version {}, and this is {VERSION}", written.version);
            return Err(unusable(&path, &what));
        }
        Ok(Some(Self {
            path,
            images: written.images,
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What a tag stands for.
    pub(crate) fn digest(&self, reference: &Reference) -> Option<&OciDigest> {
        self.images.get(&reference.to_string())
    }

    /// Says what a tag stands for.
    pub(crate) fn set(&mut self, reference: &Reference, digest: OciDigest) {
        self.images.insert(reference.to_string(), digest);
    }

    /// Writes it, whole or not at all.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        let written = Written {
            version: VERSION,
            images: self.images.clone(),
        };
        let mut text = serde_json::to_string_pretty(&written).expect("it has only text");
        text.push('\n');
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let replaced = tempfile::Builder::new()
            .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .tempfile_in(directory)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.persist(&self.path).map_err(|error| error.error)
            });
        replaced
            .map(drop)
            .map_err(|error| unusable(&self.path, "cannot be written").because(&error))
    }
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > BYTES_MAX {
        let why = "it is no regular file of less than 1 MiB";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    fs::read(path)
}

fn unusable(path: &Path, why: &str) -> Failure {
    Failure::new(FailureKind::Usage, format!("`{}` {why}", path.display())).hint(
        "remove it and make it again: tidemill image pull --lock REF, in the directory of the project",
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn digest(of: u8) -> OciDigest {
        OciDigest::from_bytes([of; 32])
    }

    #[test]
    fn reads_back_what_it_wrote_under_whole_names() {
        let directory = tempfile::tempdir().unwrap();
        assert!(LockFile::read(directory.path()).unwrap().is_none());
        let mut lock = LockFile {
            path: directory.path().join(NAME),
            images: BTreeMap::new(),
        };
        lock.set(&"debian:12".parse().unwrap(), digest(1));
        lock.set(&"localhost:5000/a".parse().unwrap(), digest(2));
        lock.write().unwrap();
        let again = LockFile::read(directory.path()).unwrap().unwrap();
        let whole = "docker.io/library/debian:12".parse().unwrap();
        assert_eq!(again.digest(&whole), Some(&digest(1)));
        assert_eq!(again.digest(&"debian:13".parse().unwrap()), None);
        let names = fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names, 1, "nothing beside the file");
    }

    #[test]
    fn what_is_no_lock_file_is_named() {
        for (text, why) in [
            ("{", "is not a lock file"),
            (
                r#"{"version":1,"images":{"a":"latest"}}"#,
                "is not a lock file",
            ),
            (r#"{"version":2,"images":{}}"#, "has version 2"),
            (
                r#"{"version":1,"images":{},"more":1}"#,
                "is not a lock file",
            ),
        ] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(NAME), text).unwrap();
            let failure = LockFile::read(directory.path()).unwrap_err();
            assert!(failure.message.contains(why), "{text}: {}", failure.message);
        }
    }
}
