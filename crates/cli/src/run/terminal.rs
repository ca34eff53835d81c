//! `--tty`: the caller's keys go to the job's terminal, and the size of the caller's window too.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::termios::{
    OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
};

/// Bytes of keys that are copied at once.
const KEYS_BYTES: usize = 4096;
/// What a terminal takes for the end of its input: Ctrl-D.
const END_OF_INPUT: u8 = 4;

/// How the caller's terminal was before it was made raw, for whoever ends first: the run or a panic.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The caller's terminal while a job has one of its own. Clones are the same; when the last one goes,
/// the caller's terminal is as before.
#[derive(Debug, Clone)]
pub(crate) struct Terminal {
    link: Arc<Mutex<Link>>,
}

#[derive(Debug, Default)]
struct Link {
    /// The controlling end of the job's terminal, once there is one.
    controller: Option<Arc<OwnedFd>>,
    /// Closing it ends the thread that copies keys.
    stop: Option<OwnedFd>,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        restore_on_panic();
        Self {
            link: Arc::default(),
        }
    }

    /// The job's terminal is there: it gets the window's size, and the caller's keys from now on.
    pub(crate) fn connect(&self, controller: OwnedFd) {
        let controller = Arc::new(controller);
        let mut link = self.link();
        link.controller = Some(Arc::clone(&controller));
        forward_size(&controller);
        // Without a pipe or a thread the job runs on without keys, which it sees as silence.
        let Ok((stopped, stop)) = pipe_with(PipeFlags::CLOEXEC) else {
            return;
        };
        make_raw();
        let copying = thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || copy_keys(&controller, &stopped));
        if copying.is_ok() {
            link.stop = Some(stop);
        }
    }

    /// The caller's window has another size now.
    pub(crate) fn resized(&self) {
        if let Some(controller) = &self.link().controller {
            forward_size(controller);
        }
    }

    /// The job has ended: no more keys go to it, and the caller's terminal is as before.
    pub(crate) fn close(&self) {
        *self.link() = Link::default();
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        // Each field is set in one step, so it is whole whoever panicked.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        restore();
    }
}

/// Lets every key through to the job, Ctrl-C too. Nothing happens if standard input is no terminal.
fn make_raw() {
    let stdin = io::stdin();
    let Ok(before) = tcgetattr(&stdin) else {
        return;
    };
    let mut raw = before.clone();
    raw.make_raw();
    if tcsetattr(&stdin, OptionalActions::Now, &raw).is_ok() {
        *saved() = Some(before);
    }
}

fn restore() {
    if let Some(before) = saved().take() {
        // If the terminal is gone, there is nothing to restore.
        tcsetattr(io::stdin(), OptionalActions::Now, &before).ok();
    }
}

fn saved() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A panic shows its message on a terminal that works.
fn restore_on_panic() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        restore();
        before(info);
    }));
}

fn forward_size(controller: &OwnedFd) {
    if let Some(size) = window_size() {
        // A terminal that is closing has no size that matters.
        tcsetwinsize(controller, size).ok();
    }
}

/// The size of whichever of the three is a terminal.
fn window_size() -> Option<Winsize> {
    let size = |fd: BorrowedFd<'_>| tcgetwinsize(fd).ok().filter(|size| size.ws_col > 0);
    size(io::stdin().as_fd())
        .or_else(|| size(io::stdout().as_fd()))
        .or_else(|| size(io::stderr().as_fd()))
}

/// Copies keys until the job or the run has ended. What was not read stays for the caller's shell.
fn copy_keys(controller: &OwnedFd, stopped: &OwnedFd) {
    let stdin = io::stdin();
    let mut keys = [0; KEYS_BYTES];
    loop {
        let mut ready = [
            PollFd::new(&stdin, PollFlags::IN),
            PollFd::new(stopped, PollFlags::empty()),
        ];
        match poll(&mut ready, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        if !ready[1].revents().is_empty() {
            return;
        }
        match read(&stdin, &mut keys) {
            Ok(0) => {
                // The end of a file or pipe; a terminal knows only the key for it.
                write_all(controller, &[END_OF_INPUT]).ok();
                return;
            }
            Ok(count) => {
                if write_all(controller, &keys[..count]).is_err() {
                    return;
                }
            }
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return,
        }
    }
}

fn write_all(fd: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
