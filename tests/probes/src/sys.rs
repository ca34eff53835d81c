//! Raw system calls. A probe asks for what no library offers, and with arguments that no library
//! passes on, so this is where all of its `unsafe` is.
#![expect(
    unsafe_code,
    reason = "a probe calls the kernel past every wrapper; this module is the only one that does"
)]

use std::arch::asm;
use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::ptr;

/// One argument of a system call: a number, or a buffer that is borrowed until the call returns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arg<'a> {
    value: usize,
    borrowed: PhantomData<&'a ()>,
}

impl Arg<'_> {
    const fn new(value: usize) -> Self {
        Self {
            value,
            borrowed: PhantomData,
        }
    }
}

impl From<i64> for Arg<'_> {
    fn from(number: i64) -> Self {
        Self::new(usize::from_ne_bytes(number.to_ne_bytes()))
    }
}

impl From<i32> for Arg<'_> {
    fn from(number: i32) -> Self {
        i64::from(number).into()
    }
}

impl From<u32> for Arg<'_> {
    fn from(number: u32) -> Self {
        i64::from(number).into()
    }
}

impl From<u64> for Arg<'_> {
    fn from(number: u64) -> Self {
        number.cast_signed().into()
    }
}

impl From<usize> for Arg<'_> {
    fn from(number: usize) -> Self {
        Self::new(number)
    }
}

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(text: &'a CStr) -> Self {
        Self::new(text.as_ptr().expose_provenance())
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for Arg<'a> {
    fn from(buffer: &'a [T; N]) -> Self {
        Self::new(buffer.as_ptr().expose_provenance())
    }
}

impl<'a, T, const N: usize> From<&'a mut [T; N]> for Arg<'a> {
    fn from(buffer: &'a mut [T; N]) -> Self {
        Self::new(buffer.as_mut_ptr().expose_provenance())
    }
}

/// Makes a system call with up to six arguments: `call!(number, a, b)`.
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::sys::ask($number, &[$($crate::sys::Arg::from($argument)),*])
    };
}
pub(crate) use call;

/// Makes a system call.
pub(crate) fn ask(number: i64, arguments: &[Arg<'_>]) -> io::Result<i64> {
    let at = |index: usize| arguments.get(index).map_or(0, |argument| argument.value);
    // SAFETY: every address among the arguments is of a buffer that `Arg` keeps borrowed, or nothing
    // that the kernel could write to; the probes give no length beyond a buffer. A call that changes
    // the process itself is made in a child that ends right after it.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Makes a system call through the entry of 32-bit programs.
pub(crate) fn call_32_bit(number: u32, first: u32, second: u32) -> io::Result<i32> {
    let result: i32;
    // SAFETY: the numbers that are called write nothing for arguments of 0. The registers that the
    // entry may change are named, and the one that the compiler keeps for itself is put back.
    unsafe {
        asm!(
            "mov {kept}, rbx",
            "mov ebx, {first:e}",
            "int 0x80",
            "mov rbx, {kept}",
            kept = out(reg) _,
            first = in(reg) first,
            inlateout("eax") number.cast_signed() => result,
            in("ecx") second,
            in("edx") 0,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if result < 0 {
        Err(io::Error::from_raw_os_error(-result))
    } else {
        Ok(result)
    }
}

/// Makes a second process. Gives 0 in the child.
pub(crate) fn fork() -> io::Result<i32> {
    // SAFETY: the probes that fork have one thread, so the child may use everything.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(pid)
    }
}

/// Ends this process without any cleaning up, as a forked child must.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: it takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signalled {
        /// The signal's number.
        signal: i32,
        /// True if the kernel says that it wrote a core dump.
        dumped: bool,
    },
}

/// Waits for a child, any child if the number is -1.
pub(crate) fn wait(pid: i32) -> io::Result<Ending> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to an integer of this function.
        let result = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if result >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(if libc::WIFSIGNALED(status) {
        Ending::Signalled {
            signal: libc::WTERMSIG(status),
            dumped: libc::WCOREDUMP(status),
        }
    } else {
        Ending::Exited(libc::WEXITSTATUS(status))
    })
}

/// Sends a signal.
pub(crate) fn kill(pid: i32, signal: i32) -> io::Result<()> {
    call!(libc::SYS_kill, pid, signal).map(drop)
}

/// Lets a signal do nothing.
pub(crate) fn ignore(signal: i32) {
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Ends this process by an alarm, unless it is over before.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: it takes a number.
    unsafe { libc::alarm(seconds) };
}

/// Memory of this many bytes that belongs to nobody else, for the rest of the process's life.
pub(crate) fn memory(bytes: usize) -> io::Result<&'static mut [u8]> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: the kernel chooses an address where nothing is.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has this length, is all zeros, is never unmapped, and nobody else has it.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) })
}

/// A segment of System V shared memory, attached for the rest of the process's life.
pub(crate) fn attach(segment: i64, bytes: usize) -> io::Result<&'static mut [u8]> {
    let id = i32::try_from(segment).map_err(io::Error::other)?;
    // SAFETY: the kernel chooses an address where nothing is.
    let start = unsafe { libc::shmat(id, ptr::null(), 0) };
    if start.addr() == usize::MAX {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller made the segment with this length and attaches it once.
    Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), bytes) })
}

/// Sends one byte, with something beside it that `sendmsg` understands.
pub(crate) fn send_with_control<const N: usize>(socket: i32, control: &[u32; N]) -> io::Result<()> {
    let byte = [0_u8; 1];
    let mut part = libc::iovec {
        iov_base: byte.as_ptr().cast_mut().cast(),
        iov_len: byte.len(),
    };
    // SAFETY: all zeros are a message without anything in it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_ptr().cast_mut().cast();
    message.msg_controllen = size_of_val(control);
    // SAFETY: what the message points to lives until the call returns, which reads it only.
    let sent = unsafe { libc::sendmsg(socket, &raw const message, libc::MSG_DONTWAIT) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// How many pages of a file are in memory.
pub(crate) fn resident_pages(file: &impl AsRawFd, bytes: usize) -> io::Result<usize> {
    const PAGE: usize = 4096;
    let mut pages = vec![0_u8; bytes.div_ceil(PAGE)];
    let (protection, flags) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: the kernel chooses an address where nothing is, and nothing is read there.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            protection,
            flags,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has this length, and the list a byte for each page of it.
    let result = unsafe { libc::mincore(start, bytes, pages.as_mut_ptr()) };
    let error = io::Error::last_os_error();
    // SAFETY: nobody has a reference into it.
    unsafe { libc::munmap(start, bytes) };
    if result < 0 {
        return Err(error);
    }
    Ok(pages.iter().filter(|page| **page & 1 == 1).count())
}

/// Takes one huge page, writes to it, and gives it back.
pub(crate) fn huge_page() -> io::Result<()> {
    const BYTES: usize = 2 << 20;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    // SAFETY: the kernel chooses an address where nothing is.
    let start = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping is new, has this length, and is gone after this.
    unsafe {
        ptr::write_volatile(start.cast::<u8>(), 1);
        libc::munmap(start, BYTES);
    }
    Ok(())
}

/// A limit of this process: soft, hard.
pub(crate) fn limit(resource: u32) -> io::Result<(u64, u64)> {
    let mut limits = [0_u64; 2];
    call!(libc::SYS_getrlimit, resource, &mut limits)?;
    Ok((limits[0], limits[1]))
}

/// Sets a limit of this process.
pub(crate) fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    call!(libc::SYS_setrlimit, resource, &[soft, hard]).map(drop)
}

/// True if a descriptor is a terminal.
pub(crate) fn is_terminal(descriptor: i32) -> bool {
    // SAFETY: it takes a number.
    unsafe { libc::isatty(descriptor) == 1 }
}

/// The kernel's number for who this process is to files.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// The file's mount flags, as `statvfs` tells them.
pub(crate) fn mount_flags(path: &CStr) -> io::Result<u64> {
    let mut buffer = [0_u64; 32];
    call!(libc::SYS_statfs, path, &mut buffer)?;
    // In `struct statfs` of this architecture, `f_flags` is the eleventh word.
    Ok(buffer[10])
}
