//! Ways to let the kernel use memory for what is no page of anybody: the rest of hostile case 40. Each
//! stops at a bound; what must not be is that it gets there.

use std::env;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use crate::cases::memory::{MIB, PAGE, bound, fill, raise_descriptors};
use crate::sys::{self, call};
use crate::verdict::Verdict;

/// How many of something must be impossible.
fn count(otherwise: u64) -> u64 {
    let told = env::var("PROBE_BOUND").ok();
    told.and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Makes one after the other until something refuses, or the bound is reached.
fn make(bound: u64, mut one_more: impl FnMut() -> io::Result<()>) -> Verdict {
    for made in 0..bound {
        if let Err(error) = one_more() {
            return Verdict::Safe(format!("refused after {made}: {error}"));
        }
    }
    Verdict::Broken(format!("{bound} at one time"))
}

/// One file in an epoll instance takes the kernel this many bytes at least.
const WATCH_BYTES: usize = 128;

/// Trees of epoll instances: at the bottom events, above them instances that all watch all of them, and
/// one on top that watches a few of the instances. (The kernel follows every way through a tree when one
/// more is added to it.)
pub(crate) fn epoll_trees() -> Verdict {
    const EVENTS: usize = 200;
    const MIB_PER_TREE: usize = 4;
    const INSTANCES: usize = MIB_PER_TREE * MIB / WATCH_BYTES / EVENTS;
    const WATCHED: usize = 8;
    raise_descriptors();
    fill(|mebibyte| {
        if !mebibyte.is_multiple_of(MIB_PER_TREE) {
            return Ok(());
        }
        let events: Vec<i64> = (0..EVENTS)
            .map(|_| call!(libc::SYS_eventfd2, 0, 0))
            .collect::<io::Result<_>>()?;
        let top = call!(libc::SYS_epoll_create1, 0)?;
        for number in 0..INSTANCES {
            let instance = call!(libc::SYS_epoll_create1, 0)?;
            for event in &events {
                watch(instance, *event)?;
            }
            if number < WATCHED {
                watch(top, instance)?;
            }
        }
        Ok(())
    })
}

/// Lets an epoll instance watch a descriptor.
fn watch(instance: i64, descriptor: i64) -> io::Result<()> {
    // `struct epoll_event` without the space in it, and the descriptor as what is told.
    let event = [libc::EPOLLIN.cast_unsigned(), 0, 0];
    let add = libc::EPOLL_CTL_ADD;
    call!(libc::SYS_epoll_ctl, instance, add, descriptor, &event).map(drop)
}

/// Descriptors that were sent and that nobody received: closed by who sent them, open in the kernel.
pub(crate) fn descriptors_in_flight() -> Verdict {
    /// As many as one message may have.
    const PER_MESSAGE: u32 = 253;
    const IN_MESSAGES: u64 = 70_000;
    raise_descriptors();
    let sent = File::open("/dev/null").map(|file| file.as_raw_fd().cast_unsigned());
    let Ok(sent) = sent else {
        return Verdict::Absent("there is no /dev/null".to_owned());
    };
    let mut sockets = Vec::new();
    let bound = count(IN_MESSAGES);
    make(bound.div_ceil(PER_MESSAGE.into()), || {
        loop {
            if sockets.is_empty() {
                let mut pair = [0_i32; 2];
                let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK;
                call!(libc::SYS_socketpair, libc::AF_UNIX, kind, 0, &mut pair)?;
                sockets.push(pair[0]);
            }
            let open = call!(libc::SYS_open, c"/dev/null", libc::O_RDONLY)?;
            let socket = sockets[sockets.len() - 1];
            let result = send_descriptors(socket, u32::try_from(open).unwrap_or(sent), PER_MESSAGE);
            call!(libc::SYS_close, open)?;
            match result {
                // This one is full.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sockets.clear(),
                other => return other,
            }
        }
    })
}

/// Sends the same descriptor many times in one message.
fn send_descriptors(socket: i32, descriptor: u32, times: u32) -> io::Result<()> {
    let mut control = [0_u32; 4 + 253];
    control[0] = 16 + 4 * times;
    control[2] = libc::SOL_SOCKET.cast_unsigned();
    control[3] = libc::SCM_RIGHTS.cast_unsigned();
    for place in &mut control[4..] {
        *place = descriptor;
    }
    sys::send_with_control(socket, &control)
}

/// Signals that wait, because nobody lets them in.
pub(crate) fn queued_signals() -> Verdict {
    let signal = libc::SIGRTMIN();
    let blocked = [1_u64 << (signal - 1)];
    let how = libc::SIG_BLOCK;
    if let Err(error) = call!(libc::SYS_rt_sigprocmask, how, &blocked, 0, 8) {
        return Verdict::Absent(format!("it cannot be blocked: {error}"));
    }
    let mut told = [0_i32; 32];
    told[0] = signal;
    told[2] = libc::SI_QUEUE;
    let own = std::process::id();
    make(count(20_000), || {
        call!(libc::SYS_rt_sigqueueinfo, own, signal, &told).map(drop)
    })
}

/// Sets of System V semaphores, each with as many as a set may have.
pub(crate) fn semaphores() -> Verdict {
    /// Each stands in a line of the processor's cache of its own.
    const BYTES: usize = 64;
    const PER_MIB: usize = MIB / BYTES;
    let mut sets = Vec::new();
    let verdict = fill(|_| {
        let set = call!(libc::SYS_semget, libc::IPC_PRIVATE, PER_MIB, 0o600)?;
        sets.push(set);
        Ok(())
    });
    for set in sets {
        drop(call!(libc::SYS_semctl, set, 0, libc::IPC_RMID, 0));
    }
    verdict
}

/// Tables of pages that are all the same page of zeros: no memory of the process itself.
pub(crate) fn page_tables() -> Verdict {
    /// What one table maps.
    const PER_TABLE: usize = 2 * MIB;
    fill(|_| {
        let memory = sys::memory(MIB / PAGE * PER_TABLE)?;
        let advice = libc::MADV_NOHUGEPAGE;
        let address = memory.as_ptr().expose_provenance();
        // A kernel without huge pages has nothing to be told.
        drop(call!(libc::SYS_madvise, address, memory.len(), advice));
        let sum = memory
            .iter()
            .step_by(PER_TABLE)
            .map(|byte| u64::from(*byte));
        std::hint::black_box(sum.sum::<u64>());
        Ok(())
    })
}

/// Names of files that are not there, each of which the kernel remembers.
pub(crate) fn missing_names() -> Verdict {
    const BYTES: usize = 192;
    let names = bound() * MIB / BYTES;
    let Some(before) = remembered_names() else {
        return Verdict::Absent("this kernel does not tell how many it remembers".to_owned());
    };
    for number in 0..names {
        if fs::symlink_metadata(format!("missing-{number}")).is_ok() {
            return Verdict::Absent("the names are there".to_owned());
        }
    }
    let more = remembered_names().unwrap_or(0).saturating_sub(before);
    let text = format!("{more} more names remembered, of {names} that were asked for");
    if more < names / 10 * 9 {
        Verdict::Safe(text)
    } else {
        Verdict::Broken(text)
    }
}

/// How many names that are not there the kernel remembers, of the whole host.
fn remembered_names() -> Option<usize> {
    let text = fs::read_to_string("/proc/sys/fs/dentry-state").ok()?;
    let told = text.split_whitespace().nth(4)?.parse().ok()?;
    (told > 0).then_some(told)
}

/// A file that is read and stays in memory.
pub(crate) fn page_cache() -> Verdict {
    let path = "probe-cache";
    let bytes = bound() * MIB;
    let read = (|| -> io::Result<usize> {
        let file = File::create_new(path)?;
        // A hole is read as any other part of a file on a disk.
        file.set_len(u64::try_from(bytes).map_err(io::Error::other)?)?;
        let mut file = File::open(path)?;
        io::copy(&mut file, &mut io::sink())?;
        sys::resident_pages(&file, bytes)
    })();
    drop(fs::remove_file(path));
    match read {
        Err(error) => Verdict::Absent(format!("it cannot be tried: {error}")),
        // In memory anyway, without a page for a hole.
        Ok(0) => Verdict::Absent("this file system keeps no pages of a hole".to_owned()),
        Ok(pages) if pages < bytes / PAGE / 10 * 9 => {
            Verdict::Safe(format!("{} of {} pages stay", pages, bytes / PAGE))
        }
        Ok(pages) => Verdict::Broken(format!("all of {pages} pages stay")),
    }
}

/// Instances that watch files, of which all programs of a user share a small number. Holds them until it
/// is ended: whoever looks for one meanwhile is the judge.
pub(crate) fn watch_instances() -> Verdict {
    let all = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances");
    let all = all.ok().and_then(|text| text.trim().parse().ok());
    let verdict = make(count(all.unwrap_or(128)), || {
        call!(libc::SYS_inotify_init1, 0).map(drop)
    });
    let line = format!("{verdict}\n");
    drop(io::Write::write_all(&mut io::stdout(), line.as_bytes()));
    thread::sleep(Duration::from_secs(60));
    // A second line would be a second verdict.
    sys::exit_now(i32::from(verdict.code()))
}

/// Datagrams of the loopback's network that nobody reads.
pub(crate) fn datagram_buffers() -> Verdict {
    raise_descriptors();
    let block = vec![0x5a; 32 << 10];
    let mut open = Vec::new();
    let sender = match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(sender) => sender,
        Err(error) => return Verdict::Safe(format!("refused: {error}")),
    };
    fill(|_| {
        let mut filled = 0;
        while filled < MIB {
            let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = receiver.local_addr()?;
            // What does not fit is dropped without a word, so it is asked what is there.
            for _ in 0..8 {
                sender.send_to(&block, address)?;
            }
            let waiting = waiting_bytes(&receiver)?;
            if waiting == 0 {
                return Err(io::Error::other("what is sent is dropped"));
            }
            filled += waiting;
            open.push(receiver);
        }
        Ok(())
    })
}

/// What the kernel has for a socket that nobody has read yet, in bytes of its memory.
fn waiting_bytes(socket: &UdpSocket) -> io::Result<usize> {
    const SO_MEMINFO: i32 = 55;
    let (mut figures, length) = ([0_u32; 9], [36_u32]);
    let number = socket.as_raw_fd();
    let level = libc::SOL_SOCKET;
    call!(
        libc::SYS_getsockopt,
        number,
        level,
        SO_MEMINFO,
        &mut figures,
        &length
    )?;
    usize::try_from(figures[0]).map_err(io::Error::other)
}

/// Connections over the loopback whose other end never reads.
pub(crate) fn stream_buffers() -> Verdict {
    raise_descriptors();
    let block = vec![0x5a; 256 << 10];
    let listener = match TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(listener) => listener,
        Err(error) => return Verdict::Safe(format!("refused: {error}")),
    };
    let mut open = Vec::new();
    let mut ahead = 0;
    fill(|_| {
        while ahead < MIB {
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            near.set_nonblocking(true)?;
            while let Ok(count) = io::Write::write(&mut &near, &block) {
                ahead += count;
            }
            open.push((near, far));
        }
        ahead -= MIB;
        Ok(())
    })
}

/// Pages of two MiB, of which a host has few and no limit of memory counts any.
pub(crate) fn huge_pages() -> Verdict {
    match sys::huge_page() {
        Ok(()) => Verdict::Broken("a huge page of the host is in use".to_owned()),
        Err(error) => Verdict::Safe(format!("refused: {error}")),
    }
}
