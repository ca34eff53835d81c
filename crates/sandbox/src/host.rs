//! What this host can and cannot do for the syscall tier, which rule of it blocks what, and the exact
//! fix. Each check tries the thing itself; a setting is only read to explain a refusal.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::cgroup::{CgroupPlaces, Controller};
use crate::identity::{JOB_ID_BASE, sub_ids, user_name};
use crate::sys::mount::new_file_system;
use crate::sys::process;

/// What was found on this host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostSupport {
    /// The checks, in the order in which people should read them.
    pub checks: Vec<Check>,
}

impl HostSupport {
    /// True if jobs can be run in the syscall tier at all.
    pub fn can_isolate(&self) -> bool {
        self.checks
            .iter()
            .filter(|check| {
                ["user-namespaces", "overlay", "seccomp"].contains(&check.name.as_str())
            })
            .all(|check| check.state != CheckState::Missing)
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    /// Its stable name.
    pub name: String,
    /// How it stands.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// Which rule of the host blocks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// The exact fix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// How a check stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// All is there.
    Ok,
    /// Something works, with a cost.
    Limited,
    /// It is not there.
    Missing,
}

impl Check {
    fn new(name: &str, state: CheckState, found: impl Into<String>) -> Self {
        Self {
            name: name.to_owned(),
            state,
            found: found.into(),
            blocked_by: None,
            fix: None,
        }
    }

    fn blocked_by(mut self, rule: impl Into<String>) -> Self {
        self.blocked_by = Some(rule.into());
        self
    }

    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// Looks at everything. Only for a process with one thread: some checks fork.
pub fn probe_host() -> HostSupport {
    let namespaces = user_namespaces();
    let overlay = overlay(&namespaces);
    let mut checks = vec![kernel(), namespaces, sub_id_ranges(), overlay];
    checks.extend(cgroups());
    checks.extend([landlock(), seccomp()]);
    checks.push(device(
        "kvm",
        "/dev/kvm",
        "--grant kvm",
        "sudo modprobe kvm-intel (or kvm-amd); in a virtual machine, its own host must allow nesting",
        "add this user to the device's group and log in again: sudo usermod -aG kvm $USER",
    ));
    checks.push(device(
        "fuse",
        "/dev/fuse",
        "--grant fuse",
        "sudo modprobe fuse",
        "sudo chmod 666 /dev/fuse, which is its usual mode",
    ));
    HostSupport { checks }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// The oldest kernel whose interfaces the syscall tier uses: openat2 (5.6), overlayfs in user
/// namespaces (5.11), mount_setattr and id-mapped mounts (5.12), counting RLIMIT_NPROC per user
/// namespace (5.14).
const KERNEL_MIN: (u32, u32) = (5, 14);

fn kernel() -> Check {
    let release = rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_MIN {
        return Check::new("kernel", CheckState::Ok, format!("Linux {release}"));
    }
    Check::new("kernel", CheckState::Missing, format!("Linux {release}"))
        .blocked_by(format!(
            "Linux {}.{} or later is needed",
            KERNEL_MIN.0, KERNEL_MIN.1
        ))
        .fix("boot a newer kernel")
}

/// Runs something in a child process with these namespaces, and tells how it went there.
fn try_in_child(namespaces: i32, attempt: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match process::clone_process(namespaces)? {
        process::Cloned::Child => {
            let code = attempt()
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
            process::exit_now(code.min(255))
        }
        process::Cloned::Parent(pid) => {
            match process::reap(pid, true)?.and_then(|end| end.exit_code) {
                Some(0) => Ok(()),
                Some(code) => Err(io::Error::from_raw_os_error(code)),
                None => Err(io::Error::other("the child was killed")),
            }
        }
    }
}

fn user_namespaces() -> Check {
    const NAME: &str = "user-namespaces";
    let all = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    // Mounting needs the capabilities that some hosts take away from the new namespace's root.
    let attempt = || {
        new_file_system(c"tmpfs", &[], 0)?;
        process::bring_loopback_up()
    };
    let own_proc = || new_file_system(c"proc", &[], 0).map(drop);
    let tried = try_in_child(all, attempt).map_err(|error| (error, namespace_refusal()));
    let tried = tried.and_then(|()| {
        try_in_child(all, own_proc).map_err(|error| {
            // The kernel gives nobody a whole /proc who only sees a part of it.
            let rule = "mounts over parts of /proc, as containers have them";
            let fix = "in Docker: --security-opt systempaths=unconfined; in Podman: --security-opt \
                       unmask=ALL; elsewhere: umount what is mounted below /proc";
            (error, Refusal::new(rule, fix))
        })
    });
    let (error, Refusal { rule, fix }) = match tried {
        Ok(()) => {
            return Check::new(
                NAME,
                CheckState::Ok,
                "user, mount, pid, net, ipc, uts and cgroup",
            );
        }
        Err(refused) => refused,
    };
    Check::new(NAME, CheckState::Missing, error.to_string())
        .blocked_by(rule)
        .fix(fix)
}

/// Why namespaces are refused, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Which rule of the host it is.
    pub(crate) rule: String,
    /// The exact fix.
    pub(crate) fix: String,
}

impl Refusal {
    fn new(rule: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            rule: rule.into(),
            fix: fix.into(),
        }
    }

    /// An error that a namespace was refused with, and the rule behind it.
    pub(crate) fn explain(&self, error: &io::Error) -> io::Error {
        let Self { rule, fix } = self;
        io::Error::other(format!("{error}, because of {rule} (to allow it: {fix})"))
    }
}

/// Looks for the rule that refuses namespaces, once they were refused.
pub(crate) fn namespace_refusal() -> Refusal {
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return Refusal::new(
            "kernel.apparmor_restrict_unprivileged_userns = 1",
            "allow them for this binary: put \"abi <abi/4.0>, include <tunables/global> \
                 profile tidemill /usr/local/bin/tidemill flags=(unconfined) { userns, }\" into \
             /etc/apparmor.d/tidemill and run `sudo apparmor_parser -r /etc/apparmor.d/tidemill`",
        );
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return Refusal::new(
            "kernel.unprivileged_userns_clone = 0",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        );
    }
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let setting = format!("user.max_{kind}_namespaces");
        let path = format!("/proc/sys/user/max_{kind}_namespaces");
        if read(&path).as_deref() == Some("0") {
            let fix = format!("sudo sysctl -w {setting}=65536");
            return Refusal::new(format!("{setting} = 0"), fix);
        }
    }
    if read("/proc/self/status").is_some_and(|text| text.contains("Seccomp:\t2")) {
        return Refusal::new(
            "a seccomp filter of the container or service that this runs in",
            "in Docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined; in a \
             systemd unit: remove RestrictNamespaces= and SystemCallFilter=",
        );
    }
    Refusal::new(
        "a rule that this check does not know",
        "try `unshare -Urmpfniu true`; see the kernel log for a security module that refused it",
    )
}

fn sub_id_ranges() -> Check {
    const NAME: &str = "sub-ids";
    let uid = rustix::process::geteuid().as_raw();
    if uid == 0 {
        return Check::new(
            NAME,
            CheckState::Ok,
            "not needed: root maps a range of its own",
        );
    }
    let name = user_name(uid);
    let ranges = [("/etc/subuid", uid), ("/etc/subgid", uid)]
        .map(|(file, id)| sub_ids(file, &name, id).map(|range| range.count));
    let helpers = ["newuidmap", "newgidmap"].map(|helper| {
        ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"]
            .iter()
            .any(|directory| fs::metadata(format!("{directory}/{helper}")).is_ok())
    });
    let cost = "jobs have a single user id: files of other owners appear as `nobody`, and an image's \
                owners cannot be kept";
    match (ranges, helpers) {
        ([Some(users), Some(_)], [true, true]) => {
            Check::new(NAME, CheckState::Ok, format!("{users} ids for {name}"))
        }
        ([Some(_), Some(_)], _) => Check::new(NAME, CheckState::Limited, cost)
            .blocked_by("newuidmap and newgidmap are not installed")
            .fix("install them: Debian and Ubuntu `sudo apt install uidmap`, Fedora `sudo dnf install shadow-utils`"),
        _ => Check::new(NAME, CheckState::Limited, cost)
            .blocked_by(format!("/etc/subuid and /etc/subgid have no range for {name}"))
            .fix(sub_ids_fix(&name)),
    }
}

/// True if jobs can have more than one user id: this is root, or a user with sub-ids that can be mapped.
pub fn has_sub_ids() -> bool {
    sub_id_ranges().state == CheckState::Ok
}

/// What gives a user sub-ids that nobody has.
fn sub_ids_fix(name: &str) -> String {
    let files = ["/etc/subuid", "/etc/subgid"].map(fs::read_to_string);
    let given: Vec<&str> = files.iter().flatten().map(String::as_str).collect();
    match free_sub_ids(&given) {
        Some((first, last)) => {
            format!("sudo usermod --add-subuids {first}-{last} --add-subgids {first}-{last} {name}")
        }
        None => format!(
            "take {SUB_IDS} ids from another user in /etc/subuid and /etc/subgid, where none are left, \
             and give them to {name}"
        ),
    }
}

/// The first id that `useradd` gives as a sub-id, and how many a user gets.
const SUB_ID_MIN: u64 = 100_000;
const SUB_IDS: u64 = 65_536;

/// The first and the last id of the range after all that these files give away: ids that two users
/// have let each of them change the other's files.
fn free_sub_ids(files: &[&str]) -> Option<(u64, u64)> {
    let end = |line: &str| {
        let mut numbers = line
            .split(':')
            .skip(1)
            .map(|part| part.trim().parse::<u64>());
        let (first, count) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        first.checked_add(count)
    };
    let lines = files.iter().flat_map(|text| text.lines());
    let first = lines.filter_map(end).fold(SUB_ID_MIN, u64::max);
    let last = first.checked_add(SUB_IDS - 1)?;
    // From there on they are systemd's, and those of jobs that root runs.
    (last < u64::from(JOB_ID_BASE)).then_some((first, last))
}

fn overlay(namespaces: &Check) -> Check {
    const NAME: &str = "overlay";
    let (uid, gid) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let attempt = || {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {gid} 1"))?;
        let site = new_file_system(c"tmpfs", &[], 0)?;
        let at = rustix::fs::open("/tmp", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        crate::sys::mount::attach(site.as_fd(), at.as_fd())?;
        for name in ["lower", "upper", "work"] {
            fs::create_dir(format!("/tmp/{name}"))?;
        }
        let options = [
            ("lowerdir", Some("/tmp/lower")),
            ("upperdir", Some("/tmp/upper")),
            ("workdir", Some("/tmp/work")),
            ("userxattr", None),
        ];
        new_file_system(c"overlay", &options, 0).map(drop)
    };
    match try_in_child(libc::CLONE_NEWUSER | libc::CLONE_NEWNS, attempt) {
        Ok(()) => Check::new(
            NAME,
            CheckState::Ok,
            "overlayfs can be mounted in a user namespace",
        ),
        // What forbids the namespace forbids this with it, and says nothing of the module.
        Err(error) if namespaces.state == CheckState::Missing => Check {
            name: NAME.to_owned(),
            found: error.to_string(),
            ..namespaces.clone()
        },
        Err(error) => Check::new(NAME, CheckState::Missing, error.to_string())
            .blocked_by(
                "no overlayfs in a user namespace (Linux 5.11 has it, if the module is there)",
            )
            .fix("sudo modprobe overlay"),
    }
}

/// How to get all controllers of version 2 from systemd.
const DELEGATE: &str = "start it in a delegated group: systemd-run --user --scope -p Delegate=yes \
                        tidemill …, and for all controllers put `[Service] Delegate=cpu cpuset io \
                        memory pids` into /etc/systemd/system/user@.service.d/delegate.conf";

fn cgroups() -> Vec<Check> {
    let places = CgroupPlaces::find();
    let place = |controller: Controller| match (&places.unified, places.legacy.get(&controller)) {
        (_, Some(path)) => format!("version 1 below {}", path.display()),
        (Some((path, _)), None) => format!("version 2 below {}", path.display()),
        (None, None) => "nowhere".to_owned(),
    };
    Controller::ALL
        .into_iter()
        .map(|controller| {
            let name = format!("cgroup-{}", controller.name());
            if places.has(controller) {
                return Check::new(&name, CheckState::Ok, place(controller));
            }
            let instead = match controller {
                Controller::Memory => "--memory is watched by polling instead, 20 times a second",
                Controller::Pids => "--pids is kept by RLIMIT_NPROC instead",
                Controller::Cpu => "--cpus is refused",
            };
            let why = places.missing.get(&controller).cloned().unwrap_or_default();
            let fix = places.refused.get(&controller).map_or_else(
                || DELEGATE.to_owned(),
                |group| {
                    let group = group.join("tidemill");
                    let group = group.display();
                    format!(
                        "make a group of your own and start it in there: sudo mkdir -p {group} && \
                         sudo chown -R $USER {group} && echo $$ | sudo tee {group}/cgroup.procs"
                    )
                },
            );
            Check::new(&name, CheckState::Limited, instead)
                .blocked_by(why)
                .fix(fix)
        })
        .collect()
}

fn landlock() -> Check {
    match process::landlock_version() {
        Ok(version) if version >= 6 => Check::new(
            "landlock",
            CheckState::Ok,
            format!("interface version {version}"),
        ),
        Ok(version) => Check::new(
            "landlock",
            CheckState::Limited,
            format!("interface version {version}: no scopes for signals and abstract sockets (6)"),
        )
        .blocked_by("the kernel is older than Linux 6.12")
        .fix("boot a newer kernel; the namespaces alone hold meanwhile"),
        Err(error) => Check::new("landlock", CheckState::Limited, error.to_string())
            .blocked_by("the kernel has no Landlock, or it is not in the `lsm=` list")
            .fix("add `landlock` to the kernel's lsm= parameter"),
    }
}

fn seccomp() -> Check {
    match read("/proc/sys/kernel/seccomp/actions_avail") {
        Some(actions) if actions.contains("errno") => {
            Check::new("seccomp", CheckState::Ok, format!("actions {actions}"))
        }
        _ => Check::new("seccomp", CheckState::Missing, "no filters")
            .blocked_by("the kernel was built without CONFIG_SECCOMP_FILTER")
            .fix("boot another kernel"),
    }
}

fn device(name: &str, path: &str, what_for: &str, load: &str, open_up: &str) -> Check {
    match fs::OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Check::new(
            name,
            CheckState::Ok,
            format!("{path} opens (for {what_for})"),
        ),
        Err(error) => Check::new(
            name,
            CheckState::Limited,
            format!("{path} is needed for {what_for}, and cannot be opened"),
        )
        .blocked_by(format!("opening {path}: {error}"))
        .fix(if error.kind() == io::ErrorKind::PermissionDenied {
            open_up
        } else {
            load
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_ids_that_are_proposed_belong_to_nobody() {
        for (users, groups, expected) in [
            ("", "", Some((100_000, 165_535))),
            ("me:1000:5\n", "# none\n\n", Some((100_000, 165_535))),
            ("a:100000:65536\n", "", Some((165_536, 231_071))),
            // What either file gives away is taken, in whatever order, and a line that is none is none.
            (
                "b:300000:65536\na:100000:65536\nodd\nc:x:1\n",
                "a:100000:65536\n1000:400000:10\n",
                Some((400_010, 465_545)),
            ),
            ("a:1904738000:1\n", "", None),
            ("a:18446744073709551615:1\n", "", Some((100_000, 165_535))),
        ] {
            assert_eq!(free_sub_ids(&[users, groups]), expected, "{users}{groups}");
        }
    }
}
