//! Who the job is on the host: never uid 0, whatever the runner is.
//!
//! | runner | ids of the job on the host |
//! |---|---|
//! | root | a range of 65,536 ids that no account has |
//! | a user with sub-ids | the user's own id for the job's user, the sub-id range for all others |
//! | a user without | the user's own id, one alone |

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};
use tidemill_core::job::User;

/// The first id of the range that jobs have when the runner is root. It lies above the ranges that
/// systemd hands out (systemd.io, "Users, Groups, UIDs and GIDs on systemd systems") and below 2^31.
pub const JOB_ID_BASE: u32 = 0x7148_0000;
/// How many ids a job's user namespace has.
pub const JOB_ID_COUNT: u32 = 65_536;

/// How ids of jobs are mapped on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Identity {
    /// The launcher is root and maps a range that starts here.
    Root {
        /// First id of the range.
        base: u32,
    },
    /// The launcher is root of a user namespace: id 0 in it is the caller, 1… are its sub-ids.
    Ranged {
        /// How many sub-ids there are.
        count: u32,
    },
    /// The launcher is root of a user namespace with the caller's id alone.
    Single,
}

impl Identity {
    /// The lines of `uid_map` or `gid_map` for a job whose user has the number `own` inside.
    ///
    /// With sub-ids, id `n` inside is sub-id `n`, so that trees whose owners were shifted alike show
    /// them. If `own_is_caller`, the job's user is the caller instead, whose files it works on.
    pub fn map(&self, own: u32, own_is_caller: bool) -> String {
        let mut text = String::new();
        let mut line = |inside: u32, outside: u32, count: u32| {
            if count > 0 {
                writeln!(text, "{inside} {outside} {count}").expect("writing to a string works");
            }
        };
        match *self {
            Self::Root { base } => {
                line(0, base, JOB_ID_COUNT);
                if own >= JOB_ID_COUNT {
                    line(own, base + JOB_ID_COUNT, 1);
                }
            }
            Self::Ranged { count } if own >= count => {
                line(0, 1, count);
                line(own, 0, 1);
            }
            Self::Ranged { count } if own_is_caller => {
                line(0, 1, own);
                line(own, 0, 1);
                line(own + 1, own + 2, count - own - 1);
            }
            Self::Ranged { count } => line(0, 1, count),
            Self::Single => line(own, 0, 1),
        }
        text
    }

    /// The id on the launcher's side of an id inside, where it is mapped.
    pub fn outside(&self, own: u32, own_is_caller: bool, inside: u32) -> Option<u32> {
        match *self {
            Self::Root { base } if inside < JOB_ID_COUNT => Some(base + inside),
            Self::Root { base } => (inside == own).then_some(base + JOB_ID_COUNT),
            Self::Ranged { count } if inside == own && (own_is_caller || own >= count) => Some(0),
            Self::Ranged { count } => (inside < count).then_some(inside + 1),
            Self::Single => (inside == own).then_some(0),
        }
    }

    /// The user that builds the sandbox inside: root where root is mapped, else the job's own.
    pub fn builder(&self, job: User, job_is_caller: bool) -> User {
        match self {
            Self::Single => job,
            Self::Root { .. } | Self::Ranged { .. } => User {
                uid: self
                    .outside(job.uid, job_is_caller, 0)
                    .map_or(job.uid, |_| 0),
                gid: self
                    .outside(job.gid, job_is_caller, 0)
                    .map_or(job.gid, |_| 0),
            },
        }
    }

    /// True if setgroups(2) is forbidden inside.
    pub const fn denies_groups(&self) -> bool {
        matches!(self, Self::Single)
    }
}

/// A range of sub-ids from /etc/subuid or /etc/subgid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubIds {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The largest range that a file of sub-ids has for this user.
pub(crate) fn sub_ids(file: &str, name: &str, uid: u32) -> Option<SubIds> {
    let text = fs::read_to_string(file).ok()?;
    parse_sub_ids(&text, name, uid)
}

pub(crate) fn parse_sub_ids(text: &str, name: &str, uid: u32) -> Option<SubIds> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let owner = fields.next()?;
            let first = fields.next()?.trim().parse().ok()?;
            let count = fields.next()?.trim().parse().ok()?;
            (owner == name || owner == uid.to_string()).then_some(SubIds { first, count })
        })
        .max_by_key(|range| range.count)
}

/// The name of a user from /etc/passwd, or its number.
pub(crate) fn user_name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    passwd
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
        })
        .unwrap_or_else(|| uid.to_string())
}

/// Maps the ids of a user namespace through newuidmap and newgidmap, which may map sub-ids.
///
/// # Errors
/// Why it cannot be done: no range, no helper, or what the helper said.
pub(crate) fn map_with_helpers(pid: i32, uid: u32, gid: u32) -> Result<u32, String> {
    let name = user_name(uid);
    let users = sub_ids("/etc/subuid", &name, uid)
        .ok_or_else(|| format!("/etc/subuid has no range for {name}"))?;
    let groups = sub_ids("/etc/subgid", &name, uid)
        .ok_or_else(|| format!("/etc/subgid has no range for {name}"))?;
    let count = users.count.min(groups.count).min(JOB_ID_COUNT);
    if count < 1000 {
        return Err(format!("the sub-id range of {name} has only {count} ids"));
    }
    for (helper, own, first) in [
        ("newuidmap", uid, users.first),
        ("newgidmap", gid, groups.first),
    ] {
        let arguments = [
            pid.to_string(),
            "0".to_owned(),
            own.to_string(),
            "1".to_owned(),
            "1".to_owned(),
            first.to_string(),
            count.to_string(),
        ];
        let output = Command::new(helper)
            .args(&arguments)
            .output()
            .map_err(|error| format!("{helper} could not be started: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{helper} refused: {}", said.trim()));
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_maps_a_range_and_a_far_user_beside_it() {
        let identity = Identity::Root { base: 1000 };
        assert_eq!(identity.map(5, true), "0 1000 65536\n");
        assert_eq!(identity.map(70_000, false), "0 1000 65536\n70000 66536 1\n");
        assert_eq!(identity.outside(70_000, true, 70_000), Some(66_536));
        assert_eq!(identity.outside(5, true, 70_000), None);
    }

    #[test]
    fn a_caller_with_sub_ids_is_the_job_and_the_others_are_its_sub_ids() {
        let identity = Identity::Ranged { count: 65_536 };
        assert_eq!(
            identity.map(1000, true),
            "0 1 1000\n1000 0 1\n1001 1002 64535\n"
        );
        assert_eq!(identity.outside(1000, true, 1000), Some(0));
        assert_eq!(identity.outside(1000, true, 0), Some(1));
        assert_eq!(identity.outside(1000, true, 1001), Some(1002));
        assert_eq!(identity.map(0, true), "0 0 1\n1 2 65535\n");
        assert_eq!(identity.map(70_000, true), "0 1 65536\n70000 0 1\n");
    }

    #[test]
    fn a_job_without_files_of_the_caller_has_sub_ids_alone() {
        let identity = Identity::Ranged { count: 65_536 };
        assert_eq!(identity.map(1000, false), "0 1 65536\n");
        assert_eq!(identity.outside(1000, false, 1000), Some(1001));
        assert_eq!(identity.outside(70_000, false, 70_000), Some(0));
    }

    #[test]
    fn without_sub_ids_there_is_one_id() {
        assert_eq!(Identity::Single.map(1000, false), "1000 0 1\n");
        assert_eq!(Identity::Single.outside(1000, false, 0), None);
        let user = User { uid: 7, gid: 8 };
        assert_eq!(Identity::Single.builder(user, true), user);
    }

    #[test]
    fn the_largest_sub_id_range_of_the_user_counts() {
        let text = "a:100:10\nme:100000:65536\n1000:5:20\nme:bad:1\n";
        let expected = Some(SubIds {
            first: 100_000,
            count: 65_536,
        });
        assert_eq!(parse_sub_ids(text, "me", 1000), expected);
        assert_eq!(parse_sub_ids(text, "you", 7), None);
    }
}
