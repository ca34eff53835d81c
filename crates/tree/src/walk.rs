//! Walking a tree with several threads.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::measure::open_below;

/// Directories that wait before other threads are asked to help: a thread costs more than a few of them.
const ALONE_MAX: usize = 16;
/// Threads at most, however many cores there are: a disk does not get faster with more.
const THREADS_MAX: usize = 8;

/// One entry on the way.
#[derive(Debug)]
pub struct Visit<'a> {
    /// The directory that it is in.
    pub directory: BorrowedFd<'a>,
    /// Its path below the top.
    pub path: &'a [u8],
    /// Its name in the directory.
    pub name: &'a CStr,
    /// What it is.
    pub stat: &'a Stat,
}

/// Why a walk ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("failed to {step} `{}`", String::from_utf8_lossy(path))]
pub struct WalkError {
    /// What was tried.
    pub step: &'static str,
    /// On which path below the top.
    pub path: Vec<u8>,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

/// How a tree is walked.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    /// How many threads look.
    pub threads: NonZeroUsize,
    /// Directories that the caller owns and that are closed to itself are opened for the walk, and get
    /// their modes back at its end. Only for trees that nobody else sees.
    pub opens_closed: bool,
}

impl Walk {
    /// With all cores, changing nothing.
    pub fn all_cores() -> Self {
        Self {
            threads: all_cores(),
            opens_closed: false,
        }
    }

    /// Calls `visit` for everything below a directory, in no order, from several threads. Gives what the
    /// calls gave. Links are not followed.
    ///
    /// # Errors
    /// The first error of a call, or of the walk itself.
    pub fn run<T: Send, E: From<WalkError> + Send>(
        self,
        top: BorrowedFd<'_>,
        visit: impl Fn(&Visit<'_>) -> Result<T, E> + Sync,
    ) -> Result<Vec<T>, E> {
        let crew = Crew {
            walk: self,
            top,
            visit,
            state: Mutex::new(State {
                waiting: vec![Vec::new()],
                busy: 0,
                error: None,
                opened: Vec::new(),
            }),
            changed: Condvar::new(),
        };
        let mut found = crew.work(ALONE_MAX);
        let is_more = !crew.state().waiting.is_empty();
        if is_more && self.threads.get() > 1 {
            found.extend(thread::scope(|scope| {
                let helpers: Vec<_> = (1..self.threads.get())
                    .map(|_| scope.spawn(|| crew.work(usize::MAX)))
                    .collect();
                let mut found = crew.work(usize::MAX);
                for helper in helpers {
                    match helper.join() {
                        Ok(theirs) => found.extend(theirs),
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
                found
            }));
        } else if is_more {
            found.extend(crew.work(usize::MAX));
        }
        let state = crew.state.into_inner();
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let closed = close_again(top, state.opened);
        match state.error {
            Some(error) => Err(error),
            None => closed.map(|()| found).map_err(E::from),
        }
    }
}

/// As many threads as there are cores, within reason.
pub fn all_cores() -> NonZeroUsize {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    cores.min(NonZeroUsize::new(THREADS_MAX).expect("it is not zero"))
}

/// What the threads share.
struct Crew<'a, V, E> {
    walk: Walk,
    top: BorrowedFd<'a>,
    visit: V,
    state: Mutex<State<E>>,
    changed: Condvar,
}

struct State<E> {
    /// Directories that nobody has looked into yet. The top has no path.
    waiting: Vec<Vec<u8>>,
    /// Threads that look into one, and may find more.
    busy: usize,
    error: Option<E>,
    /// Directories that were opened for the walk, with the modes that they get back.
    opened: Vec<(Vec<u8>, Mode)>,
}

impl<V, E: From<WalkError> + Send> Crew<'_, V, E> {
    fn state(&self) -> MutexGuard<'_, State<E>> {
        // Whoever panicked is joined, and its panic goes on there.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks into one directory after the other until there is none, or more than so many wait.
    fn work<T: Send>(&self, waiting_max: usize) -> Vec<T>
    where
        V: Fn(&Visit<'_>) -> Result<T, E> + Sync,
    {
        let mut found = Vec::new();
        let mut state = self.state();
        loop {
            if state.error.is_some() || state.waiting.len() > waiting_max {
                return found;
            }
            let Some(path) = state.waiting.pop() else {
                if state.busy == 0 {
                    self.changed.notify_all();
                    return found;
                }
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.busy += 1;
            drop(state);
            let mut below = Vec::new();
            // A thread that panics must not leave the others waiting.
            let leaving = Leaving(self);
            let result = self.look_into(&path, &mut found, &mut below);
            std::mem::forget(leaving);
            state = self.state();
            state.busy -= 1;
            state.waiting.append(&mut below);
            if let Err(error) = result {
                state.error.get_or_insert(error);
            }
            self.changed.notify_all();
        }
    }

    fn look_into<T>(
        &self,
        path: &[u8],
        found: &mut Vec<T>,
        below: &mut Vec<Vec<u8>>,
    ) -> Result<(), E>
    where
        V: Fn(&Visit<'_>) -> Result<T, E> + Sync,
    {
        let failed = |step, path: &[u8], source| {
            E::from(WalkError {
                step,
                path: path.to_owned(),
                source,
            })
        };
        let directory = self
            .open(path)
            .map_err(|source| failed("open the directory", path, source))?;
        let listed = |errno: Errno| failed("list the directory", path, errno.into());
        let mut entries = Dir::read_from(&directory).map_err(listed)?;
        while let Some(entry) = entries.read() {
            let entry = entry.map_err(listed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut entry_path = Vec::with_capacity(path.len() + 1 + name.to_bytes().len());
            if !path.is_empty() {
                entry_path.extend_from_slice(path);
                entry_path.push(b'/');
            }
            entry_path.extend_from_slice(name.to_bytes());
            let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| failed("look at", &entry_path, errno.into()))?;
            found.push((self.visit)(&Visit {
                directory: directory.as_fd(),
                path: &entry_path,
                name,
                stat: &stat,
            })?);
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                below.push(entry_path);
            }
        }
        Ok(())
    }

    fn open(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = open_below(self.top, path, flags);
        let is_closed = opened
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        if !is_closed || !self.walk.opens_closed {
            return opened;
        }
        let (parent, name) = parent_of(self.top, path)?;
        let mode = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::chmodat(&parent, name, mode | Mode::RWXU, AtFlags::empty())?;
        self.state().opened.push((path.to_owned(), mode));
        open_below(self.top, path, flags)
    }
}

/// Takes a thread that panicked off the list of the busy.
struct Leaving<'a, 'b, V, E: From<WalkError> + Send>(&'a Crew<'b, V, E>);

impl<V, E: From<WalkError> + Send> Drop for Leaving<'_, '_, V, E> {
    fn drop(&mut self) {
        self.0.state().busy -= 1;
        self.0.changed.notify_all();
    }
}

/// Gives directories back the modes that they had, the deepest first.
fn close_again(top: BorrowedFd<'_>, mut opened: Vec<(Vec<u8>, Mode)>) -> Result<(), WalkError> {
    opened.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (path, mode) in opened.into_iter().rev() {
        let closed = parent_of(top, &path).and_then(|(parent, name)| {
            Ok(rustix::fs::chmodat(&parent, name, mode, AtFlags::empty())?)
        });
        closed.map_err(|source| WalkError {
            step: "give back the mode of",
            path,
            source,
        })?;
    }
    Ok(())
}

/// A path without empty names as the part above, which may be empty, and the last name.
pub fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// The directory above a path, opened, and the last name. The top's own name is a dot.
pub(crate) fn parent_of<'a>(
    top: BorrowedFd<'_>,
    path: &'a [u8],
) -> io::Result<(OwnedFd, &'a [u8])> {
    let (parent, name): (&[u8], &[u8]) = match path {
        b"" => (b"", b"."),
        _ => split_path(path),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((open_below(top, parent, flags)?, name))
}

/// Calls `each` for all items, from as many threads as there are cores, with something that each thread
/// makes once. Gives the results in the order of the items.
pub fn map_all<T: Sync, C, R: Send>(
    items: &[T],
    threads: NonZeroUsize,
    context: impl Fn() -> C + Sync,
    each: impl Fn(&mut C, &T) -> R + Sync,
) -> Vec<R> {
    /// Items that a thread takes at a time.
    const BATCH: usize = 8;
    let next = Mutex::new(0);
    let work = || {
        let mut context = context();
        let mut results = Vec::new();
        loop {
            let start = {
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                let start = *next;
                *next = (start + BATCH).min(items.len());
                start
            };
            let batch = items.get(start..).unwrap_or_default();
            if batch.is_empty() {
                return results;
            }
            for (index, item) in batch.iter().take(BATCH).enumerate() {
                results.push((start + index, each(&mut context, item)));
            }
        }
    };
    let helpers = threads.get().min(items.len().div_ceil(BATCH));
    let mut results = thread::scope(|scope| {
        let helpers: Vec<_> = (1..helpers).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        for helper in helpers {
            match helper.join() {
                Ok(theirs) => results.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::{self, File, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;

    use super::*;

    fn many(base: &Path) -> BTreeSet<Vec<u8>> {
        let mut paths = BTreeSet::new();
        for outer in 0..40 {
            for inner in 0..10 {
                let path = format!("{outer}/{inner}");
                fs::create_dir_all(base.join(&path)).unwrap();
                fs::write(base.join(&path).join("file"), "x").unwrap();
                paths.insert(outer.to_string().into_bytes());
                paths.insert(path.clone().into_bytes());
                paths.insert(format!("{path}/file").into_bytes());
            }
        }
        symlink("/", base.join("link")).unwrap();
        paths.insert(b"link".to_vec());
        paths
    }

    #[test]
    fn everything_is_visited_once_with_any_number_of_threads() {
        let base = tempfile::tempdir().unwrap();
        let paths = many(base.path());
        let top = File::open(base.path()).unwrap();
        for threads in 1..5 {
            let walk = Walk {
                threads: NonZeroUsize::new(threads).unwrap(),
                opens_closed: false,
            };
            let found = walk.run(top.as_fd(), |visit| {
                Ok::<_, WalkError>(visit.path.to_owned())
            });
            let found = found.unwrap();
            assert_eq!(found.len(), paths.len());
            assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), paths);
        }
    }

    #[test]
    fn the_first_error_ends_the_walk() {
        let base = tempfile::tempdir().unwrap();
        many(base.path());
        let top = File::open(base.path()).unwrap();
        let failed = Walk::all_cores().run(top.as_fd(), |visit| {
            if visit.path == b"17/3/file" {
                return Err(WalkError {
                    step: "like",
                    path: visit.path.to_owned(),
                    source: io::ErrorKind::Other.into(),
                });
            }
            Ok(())
        });
        assert_eq!(
            failed.unwrap_err().to_string(),
            "failed to like `17/3/file`"
        );
    }

    #[test]
    fn closed_directories_are_opened_and_closed_again() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("a/b/c")).unwrap();
        let dirs = ["a/b", "a"].map(|path| base.path().join(path));
        for dir in &dirs {
            fs::set_permissions(dir, Permissions::from_mode(0o100)).unwrap();
        }
        let top = File::open(base.path()).unwrap();
        let walk = Walk {
            opens_closed: true,
            ..Walk::all_cores()
        };
        let found = walk.run(top.as_fd(), |visit| {
            Ok::<_, WalkError>((visit.path.to_owned(), visit.stat.st_mode & 0o777))
        });
        let modes = dirs.each_ref().map(|dir| {
            let mode = fs::metadata(dir).unwrap().mode() & 0o777;
            fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
            mode
        });
        assert_eq!(modes, [0o100, 0o100]);
        let mut found = found.unwrap();
        found.sort();
        assert_eq!(found[0], (b"a".to_vec(), 0o100));
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u32> = (0..1000).collect();
        let results = map_all(&items, all_cores(), || 1, |one, item| item + *one);
        assert_eq!(results, (1..1001).collect::<Vec<_>>());
        assert!(map_all(&[0_u8; 0], all_cores(), || (), |(), _| ()).is_empty());
    }
}
