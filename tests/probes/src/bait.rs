//! What is laid out on the host for a probe to reach: files, sockets, shared memory, a process with
//! secrets in its environment and among its arguments.
//!
//! `probe bait DIR` lays it out, says what it is called, and takes it away again when its input ends.
//! `probe with-bait DIR CASE` does so around one case, for a run without a sandbox.

use std::env;
use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use crate::sys::call;

/// The variable of the launcher that no job was given, and the text in it.
pub(crate) const LAUNCHER_SECRET: &str = "secret-of-the-launcher";
/// What stands among the bait's arguments.
pub(crate) const ARGUMENT_SECRET: &str = "--token=secret-among-arguments";
/// What is in the bait's file.
pub(crate) const FILE_SECRET: &str = "secret-of-a-file";

/// Bytes of the bait's shared memory.
const SEGMENT_BYTES: i32 = 4096;
/// `IPC_CREAT | IPC_EXCL`, readable for everybody.
const MADE_FOR_ALL: i32 = 0o3666;

/// The value of a variable that tells what the bait is called.
pub(crate) fn told(name: &str) -> Option<String> {
    env::var(format!("BAIT_{name}")).ok()
}

/// The directory of the host that everybody may write to.
pub(crate) fn directory() -> PathBuf {
    PathBuf::from(told("DIR").unwrap_or_else(|| "/nonexistent".to_owned()))
}

/// The port that the host listens at, on both loopback addresses, for TCP and UDP.
pub(crate) fn port() -> u16 {
    told("PORT").and_then(|text| text.parse().ok()).unwrap_or(9)
}

/// A number that the bait told, such as its process.
pub(crate) fn number(name: &str) -> i32 {
    told(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Lays it out, and waits for the end of the input.
pub(crate) fn lay(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o777))?;
    let secret = directory.join("secret.txt");
    fs::write(&secret, FILE_SECRET)?;
    fs::set_permissions(&secret, Permissions::from_mode(0o666))?;
    let path_socket = directory.join("host.sock");
    let by_path = UnixListener::bind(&path_socket)?;
    fs::set_permissions(&path_socket, Permissions::from_mode(0o777))?;
    let mut random = [0_u32; 1];
    call!(libc::SYS_getrandom, &mut random, 4, 0)?;
    let token = random[0];
    let abstract_name = format!("tidemill-bait-{token:08x}");
    let by_name = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&abstract_name)?)?;
    let port = listen_on_loopback()?;
    let shared = PathBuf::from(format!("/dev/shm/tidemill-suite-bait-{token:08x}"));
    fs::write(&shared, FILE_SECRET)?;
    fs::set_permissions(&shared, Permissions::from_mode(0o666))?;
    // A key of 0 would be nobody's.
    let key = (token | 1).cast_signed();
    let segment = call!(libc::SYS_shmget, key, SEGMENT_BYTES, MADE_FOR_ALL)?;
    let queue = call!(libc::SYS_msgget, key, MADE_FOR_ALL)?;
    let semaphore = call!(libc::SYS_semget, key, 1, MADE_FOR_ALL)?;
    for listener in [by_path, by_name] {
        thread::spawn(move || listener.incoming().for_each(drop));
    }
    let mut out = io::stdout().lock();
    writeln!(out, "BAIT_DIR={}", directory.display())?;
    writeln!(out, "BAIT_PORT={port}")?;
    writeln!(out, "BAIT_ABSTRACT={abstract_name}")?;
    writeln!(out, "BAIT_KEY={key}")?;
    writeln!(out, "BAIT_SHARED={}", shared.display())?;
    writeln!(out, "BAIT_VICTIM={}", std::process::id())?;
    writeln!(
        out,
        "BAIT_HOSTNAME={}",
        first_line("/proc/sys/kernel/hostname")
    )?;
    writeln!(out, "ready")?;
    out.flush()?;
    // The end of the input is the only thing that is waited for.
    drop(io::stdin().read(&mut [0]));
    let remove = libc::IPC_RMID;
    drop(call!(libc::SYS_shmctl, segment, remove, 0));
    drop(call!(libc::SYS_msgctl, queue, remove, 0));
    drop(call!(libc::SYS_semctl, semaphore, 0, remove, 0));
    fs::remove_file(&shared)?;
    fs::remove_dir_all(directory)
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Accepts connections and answers datagrams on both loopback addresses, at one port.
fn listen_on_loopback() -> io::Result<u16> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = first.local_addr()?.port();
    let mut listeners = vec![first];
    // A host without IPv6 has nothing to reach there.
    listeners.extend(TcpListener::bind((Ipv6Addr::LOCALHOST, port)));
    for listener in listeners {
        thread::spawn(move || listener.incoming().for_each(drop));
    }
    for address in [
        SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
    ] {
        let Ok(socket) = UdpSocket::bind(address) else {
            continue;
        };
        thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                drop(socket.send_to(&buffer[..length], from));
            }
        });
    }
    Ok(port)
}

/// Runs one case beside its bait, and ends with the case's exit code.
pub(crate) fn around(directory: &str, case: &[String]) -> io::Result<ExitCode> {
    let own = env::current_exe()?;
    let mut bait = Command::new(&own)
        .args(["bait", directory, ARGUMENT_SECRET])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut command = Command::new(&own);
    command.args(case);
    let said = bait.stdout.take().map(BufReader::new);
    for line in said.into_iter().flat_map(BufRead::lines) {
        let line = line?;
        match line.split_once('=') {
            Some((name, value)) => command.env(name, value),
            None => break,
        };
    }
    if bait.try_wait()?.is_some() {
        return Err(io::Error::other("the bait could not be laid out"));
    }
    let status = command.status()?;
    drop(bait.stdin.take());
    bait.wait()?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(3)))
}

/// Says to whoever started this that it goes on from here, by making a file of this name.
pub(crate) fn beat(path: &Path, text: &str) -> io::Result<()> {
    File::create(path)?.write_all(text.as_bytes())
}
