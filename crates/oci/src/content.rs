//! The directory of blobs, which is an OCI image layout.
//! <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>
//!
//! ```text
//! oci-layout            what the directory is
//! index.json            the names of images, see `names`
//! blobs/sha256/<hex>    a blob, whole and checked when it was written
//! partial/<hex>         a blob under way; held with flock by who writes it, else waiting to be resumed
//! partial/new-…         bytes whose digest is not known yet; held the same way, else a leftover
//! index.lock            held by who changes the names
//! lock                  held shared by who brings blobs that no name leads to yet
//! errands/<hex>         what one process does for all that want it, see `errand`
//! ```
//!
//! Any number of processes use it at once.

mod errand;
mod new_blob;
mod partial;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tidemill_blob::new_locked;
use tidemill_core::ByteSize;

pub use self::errand::{Errand, Look, Wanted};
pub use self::new_blob::{Committed, NewBlob};
pub use self::partial::{Begun, Partial};
use crate::digest::{Hasher, OciDigest, digest_of, from_hex};
use crate::manifest::Descriptor;

const LAYOUT: &str = "oci-layout";
const LAYOUT_TEXT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const BLOBS: &str = "blobs/sha256";
const PARTIAL: &str = "partial";
const LOCK: &str = "lock";
/// What names begin with of blobs whose digest is not known yet.
const NEW: &str = "new-";
/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 128 << 10;

/// The blobs of images in a directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Content {
    base: PathBuf,
}

/// A blob that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredBlob {
    /// Its digest.
    pub digest: OciDigest,
    /// Bytes on disk.
    pub size: u64,
    /// When it was stored, or used last if somebody [touched](Content::touch) it.
    pub used: SystemTime,
}

/// A blob of which a part is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialBlob {
    /// Its digest, once it is whole.
    pub digest: OciDigest,
    /// Bytes that are there.
    pub size: u64,
    /// When the last of them came.
    pub used: SystemTime,
}

/// As long as it lives, no blob is collected.
#[derive(Debug)]
pub struct Hold {
    /// Locked as long as it is open.
    _lock: File,
}

/// Why a blob could not be written, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The blob is not there.
    #[error("there is no blob {digest} in `{base}`")]
    Missing {
        /// Which blob.
        digest: OciDigest,
        /// The directory.
        base: PathBuf,
    },
    /// The bytes on disk are not those that the digest names.
    #[error("the blob {digest} is damaged on disk: its bytes have the digest {found}")]
    Damaged {
        /// Which blob.
        digest: OciDigest,
        /// The digest of the bytes that are there.
        found: OciDigest,
    },
    /// The blob is larger than what is read into memory.
    #[error("the blob {digest} has {size}, more than the {max} that are read of such a one")]
    TooLarge {
        /// Which blob.
        digest: OciDigest,
        /// Its size.
        size: ByteSize,
        /// The limit.
        max: ByteSize,
    },
    /// Bytes came that are not those that were announced.
    #[error("the bytes of {expected} have the digest {found}")]
    WrongDigest {
        /// The digest that was announced.
        expected: OciDigest,
        /// The digest of the bytes.
        found: OciDigest,
    },
    /// More or fewer bytes came than were announced.
    #[error("{digest} should have {expected} bytes, and {found} came")]
    WrongSize {
        /// Which blob.
        digest: OciDigest,
        /// What was announced.
        expected: u64,
        /// What came, or what would have been reached.
        found: u64,
    },
    /// The directory is something else.
    #[error("`{path}` is not an image layout of version 1")]
    NotALayout {
        /// The file that says so.
        path: PathBuf,
    },
    /// The disk or the quota is full.
    #[error("failed to {step} `{path}`: the disk is full")]
    Full {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The directory may not be written.
    #[error("failed to {step} `{path}`: it cannot be written")]
    ReadOnly {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Anything else that the file system refuses.
    #[error("failed to {step} `{path}`")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl ContentError {
    /// What to do next.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "pull or import the image again",
            Self::Damaged { .. } => "check the disk; remove the image and pull it again",
            Self::TooLarge { .. } => "name a container image",
            Self::WrongDigest { .. } | Self::WrongSize { .. } => {
                "the source is damaged or lies; try again, or push the image anew"
            }
            Self::NotALayout { .. } => "name another state directory, or move that one away",
            Self::Full { .. } => "make room on the disk of the state directory",
            Self::ReadOnly { .. } => {
                "make the state directory writable, or set TIDEMILL_STATE to one that is"
            }
            Self::Io { .. } => "look at the cause",
        }
    }

    /// Sorts an error of the file system.
    pub(crate) fn of(step: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => Self::Full { step, path, source },
            Some(Errno::ROFS | Errno::ACCESS | Errno::PERM) => {
                Self::ReadOnly { step, path, source }
            }
            _ => Self::Io { step, path, source },
        }
    }
}

/// Adds what was tried, and on what, to an error.
pub(crate) fn failed(
    step: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> ContentError + use<> {
    let path = path.to_owned();
    move |source| ContentError::of(step, &path, source)
}

impl Content {
    /// Opens the directory, which is made if missing (mode 0700).
    pub fn open(base: impl Into<PathBuf>) -> Result<Self, ContentError> {
        let content = Self { base: base.into() };
        make_dir(&content.base.join(BLOBS))?;
        make_dir(&content.partial_dir())?;
        let layout = content.base.join(LAYOUT);
        match fs::read_to_string(&layout) {
            Ok(text) if text.contains(r#""1."#) => Ok(content),
            Ok(_) => Err(ContentError::NotALayout { path: layout }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                content.replace(LAYOUT, LAYOUT_TEXT.as_bytes())?;
                Ok(content)
            }
            Err(error) => Err(ContentError::of("read", &layout, error)),
        }
    }

    /// The directory.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Where a blob is, if it is there.
    pub fn path(&self, digest: &OciDigest) -> PathBuf {
        self.base.join(BLOBS).join(digest.to_hex())
    }

    /// Whether a blob is there with the size that it should have. Its bytes were checked when they
    /// came; [`Content::verify`] checks them again.
    pub fn has(&self, descriptor: &Descriptor) -> Result<bool, ContentError> {
        Ok(self.size(&descriptor.digest)? == Some(descriptor.size))
    }

    /// The size of a blob on disk; `None` if it is not there.
    pub fn size(&self, digest: &OciDigest) -> Result<Option<u64>, ContentError> {
        let path = self.path(digest);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_file() => Ok(Some(metadata.len())),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(ContentError::of("look at", &path, error)),
        }
    }

    /// How many bytes of a blob are here: all, or those that have come of it.
    pub fn arrived(&self, descriptor: &Descriptor) -> Result<u64, ContentError> {
        if self.has(descriptor)? {
            return Ok(descriptor.size);
        }
        let path = self.partial_path(&descriptor.digest);
        match fs::symlink_metadata(&path) {
            Ok(part) => Ok(part.len().min(descriptor.size)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(ContentError::of("look at", &path, error)),
        }
    }

    /// Opens a blob for reading. Its bytes are not checked again.
    pub fn open_blob(&self, digest: &OciDigest) -> Result<File, ContentError> {
        let path = self.path(digest);
        match File::open(&path) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ContentError::Missing {
                digest: *digest,
                base: self.base.clone(),
            }),
            Err(error) => Err(ContentError::of("open", &path, error)),
        }
    }

    /// Reads a whole blob of at most `max` bytes, checked.
    pub fn read_small(&self, descriptor: &Descriptor, max: u64) -> Result<Vec<u8>, ContentError> {
        let digest = descriptor.digest;
        let file = self.open_blob(&digest)?;
        if descriptor.size > max {
            return Err(ContentError::TooLarge {
                digest,
                size: ByteSize(descriptor.size),
                max: ByteSize(max),
            });
        }
        let mut bytes = Vec::new();
        // One more than there should be, which gives another digest.
        file.take(descriptor.size + 1)
            .read_to_end(&mut bytes)
            .map_err(failed("read", &self.path(&digest)))?;
        match digest_of(&bytes) {
            found if found == digest => Ok(bytes),
            found => Err(ContentError::Damaged { digest, found }),
        }
    }

    /// Reads all of a blob and says whether it is whole.
    pub fn verify(&self, digest: &OciDigest) -> Result<u64, ContentError> {
        let mut file = self.open_blob(digest)?;
        let mut hasher = Hasher::default();
        let size = hash_all(&mut file, &mut hasher).map_err(failed("read", &self.path(digest)))?;
        match hasher.finish() {
            found if found == *digest => Ok(size),
            found => Err(ContentError::Damaged {
                digest: *digest,
                found,
            }),
        }
    }

    /// Stores bytes that are all in memory.
    pub fn put(&self, bytes: &[u8]) -> Result<OciDigest, ContentError> {
        let digest = digest_of(bytes);
        if self.size(&digest)? == Some(bytes.len() as u64) {
            // Whoever put it there may not have come to this point yet.
            sync_dir(&self.base.join(BLOBS))?;
            return Ok(digest);
        }
        let mut blob = self.create()?;
        blob.write_all(bytes)
            .map_err(failed("write to", blob.path()))?;
        Ok(blob.commit()?.digest)
    }

    /// Begins a blob whose digest is not known yet.
    pub fn create(&self) -> Result<NewBlob, ContentError> {
        self.sweep()?;
        NewBlob::begin(self.clone())
    }

    /// A file without a name, for bytes that are looked at before any of them is stored.
    pub(crate) fn spool(&self) -> Result<File, ContentError> {
        let directory = self.partial_dir();
        tempfile::tempfile_in(&directory).map_err(failed("create a file in", &directory))
    }

    /// Begins a blob, or goes on with it, and waits as long as somebody else on this machine is at it.
    pub fn begin(&self, descriptor: &Descriptor) -> Result<Begun, ContentError> {
        Partial::begin(self, descriptor, FlockOperation::LockExclusive)
    }

    /// As [`Content::begin`], and answers [`Begun::Busy`] instead of waiting.
    pub fn try_begin(&self, descriptor: &Descriptor) -> Result<Begun, ContentError> {
        Partial::begin(self, descriptor, FlockOperation::NonBlockingLockExclusive)
    }

    /// Removes a blob. True if it was there. Who has it open reads on.
    pub fn remove(&self, digest: &OciDigest) -> Result<bool, ContentError> {
        remove_file(&self.path(digest))
    }

    /// Every blob, in the order of their digests. Blobs that come or go meanwhile may be missing.
    pub fn list(&self) -> Result<Vec<StoredBlob>, ContentError> {
        let mut blobs = Vec::new();
        for (digest, metadata) in files_by_digest(&self.base.join(BLOBS))? {
            blobs.push(StoredBlob {
                digest,
                size: metadata.len(),
                used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            });
        }
        blobs.sort_by_key(|blob| blob.digest);
        Ok(blobs)
    }

    /// Every blob of which a part is there, whether somebody is at it or not.
    pub fn partials(&self) -> Result<Vec<PartialBlob>, ContentError> {
        let mut blobs = Vec::new();
        for (digest, metadata) in files_by_digest(&self.partial_dir())? {
            blobs.push(PartialBlob {
                digest,
                size: metadata.len(),
                used: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
            });
        }
        blobs.sort_by_key(|blob| blob.digest);
        Ok(blobs)
    }

    /// Removes the part of a blob that is there, unless somebody is at it. True if it was removed.
    pub fn remove_partial(&self, digest: &OciDigest) -> Result<bool, ContentError> {
        remove_unlocked(&self.partial_path(digest))
    }

    /// Notes that a blob is used at this time, for whoever removes the least recently used ones.
    pub fn touch(&self, digest: &OciDigest, at: SystemTime) -> Result<(), ContentError> {
        self.open_blob(digest)?
            .set_modified(at)
            .map_err(failed("set the time of", &self.path(digest)))
    }

    /// Keeps [`Content::collect`] from removing anything, until the hold is dropped. Waits for a
    /// collection that is under way. Whoever brings blobs takes one before it looks what is there, and
    /// keeps it until a name leads to them.
    pub fn hold(&self) -> Result<Hold, ContentError> {
        let lock = self.open_lock(LOCK)?;
        rustix::fs::flock(&lock, FlockOperation::LockShared)
            .map_err(|error| ContentError::of("lock", &self.base.join(LOCK), error.into()))?;
        Ok(Hold { _lock: lock })
    }

    /// Removes every blob that `is_needed` does not want, and answers how many bytes that gave back;
    /// `None` if somebody brings blobs at this time. `is_needed` is asked after everybody was kept out,
    /// so it sees all names there are.
    pub fn collect<F>(
        &self,
        needed: impl FnOnce() -> Result<F, ContentError>,
    ) -> Result<Option<u64>, ContentError>
    where
        F: Fn(&OciDigest) -> bool,
    {
        let lock = self.open_lock(LOCK)?;
        if !try_lock(&lock, &self.base.join(LOCK))? {
            return Ok(None);
        }
        let is_needed = needed()?;
        self.sweep_errands();
        let mut freed = 0;
        for blob in self.list()? {
            if !is_needed(&blob.digest) && self.remove(&blob.digest)? {
                freed += blob.size;
            }
        }
        Ok(Some(freed))
    }

    /// Removes blobs of unknown digest whose writers are gone.
    fn sweep(&self) -> Result<(), ContentError> {
        let directory = self.partial_dir();
        for entry in fs::read_dir(&directory).map_err(failed("list", &directory))? {
            let entry = entry.map_err(failed("list", &directory))?;
            let is_new = (entry.file_name().to_str()).is_some_and(|name| name.starts_with(NEW));
            if is_new && let Err(error) = remove_unlocked(&entry.path()) {
                tracing::debug!(path = %entry.path().display(), %error, "a leftover could not be removed");
            }
        }
        Ok(())
    }

    /// Writes a small file of the directory anew, at once for all readers, and durably.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), ContentError> {
        let path = self.base.join(name);
        let directory = self.partial_dir();
        let (temporary, mut file) =
            new_locked(&directory, NEW).map_err(failed("create a file in", &directory))?;
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, &path));
        if let Err(error) = written {
            // Whatever becomes of it: the next sweep takes what is left.
            fs::remove_file(&temporary).ok();
            return Err(ContentError::of("replace", &path, error));
        }
        sync_dir(&self.base)
    }

    /// Opens a file that is only there to be locked.
    pub(crate) fn open_lock(&self, name: &str) -> Result<File, ContentError> {
        let path = self.base.join(name);
        open_or_create(&path).map_err(failed("open", &path))
    }

    fn partial_dir(&self) -> PathBuf {
        self.base.join(PARTIAL)
    }

    fn partial_path(&self, digest: &OciDigest) -> PathBuf {
        self.partial_dir().join(digest.to_hex())
    }

    /// Makes whole and checked bytes a blob. When this returns, they and their name are on the disk.
    fn publish(&self, file: &File, from: &Path, digest: &OciDigest) -> Result<(), ContentError> {
        let target = self.path(digest);
        file.sync_all().map_err(failed("sync", from))?;
        // Over a blob that is there already: the same bytes, and whole even if those were damaged.
        fs::rename(from, &target).map_err(failed("publish", &target))?;
        sync_dir(&self.base.join(BLOBS))
    }
}

fn open_or_create(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

/// Takes a lock if nobody has it.
fn try_lock(file: &File, path: &Path) -> Result<bool, ContentError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(ContentError::of("lock", path, error.into())),
    }
}

/// Removes a file that nobody has locked. True if it was there and is gone.
fn remove_unlocked(path: &Path) -> Result<bool, ContentError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(ContentError::of("open", path, error)),
    };
    Ok(try_lock(&file, path)? && remove_file(path)?)
}

fn remove_file(path: &Path) -> Result<bool, ContentError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(ContentError::of("remove", path, error)),
    }
}

fn files_by_digest(directory: &Path) -> Result<Vec<(OciDigest, fs::Metadata)>, ContentError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed("list", directory))? {
        let entry = entry.map_err(failed("list", directory))?;
        let digest = entry.file_name().to_str().and_then(from_hex);
        if let (Some(digest), Ok(metadata)) = (digest, entry.metadata()) {
            found.push((digest, metadata));
        }
    }
    Ok(found)
}

/// Hashes what is left of a file, and answers how much that was.
fn hash_all(file: &mut File, hasher: &mut Hasher) -> io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut size = 0;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(size),
            Ok(length) => {
                hasher.update(&buffer[..length]);
                size += length as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes sure that a rename in a directory survives a crash of the machine.
fn sync_dir(path: &Path) -> Result<(), ContentError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(failed("sync", path))
}

fn make_dir(path: &Path) -> Result<(), ContentError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed("create", path))
}

#[cfg(test)]
mod tests;
