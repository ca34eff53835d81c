//! What processes share beside files: hostile cases 30 and 34.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::bait;
use crate::sys::call;
use crate::verdict::{Findings, Verdict};

/// `SHM_INFO`, `MSG_INFO` and `SEM_INFO`: how much of it the namespace has.
const SHARED_MEMORY_INFO: i32 = 14;
const MESSAGE_INFO: i32 = 12;
const SEMAPHORE_INFO: i32 = 19;

pub(crate) fn system_v() -> Verdict {
    let mut findings = Findings::new();
    let key = bait::number("KEY");
    findings.attempt("the host's shared memory", || {
        call!(libc::SYS_shmget, key, 0, 0).map(drop)
    });
    findings.attempt("the host's messages", || {
        call!(libc::SYS_msgget, key, 0).map(drop)
    });
    findings.attempt("the host's semaphores", || {
        call!(libc::SYS_semget, key, 0, 0).map(drop)
    });
    let mut figures = [0_u32; 64];
    let used = |result: io::Result<i64>, figures: &[u32; 64]| result.is_ok() && figures[0] > 0;
    let memory = call!(libc::SYS_shmctl, 0, SHARED_MEMORY_INFO, &mut figures);
    findings.unless(
        used(memory, &figures),
        "there is shared memory of somebody else",
    );
    let messages = call!(libc::SYS_msgctl, 0, MESSAGE_INFO, &mut figures);
    // `struct msginfo` begins with the number of queues.
    findings.unless(
        used(messages, &figures),
        "there are messages of somebody else",
    );
    let semaphores = call!(libc::SYS_semctl, 0, 0, SEMAPHORE_INFO, &mut figures);
    // In `struct seminfo` it is the eighth number.
    findings.unless(
        semaphores.is_ok() && figures[7] > 0,
        "there are semaphores of somebody else",
    );
    let shared = bait::told("SHARED").unwrap_or_default();
    findings.attempt("the host's /dev/shm", || fs::metadata(&shared).map(drop));
    findings.verdict()
}

/// The name by which two neighbours would meet, in every place where they could.
const MEETING: &str = "tidemill-neighbours";
const MEETING_KEY: i32 = 0x5449_4445;
const MEETING_PORT: u16 = 48_731;
const FOR_ALL: i32 = 0o666;

/// Leaves something everywhere, says so, and waits to be ended.
pub(crate) fn neighbour_leaves() -> Verdict {
    let left = (|| -> io::Result<_> {
        for directory in ["/tmp", "/var/tmp", "/dev/shm"] {
            fs::write(Path::new(directory).join(MEETING), "x")?;
        }
        let make = libc::IPC_CREAT | FOR_ALL;
        call!(libc::SYS_shmget, MEETING_KEY, 4096, make)?;
        call!(libc::SYS_msgget, MEETING_KEY, make)?;
        call!(libc::SYS_semget, MEETING_KEY, 1, make)?;
        // A sandbox may refuse queues altogether.
        let queue = open_queue(libc::O_CREAT | libc::O_RDWR).ok();
        let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(MEETING)?)?;
        let by_port = TcpListener::bind((Ipv4Addr::LOCALHOST, MEETING_PORT))?;
        Ok((queue, by_name, by_port))
    })();
    match left {
        Err(error) => Verdict::Absent(format!("not everything could be left: {error}")),
        Ok(kept) => {
            let ready = format!("{}\n", Verdict::Safe("left everywhere".to_owned()));
            // Whoever waits for this line reads it at once.
            drop(io::Write::write_all(&mut io::stdout(), ready.as_bytes()));
            thread::sleep(Duration::from_secs(60));
            drop(kept);
            Verdict::Absent("nobody ended it".to_owned())
        }
    }
}

fn open_queue(flags: i32) -> io::Result<i64> {
    let name = CString::new(MEETING)?;
    // Ten messages of sixteen bytes.
    let attributes = [0_i64, 10, 16, 0, 0, 0, 0, 0];
    call!(
        libc::SYS_mq_open,
        name.as_c_str(),
        flags,
        FOR_ALL,
        &attributes
    )
}

/// Looks for what a neighbour left.
pub(crate) fn neighbour_looks() -> Verdict {
    let mut findings = Findings::new();
    for directory in ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue"] {
        findings.attempt(&format!("a file in {directory}"), || {
            fs::metadata(Path::new(directory).join(MEETING)).map(drop)
        });
    }
    findings.attempt("shared memory", || {
        call!(libc::SYS_shmget, MEETING_KEY, 0, 0).map(drop)
    });
    findings.attempt("messages", || {
        call!(libc::SYS_msgget, MEETING_KEY, 0).map(drop)
    });
    findings.attempt("semaphores", || {
        call!(libc::SYS_semget, MEETING_KEY, 0, 0).map(drop)
    });
    findings.attempt("a message queue", || open_queue(libc::O_RDONLY).map(drop));
    findings.attempt("an abstract socket", || {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(MEETING)?).map(drop)
    });
    findings.attempt("a port of the loopback", || {
        TcpStream::connect((Ipv4Addr::LOCALHOST, MEETING_PORT)).map(drop)
    });
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let text = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        findings.unless(
            text.contains("neighbour_leaves"),
            format!("its process: {text}"),
        );
    }
    findings.verdict()
}
