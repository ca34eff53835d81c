//! Ways to use memory that is not one's own heap: hostile case 40. Each stops at a bound; what must
//! not be is that it gets there.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use crate::sys::{self, call};
use crate::verdict::Verdict;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const PAGE: usize = 4096;

/// How many MiB must be impossible.
pub(crate) fn bound() -> usize {
    let told = env::var("PROBE_MIB").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(256)
}

/// Fills MiB after MiB until something refuses, or the bound is reached.
pub(crate) fn fill(mut one_more: impl FnMut(usize) -> io::Result<()>) -> Verdict {
    for mebibyte in 0..bound() {
        if let Err(error) = one_more(mebibyte) {
            return Verdict::Safe(format!("refused after {mebibyte} MiB: {error}"));
        }
    }
    Verdict::Broken(format!("{} MiB are in use", bound()))
}

fn touch(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().step_by(PAGE) {
        *byte = 1;
    }
}

pub(crate) fn private_memory() -> Verdict {
    fill(|_| {
        touch(sys::memory(MIB)?);
        Ok(())
    })
}

/// A file that has no name. It is written and never mapped, so no process's own figure grows.
pub(crate) fn nameless_file() -> Verdict {
    let file = match call!(libc::SYS_memfd_create, c"probe", 0) {
        Ok(file) => file,
        Err(error) => return Verdict::Safe(format!("refused: {error}")),
    };
    let block = vec![0x5a; MIB];
    let path = format!("/proc/self/fd/{file}");
    let mut file = match OpenOptions::new().write(true).open(path) {
        Ok(file) => file,
        Err(error) => return Verdict::Absent(error.to_string()),
    };
    fill(|_| file.write_all(&block))
}

pub(crate) fn shared_segments() -> Verdict {
    fill(|number| {
        let key = i32::try_from(number).map_err(io::Error::other)? + 1;
        let bytes = MIB;
        let segment = call!(libc::SYS_shmget, key, bytes, libc::IPC_CREAT | 0o600)?;
        touch(sys::attach(segment, bytes)?);
        Ok(())
    })
}

/// Segments that nobody has attached: the pages stay.
pub(crate) fn detached_segments() -> Verdict {
    let verdict = fill(|number| {
        let key = i32::try_from(number).map_err(io::Error::other)? + 1;
        let segment = call!(libc::SYS_shmget, key, MIB, libc::IPC_CREAT | 0o600)?;
        let memory = sys::attach(segment, MIB)?;
        touch(memory);
        call!(libc::SYS_shmdt, memory.as_ptr().expose_provenance()).map(drop)
    });
    for number in 0..bound() {
        let key = i32::try_from(number).unwrap_or(0) + 1;
        if let Ok(segment) = call!(libc::SYS_shmget, key, 0, 0) {
            drop(call!(libc::SYS_shmctl, segment, libc::IPC_RMID, 0));
        }
    }
    verdict
}

fn file_in(directory: &str) -> Verdict {
    let path = format!("{directory}/probe-memory");
    let mut file = match File::create(&path) {
        Ok(file) => file,
        Err(error) => return Verdict::Absent(format!("{path}: {error}")),
    };
    // Without a name, it is gone with the process.
    drop(fs::remove_file(&path));
    let block = vec![0x5a; MIB];
    fill(|_| file.write_all(&block))
}

pub(crate) fn shared_memory_files() -> Verdict {
    file_in("/dev/shm")
}

pub(crate) fn temporary_files() -> Verdict {
    file_in("/tmp")
}

/// Pipes full of data that nobody reads.
pub(crate) fn pipes() -> Verdict {
    raise_descriptors();
    let block = vec![0x5a; MIB];
    let mut open = Vec::new();
    fill(|_| {
        let mut filled = 0;
        while filled < MIB {
            let (reader, mut writer) = io::pipe()?;
            let number = writer.as_raw_fd();
            // Refused beyond what one user may have; then the pipe has its usual size.
            drop(call!(libc::SYS_fcntl, number, libc::F_SETPIPE_SZ, MIB));
            call!(libc::SYS_fcntl, number, libc::F_SETFL, libc::O_NONBLOCK)?;
            filled += writer.write(&block)?;
            open.push((reader, writer));
        }
        Ok(())
    })
}

/// Datagrams in sockets that nobody reads.
pub(crate) fn socket_buffers() -> Verdict {
    raise_descriptors();
    let block = vec![0x5a; 64 << 10];
    let mut open = Vec::new();
    fill(|_| {
        let mut filled = 0;
        while filled < MIB {
            let (one, other) = UnixDatagram::pair()?;
            one.set_nonblocking(true)?;
            while let Ok(count) = one.send(&block) {
                filled += count;
            }
            open.push((one, other));
        }
        Ok(())
    })
}

/// Messages of System V that nobody receives.
pub(crate) fn messages() -> Verdict {
    const BYTES: usize = 8 << 10;
    let mut message = [0x5a_u8; BYTES + 8];
    // Its kind, a number above 0, comes first.
    message[..8].copy_from_slice(&1_u64.to_ne_bytes());
    let mut queues = Vec::new();
    let verdict = fill(|_| {
        let mut filled = 0;
        while filled < MIB {
            let queue = call!(libc::SYS_msgget, libc::IPC_PRIVATE, 0o600)?;
            queues.push(queue);
            let send = || call!(libc::SYS_msgsnd, queue, &message, BYTES, libc::IPC_NOWAIT);
            while send().is_ok() {
                filled += BYTES;
            }
        }
        Ok(())
    });
    for queue in queues {
        drop(call!(libc::SYS_msgctl, queue, libc::IPC_RMID, 0));
    }
    verdict
}

/// Timers, each with a signal that waits for it.
pub(crate) fn timers() -> Verdict {
    const BYTES: usize = 400;
    fill(|_| {
        let mut used = 0;
        while used < MIB {
            let mut timer = [0_i32; 1];
            call!(libc::SYS_timer_create, libc::CLOCK_MONOTONIC, 0, &mut timer)?;
            used += BYTES;
        }
        Ok(())
    })
}

/// As many descriptors as one process may have, or more for whoever may raise that.
pub(crate) fn raise_descriptors() {
    const MANY: u64 = 1 << 20;
    if sys::set_limit(libc::RLIMIT_NOFILE, MANY, MANY).is_ok() {
        return;
    }
    if let Ok((_, hard)) = sys::limit(libc::RLIMIT_NOFILE) {
        drop(sys::set_limit(libc::RLIMIT_NOFILE, hard, hard));
    }
}
