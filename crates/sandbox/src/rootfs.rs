//! The root file system of one sandbox. Two halves: [`Prepared`] is made by the launcher, which can
//! reach the host's paths; [`build`] runs as process 1 of the new namespaces, which cannot, and puts
//! together what it was handed as open descriptors.

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use tidemill_core::grant::PathAccess;
use tidemill_core::job::User;
use tidemill_core::limits::inodes_for;
use tidemill_core::root::{GeneratedFile, Node, Owners, RootMount};
use tidemill_core::{Limits, RootPlan};

use crate::dev;
use crate::masks;
use crate::mirror;
use crate::request::StartError;
use crate::sys::mount::{
    self, ATTR_NODEV, ATTR_NOEXEC, ATTR_NOSUID, ATTR_RDONLY, attach, clone_tree, new_file_system,
    open_in_root, set_attributes,
};

/// Where process 1 keeps its construction site: a directory that every host has. What it covers is
/// reached by descriptors, if at all.
const SITE: &str = "/tmp";
/// The new root on the site.
const ROOT: &str = "root";
/// The directory on the site with what hides other things.
const COVERS: &str = "covers";
const EMPTY_DIRECTORY: &str = "empty-directory";
const EMPTY_FILE: &str = "empty-file";

/// Directories that everybody may write, private to the job.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// A failed step: what was tried, on what, and the kernel's answer.
#[derive(Debug)]
pub(crate) struct StepError {
    pub(crate) step: String,
    pub(crate) error: io::Error,
}

impl From<StepError> for StartError {
    fn from(failed: StepError) -> Self {
        Self::setup(failed.step, &failed.error)
    }
}

/// Adds the step to an error.
pub(crate) trait Step<T> {
    fn step(self, describe: impl FnOnce() -> String) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, describe: impl FnOnce() -> String) -> Result<T, StepError> {
        self.map_err(|error| StepError {
            step: describe(),
            error: error.into(),
        })
    }
}

/// A path of the host as a detached mount.
#[derive(Debug)]
struct Source {
    tree: OwnedFd,
    is_directory: bool,
    mode: u32,
    modified: rustix::fs::Timespec,
}

impl Source {
    /// Whose it is, as process 1 sees it; this one's where nobody that is mapped has it.
    fn owner_or(&self, other: User) -> Result<User, StepError> {
        const UNMAPPED: u32 = 65_534;
        let stat = rustix::fs::fstat(&self.tree).step(|| "look at a lower layer".to_owned())?;
        let mapped = |id: u32, other: u32| if id == UNMAPPED { other } else { id };
        Ok(User {
            uid: mapped(stat.st_uid, other.uid),
            gid: mapped(stat.st_gid, other.gid),
        })
    }
}

/// Everything of the host that a sandbox is built from.
#[derive(Debug)]
pub(crate) struct Prepared {
    trees: Vec<Source>,
    mounts: Vec<(Source, Vec<Source>)>,
    dev: dev::Prepared,
    sys: Option<OwnedFd>,
    scratch: Option<OwnedFd>,
    /// What could not be done as planned and does no harm beyond comfort.
    pub(crate) notes: Vec<String>,
}

/// Gives a user namespace that maps disk ids to job ids, made once and kept.
pub(crate) trait IdMaps {
    /// The namespace, or `None` where owners are shown as they are.
    ///
    /// # Errors
    /// What the kernel answers.
    fn namespace(&mut self, owners: Owners, job: User) -> io::Result<Option<BorrowedFd<'_>>>;
}

impl Prepared {
    /// Opens every path of the plan.
    ///
    /// # Errors
    /// The first step that failed.
    pub(crate) fn open(
        plan: &RootPlan,
        dev: dev::Prepared,
        scratch: Option<&std::path::Path>,
        maps: &mut impl IdMaps,
    ) -> Result<Self, StepError> {
        let job = plan.account.user;
        let mut notes = Vec::new();
        let mut trees = Vec::new();
        for tree in &plan.trees {
            let lower = (PathAccess::CopyOnWrite, tree.owners);
            trees.push(open_source(&tree.path, lower, job, maps, &mut notes)?);
        }
        let mut mounts = Vec::new();
        for mount in &plan.mounts {
            let stacked = mount.access == PathAccess::CopyOnWrite || !mount.over.is_empty();
            let access = if stacked {
                PathAccess::CopyOnWrite
            } else {
                mount.access
            };
            let kind = (access, mount.owners);
            let source = open_source(&mount.source, kind, job, maps, &mut notes)?;
            let mut over = Vec::new();
            for tree in &mount.over {
                let lower = (PathAccess::CopyOnWrite, tree.owners);
                over.push(open_source(&tree.path, lower, job, maps, &mut notes)?);
            }
            mounts.push((source, over));
        }
        let scratch = scratch
            .map(|path| {
                let at = open_host(&path.to_string_lossy())?;
                let tree = clone_tree(at.as_fd(), false)
                    .step(|| format!("copy the mount of {}", path.display()))?;
                set_attributes(tree.as_fd(), ATTR_NOSUID | ATTR_NODEV, false, None)
                    .step(|| format!("set the flags of {}", path.display()))?;
                Ok(tree)
            })
            .transpose()?;
        Ok(Self {
            trees,
            mounts,
            dev,
            sys: plan.sys.then(open_sys).transpose()?,
            scratch,
            notes,
        })
    }
}

/// Opens a path of the host without following any symbolic link.
pub(crate) fn open_host(path: &str) -> Result<OwnedFd, StepError> {
    let root = rustix::fs::open(
        "/",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .step(|| "open /".to_owned())?;
    open_in_root(root.as_fd(), path, libc::O_PATH, 0, true).step(|| format!("open {path}"))
}

fn describe(at: &OwnedFd, tree: OwnedFd) -> Result<Source, StepError> {
    let stat = rustix::fs::fstat(at).step(|| "look at an opened path".to_owned())?;
    Ok(Source {
        tree,
        is_directory: FileType::from_raw_mode(stat.st_mode) == FileType::Directory,
        mode: stat.st_mode & 0o7777,
        modified: rustix::fs::Timespec {
            tv_sec: stat.st_mtime,
            tv_nsec: i64::try_from(stat.st_mtime_nsec).unwrap_or(0),
        },
    })
}

fn open_source(
    path: &str,
    (access, owners): (PathAccess, Owners),
    job: User,
    maps: &mut impl IdMaps,
    notes: &mut Vec<String>,
) -> Result<Source, StepError> {
    let at = open_host(path)?;
    // An overlay sees only the file system of its lower directory, so what is mounted below it
    // would be empty there; a plain mount brings it along.
    let recursive = access != PathAccess::CopyOnWrite;
    let clone = || clone_tree(at.as_fd(), recursive).step(|| format!("copy the mount of {path}"));
    let mut tree = clone()?;
    let read_only = if access == PathAccess::Write {
        0
    } else {
        ATTR_RDONLY
    };
    let flags = ATTR_NOSUID | ATTR_NODEV | read_only;
    let namespace = maps
        .namespace(owners, job)
        .step(|| format!("make the id map for {path}"))?;
    if let Some(namespace) = namespace
        && let Err(error) = set_attributes(tree.as_fd(), 0, recursive, Some(namespace))
    {
        if access == PathAccess::Write {
            return Err(error).step(|| {
                format!("map the owners of {path} (its file system must support id-mapped mounts)")
            });
        }
        notes.push(format!(
            "the owners in {path} are shown as they are: its file system cannot be id-mapped ({error})"
        ));
        tree = clone()?;
    }
    set_attributes(tree.as_fd(), flags, recursive, None)
        .step(|| format!("set the flags of {path}"))?;
    describe(&at, tree)
}

/// The bounds of what a job may write, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) disk: u64,
    pub(crate) shared_memory: u64,
}

/// The construction site, kept open by process 1 to measure what the job wrote.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) directory: OwnedFd,
    builder: User,
    job: User,
    /// What is put over an entry of /proc each, by the entry's name.
    replaced: Vec<(&'static str, OwnedFd)>,
}

/// Builds the root and enters it. Returns the construction site.
///
/// # Errors
/// The first step that failed.
pub(crate) fn build(
    prepared: Prepared,
    plan: &RootPlan,
    limits: &Limits,
    sizes: Sizes,
    builder: User,
) -> Result<Site, StepError> {
    let mut site = Site::open(prepared.scratch, sizes, builder, plan.account.user)?;
    site.make_covers(limits)?;
    let root = site.stack_root(prepared.trees, plan)?;
    // A workspace or a home may lie below a temporary directory, and must not be covered by it; a layer
    // may bring the directory above one, and must not cover it.
    let covered = |path: &str| {
        plan.mounts
            .iter()
            .any(|mount| Path::new(path).starts_with(&mount.dest))
    };
    for path in TEMPORARY.into_iter().filter(|path| !covered(path)) {
        site.make_temporary(root.as_fd(), path)?;
    }
    for node in &plan.nodes {
        site.make_node(root.as_fd(), node)?;
    }
    for (index, (mount, source)) in plan.mounts.iter().zip(prepared.mounts).enumerate() {
        site.mount(root.as_fd(), mount, source, index)?;
        for hidden in &mount.hidden {
            let path = format!("{}/{hidden}", mount.dest.trim_end_matches('/'));
            // What is to be written anew hides what was there.
            if !plan.files.iter().any(|file| file.path == path) {
                site.hide(root.as_fd(), &path)?;
            }
        }
    }
    for file in &plan.files {
        write_file(root.as_fd(), file)?;
    }
    for path in TEMPORARY.into_iter().filter(|path| covered(path)) {
        site.make_temporary(root.as_fd(), path)?;
    }
    dev::build(root.as_fd(), prepared.dev, sizes.shared_memory)?;
    if let Some(sys) = prepared.sys {
        mount_sys(root.as_fd(), &sys)?;
    }
    make_proc(root.as_fd(), &site.replaced)?;
    rustix::process::fchdir(&root).step(|| "enter the new root".to_owned())?;
    mount::pivot_to_current_directory().step(|| "make the new root the root".to_owned())?;
    Ok(site)
}

impl Site {
    fn open(
        scratch: Option<OwnedFd>,
        sizes: Sizes,
        builder: User,
        job: User,
    ) -> Result<Self, StepError> {
        let directory = match scratch {
            Some(tree) => tree,
            None => {
                let size = sizes.disk.to_string();
                let inodes = inodes_for(sizes.disk).to_string();
                new_file_system(
                    c"tmpfs",
                    &[
                        ("size", Some(size.as_str())),
                        ("nr_inodes", Some(inodes.as_str())),
                        ("mode", Some("0755")),
                    ],
                    ATTR_NOSUID | ATTR_NODEV,
                )
                .step(|| "make a tmpfs for the private layer".to_owned())?
            }
        };
        let target = rustix::fs::open(
            SITE,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .step(|| format!("open {SITE}"))?;
        attach(directory.as_fd(), target.as_fd())
            .step(|| format!("mount the private layer on {SITE}"))?;
        let site = Self {
            directory,
            builder,
            job,
            replaced: Vec::new(),
        };
        Ok(site)
    }

    /// Says anew what is put over entries of /proc.
    ///
    /// # Errors
    /// The file that could not be written.
    pub(crate) fn replace(&self, entries: &[(String, String)]) -> Result<(), StepError> {
        for (name, content) in entries {
            let Some((_, file)) = self.replaced.iter().find(|(other, _)| other == name) else {
                continue;
            };
            let describe = || format!("write /proc/{name} anew");
            let length = rustix::io::pwrite(file, content.as_bytes(), 0).step(describe)?;
            rustix::fs::ftruncate(file, u64::try_from(length).unwrap_or(0)).step(describe)?;
        }
        Ok(())
    }

    /// Makes what is put over paths that a job does not see as they are, in a directory of its own that
    /// is mounted read-only on itself.
    fn make_covers(&mut self, limits: &Limits) -> Result<(), StepError> {
        let covers = self.make_directory(COVERS, 0o755, self.builder)?;
        self.make_directory(&format!("{COVERS}/{EMPTY_DIRECTORY}"), 0o555, self.builder)?;
        self.make_file(&format!("{COVERS}/{EMPTY_FILE}"), b"", 0o444)?;
        for (name, content) in masks::replacements(limits) {
            let file = self.make_file(&format!("{COVERS}/{name}"), content.as_bytes(), 0o444)?;
            self.replaced.push((name, file));
        }
        let tree = self.read_only(COVERS)?;
        attach(tree.as_fd(), covers.as_fd()).step(|| "mount the covers".to_owned())
    }

    fn make_directory(&self, name: &str, mode: u32, owner: User) -> Result<OwnedFd, StepError> {
        let describe = || format!("make {name} in the private layer");
        rustix::fs::mkdirat(&self.directory, name, Mode::from_raw_mode(mode)).step(describe)?;
        let opened = self.open_directory(name)?;
        if owner != self.builder {
            give(&opened, owner).step(describe)?;
        }
        rustix::fs::chmodat(
            &self.directory,
            name,
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )
        .step(describe)?;
        Ok(opened)
    }

    fn open_directory(&self, name: &str) -> Result<OwnedFd, StepError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, name, flags, Mode::empty())
            .step(|| format!("open {name} in the private layer"))
    }

    fn make_file(&self, name: &str, content: &[u8], mode: u32) -> Result<OwnedFd, StepError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::from_raw_mode(mode))
            .step(|| format!("make {name} in the private layer"))?;
        let mut file = std::fs::File::from(file);
        file.write_all(content)
            .step(|| format!("write {name} in the private layer"))?;
        Ok(file.into())
    }

    /// A read-only mount of something on the site.
    fn read_only(&self, name: &str) -> Result<OwnedFd, StepError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let at = rustix::fs::openat(&self.directory, name, flags, Mode::empty())
            .step(|| format!("open {name} in the private layer"))?;
        let tree = clone_tree(at.as_fd(), false).step(|| format!("copy the mount of {name}"))?;
        let attributes = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC;
        set_attributes(tree.as_fd(), attributes, false, None)
            .step(|| format!("set the flags of {name}"))?;
        Ok(tree)
    }

    /// The trees below a private layer, or the private layer alone, mounted on the site.
    fn stack_root(&self, trees: Vec<Source>, plan: &RootPlan) -> Result<OwnedFd, StepError> {
        let owner = self.builder;
        let upper = self.make_directory("root-upper", 0o755, owner)?;
        let target = self.make_directory(ROOT, 0o755, owner)?;
        let root = if trees.is_empty() {
            let tree = clone_tree(upper.as_fd(), false)
                .step(|| "copy the mount of the private layer".to_owned())?;
            set_attributes(tree.as_fd(), ATTR_NOSUID | ATTR_NODEV, false, None)
                .step(|| "set the flags of the root".to_owned())?;
            tree
        } else {
            self.make_directory("root-work", 0o755, owner)?;
            let mut lowers = Vec::new();
            for (index, tree) in trees.iter().enumerate() {
                let name = format!("tree-{index}");
                let place = self.make_directory(&name, 0o755, owner)?;
                attach(tree.tree.as_fd(), place.as_fd())
                    .step(|| format!("mount tree {index} of the image"))?;
                lowers.push(name);
            }
            lowers.reverse();
            self.mirror_foreign(&trees, &upper, plan)?;
            overlay(&lowers, Some(("root-upper", "root-work")))
                .step(|| "stack the image's trees with overlayfs".to_owned())?
        };
        attach(root.as_fd(), target.as_fd()).step(|| "mount the new root".to_owned())?;
        Ok(root)
    }

    /// Makes the directories that the plan needs where the image's own may not be written.
    fn mirror_foreign(
        &self,
        trees: &[Source],
        upper: &OwnedFd,
        plan: &RootPlan,
    ) -> Result<(), StepError> {
        let tops: Vec<BorrowedFd<'_>> = trees.iter().rev().map(|tree| tree.tree.as_fd()).collect();
        let mut foreign = false;
        for tree in &tops {
            foreign |=
                mirror::is_foreign(*tree).step(|| "look at the owner of the image".to_owned())?;
        }
        let home = plan.account.home.as_str();
        let foreign_home = !foreign
            && mirror::leads_through_foreign(&tops, home)
                .step(|| format!("look at the owner of {home} in the image"))?;
        for path in mirror::wanted(plan) {
            if foreign || (foreign_home && Path::new(path).starts_with(home)) {
                mirror::mirror(&tops, upper, path)
                    .step(|| format!("make {path} in the private layer"))?;
            }
        }
        Ok(())
    }

    fn make_node(&self, root: BorrowedFd<'_>, node: &Node) -> Result<(), StepError> {
        match node {
            Node::Dir {
                path,
                mode,
                job_owned,
            } => {
                let directory = make_directories(root, path)?;
                let describe = || format!("set the owner and mode of {path}");
                if *job_owned {
                    let stat = rustix::fs::fstat(&directory).step(describe)?;
                    // A home that the image has closed to others stays closed.
                    if stat.st_uid == self.job.uid && stat.st_mode & 0o700 == 0o700 {
                        return Ok(());
                    }
                }
                if *job_owned && self.job != self.builder {
                    give(&directory, self.job).step(describe)?;
                }
                set_mode(&directory, *mode).step(describe)
            }
            Node::Symlink { path, target } => {
                let (parent, name) = split(path);
                let parent = make_directories(root, parent)?;
                let describe = || format!("make the link {path} to {target}");
                match rustix::fs::symlinkat(target.as_str(), &parent, name) {
                    Err(rustix::io::Errno::EXIST) => {
                        rustix::fs::unlinkat(&parent, name, AtFlags::empty()).step(describe)?;
                        rustix::fs::symlinkat(target.as_str(), &parent, name).step(describe)
                    }
                    other => other.step(describe),
                }
            }
        }
    }

    fn mount(
        &self,
        root: BorrowedFd<'_>,
        plan: &RootMount,
        (source, over): (Source, Vec<Source>),
        index: usize,
    ) -> Result<(), StepError> {
        let target = if source.is_directory {
            make_directories(root, &plan.dest)?
        } else {
            make_place_for_file(root, &plan.dest)?
        };
        let stacked = plan.access == PathAccess::CopyOnWrite || !over.is_empty();
        let tree = if stacked && source.is_directory {
            self.stack_mount(plan, source, over, index)?
        } else {
            source.tree
        };
        attach(tree.as_fd(), target.as_fd())
            .step(|| format!("mount {} on {}", plan.source, plan.dest))
    }

    /// A directory of the host, trees over it, and (unless it is read-only) a private layer over all.
    fn stack_mount(
        &self,
        plan: &RootMount,
        source: Source,
        over: Vec<Source>,
        index: usize,
    ) -> Result<OwnedFd, StepError> {
        let [upper, work] = ["upper", "work"].map(|part| format!("mount-{index}-{part}"));
        let owner = source.owner_or(match plan.owners {
            Owners::Job { .. } => self.job,
            Owners::AsIs | Owners::Range => self.builder,
        })?;
        let mut lowers = Vec::new();
        for (level, layer) in std::iter::once(&source).chain(&over).enumerate() {
            let lower = format!("mount-{index}-lower-{level}");
            let place = self.make_directory(&lower, 0o755, self.builder)?;
            attach(layer.tree.as_fd(), place.as_fd())
                .step(|| format!("mount {} as a lower layer", plan.source))?;
            lowers.push(lower);
        }
        lowers.reverse();
        if plan.access == PathAccess::ReadOnly {
            return overlay(&lowers, None)
                .step(|| format!("stack layers over {} with overlayfs", plan.source));
        }
        // The merged directory shows the attributes of its upper one.
        self.make_directory(&upper, source.mode & 0o1777, owner)?;
        self.make_directory(&work, 0o755, self.builder)?;
        let times = rustix::fs::Timestamps {
            last_access: source.modified,
            last_modification: source.modified,
        };
        rustix::fs::utimensat(&self.directory, upper.as_str(), &times, AtFlags::empty())
            .step(|| format!("set the time of {}", plan.dest))?;
        overlay(&lowers, Some((&upper, &work)))
            .step(|| format!("put a private layer over {} with overlayfs", plan.source))
    }

    /// Puts something empty over a path, if it is there.
    fn hide(&self, root: BorrowedFd<'_>, path: &str) -> Result<(), StepError> {
        let target = match open_in_root(root, path, libc::O_PATH | libc::O_NOFOLLOW, 0, true) {
            Ok(target) => target,
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::ELOOP | libc::ENOTDIR)
                ) =>
            {
                return Ok(());
            }
            Err(error) => return Err(error).step(|| format!("open {path} to hide it")),
        };
        let stat = rustix::fs::fstat(&target).step(|| format!("look at {path}"))?;
        let cover = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink => return Ok(()),
            FileType::Directory => EMPTY_DIRECTORY,
            _ => EMPTY_FILE,
        };
        let cover = self.read_only(&format!("{COVERS}/{cover}"))?;
        attach(cover.as_fd(), target.as_fd()).step(|| format!("hide {path}"))
    }

    /// A private directory that everybody may write, on the private layer's own file system.
    fn make_temporary(&self, root: BorrowedFd<'_>, path: &str) -> Result<(), StepError> {
        let name = path.trim_start_matches('/').replace('/', "-");
        let directory = self.make_directory(&name, 0o1777, self.builder)?;
        let tree =
            clone_tree(directory.as_fd(), false).step(|| format!("copy the mount for {path}"))?;
        set_attributes(tree.as_fd(), ATTR_NOSUID | ATTR_NODEV, false, None)
            .step(|| format!("set the flags of {path}"))?;
        let target = make_directories(root, path)?;
        attach(tree.as_fd(), target.as_fd()).step(|| format!("mount {path}"))
    }
}

/// The kernel's objects of the network namespace that this process stands in, or, where that is not its
/// own to mount, the host's.
fn open_sys() -> Result<OwnedFd, StepError> {
    let flags = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC;
    if let Ok(own) = new_file_system(c"sysfs", &[], flags) {
        return Ok(own);
    }
    let at = open_host("/sys")?;
    let tree = clone_tree(at.as_fd(), false).step(|| "copy the mount of /sys".to_owned())?;
    set_attributes(tree.as_fd(), flags, false, None).step(|| "set the flags of /sys".to_owned())?;
    Ok(tree)
}

fn mount_sys(root: BorrowedFd<'_>, sys: &OwnedFd) -> Result<(), StepError> {
    let target = own_directory(root, "/sys")?;
    attach(sys.as_fd(), target.as_fd()).step(|| "mount /sys".to_owned())?;
    rustix::process::fchdir(sys).step(|| "enter /sys".to_owned())?;
    let mut covers = Covers::new();
    for path in masks::HIDDEN_OF_SYS {
        covers.put(path).step(|| format!("hide /sys/{path}"))?;
    }
    Ok(())
}

fn make_proc(root: BorrowedFd<'_>, replaced: &[(&'static str, OwnedFd)]) -> Result<(), StepError> {
    let target = own_directory(root, "/proc")?;
    let proc =
        new_file_system(c"proc", &[], ATTR_NOSUID | ATTR_NODEV | ATTR_NOEXEC).step(|| {
            "make a proc file system (the launcher's own /proc must not be masked)".to_owned()
        })?;
    attach(proc.as_fd(), target.as_fd()).step(|| "mount /proc".to_owned())?;
    let proc = open_in_root(root, "/proc", libc::O_PATH | libc::O_DIRECTORY, 0, true)
        .step(|| "open /proc".to_owned())?;
    // By names in it: it is ours alone, and short names are what so many mounts cost least with.
    rustix::process::fchdir(&proc).step(|| "enter /proc".to_owned())?;
    for path in masks::READ_ONLY {
        match mount::bind(path, path) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(error) => return Err(error).step(|| format!("copy the mount of /proc/{path}")),
        }
        mount::make_read_only(path).step(|| format!("make /proc/{path} read-only"))?;
    }
    let mut covers = Covers::new();
    for path in masks::HIDDEN {
        covers.put(path).step(|| format!("hide /proc/{path}"))?;
    }
    for (name, _) in replaced {
        mount::bind(&format!("{SITE}/{COVERS}/{name}"), name)
            .step(|| format!("mount /proc/{name}"))?;
    }
    Ok(())
}

/// Something empty to put over names in the current directory.
struct Covers {
    file: String,
    directory: String,
}

impl Covers {
    fn new() -> Self {
        Self {
            file: format!("{SITE}/{COVERS}/{EMPTY_FILE}"),
            directory: format!("{SITE}/{COVERS}/{EMPTY_DIRECTORY}"),
        }
    }

    /// Covers a name, if it is there: with an empty directory if it is one, else with an empty file.
    fn put(&mut self, name: &str) -> io::Result<()> {
        let (is_directory, result) = match mount::bind(&self.file, name) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => {
                (true, mount::bind(&self.directory, name))
            }
            other => (false, other),
        };
        match result {
            // What has been covered is as empty, and its name is shorter.
            Ok(()) if is_directory => name.clone_into(&mut self.directory),
            Ok(()) => name.clone_into(&mut self.file),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// An overlay of directories that are mounted on the site, named by their paths on it.
fn overlay(lowers: &[String], private: Option<(&str, &str)>) -> io::Result<OwnedFd> {
    /// fsconfig(2) takes strings of up to 255 bytes.
    const STRING_MAX: usize = 255;
    const KIND: &CStr = c"overlay";
    let at = |name: &str| format!("{SITE}/{name}");
    let paths: Vec<String> = lowers.iter().map(|name| at(name)).collect();
    let joined = paths.join(":");
    let private = private.map(|(upper, work)| (at(upper), at(work)));
    let mut options: Vec<(&str, Option<&str>)> = Vec::new();
    if joined.len() <= STRING_MAX {
        options.push(("lowerdir", Some(&joined)));
    } else {
        options.extend(paths.iter().map(|path| ("lowerdir+", Some(path.as_str()))));
    }
    options.push(("userxattr", None));
    let mut attributes = ATTR_NOSUID | ATTR_NODEV;
    if let Some((upper, work)) = &private {
        // The layer is thrown away with the job: nothing of it needs to reach the disk.
        options.extend([
            ("upperdir", Some(upper.as_str())),
            ("workdir", Some(work.as_str())),
            ("volatile", None),
        ]);
    } else {
        attributes |= ATTR_RDONLY;
    }
    new_file_system(KIND, &options, attributes)
}

fn split(path: &str) -> (&str, &str) {
    path.trim_end_matches('/')
        .rsplit_once('/')
        .unwrap_or(("", path))
}

/// Opens a directory inside, making what is missing of it.
pub(crate) fn make_directories(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, StepError> {
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let whole = if path.is_empty() { "/" } else { path };
    match open_in_root(root, whole, flags, 0, false) {
        Ok(directory) => Ok(directory),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) && whole != "/" => {
            let (parent, name) = split(whole);
            let parent = make_directories(root, parent)?;
            rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))
                .step(|| format!("make the directory {whole} inside"))?;
            open_in_root(root, whole, flags, 0, false).step(|| format!("open {whole} inside"))
        }
        Err(error) => Err(error).step(|| format!("open {whole} inside")),
    }
}

/// Opens a file inside that something is to be mounted on, making it if it is missing.
pub(crate) fn make_place_for_file(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, StepError> {
    let (parent, name) = split(path);
    let parent = make_directories(root, parent)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)) {
        Ok(_) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error).step(|| format!("make the file {path} inside")),
    }
    open_in_root(root, path, libc::O_PATH, 0, false).step(|| format!("open {path} inside"))
}

/// The place of a file system that the sandbox brings itself: a real directory of the root, never a
/// link that an image has put there.
pub(crate) fn own_directory(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, StepError> {
    make_directories(root, path)?;
    open_in_root(root, path, libc::O_PATH | libc::O_DIRECTORY, 0, true)
        .step(|| format!("open {path} inside, which must be a directory and no link"))
}

/// Writes a small file inside, in place of whatever has its name.
fn write_file(root: BorrowedFd<'_>, file: &GeneratedFile) -> Result<(), StepError> {
    let (parent, name) = split(&file.path);
    let parent = make_directories(root, parent)?;
    let describe = || format!("write {} inside", file.path);
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(error) => return Err(error).step(describe),
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened =
        rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).step(describe)?;
    std::fs::File::from(opened)
        .write_all(file.content.as_bytes())
        .step(describe)
}

fn give(directory: &OwnedFd, owner: User) -> io::Result<()> {
    rustix::fs::chownat(
        directory,
        "",
        Some(rustix::fs::Uid::from_raw(owner.uid)),
        Some(rustix::fs::Gid::from_raw(owner.gid)),
        AtFlags::EMPTY_PATH,
    )?;
    Ok(())
}

/// chmod(2) on an `O_PATH` descriptor, through the launcher's /proc, which is still there.
fn set_mode(directory: &OwnedFd, mode: u32) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode(mode & 0o1777))?;
    Ok(())
}
