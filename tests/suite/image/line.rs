//! A line between the binary and a registry that lets only so many bytes through.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Bytes that go through at a time.
const PIECE_BYTES: usize = 4096;

/// The line. What comes back from the registry waits until it is allowed.
#[derive(Debug)]
pub(super) struct Line {
    /// Where it begins: `127.0.0.1:1234`.
    pub(super) host: String,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    allowed: u64,
    passed: u64,
    connections: usize,
}

impl Line {
    /// A line to a registry, closed at first.
    pub(super) fn to(registry: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let gate = Arc::new(Gate::default());
        let (registry, inner) = (registry.to_owned(), Arc::clone(&gate));
        // It ends with the test's process, as its connections do.
        thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&registry)) else {
                    return;
                };
                connect(near, far, &inner);
            }
        });
        Self { host, gate }
    }

    /// Lets more bytes through.
    pub(super) fn allow(&self, bytes: u64) {
        let mut state = self.gate.state.lock().unwrap();
        state.allowed = state.allowed.saturating_add(bytes);
        self.gate.changed.notify_all();
    }

    /// Bytes that came from the registry so far.
    pub(super) fn passed(&self) -> u64 {
        self.gate.state.lock().unwrap().passed
    }

    /// Waits until everything that is allowed has gone through and somebody wants more.
    pub(super) fn is_used_up(&self) -> bool {
        let state = self.gate.state.lock().unwrap();
        state.passed >= state.allowed
    }
}

fn connect(near: TcpStream, far: TcpStream, gate: &Arc<Gate>) {
    let (mut asks, mut asked) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    thread::spawn(move || {
        // Whichever side goes away, the other is told.
        std::io::copy(&mut asks, &mut asked).ok();
        asked.shutdown(Shutdown::Both).ok();
    });
    let gate = Arc::clone(gate);
    gate.state.lock().unwrap().connections += 1;
    thread::spawn(move || {
        pass(far, near, &gate);
        gate.state.lock().unwrap().connections -= 1;
    });
}

fn pass(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut piece = [0; PIECE_BYTES];
    loop {
        let length = match from.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(length) => length,
        };
        let mut rest = &piece[..length];
        while !rest.is_empty() {
            let state = gate.state.lock().unwrap();
            let closed = |state: &mut State| state.passed >= state.allowed;
            let mut state = gate.changed.wait_while(state, closed).unwrap();
            let most = usize::try_from(state.allowed - state.passed).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(most.min(rest.len()));
            state.passed += now.len() as u64;
            drop(state);
            if to.write_all(now).is_err() {
                return;
            }
            rest = later;
        }
    }
    to.shutdown(Shutdown::Both).ok();
}
