//! The file-descriptor based mount interface of Linux 5.2 and later, and what goes with it.
//!
//! fsopen(2), fsconfig(2), fsmount(2), open_tree(2), move_mount(2), mount_setattr(2), pivot_root(2).

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{check, check_int};

pub(crate) const ATTR_RDONLY: u64 = 0x1;
pub(crate) const ATTR_NOSUID: u64 = 0x2;
pub(crate) const ATTR_NODEV: u64 = 0x4;
pub(crate) const ATTR_NOEXEC: u64 = 0x8;
const ATTR_IDMAP: u64 = 0x0010_0000;

const OPEN_TREE_CLONE: u32 = 1;
const AT_RECURSIVE: u32 = 0x8000;
const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just given this descriptor to us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a new file system of a kind, with options, as a detached mount.
///
/// # Errors
/// What the kernel answers, `EPERM` where the host forbids this kind in a user namespace.
pub(crate) fn new_file_system(
    kind: &CStr,
    options: &[(&str, Option<&str>)],
    attributes: u64,
) -> io::Result<OwnedFd> {
    // SAFETY: `kind` is NUL-terminated and outlives the call.
    let context = owned(check(unsafe {
        libc::syscall(libc::SYS_fsopen, kind.as_ptr(), 1_u32)
    })?)?;
    for (key, value) in options {
        let key = c_string(key.as_bytes())?;
        let value = value.map(|text| c_string(text.as_bytes())).transpose()?;
        let command = if value.is_some() {
            FSCONFIG_SET_STRING
        } else {
            FSCONFIG_SET_FLAG
        };
        let pointer = value
            .as_ref()
            .map_or(std::ptr::null(), |text| text.as_ptr());
        // SAFETY: key and value are NUL-terminated (or null for a flag) and outlive the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                context.as_raw_fd(),
                command,
                key.as_ptr(),
                pointer,
                0_i32,
            )
        })?;
    }
    // SAFETY: the create command takes no key and no value.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_char>(),
            0_i32,
        )
    })?;
    // SAFETY: only integers are passed.
    owned(check(unsafe {
        libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1_u32, attributes)
    })?)
}

/// A detached copy of the mount that a path lies on, rooted at that path. The path is resolved by
/// the caller: `at` is the object itself.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn clone_tree(at: BorrowedFd<'_>, recursive: bool) -> io::Result<OwnedFd> {
    let flags = OPEN_TREE_CLONE
        | libc::O_CLOEXEC.cast_unsigned()
        | libc::AT_EMPTY_PATH.cast_unsigned()
        | if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a static empty string, `at` is open.
    owned(check(unsafe {
        libc::syscall(libc::SYS_open_tree, at.as_raw_fd(), c"".as_ptr(), flags)
    })?)
}

/// Sets attributes on a detached tree, and maps its ids by a user namespace if one is given.
///
/// # Errors
/// What the kernel answers: `EINVAL` where the file system cannot be id-mapped.
pub(crate) fn set_attributes(
    tree: BorrowedFd<'_>,
    set: u64,
    recursive: bool,
    id_map: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let attributes = MountAttr {
        attr_set: set | if id_map.is_some() { ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: 0,
        userns_fd: id_map.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
    };
    let flags = libc::AT_EMPTY_PATH.cast_unsigned() | if recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: the structure has the layout and the size that the call is told.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Takes away what is mounted on a path.
///
/// # Errors
/// What umount2(2) answers.
pub(crate) fn detach(path: &Path) -> io::Result<()> {
    let path = c_string(path.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    check_int(unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) })?;
    Ok(())
}

/// Makes the mount on a path read-only.
///
/// # Errors
/// What mount_setattr(2) answers.
pub(crate) fn make_read_only(path: &str) -> io::Result<()> {
    let path = c_string(path.as_bytes())?;
    let attributes = MountAttr {
        attr_set: ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is NUL-terminated, the structure has the layout and the size that the call is told.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            0_u32,
            &raw const attributes,
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Mounts a path once more on another one, with the flags of the mount that it lies in. Links in either
/// path are followed: for paths that nobody else can change.
///
/// # Errors
/// `ENOENT` if one is not there, `ENOTDIR` if one is a directory and the other none; what mount(2)
/// answers.
pub(crate) fn bind(source: &str, target: &str) -> io::Result<()> {
    let (source, target) = (c_string(source.as_bytes())?, c_string(target.as_bytes())?);
    // SAFETY: both paths are NUL-terminated and outlive the call; type and data are not looked at.
    let result = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            std::ptr::null(),
            libc::MS_BIND,
            std::ptr::null(),
        )
    };
    check(result.into())?;
    Ok(())
}

/// Attaches a detached tree on top of an open file or directory.
///
/// # Errors
/// What the kernel answers.
pub(crate) fn attach(tree: BorrowedFd<'_>, target: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both paths are static empty strings, both descriptors are open.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            target.as_raw_fd(),
            c"".as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    })?;
    Ok(())
}

/// Makes every mount of this namespace private, so that nothing propagates to or from the host.
///
/// # Errors
/// What mount(2) answers.
pub(crate) fn make_all_private() -> io::Result<()> {
    // SAFETY: a propagation change reads only the target, a static string.
    check_int(unsafe {
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        )
    })?;
    Ok(())
}

/// Makes the current directory the root and lets go of the old root.
///
/// # Errors
/// What pivot_root(2), umount2(2) or chdir(2) answers.
pub(crate) fn pivot_to_current_directory() -> io::Result<()> {
    // SAFETY: static strings only. pivot_root(".", ".") stacks the old root over the new one, and
    // the unmount takes the upper of the two away, see pivot_root(2).
    check(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })?;
    // SAFETY: a static string.
    check_int(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) })?;
    // SAFETY: a static string.
    check_int(unsafe { libc::chdir(c"/".as_ptr()) })?;
    Ok(())
}

/// `openat2` with the resolution kept in the root `root`: absolute links and `..` stay inside, magic
/// links are refused.
///
/// # Errors
/// What openat2(2) answers.
pub(crate) fn open_in_root(
    root: BorrowedFd<'_>,
    path: &str,
    flags: i32,
    mode: u32,
    no_symlinks: bool,
) -> io::Result<OwnedFd> {
    const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
    const RESOLVE_NO_SYMLINKS: u64 = 0x04;
    const RESOLVE_IN_ROOT: u64 = 0x10;
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let path = c_string(path.as_bytes())?;
    let how = OpenHow {
        flags: u64::from((flags | libc::O_CLOEXEC).cast_unsigned()),
        mode: u64::from(mode),
        resolve: RESOLVE_IN_ROOT
            | RESOLVE_NO_MAGICLINKS
            | if no_symlinks { RESOLVE_NO_SYMLINKS } else { 0 },
    };
    // SAFETY: the path is NUL-terminated, the structure has the layout and size told to the call.
    owned(check(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<OpenHow>(),
        )
    })?)
}

/// Free and total bytes and inodes of the file system that an open file lies on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) free_inodes: u64,
    pub(crate) total_inodes: u64,
}

/// Asks fstatfs(2).
///
/// # Errors
/// What the kernel answers.
pub(crate) fn space(fd: impl AsFd) -> io::Result<Space> {
    let answer = rustix::fs::fstatfs(fd)?;
    let block = u64::try_from(answer.f_bsize).unwrap_or(4096);
    Ok(Space {
        total_bytes: answer.f_blocks * block,
        free_bytes: answer.f_bfree * block,
        free_inodes: answer.f_ffree,
        total_inodes: answer.f_files,
    })
}
