//! What the kernel writes about control groups, as text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The version 1 controllers and (under the empty name) version 2, each with its mount point.
pub(crate) fn mounts(mountinfo: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let Some(point) = left.split(' ').nth(4) else {
            continue;
        };
        let mut fields = right.split(' ');
        match fields.next() {
            Some("cgroup2") => {
                found
                    .entry(String::new())
                    .or_insert_with(|| PathBuf::from(point));
            }
            Some("cgroup") => {
                for option in fields.nth(1).unwrap_or_default().split(',') {
                    found
                        .entry(option.to_owned())
                        .or_insert_with(|| PathBuf::from(point));
                }
            }
            _ => {}
        }
    }
    found
}

/// The group of this process per version 1 controller, and (under the empty name) in version 2.
pub(crate) fn own_groups(text: &str) -> BTreeMap<String, String> {
    let mut groups = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        for controller in controllers.split(',') {
            groups.insert(controller.to_owned(), path.to_owned());
        }
    }
    groups
}

/// The directory of a group below its mount point.
pub(crate) fn below(mount: &Path, group: &str) -> PathBuf {
    let relative = group.trim_start_matches('/');
    // A path with `..` lies outside of this cgroup namespace's root.
    if relative.is_empty() || relative.split('/').any(|name| name == "..") {
        mount.to_owned()
    } else {
        mount.join(relative)
    }
}

/// A file that is one number. `max` is none.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// The number behind a name in a file of names and numbers; 0 if it is not there.
pub(crate) fn field(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_both_versions_are_told_apart() {
        let text = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                    41 31 0:38 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw\n\
                    27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let found = mounts(text);
        assert_eq!(
            found.get(""),
            Some(&PathBuf::from("/sys/fs/cgroup/unified"))
        );
        assert_eq!(
            found.get("cpu"),
            Some(&PathBuf::from("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(found.get("memory"), None);
    }

    #[test]
    fn own_groups_are_read_per_controller() {
        let groups = own_groups("4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user.slice\n");
        assert_eq!(groups.get("memory").map(String::as_str), Some("/a/b"));
        assert_eq!(groups.get("cpuacct").map(String::as_str), Some("/"));
        assert_eq!(groups.get("").map(String::as_str), Some("/user.slice"));
        assert_eq!(below(Path::new("/m"), "/../x"), PathBuf::from("/m"));
    }

    #[test]
    fn figures_are_read_by_name() {
        let events = "low 0\nmax 7\noom_kill 3\noom_group_kill\n";
        assert_eq!((field(events, "oom_kill"), field(events, "max")), (3, 7));
        assert_eq!(
            (field(events, "oom"), field(events, "oom_group_kill")),
            (0, 0)
        );
        assert_eq!(
            (number(" 12\n"), number("max\n"), number("")),
            (Some(12), None, None)
        );
    }
}
