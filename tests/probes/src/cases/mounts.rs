//! Mounts and what is on them: hostile cases 13, 27, 28 and 36.

use std::ffi::CString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys::call;
use crate::verdict::{Findings, Verdict};

/// `OPEN_TREE_CLONE`.
const TREE_CLONE: i32 = 1;

pub(crate) fn mount() -> Verdict {
    let mut findings = Findings::new();
    let place = c"/tmp";
    let mounted = |result: io::Result<i64>| {
        result?;
        call!(libc::SYS_umount2, place, libc::MNT_DETACH).map(drop)
    };
    findings.barred("a new file system", || {
        mounted(call!(
            libc::SYS_mount,
            c"probe",
            place,
            c"tmpfs",
            0,
            c"size=4k"
        ))
    });
    findings.barred("a bind mount", || {
        mounted(call!(libc::SYS_mount, c"/", place, 0, libc::MS_BIND, 0))
    });
    findings.barred("a mount that is made writable", || {
        let flags = libc::MS_REMOUNT | libc::MS_BIND;
        call!(libc::SYS_mount, c"probe", c"/proc", 0, flags, 0).map(drop)
    });
    for cover in [c"/proc/sys", c"/proc/kcore", c"/proc", c"/dev/shm"] {
        let what = format!("uncovering {}", cover.to_string_lossy());
        findings.barred(&what, || {
            call!(libc::SYS_umount2, cover, libc::MNT_DETACH).map(drop)
        });
    }
    findings.barred("fsopen", || call!(libc::SYS_fsopen, c"tmpfs", 0).map(drop));
    findings.barred("fspick", || {
        call!(libc::SYS_fspick, libc::AT_FDCWD, c"/", 0).map(drop)
    });
    findings.barred("fsconfig", || {
        call!(libc::SYS_fsconfig, -1, 0, 0, 0, 0).map(drop)
    });
    findings.barred("fsmount", || call!(libc::SYS_fsmount, -1, 0, 0).map(drop));
    findings.barred("open_tree", || {
        call!(libc::SYS_open_tree, libc::AT_FDCWD, c"/", TREE_CLONE).map(drop)
    });
    findings.barred("move_mount", || {
        call!(libc::SYS_move_mount, -1, c"", libc::AT_FDCWD, c"/tmp", 4).map(drop)
    });
    findings.barred("mount_setattr", || {
        let none = [0_u64; 4];
        call!(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/proc",
            0,
            &none,
            32
        )
        .map(drop)
    });
    findings.verdict()
}

/// File systems on which a device or a set-id file means nothing.
const HARMLESS: &[&str] = &["proc", "devpts", "mqueue"];

pub(crate) fn mount_flags() -> Verdict {
    let mut findings = Findings::new();
    let Ok(text) = fs::read_to_string("/proc/self/mountinfo") else {
        return Verdict::Absent("the list of mounts cannot be read".to_owned());
    };
    let mut count = 0;
    for line in text.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let fields: Vec<&str> = left.split(' ').collect();
        let [_, _, _, _, place, options, ..] = fields[..] else {
            continue;
        };
        let kind = right.split(' ').next().unwrap_or_default();
        count += 1;
        let has = |option: &str| options.split(',').any(|each| each == option);
        // The nodes below /dev are devices, each of them reviewed by another case.
        let is_node = place.starts_with("/dev/") && !has("nodev");
        if HARMLESS.contains(&kind) {
            continue;
        }
        findings.unless(!has("nosuid"), format!("{place} ({kind}) lacks nosuid"));
        findings.unless(
            !has("nodev") && !is_node,
            format!("{place} ({kind}) lacks nodev"),
        );
    }
    findings.held(format!("{count} mounts have their flags"));
    findings.verdict()
}

pub(crate) fn make_device() -> Verdict {
    let mut findings = Findings::new();
    let device = |major: u64, minor: u64| (major << 8) | minor;
    for directory in [".", "/tmp", "/var/tmp", "/dev", "/dev/shm"] {
        for (name, kind, number) in [
            ("null", libc::S_IFCHR, device(1, 3)),
            ("memory", libc::S_IFCHR, device(1, 1)),
            ("disk", libc::S_IFBLK, device(254, 0)),
        ] {
            let path = format!("{directory}/probe-device-{name}");
            let what = format!("a device ({name}) in {directory}");
            let Ok(c_path) = CString::new(path.as_str()) else {
                continue;
            };
            findings.attempt(&what, || {
                call!(libc::SYS_mknod, c_path.as_c_str(), kind | 0o600, number)?;
                fs::remove_file(&path)
            });
        }
    }
    findings.verdict()
}

/// The devices that a job may find in /dev: name and number.
const EXPECTED: &[(&str, (u64, u64))] = &[
    ("null", (1, 3)),
    ("zero", (1, 5)),
    ("full", (1, 7)),
    ("random", (1, 8)),
    ("urandom", (1, 9)),
    ("tty", (5, 0)),
    ("ptmx", (5, 2)),
];

/// Devices that do something when they are opened; whether they could be is enough.
const NOT_OPENED: &[&str] = &["watchdog", "ttyS", "console"];

pub(crate) fn device_nodes() -> Verdict {
    let mut findings = Findings::new();
    let mut expected = 0;
    for path in devices_below(Path::new("/dev")) {
        let relative = path.strip_prefix("/dev").unwrap_or(&path);
        let name = relative.to_string_lossy().into_owned();
        let Ok(found) = fs::metadata(&path) else {
            continue;
        };
        let number = (libc::major(found.rdev()), libc::minor(found.rdev()));
        let known = EXPECTED.iter().find(|(known, _)| *known == name);
        if let Some((_, right)) = known {
            let is_right = (u64::from(number.0), u64::from(number.1)) == *right;
            findings.unless(!is_right, format!("/dev/{name} is device {number:?}"));
            expected += 1;
            continue;
        }
        if name.starts_with("pts/") {
            continue;
        }
        if opens(&path, &name) {
            findings.hole(format!("/dev/{name} opens"));
        }
    }
    findings.held(format!("{expected} devices, all of them harmless"));
    findings.verdict()
}

fn opens(path: &Path, name: &str) -> bool {
    if NOT_OPENED.iter().any(|each| name.starts_with(each)) {
        let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
            return false;
        };
        return call!(libc::SYS_access, c_path.as_c_str(), libc::W_OK).is_ok();
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let mut reading = OpenOptions::new();
    reading.read(true).custom_flags(flags);
    let mut writing = OpenOptions::new();
    writing.write(true).custom_flags(flags);
    reading.open(path).is_ok() || writing.open(path).is_ok()
}

fn devices_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            // Not what the directory says: a node may be mounted over a plain file.
            let Ok(kind) = fs::symlink_metadata(entry.path()).map(|found| found.file_type()) else {
                continue;
            };
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_char_device() || kind.is_block_device() {
                found.push(entry.path());
            }
        }
    }
    found
}
