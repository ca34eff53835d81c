//! A job's /dev: the few devices that every job has, a terminal multiplexer and shared memory of its own.
//!
//! What is the same for every job is made once, as a tree of mounts that is copied for each. That takes
//! a kernel that copies mounts which are attached nowhere (Linux 6.15); elsewhere, and where a job has
//! devices beyond the usual ones or a terminal, it is made for the job.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use tidemill_core::limits::inodes_for;
use tidemill_core::root::DEVICES;

use crate::rootfs::{
    Step, StepError, make_directories, make_place_for_file, open_host, own_directory,
};
use crate::sys::mount::{
    ATTR_NODEV, ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY, attach, clone_tree, detach, new_file_system,
    set_attributes,
};

/// Links that programs expect.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];
const TERMINALS: &str = "pts";
const SHARED_MEMORY: &str = "shm";
const MESSAGE_QUEUES: &str = "mqueue";
const CONSOLE: &str = "console";

/// What of the host a job's /dev is made from.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// A tree of mounts that only has to be attached.
    Whole(OwnedFd),
    /// Devices to be attached one by one, each under its name in /dev.
    Parts(Vec<(String, OwnedFd)>),
}

impl Prepared {
    /// Opens the usual devices.
    ///
    /// # Errors
    /// The first step that failed.
    pub(crate) fn open() -> Result<Self, StepError> {
        usual_devices().map(Self::Parts)
    }

    /// Adds a device that was granted. With an owner (as the launcher sees it) the job gets a node of
    /// its own, because the host's may be for root alone; without one, what the caller may open.
    ///
    /// # Errors
    /// The first step that failed.
    pub(crate) fn add(&mut self, path: &str, owner: Option<u32>) -> Result<(), StepError> {
        let Self::Parts(parts) = self else {
            return Ok(());
        };
        let at = open_host(path)?;
        let tree = match owner {
            Some(owner) => own_node(&at, path, owner)?,
            None => copy_device(&at, path)?,
        };
        parts.push((name(path).to_owned(), tree));
        Ok(())
    }

    /// Shows the job's terminal as /dev/console: its own name lies in a devpts that the job does not
    /// see, and programs look for another one in /dev (ttyname(3)). A terminal that this namespace has
    /// no path for stays without a name.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn show_terminal(&mut self, terminal: BorrowedFd<'_>) -> Result<(), StepError> {
        let Self::Parts(parts) = self else {
            return Ok(());
        };
        // The descriptor was opened in its owner's mount namespace, and a mount can only be copied in
        // its own, so the same device is looked up by its path here.
        let link = format!("/proc/self/fd/{}", terminal.as_raw_fd());
        let Ok(path) = fs::read_link(link) else {
            return Ok(());
        };
        let path = path.to_string_lossy();
        let Ok(at) = open_host(&path) else {
            return Ok(());
        };
        let identity = |fd: BorrowedFd<'_>| {
            rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino, stat.st_rdev))
        };
        let describe = || format!("copy the mount of {path}");
        if identity(at.as_fd()).step(describe)? == identity(terminal).step(describe)? {
            parts.push((CONSOLE.to_owned(), copy_device(&at, &path)?));
        }
        Ok(())
    }
}

/// The devices that every job has, each with its name in /dev.
fn usual_devices() -> Result<Vec<(String, OwnedFd)>, StepError> {
    let open = |path: &str| Ok((name(path).to_owned(), copy_device(&open_host(path)?, path)?));
    DEVICES.into_iter().map(open).collect()
}

/// The name of a device in /dev.
fn name(path: &str) -> &str {
    path.trim_start_matches("/dev/")
}

fn copy_device(at: &OwnedFd, path: &str) -> Result<OwnedFd, StepError> {
    let tree = clone_tree(at.as_fd(), false).step(|| format!("copy the mount of {path}"))?;
    set_attributes(tree.as_fd(), ATTR_NOSUID | ATTR_NOEXEC, false, None)
        .step(|| format!("set the flags of {path}"))?;
    Ok(tree)
}

/// A node of the same device that belongs to this user alone, as a mount that is attached nowhere.
fn own_node(at: &OwnedFd, path: &str, owner: u32) -> Result<OwnedFd, StepError> {
    const NODE: &str = "node";
    let describe = || format!("make a device node like {path} for the job");
    let stat = rustix::fs::fstat(at).step(describe)?;
    let nodes = new_file_system(
        c"tmpfs",
        &[("size", Some("4k")), ("mode", Some("0755"))],
        ATTR_NOSUID | ATTR_NOEXEC,
    )
    .step(describe)?;
    rustix::fs::mknodat(
        &nodes,
        NODE,
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o600),
        stat.st_rdev,
    )
    .step(describe)?;
    let uid = Some(rustix::fs::Uid::from_raw(owner));
    rustix::fs::chownat(&nodes, NODE, uid, None, AtFlags::SYMLINK_NOFOLLOW).step(describe)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::openat(&nodes, NODE, flags, Mode::empty()).step(describe)?;
    clone_tree(node.as_fd(), false).step(describe)
}

/// The part of /dev that is the same for all jobs.
#[derive(Debug)]
pub(crate) struct Template(OwnedFd);

impl Template {
    /// Makes it. `place` is an empty directory that it is made on, and taken away from again.
    ///
    /// # Errors
    /// The first step that failed.
    pub(crate) fn make(place: &Path) -> Result<Self, StepError> {
        let describe = || format!("make a /dev for all jobs on {}", place.display());
        fs::create_dir(place).step(describe)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let target = rustix::fs::open(place, flags, Mode::empty()).step(describe)?;
        let dev = mount_parts(target.as_fd(), usual_devices()?)?;
        let copied = clone_tree(dev.as_fd(), true).step(describe);
        detach(place).step(describe)?;
        let template = Self(copied?);
        // Found out here, and not at every job.
        template.copy().step(describe)?;
        Ok(template)
    }

    /// A copy for one job.
    ///
    /// # Errors
    /// What open_tree(2) answers.
    pub(crate) fn copy(&self) -> io::Result<OwnedFd> {
        clone_tree(self.0.as_fd(), true)
    }
}

/// Makes a file system for /dev, mounts it, and puts into it what can be there before the job is known.
fn mount_parts(
    target: BorrowedFd<'_>,
    parts: Vec<(String, OwnedFd)>,
) -> Result<OwnedFd, StepError> {
    let dev = new_file_system(
        c"tmpfs",
        &[("size", Some("64k")), ("mode", Some("0755"))],
        ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC,
    )
    .step(|| "make a tmpfs for /dev".to_owned())?;
    attach(dev.as_fd(), target).step(|| "mount /dev".to_owned())?;
    for (name, tree) in parts {
        let place = make_place_for_file(dev.as_fd(), &name)?;
        attach(tree.as_fd(), place.as_fd()).step(|| format!("mount /dev/{name}"))?;
    }
    for (name, to) in LINKS {
        rustix::fs::symlinkat(to, &dev, name).step(|| format!("make the link /dev/{name}"))?;
    }
    for name in [TERMINALS, SHARED_MEMORY, MESSAGE_QUEUES] {
        make_directories(dev.as_fd(), name)?;
    }
    set_attributes(dev.as_fd(), ATTR_RDONLY, false, None)
        .step(|| "make /dev read-only".to_owned())?;
    Ok(dev)
}

/// Puts /dev into a job's root, with this many bytes of shared memory.
///
/// # Errors
/// The first step that failed.
pub(crate) fn build(
    root: BorrowedFd<'_>,
    prepared: Prepared,
    shared_memory: u64,
) -> Result<(), StepError> {
    let target = own_directory(root, "/dev")?;
    let dev = match prepared {
        Prepared::Whole(tree) => {
            attach(tree.as_fd(), target.as_fd()).step(|| "mount /dev".to_owned())?;
            tree
        }
        Prepared::Parts(parts) => mount_parts(target.as_fd(), parts)?,
    };
    let terminals = new_file_system(
        c"devpts",
        &[
            ("newinstance", None),
            ("ptmxmode", Some("0666")),
            ("mode", Some("0620")),
        ],
        ATTR_NOSUID | ATTR_NOEXEC,
    )
    .step(|| "make a devpts".to_owned())?;
    let size = shared_memory.to_string();
    // An empty file takes memory too, and no bytes.
    let inodes = inodes_for(shared_memory).to_string();
    let shared = new_file_system(
        c"tmpfs",
        &[
            ("size", Some(size.as_str())),
            ("nr_inodes", Some(inodes.as_str())),
            ("mode", Some("1777")),
        ],
        ATTR_NOSUID | ATTR_NODEV,
    )
    .step(|| "make a tmpfs for /dev/shm".to_owned())?;
    let queues = new_file_system(c"mqueue", &[], ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC)
        .step(|| "make a file system for message queues".to_owned())?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for (name, tree) in [
        (TERMINALS, terminals),
        (SHARED_MEMORY, shared),
        (MESSAGE_QUEUES, queues),
    ] {
        let place = rustix::fs::openat(&dev, name, flags, Mode::empty())
            .step(|| format!("open /dev/{name}"))?;
        attach(tree.as_fd(), place.as_fd()).step(|| format!("mount /dev/{name}"))?;
    }
    Ok(())
}
