//! Other tools that start a program in a sandbox, each given the walls that it has.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

/// A command line to measure.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) command: Vec<String>,
}

/// Marks the run that has mounts of its own.
const OWN_MOUNTS: &str = "TIDEMILL_BENCHES_OWN_MOUNTS";

/// Runs this program again in a mount namespace without the version 2 hierarchy, if this host mounts
/// both: crun refuses such hosts. All subjects then see the same. `None` if there is no need.
pub(crate) fn in_own_mounts() -> Option<ExitCode> {
    const HYBRID: &str = "/sys/fs/cgroup/unified";
    if !Path::new(HYBRID).exists()
        || !rustix::process::geteuid().is_root()
        || std::env::var_os(OWN_MOUNTS).is_some()
    {
        return None;
    }
    let script = format!("umount {HYBRID}; exec \"$0\" \"$@\"");
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .arg(std::env::current_exe().ok()?)
        .args(std::env::args_os().skip(1))
        .env(OWN_MOUNTS, "1")
        .status()
        .ok()?;
    let code = status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    Some(ExitCode::from(code))
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// The peers that are installed here; the names of those that are not.
pub(crate) fn installed(bundle: &Path) -> anyhow::Result<(Vec<Subject>, Vec<&'static str>)> {
    let all = [
        Subject {
            name: "bare spawn",
            command: words("/bin/true"),
        },
        Subject {
            name: "unshare",
            command: words("unshare -Urmpfniu --mount-proc /bin/true"),
        },
        Subject {
            name: "bwrap",
            command: words(
                "bwrap --unshare-all --die-with-parent --new-session --ro-bind /usr /usr \
                 --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
                 --ro-bind /etc /etc --proc /proc --dev /dev --tmpfs /tmp --cap-drop ALL /bin/true",
            ),
        },
        Subject {
            name: "crun",
            command: vec![
                "crun".into(),
                "run".into(),
                "--bundle".into(),
                bundle.to_string_lossy().into_owned(),
                "ID".into(),
            ],
        },
    ];
    write_bundle(bundle)?;
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for mut subject in all {
        subject.command.retain(|word| !word.is_empty());
        let works = command(&subject, 0)
            .output()
            .is_ok_and(|output| output.status.success());
        if works {
            present.push(subject);
        } else {
            absent.push(subject.name);
        }
    }
    Ok((present, absent))
}

/// The command of one round; `ID` stands for a name that no other round has.
pub(crate) fn command(subject: &Subject, round: usize) -> Command {
    let mut words = subject.command.iter();
    let mut command = Command::new(words.next().map_or("true", String::as_str));
    command.args(words.map(|word| match word.as_str() {
        "ID" => format!("tidemill-bench-{}-{round}", std::process::id()),
        other => other.to_owned(),
    }));
    command
}

/// An OCI bundle over the host's /usr, with the namespaces that Tidemill uses.
fn write_bundle(bundle: &Path) -> anyhow::Result<()> {
    let root = bundle.join("root");
    for directory in ["usr", "proc", "dev", "tmp"] {
        std::fs::create_dir_all(root.join(directory))?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        std::os::unix::fs::symlink(target, root.join(link))?;
    }
    let bind = |path: &str| {
        serde_json::json!({
            "destination": path, "type": "bind", "source": path,
            "options": ["rbind", "ro", "nosuid", "nodev"]
        })
    };
    let file_system = |path: &str, kind: &str| serde_json::json!({"destination": path, "type": kind, "source": kind});
    let namespaces: Vec<_> = ["pid", "network", "ipc", "uts", "mount"]
        .iter()
        .map(|kind| serde_json::json!({"type": kind}))
        .collect();
    let config = serde_json::json!({
        "ociVersion": "1.0.0",
        "process": {
            "args": ["/bin/true"], "cwd": "/", "env": ["PATH=/usr/bin"],
            "user": {"uid": 0, "gid": 0}, "noNewPrivileges": true
        },
        "root": {"path": "root", "readonly": true},
        "mounts": [
            file_system("/proc", "proc"), file_system("/dev", "tmpfs"),
            file_system("/tmp", "tmpfs"), bind("/usr")
        ],
        "linux": {"namespaces": namespaces}
    });
    std::fs::write(bundle.join("config.json"), serde_json::to_vec(&config)?)
        .context("writing the bundle for crun")
}
