//! What a world may have left on the host: processes, mounts, control groups, files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::mode::Account;
use crate::patience::{PATIENCE, until};
use crate::processes::{Process, processes};
use crate::world::{MARK, World};

/// Where programs leave temporary files.
const TEMPORARY: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/run/lock"];
/// The ids that jobs of a runner that is root have on the host.
const JOB_IDS: std::ops::Range<u32> = 0x7148_0000..0x714a_0000;

/// What was on the host before.
#[derive(Debug, Clone, Default)]
pub struct Leavings {
    temporary: BTreeSet<PathBuf>,
}

impl Leavings {
    /// What is there now that could be taken for something that a world of this user left.
    pub fn now(account: &Account) -> Self {
        Self {
            temporary: temporary(account, &[]),
        }
    }

    /// Panics if there is more on the host than before, or a record says that something still runs.
    pub(crate) fn assert_nothing_new(&self, world: &World) {
        // Before any other command could sweep it up.
        let settled = |found: Vec<String>| found.is_empty().then_some(());
        let mut last = Vec::new();
        let what = "nothing is left on the host";
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, PATIENCE, || {
                last = on_host(world);
                settled(last.clone())
            });
        }));
        assert!(outcome.is_ok(), "left on the host: {last:#?}");
        if !world.state().join("tidemill.db").exists() {
            return;
        }
        let records = world.list(&[]);
        let ids: Vec<&str> = records.iter().map(|record| record.id()).collect();
        for record in &records {
            let is_final = [
                "succeeded",
                "failed",
                "timed_out",
                "cancelled",
                "interrupted",
            ]
            .contains(&record.state());
            assert!(
                is_final,
                "nothing runs any more, and the record says otherwise: {record}"
            );
        }
        let groups = control_groups(&ids);
        assert!(groups.is_empty(), "control groups are left: {groups:#?}");
        let temporary: Vec<PathBuf> = temporary(world.account(), &ids)
            .difference(&self.temporary)
            .filter(|path| path.exists())
            .cloned()
            .collect();
        assert!(
            temporary.is_empty(),
            "temporary files are left: {temporary:#?}"
        );
    }

    /// Ends all processes of a world.
    pub(crate) fn end_processes(world: &World) {
        for process in of_world(world) {
            if let Some(pid) = Pid::from_raw(process.pid) {
                // It may have ended by itself.
                kill_process(pid, Signal::KILL).ok();
            }
        }
    }
}

/// What of a world is on the host while nothing of it should run.
fn on_host(world: &World) -> Vec<String> {
    let mut found: Vec<String> = of_world(world)
        .iter()
        .map(|process| {
            format!(
                "process {} {} ({})",
                process.pid, process.name, process.state
            )
        })
        .collect();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
    let place = world.path().to_string_lossy().into_owned();
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&place))
            .map(|line| format!("mount {line}")),
    );
    for name in ["sandboxes", "owners", "logs"] {
        let entries = names_in(&world.state().join(name));
        found.extend(
            entries
                .iter()
                .map(|entry| format!("{name}/{entry} in the state directory")),
        );
    }
    found
}

/// The processes of a world: of its binary, with its mark, or with its path among their arguments.
fn of_world(world: &World) -> Vec<Process> {
    let own = std::process::id();
    let mark = format!("{MARK}={}", world.id());
    let place = world.path();
    processes()
        .into_iter()
        .filter(|process| u32::try_from(process.pid) != Ok(own) && process.state != 'Z')
        .filter(|process| {
            let marked = process
                .environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes());
            let runs_it = process
                .program
                .as_ref()
                .is_some_and(|path| path.starts_with(place));
            let named =
                String::from_utf8_lossy(&process.command).contains(&*place.to_string_lossy());
            marked || runs_it || named
        })
        .collect()
}

/// Control groups that belong to one of these executions.
fn control_groups(ids: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = waiting.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("tidemill-") && ids.iter().any(|id| name.contains(id)) {
                found.push(entry.path());
            }
            waiting.push(entry.path());
        }
    }
    found
}

/// Entries of the temporary directories that a job or a user's runner could have made.
fn temporary(account: &Account, ids: &[&str]) -> BTreeSet<PathBuf> {
    TEMPORARY
        .iter()
        .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten())
        .filter(|entry| {
            let Ok(metadata) = entry.metadata() else {
                return false;
            };
            let name = entry.file_name().to_string_lossy().into_owned();
            let of_user = account.uid != 0 && metadata.uid() == account.uid;
            let of_suite = name.starts_with("tidemill-suite-");
            let of_job = JOB_IDS.contains(&metadata.uid());
            let named = ids.iter().any(|id| name.contains(id));
            (of_user && !of_suite) || of_job || named
        })
        .map(|entry| entry.path())
        .collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
