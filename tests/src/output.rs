//! What a process writes, collected while it runs.

use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Everything that was read so far.
#[derive(Debug, Default, Clone)]
pub struct Collected {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// When how many of them were there.
    pub reads: Vec<(Instant, usize)>,
    /// True once there can be no more.
    pub closed: bool,
}

/// Reads a stream in a thread of its own.
#[derive(Debug)]
pub struct Collector {
    shared: Arc<(Mutex<Collected>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    /// Begins to read.
    pub fn start(mut stream: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Collected::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            loop {
                let count = match stream.read(&mut buffer) {
                    Ok(count) => count,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                    // A terminal whose other end was closed says EIO.
                    Err(_) => 0,
                };
                let (lock, condition) = &*theirs;
                let mut collected = lock.lock().unwrap_or_else(PoisonError::into_inner);
                collected.bytes.extend_from_slice(&buffer[..count]);
                let length = collected.bytes.len();
                collected.reads.push((Instant::now(), length));
                collected.closed = count == 0;
                condition.notify_all();
                if count == 0 {
                    return;
                }
            }
        });
        Self {
            shared,
            thread: Some(thread),
        }
    }

    /// What was read so far.
    pub fn now(&self) -> Collected {
        let (lock, _) = &*self.shared;
        lock.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until what was read satisfies a condition. False if it was closed, or time was up.
    pub fn wait_for(&self, patience: Duration, mut condition: impl FnMut(&[u8]) -> bool) -> bool {
        let (lock, changed) = &*self.shared;
        let deadline = Instant::now() + patience;
        let mut collected = lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if condition(&collected.bytes) {
                return true;
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            if collected.closed || rest.is_zero() {
                return false;
            }
            let waited = changed.wait_timeout(collected, rest);
            (collected, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// All of it. Waits until the stream is closed.
    pub fn finish(mut self) -> Collected {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the reading thread does not panic");
        }
        self.now()
    }
}
