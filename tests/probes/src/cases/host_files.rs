//! Files, secrets and names of the host: hostile cases 32, 33, 35, 37, 45 and 95.

use std::env;
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::bait;
use crate::sys::call;
use crate::verdict::{Findings, Verdict};

pub(crate) fn host_file() -> Verdict {
    let mut findings = Findings::new();
    let directory = bait::directory();
    let name = directory.strip_prefix("/").unwrap_or(&directory);
    let mut places = vec![directory.clone(), Path::new("/proc/1/root").join(name)];
    // Up from here, however deep that is.
    places.push(Path::new(&"../".repeat(64)).join(name));
    for place in places {
        let secret = place.join("secret.txt");
        let shown = secret.display().to_string();
        let Ok(c_path) = CString::new(secret.as_os_str().as_bytes()) else {
            continue;
        };
        let path = c_path.as_c_str();
        findings.attempt(&format!("looking at {shown}"), || {
            fs::symlink_metadata(&secret).map(drop)
        });
        findings.attempt(&format!("reading {shown}"), || fs::read(&secret).map(drop));
        findings.attempt(&format!("writing {shown}"), || {
            OpenOptions::new().append(true).open(&secret).map(drop)
        });
        findings.attempt(&format!("the times of {shown}"), || {
            call!(libc::SYS_utimensat, libc::AT_FDCWD, path, 0, 0).map(drop)
        });
        findings.attempt(&format!("the mode of {shown}"), || {
            fs::set_permissions(&secret, Permissions::from_mode(0o666))
        });
        findings.attempt(&format!("the attributes of {shown}"), || {
            call!(libc::SYS_listxattr, path, 0, 0).map(drop)
        });
        findings.attempt(&format!("watching {shown}"), || {
            const MODIFY: i32 = 2;
            let watch = call!(libc::SYS_inotify_init1, 0)?;
            call!(libc::SYS_inotify_add_watch, watch, path, MODIFY).map(drop)
        });
        findings.attempt(&format!("a link to {shown}"), || {
            let link = "/tmp/probe-link";
            fs::hard_link(&secret, link)?;
            fs::remove_file(link)
        });
        findings.attempt(&format!("the socket beside {shown}"), || {
            UnixStream::connect(place.join("host.sock")).map(drop)
        });
    }
    findings.verdict()
}

/// Sockets by which a host is ruled, and variables that lead to them.
const SOCKETS: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/systemd/private",
    "/run/systemd/notify",
    "/run/systemd/journal/socket",
    "/run/dbus/system_bus_socket",
    "/run/udev/control",
    "/run/nscd/socket",
    "/run/snapd.socket",
    "/run/WSL",
    "/run/user",
    "/tmp/.X11-unix/X0",
    "/tmp/.ICE-unix",
    "/var/run/libvirt",
];

const LEADS: &[&str] = &[
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "XDG_RUNTIME_DIR",
    "NOTIFY_SOCKET",
    "GPG_AGENT_INFO",
    "WAYLAND_DISPLAY",
    "DISPLAY",
    "LISTEN_FDS",
];

pub(crate) fn control_sockets() -> Verdict {
    let mut findings = Findings::new();
    for socket in SOCKETS {
        findings.unless(Path::new(socket).exists(), format!("{socket} is there"));
    }
    for variable in LEADS {
        findings.unless(
            env::var_os(variable).is_some(),
            format!("${variable} is set"),
        );
    }
    findings.held("no control socket, and no variable that leads to one");
    findings.verdict()
}

/// Directories that belong to the host, or that a job has no business in.
const DIRECTORIES: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/cron.d",
    "/home",
    "/lib",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys/fs/cgroup",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/local",
    "/var",
    "/var/lib",
];

pub(crate) fn host_writes() -> Verdict {
    let mut findings = Findings::new();
    let mut places: Vec<PathBuf> = DIRECTORIES.iter().map(PathBuf::from).collect();
    places.push(bait::directory());
    for place in places {
        let file = place.join("tidemill-probe-wrote-this");
        let shown = place.display().to_string();
        findings.attempt(&format!("a file in {shown}"), || {
            File::create_new(&file)?;
            fs::remove_file(&file)
        });
        findings.attempt(&format!("a directory in {shown}"), || {
            fs::create_dir(&file)?;
            fs::remove_dir(&file)
        });
    }
    findings.verdict()
}

/// Files that tell one host from another.
const IDENTIFYING: &[&str] = &[
    "/sys/class/dmi/id/product_uuid",
    "/sys/class/dmi/id/board_serial",
    "/sys/class/net/eth0/address",
    "/sys/firmware/acpi/tables",
    "/sys/block",
    "/proc/cmdline",
    "/proc/partitions",
    "/proc/diskstats",
    "/etc/hostid",
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
    "/etc/ssh/ssh_host_ed25519_key.pub",
    "/etc/ssh/ssh_host_rsa_key.pub",
];

pub(crate) fn host_identity() -> Verdict {
    let mut findings = Findings::new();
    for path in IDENTIFYING {
        let has_entries = fs::read_dir(path).is_ok_and(|mut list| list.next().is_some());
        let has_text = fs::read(path).is_ok_and(|bytes| !bytes.is_empty());
        findings.unless(has_entries || has_text, format!("{path} can be read"));
    }
    for (told, path) in [
        ("HOSTNAME", "/proc/sys/kernel/hostname"),
        ("HOSTNAME", "/etc/hostname"),
    ] {
        let of_host = bait::told(told).filter(|text| !text.is_empty());
        let found = fs::read_to_string(path).unwrap_or_default();
        let is_same = of_host.is_some_and(|text| found.trim() == text);
        findings.unless(is_same, format!("{path} is the host's"));
    }
    findings.held("nothing that tells this host from another");
    findings.verdict()
}

/// Parts of the names of variables that hold secrets.
const SECRETIVE: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIAL"];

pub(crate) fn environment_secrets() -> Verdict {
    let mut findings = Findings::new();
    for (name, value) in env::vars_os() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let has_name = SECRETIVE
            .iter()
            .any(|part| name.to_uppercase().contains(part));
        let has_value = value.contains(bait::LAUNCHER_SECRET);
        findings.unless(has_name || has_value, format!("${name} was inherited"));
    }
    for path in process_files("environ") {
        let text = fs::read(&path).unwrap_or_default();
        let has_secret = contains(&text, bait::LAUNCHER_SECRET);
        findings.unless(has_secret, format!("{} has a secret", path.display()));
    }
    findings.held("no secret of the launcher");
    findings.verdict()
}

pub(crate) fn argument_secrets() -> Verdict {
    let mut findings = Findings::new();
    let mut seen = 0;
    for path in process_files("cmdline") {
        let text = fs::read(&path).unwrap_or_default();
        seen += 1;
        let has_secret = contains(&text, bait::ARGUMENT_SECRET);
        findings.unless(has_secret, format!("{} has a secret", path.display()));
    }
    findings.held(format!("{seen} processes are visible, none of the host"));
    findings.verdict()
}

/// This file of every process that is visible.
fn process_files(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            let number = path.file_name().map(OsStr::to_string_lossy);
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        })
        .map(|path| path.join(name))
        .collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

pub(crate) fn resolver() -> Verdict {
    let mut findings = Findings::new();
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let is_loopback = second.starts_with("127.") || second == "::1";
        let tells = match first {
            "nameserver" => !is_loopback,
            "search" | "domain" => true,
            _ => false,
        };
        findings.unless(tells, format!("/etc/resolv.conf says: {line}"));
    }
    let of_host = bait::told("HOSTNAME").unwrap_or_default();
    let hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    let named = hosts
        .split_whitespace()
        .any(|word| !of_host.is_empty() && word == of_host);
    findings.unless(named, "/etc/hosts has the host's name");
    for (name, value) in env::vars_os() {
        let name = name.to_string_lossy().to_lowercase();
        let value = value.to_string_lossy();
        let has_account = value
            .split_once("://")
            .is_some_and(|(_, rest)| rest.contains('@'));
        findings.unless(
            name.ends_with("_proxy") && has_account,
            format!("${name} has an account"),
        );
    }
    findings.held("no resolver of the host, and no account of a proxy");
    findings.verdict()
}

/// Files that some program of the host would run or obey if it looked into the job's directory, each
/// of which makes `marker`.
pub(crate) fn plant_traps() -> Verdict {
    let marker = env::var("PROBE_MARKER").unwrap_or_else(|_| "/nonexistent".to_owned());
    let script = format!("#!/bin/sh\n: > {marker}\n");
    let files: [(&str, String); 12] = [
        (".git/HEAD", "ref: refs/heads/main\n".to_owned()),
        (".git/objects/keep", String::new()),
        (".git/refs/keep", String::new()),
        (
            ".git/config",
            format!(
                "[core]\nrepositoryformatversion = 0\nfsmonitor = \": > {marker}; false\"\npager = \": > {marker}\"\nsshCommand = \": > {marker}\"\n"
            ),
        ),
        (".git/hooks/post-checkout", script.clone()),
        (".git/hooks/pre-commit", script.clone()),
        (".envrc", script.clone()),
        (
            ".cargo/config.toml",
            format!("[build]\nrustc-wrapper = \"{marker}-wrapper\"\n"),
        ),
        (".tidemill/config.toml", format!("run = \": > {marker}\"\n")),
        (
            "tidemill.json",
            format!("{{\"program\": \"sh\", \"args\": [\"-c\", \": > {marker}\"]}}\n"),
        ),
        ("bin/true", script.clone()),
        ("true", script),
    ];
    let mut planted = 0;
    for (path, text) in files {
        let path = Path::new(path);
        let parent = path.parent().unwrap_or(path);
        let made = fs::create_dir_all(if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        })
        .and_then(|()| fs::write(path, text))
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o755)));
        match made {
            Ok(()) => planted += 1,
            Err(error) => {
                return Verdict::Absent(format!("{} cannot be made: {error}", path.display()));
            }
        }
    }
    Verdict::Safe(format!(
        "{planted} files are there; whoever trusts one of them makes {marker}"
    ))
}

/// Attributes that mean something to the file system that layers are stacked with.
const OF_OVERLAYS: &[(&str, &CStr, &[u8; 8])] = &[
    ("file", c"user.overlay.redirect", b"/../../."),
    ("file", c"user.overlay.metacopy", b"\0\0\0\0\0\0\0\0"),
    ("file", c"user.overlay.whiteout", b"yyyyyyyy"),
    ("directory", c"user.overlay.redirect", b"/../../."),
    ("directory", c"user.overlay.opaque", b"yyyyyyyy"),
    ("directory", c"user.overlay.origin", b"\0\0\0\0\0\0\0\0"),
    ("other", c"user.overlay.redirect", b"/bait\0\0\0"),
    ("other", c"user.overlay.upper", b"\0\0\0\0\0\0\0\0"),
];

/// Makes a tree that a stack of layers could read as something else.
pub(crate) fn plant_attributes() -> Verdict {
    let mut planted = 0;
    for (name, attribute, value) in OF_OVERLAYS {
        let path = Path::new(name);
        let made = if *name == "file" {
            fs::write(path, "content")
        } else {
            fs::create_dir_all(path).and_then(|()| fs::write(path.join("inner"), "content"))
        };
        if let Err(error) = made {
            return Verdict::Absent(format!("{name} cannot be made: {error}"));
        }
        let c_path = CString::new(*name).unwrap_or_default();
        // Redirects have five bytes or more; the others are as long as they are.
        let length = value.iter().position(|byte| *byte == 0).unwrap_or(8);
        let length = if attribute.to_bytes().ends_with(b"opaque") {
            1
        } else {
            length
        };
        let set = call!(
            libc::SYS_setxattr,
            c_path.as_c_str(),
            *attribute,
            *value,
            length,
            0
        );
        planted += usize::from(set.is_ok());
    }
    if planted == 0 {
        return Verdict::Absent("this file system has no such attributes".to_owned());
    }
    Verdict::Safe(format!(
        "{planted} attributes are there; whoever obeys them is judged"
    ))
}
