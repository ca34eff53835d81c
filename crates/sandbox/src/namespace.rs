//! The user namespaces of a launcher: the one that it lives in, and those that map the owners of the
//! host's files to a job's.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use tidemill_core::job::User;
use tidemill_core::root::Owners;

use crate::host::namespace_refusal;
use crate::identity::{self, Identity, JOB_ID_BASE, JOB_ID_COUNT};
use crate::rootfs::IdMaps;
use crate::sys::{mount, process};

/// Becomes what sandboxes are made from: root with mounts of its own, or root of a user namespace.
pub(crate) fn assume_identity(no_sub_ids: &mut Option<String>) -> Result<Identity, String> {
    let refused = |what: &str, error: &io::Error| {
        let error = namespace_refusal().explain(error);
        format!("{what}: {error}")
    };
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let identity = if uid == 0 {
        process::unshare(libc::CLONE_NEWNS)
            .map_err(|error| refused("a mount namespace could not be made", &error))?;
        identity_of_root()
    } else {
        let mapped = enter_user_namespace(uid, gid)?;
        mapped.unwrap_or_else(|why| {
            *no_sub_ids = Some(why);
            Identity::Single
        })
    };
    mount::make_all_private()
        .map_err(|error| refused("mounts could not be made private", &error))?;
    Ok(identity)
}

/// Root of the host has the range above all accounts; root of a container has what that one maps.
fn identity_of_root() -> Identity {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let ranges: Vec<(u64, u64)> = map
        .lines()
        .filter_map(|line| {
            let mut fields = line
                .split_whitespace()
                .map(|field| field.parse::<u64>().ok());
            let (first, _, count) = (fields.next()??, fields.next()??, fields.next()??);
            Some((first, count))
        })
        .collect();
    let holds = |first: u64, count: u64| {
        ranges
            .iter()
            .any(|(start, length)| *start <= first && first + count <= start + length)
    };
    if holds(u64::from(JOB_ID_BASE), u64::from(JOB_ID_COUNT) + 1) {
        return Identity::Root { base: JOB_ID_BASE };
    }
    // Inside of a container: the upper ids of its range, leaving the lower ones to its accounts.
    match ranges
        .iter()
        .find(|(_, count)| *count > u64::from(JOB_ID_COUNT))
    {
        Some((first, count)) => {
            let base = first + count - u64::from(JOB_ID_COUNT) - 1;
            Identity::Root {
                base: u32::try_from(base.max(1)).unwrap_or(JOB_ID_BASE),
            }
        }
        None => match ranges
            .iter()
            .find(|(first, count)| *first <= 1 && *count > 1000)
        {
            Some((first, count)) => Identity::Ranged {
                count: u32::try_from(first + count - 1).unwrap_or(JOB_ID_COUNT),
            },
            None => Identity::Single,
        },
    }
}

/// Makes a user namespace and maps the caller's sub-ids into it, or the caller alone. The outer error
/// means that there is no namespace at all, the inner one that there are no sub-ids.
fn enter_user_namespace(uid: u32, gid: u32) -> Result<Result<Identity, String>, String> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (ready_reader, ready_writer) = pipe().map_err(|error| error.to_string())?;
    let (answer_reader, answer_writer) = pipe().map_err(|error| error.to_string())?;
    let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    // The helpers gain their privilege in the host's namespace, so somebody has to stay behind there.
    let helper = match process::clone_process(0).map_err(|error| error.to_string())? {
        process::Cloned::Child => {
            drop(ready_writer);
            let mut byte = [0_u8; 1];
            let go = rustix::io::read(&ready_reader, &mut byte);
            let answer = if go == Ok(1) {
                identity::map_with_helpers(own, uid, gid)
            } else {
                Err("the launcher ended".to_owned())
            };
            let bytes = serde_json::to_vec(&answer).unwrap_or_default();
            // If nobody reads, nobody waits.
            fs::File::from(answer_writer).write_all(&bytes).ok();
            process::exit_now(0)
        }
        process::Cloned::Parent(pid) => pid,
    };
    drop(answer_writer);
    process::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS).map_err(|error| {
        let error = namespace_refusal().explain(&error);
        format!("a user namespace could not be made: {error}")
    })?;
    rustix::io::write(&ready_writer, b"g").map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    io::Read::read_to_end(&mut fs::File::from(answer_reader), &mut answer)
        .map_err(|error| error.to_string())?;
    process::reap(helper, true).map_err(|error| error.to_string())?;
    let mapped: Result<u32, String> =
        serde_json::from_slice(&answer).unwrap_or_else(|error| Err(error.to_string()));
    match mapped {
        Ok(count) => Ok(Ok(Identity::Ranged { count })),
        Err(why) => {
            for (file, text) in [
                ("setgroups", "deny".to_owned()),
                ("uid_map", format!("0 {uid} 1")),
                ("gid_map", format!("0 {gid} 1")),
            ] {
                let path = format!("/proc/self/{file}");
                fs::write(&path, text).map_err(|error| format!("writing {path}: {error}"))?;
            }
            Ok(Err(why))
        }
    }
}

/// The user namespaces that map disk ids to job ids, made once and kept.
pub(crate) struct IdMapCache {
    identity: Identity,
    namespaces: HashMap<(Owners, User), OwnedFd>,
}

impl IdMapCache {
    pub(crate) fn new(identity: Identity) -> Self {
        Self {
            identity,
            namespaces: HashMap::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.namespaces.clear();
    }
}

impl IdMaps for IdMapCache {
    fn namespace(&mut self, owners: Owners, job: User) -> io::Result<Option<BorrowedFd<'_>>> {
        let Identity::Root { base } = self.identity else {
            return Ok(None);
        };
        let (users, groups) = match owners {
            Owners::AsIs => return Ok(None),
            Owners::Job { uid, gid } => {
                let outside = |id: u32| {
                    self.identity
                        .outside(id, true, id)
                        .ok_or(io::Error::from_raw_os_error(libc::EINVAL))
                };
                (
                    format!("{uid} {} 1\n", outside(job.uid)?),
                    format!("{gid} {} 1\n", outside(job.gid)?),
                )
            }
            Owners::Range => {
                let line = format!("0 {base} {JOB_ID_COUNT}\n");
                (line.clone(), line)
            }
        };
        let key = (owners, job);
        let namespace: &OwnedFd = match self.namespaces.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(make_user_namespace(&users, &groups)?),
        };
        Ok(Some(namespace.as_fd()))
    }
}

/// A user namespace with these maps and nobody in it.
fn make_user_namespace(users: &str, groups: &str) -> io::Result<OwnedFd> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let pid = match process::clone_process(libc::CLONE_NEWUSER)? {
        process::Cloned::Child => {
            drop(writer);
            // Waits until the maker has what it wants, or is gone.
            rustix::io::read(&reader, &mut [0_u8; 1]).ok();
            process::exit_now(0)
        }
        process::Cloned::Parent(pid) => pid,
    };
    let result = (|| {
        fs::write(format!("/proc/{pid}/uid_map"), users)?;
        fs::write(format!("/proc/{pid}/gid_map"), groups)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(
            format!("/proc/{pid}/ns/user"),
            flags,
            Mode::empty(),
        )?)
    })();
    drop(writer);
    process::reap(pid, true)?;
    result
}
