//! Where logs are: a spool while an attempt runs, one object in the blob store afterwards.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use tidemill_blob::{Blob, BlobError, Store as BlobStore};
use tidemill_core::{Attempt, Digest, ExecutionId};
use tidemill_log::{LogError, LogReader, Next, SealError, SealedLog, seal, spool};
use tidemill_store::{LogObject, StoreError};

use crate::hub::{Hub, HubError};
use crate::owner::is_same_file;
use crate::state_dir::StateDir;

/// Why a log cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum LogViewError {
    /// The log itself cannot be read.
    #[error("the log cannot be read")]
    Read(#[source] LogError),
    /// The log cannot be sealed.
    #[error("the log cannot be sealed")]
    Seal(#[source] SealError),
    /// The blob store does not keep or give the object.
    #[error("the sealed log cannot be kept or read")]
    Object(#[source] BlobError),
    /// The spool cannot be locked or removed.
    #[error("failed to {action} `{}`", path.display())]
    Spool {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The index of logs does not answer.
    #[error("the index of logs does not answer")]
    Store(#[source] StoreError),
}

/// The logs of one state directory.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    spools: PathBuf,
    objects: BlobStore,
}

/// A spool that was written into the blob store and is still there.
struct Packed {
    spool: PathBuf,
    object: LogObject,
}

impl LogStore {
    pub(crate) fn open(state_dir: &StateDir) -> Result<Self, LogViewError> {
        Ok(Self {
            spools: state_dir.logs(),
            objects: BlobStore::open(state_dir.blobs()).map_err(LogViewError::Object)?,
        })
    }

    /// Removes the spools of an execution that is forgotten.
    pub(crate) fn discard(&self, id: ExecutionId) {
        // What stays is found by the next sweep.
        spool::remove(&self.dir(id)).ok();
    }

    /// How many bytes of an execution's logs are not sealed.
    pub(crate) fn spooled_bytes(&self, id: ExecutionId) -> u64 {
        let files_in = |dir: &Path| -> Vec<fs::DirEntry> {
            fs::read_dir(dir)
                .map_or_else(|_| Vec::new(), |all| all.filter_map(Result::ok).collect())
        };
        files_in(&self.dir(id))
            .iter()
            .flat_map(|attempt| files_in(&attempt.path()))
            .filter_map(|file| file.metadata().ok())
            .map(|metadata| metadata.len())
            .sum()
    }

    /// Removes an object that nobody has any more.
    pub(crate) fn remove_object(&self, object: &Digest) {
        // An object that stays takes space and does no harm.
        self.objects.delete(object).ok();
    }

    fn dir(&self, id: ExecutionId) -> PathBuf {
        self.spools.join(id.to_string())
    }

    /// Locks the spools of an execution against others who would seal them. `None` if there are
    /// none (any more).
    fn lock(&self, id: ExecutionId) -> Result<Option<File>, LogViewError> {
        let dir = self.dir(id);
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let lock = match open(&dir, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(spool_error("open", &dir, errno.into())),
        };
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| spool_error("lock", &dir, errno.into()))?;
        Ok(is_same_file(&lock, &dir).then_some(lock))
    }

    /// Writes every spool of an execution into the blob store.
    fn pack(&self, id: ExecutionId) -> Result<Vec<Packed>, LogViewError> {
        let dir = self.dir(id);
        let entries = fs::read_dir(&dir).map_err(|error| spool_error("read", &dir, error))?;
        let mut packed = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| spool_error("read", &dir, error))?;
            let name = entry.file_name();
            let Some(attempt) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let spool = entry.path();
            if let Some(object) = self.pack_one(Attempt(attempt), &spool)? {
                packed.push(Packed { spool, object });
            }
        }
        Ok(packed)
    }

    fn pack_one(&self, attempt: Attempt, spool: &Path) -> Result<Option<LogObject>, LogViewError> {
        let mut object = self.objects.writer().map_err(LogViewError::Object)?;
        let Some(sealed) = seal(spool, &mut object).map_err(LogViewError::Seal)? else {
            return Ok(None);
        };
        let Blob { digest, size } = object.finish().map_err(LogViewError::Object)?;
        let SealedLog { totals, lines } = sealed;
        Ok(Some(LogObject {
            attempt,
            start: 0,
            bytes: totals.bytes,
            stdout_bytes: totals.stdout_bytes,
            stderr_bytes: totals.stderr_bytes,
            dropped_bytes: totals.dropped_bytes,
            lines,
            digest,
            object_bytes: size,
        }))
    }

    /// Opens a sealed log.
    fn open_object(&self, object: &LogObject) -> Result<(File, PathBuf), LogViewError> {
        let file = self.objects.open_file(&object.digest);
        let name = PathBuf::from(object.digest.to_string());
        file.map(|file| (file, name)).map_err(LogViewError::Object)
    }

    /// The spool of one attempt.
    fn spool(&self, id: ExecutionId, attempt: Attempt) -> PathBuf {
        spool::dir_of(&self.spools, id, attempt)
    }
}

fn spool_error(action: &'static str, path: &Path, source: io::Error) -> LogViewError {
    LogViewError::Spool {
        action,
        path: path.to_owned(),
        source,
    }
}

/// How long a follower waits before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The log of one attempt, wherever it is.
#[derive(Debug)]
pub struct LogView {
    hub: Hub,
    id: ExecutionId,
    attempt: Attempt,
    reader: LogReader,
    sealed: bool,
    /// True once the execution was seen to have ended.
    complete: bool,
}

impl Hub {
    /// Opens the log of an execution: of one attempt, or of the last one.
    ///
    /// # Errors
    /// If there is no such execution, or the log cannot be read.
    pub async fn open_log(
        &self,
        id: ExecutionId,
        attempt: Option<Attempt>,
    ) -> Result<LogView, HubError> {
        let snapshot = self.snapshot(id).await?;
        let attempt = attempt.or(snapshot.attempt).unwrap_or(Attempt(1));
        let mut view = LogView {
            hub: self.clone(),
            id,
            attempt,
            reader: LogReader::of_spool(self.inner().logs.spool(id, attempt)),
            sealed: false,
            complete: snapshot.is_final(),
        };
        if let Some((file, path)) = view.sealed_object().await? {
            view.reader = LogReader::of_sealed(file, &path)
                .map_err(LogViewError::Read)
                .map_err(HubError::Logs)?;
            view.sealed = true;
        }
        Ok(view)
    }

    /// Seals the logs of an execution that has ended: each becomes an object of the blob store, and
    /// its spool is removed. False if there was nothing to seal, or the execution has not ended.
    ///
    /// # Errors
    /// If that fails. Then the spool is still there, and readable.
    pub async fn seal_log(&self, id: ExecutionId) -> Result<bool, HubError> {
        if !self.snapshot(id).await?.is_final() {
            return Ok(false);
        }
        let logs = self.inner().logs.clone();
        let packed = tokio::task::spawn_blocking(move || {
            let Some(lock) = logs.lock(id)? else {
                return Ok(None);
            };
            logs.pack(id).map(|packed| Some((lock, packed)))
        })
        .await
        .map_err(HubError::Panicked)?;
        let Some((lock, packed)) = packed.map_err(HubError::Logs)? else {
            return Ok(false);
        };
        let sealed = !packed.is_empty();
        for Packed { spool, object } in packed {
            let written = self.inner().store.put_log(id, object).await;
            written.map_err(HubError::Store)?;
            // A spool that stays is sealed again into the same object.
            spool::remove(&spool).ok();
        }
        self.inner().logs.discard(id);
        drop(lock);
        Ok(sealed)
    }
}

impl LogView {
    /// Which attempt's log it is.
    pub const fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// For choosing what is read: [`LogReader::select`], [`LogReader::seek_tail`] and the like.
    pub const fn reader(&mut self) -> &mut LogReader {
        &mut self.reader
    }

    /// What comes next, without waiting; blocks only on the disk. After [`Next::Pending`],
    /// [`LogView::more`] waits.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn next(&mut self, buffer: &mut [u8]) -> Result<Next, LogViewError> {
        self.reader.next(buffer).map_err(LogViewError::Read)
    }

    /// Waits a moment for more of a log that is being written. False if nothing will come: the
    /// execution has ended and everything was read. Cancel safe.
    ///
    /// # Errors
    /// If the execution was forgotten, or the log cannot be read.
    pub async fn more(&mut self) -> Result<bool, HubError> {
        if !self.sealed
            && let Some((file, path)) = self.sealed_object().await?
        {
            let gone_on = self.reader.go_on_in(file, &path);
            gone_on
                .map_err(LogViewError::Read)
                .map_err(HubError::Logs)?;
            self.sealed = true;
            return Ok(true);
        }
        if self.complete {
            return Ok(false);
        }
        // After its end is seen, what is there is read once more.
        self.complete = self.hub.snapshot(self.id).await?.is_final();
        if !self.complete {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(true)
    }

    async fn sealed_object(&self) -> Result<Option<(File, PathBuf)>, HubError> {
        let inner = self.hub.inner();
        let objects = inner.store.logs(self.id).await.map_err(HubError::Store)?;
        objects
            .iter()
            .find(|object| object.attempt == self.attempt)
            .map(|object| inner.logs.open_object(object))
            .transpose()
            .map_err(HubError::Logs)
    }
}
