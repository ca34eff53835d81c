//! The files of an archive, written under numbers while it is read: small ones by threads of their own, large
//! ones as they come.
//!
//! Where a file belongs is known only when all layers are; then it is moved or linked there.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Scope, ScopedJoinHandle};

use rustix::fs::{Mode, OFlags};

use super::file::{FileWriter, Wanted};
use super::record::{Content, Dress, Xattr};
use crate::beneath::open_root;
use crate::sparse::SparseMap;

/// Files of up to this size are held in memory until they are written.
const SMALL_BYTES: u64 = 256 << 10;
/// Small files that may wait to be written: 16 MiB at most.
const WAITING_MAX: usize = 64;
/// Threads that write small files.
const THREADS_MAX: usize = 4;
/// Files in one directory.
const FILES_PER_DIR: u32 = 1024;

/// The path of a file below the directory that all are in.
pub(crate) fn path_of(number: u32) -> PathBuf {
    PathBuf::from(format!("{}/{number}", number / FILES_PER_DIR))
}

/// Where the files go that are read.
pub(crate) struct Contents<'scope> {
    place: OwnedFd,
    /// The directory of the last file.
    dir: Option<(u32, Arc<OwnedFd>)>,
    next: u32,
    writer: &'scope FileWriter<'scope>,
    failed: Arc<Mutex<Option<io::Error>>>,
    waiting: SyncSender<Small>,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
}

/// A small file that is to be written.
struct Small {
    dir: Arc<OwnedFd>,
    number: u32,
    bytes: Vec<u8>,
    dress: Dress,
    xattrs: Vec<Xattr>,
}

impl<'scope> Contents<'scope> {
    /// Files go below this directory, which is empty.
    pub(crate) fn start(
        place: &Path,
        writer: &'scope FileWriter<'scope>,
        scope: &'scope Scope<'scope, '_>,
    ) -> io::Result<Self> {
        let failed = Arc::default();
        let (waiting, queue) = sync_channel(WAITING_MAX);
        let queue = Arc::new(Mutex::new(queue));
        let count = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = (0..count.min(THREADS_MAX)).map(|_| {
            let (queue, failed) = (Arc::clone(&queue), Arc::clone(&failed));
            thread::Builder::new()
                .name("write-files".to_owned())
                .spawn_scoped(scope, move || write_all(&queue, writer, &failed))
        });
        Ok(Self {
            place: open_root(place)?,
            dir: None,
            next: 0,
            writer,
            threads: threads.collect::<io::Result<_>>()?,
            failed,
            waiting,
        })
    }

    /// Adds a file of this size. An error without a number of the system is one of reading.
    pub(crate) fn add(
        &mut self,
        from: &mut impl Read,
        size: u64,
        dress: &Dress,
        xattrs: &[Xattr],
    ) -> io::Result<Content> {
        let (dir, number) = self.next()?;
        let content = Content { number, size };
        if size > SMALL_BYTES {
            let name = number.to_string();
            let wanted = wanted(&dir, &name, dress, xattrs);
            self.writer.copy(&wanted, from, size)?;
            return Ok(content);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        from.take(size).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(error) = lock(&self.failed).take() {
            return Err(error);
        }
        let small = Small {
            dir,
            number,
            bytes,
            dress: *dress,
            xattrs: xattrs.to_vec(),
        };
        let sent = self.waiting.send(small);
        sent.map_err(|_| io::Error::other("the threads that write files are gone"))?;
        Ok(content)
    }

    /// Adds a file of which only some pieces are there.
    pub(crate) fn add_sparse(
        &mut self,
        from: &mut impl Read,
        map: &SparseMap,
        size: u64,
        dress: &Dress,
        xattrs: &[Xattr],
    ) -> io::Result<Content> {
        let (dir, number) = self.next()?;
        let name = number.to_string();
        let wanted = wanted(&dir, &name, dress, xattrs);
        self.writer.copy_sparse(&wanted, from, map, size)?;
        Ok(Content { number, size })
    }

    /// Waits until all is written.
    pub(crate) fn finish(self) -> io::Result<()> {
        drop(self.waiting);
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| io::Error::other("a thread that writes files panicked"))?;
        }
        lock(&self.failed).take().map_or(Ok(()), Err)
    }

    /// A new number, and the directory of the file that gets it.
    fn next(&mut self) -> io::Result<(Arc<OwnedFd>, u32)> {
        let number = self.next;
        self.next = number
            .checked_add(1)
            .ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let block = number / FILES_PER_DIR;
        if let Some((current, dir)) = &self.dir
            && *current == block
        {
            return Ok((Arc::clone(dir), number));
        }
        let name = block.to_string();
        rustix::fs::mkdirat(&self.place, &name, Mode::RWXU)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.place, &name, flags, Mode::empty())?;
        let dir = Arc::new(dir);
        self.dir = Some((block, Arc::clone(&dir)));
        Ok((dir, number))
    }
}

/// Writes what comes until nothing comes any more. After a failure the rest is dropped, so that nobody waits.
fn write_all(
    queue: &Mutex<Receiver<Small>>,
    writer: &FileWriter<'_>,
    failed: &Mutex<Option<io::Error>>,
) {
    let mut has_failed = false;
    loop {
        let next = lock(queue).recv();
        let Ok(small) = next else { return };
        if has_failed {
            continue;
        }
        let name = small.number.to_string();
        let wanted = wanted(&small.dir, &name, &small.dress, &small.xattrs);
        if let Err(error) = writer.write(&wanted, &small.bytes) {
            lock(failed).get_or_insert(error);
            has_failed = true;
        }
    }
}

fn wanted<'a>(
    dir: &'a OwnedFd,
    name: &'a str,
    dress: &'a Dress,
    xattrs: &'a [Xattr],
) -> Wanted<'a> {
    Wanted {
        dir: dir.as_fd(),
        name: OsStr::new(name),
        dress,
        xattrs,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Neither a queue nor the first error is ever half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
