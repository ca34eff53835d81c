//! The user database of a root, and who the job is in it.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use tidemill_core::job::{Image, JobSpec, User};
use tidemill_core::root::Account;

use crate::host_view::HostView;

/// The name of a job's user where nothing else names it.
pub const JOB_NAME: &str = "job";
/// The user and group of a job that root starts: root's rights are never the job's by default, and
/// many programs change their behaviour when they see user 0.
pub const JOB_USER: User = User {
    uid: 1000,
    gid: 1000,
};
/// The largest user database that is read.
pub const DATABASE_BYTES_MAX: u64 = 4 << 20;
/// Ids from here on belong to people, below to the system (Debian, Fedora, Alpine, Arch).
const PEOPLE_FROM: u32 = 1000;
/// The groups that a process can be in, see NGROUPS_MAX in limits.h.
const GROUPS_MAX: usize = 65_536;
/// The user and group of everything that has no owner.
const NOBODY: u32 = 65_534;

/// One line of a passwd file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PasswdEntry {
    /// The user's name.
    pub name: String,
    /// The user id.
    pub uid: u32,
    /// The primary group id.
    pub gid: u32,
    /// The home directory.
    pub home: String,
    shell: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupEntry {
    name: String,
    gid: u32,
    /// Names of the users whose group it is beside their own.
    members: Vec<String>,
}

/// Whom a text means in a user database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookedUp {
    /// The user and its group.
    pub user: User,
    /// The groups that list it, sorted.
    pub groups: Vec<u32>,
}

/// The users and groups of a root: what its files say, and what was added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserDatabase {
    users: Vec<PasswdEntry>,
    groups: Vec<GroupEntry>,
    passwd: String,
    group: String,
}

impl UserDatabase {
    /// Reads the text of `/etc/passwd` and `/etc/group`. Lines that are neither are kept and mean
    /// nothing, and a carriage return is part of its line, as for the C library.
    pub fn parse(passwd: &str, group: &str) -> Self {
        Self {
            users: passwd.split('\n').filter_map(parse_user).collect(),
            groups: group.split('\n').filter_map(parse_group).collect(),
            passwd: passwd.to_owned(),
            group: group.to_owned(),
        }
    }

    /// The host's own database; empty where it cannot be read.
    pub fn read_host(root: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(root.join("etc").join(name)).unwrap_or_default();
        Self::parse(&read("passwd"), &read("group"))
    }

    /// The first user with this id.
    pub fn by_uid(&self, uid: u32) -> Option<&PasswdEntry> {
        self.users.iter().find(|entry| entry.uid == uid)
    }

    /// The user that `[USER][:[GROUP]]` means in the config of an OCI image, as docker reads it: digits are
    /// a number even if somebody has them for a name, and no user is root. Without a group it is the one
    /// of the user's line (0 for a number without a line), with all groups that list the user; a group that is
    /// named is the only one. The part that nobody has comes back as the error.
    pub fn look_up<'t>(&self, text: &'t str) -> Result<LookedUp, &'t str> {
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group).filter(|group| !group.is_empty())),
            None => (text, None),
        };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number: Option<u32> = match name {
            "" => Some(0),
            digits if is_number(digits) => Some(digits.parse().map_err(|_| name)?),
            _ => None,
        };
        let entry = match number {
            Some(number) => self.by_uid(number),
            None => self.users.iter().find(|entry| entry.name == name),
        };
        let uid = match (entry, number, name) {
            (Some(entry), ..) => entry.uid,
            (None, Some(number), _) => number,
            (None, None, "root") => 0,
            (None, None, _) => return Err(name),
        };
        let by_group = |group: &str| {
            if is_number(group) {
                return group.parse().ok();
            }
            let entry = self.groups.iter().find(|entry| entry.name == group);
            let gid = entry.map(|entry| entry.gid);
            gid.or((group == "root").then_some(0))
        };
        let gid = match group {
            Some(group) => by_group(group).ok_or(group)?,
            None => entry.map_or(0, |entry| entry.gid),
        };
        let groups = match (group, entry) {
            (None, Some(entry)) => self.groups_of(entry),
            _ => Vec::new(),
        };
        Ok(LookedUp {
            user: User { uid, gid },
            groups,
        })
    }

    /// The groups that list a user, but for its own, sorted.
    fn groups_of(&self, user: &PasswdEntry) -> Vec<u32> {
        let lists = |group: &&GroupEntry| group.members.contains(&user.name);
        let groups = self.groups.iter().filter(lists).map(|group| group.gid);
        let groups: BTreeSet<u32> = groups.filter(|gid| *gid != user.gid).collect();
        groups.into_iter().take(GROUPS_MAX).collect()
    }

    /// The text of `/etc/passwd`.
    pub fn passwd(&self) -> &str {
        &self.passwd
    }

    /// The text of `/etc/group`.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// True for a text that can stand as a user's name.
    pub fn is_name(text: &str) -> bool {
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@' | '+');
        (1..=64).contains(&text.len()) && text.chars().all(safe) && !text.starts_with('-')
    }

    /// Only root, the system's own users and groups, and nobody: what programs look up, without the
    /// people of the host.
    #[must_use]
    pub fn without_people(&self) -> Self {
        let of_system = |id: u32| id < PEOPLE_FROM || id == NOBODY;
        let mut kept = Self::default();
        for entry in self.users.iter().filter(|entry| of_system(entry.uid)) {
            kept.add_user(entry.clone());
        }
        for entry in self.groups.iter().filter(|entry| of_system(entry.gid)) {
            kept.add_group(GroupEntry {
                members: Vec::new(),
                ..entry.clone()
            });
        }
        if kept.by_uid(0).is_none() {
            kept.add_user(user_entry("root", User { uid: 0, gid: 0 }, "/root"));
        }
        if !kept.groups.iter().any(|entry| entry.gid == 0) {
            kept.add_group(GroupEntry {
                name: "root".to_owned(),
                gid: 0,
                members: Vec::new(),
            });
        }
        kept
    }

    /// Makes sure that the job's user and group have an entry; says if something was added.
    fn ensure(&mut self, account: &Account) -> bool {
        let mut added = false;
        if self.by_uid(account.user.uid).is_none() {
            self.add_user(user_entry(&account.name, account.user, &account.home));
            added = true;
        }
        if !self
            .groups
            .iter()
            .any(|entry| entry.gid == account.user.gid)
        {
            let names: BTreeSet<&str> = self
                .groups
                .iter()
                .map(|entry| entry.name.as_str())
                .collect();
            let name = free_name(&account.name, account.user.gid, &names);
            self.add_group(GroupEntry {
                name,
                gid: account.user.gid,
                members: Vec::new(),
            });
            added = true;
        }
        added
    }

    /// Replaces the home of a user, in the text too.
    fn move_home(&mut self, uid: u32, home: &str) {
        let Some(entry) = self.users.iter_mut().find(|entry| entry.uid == uid) else {
            return;
        };
        entry.home = home.to_owned();
        let users = std::mem::take(&mut self.users);
        self.passwd.clear();
        for entry in users {
            self.add_user(entry);
        }
    }

    fn add_user(&mut self, entry: PasswdEntry) {
        let PasswdEntry {
            name,
            uid,
            gid,
            home,
            shell,
        } = &entry;
        start_line(&mut self.passwd);
        writeln!(self.passwd, "{name}:x:{uid}:{gid}::{home}:{shell}").expect("a String takes all");
        self.users.push(entry);
    }

    fn add_group(&mut self, entry: GroupEntry) {
        let GroupEntry { name, gid, members } = &entry;
        let members = members.join(",");
        start_line(&mut self.group);
        writeln!(self.group, "{name}:x:{gid}:{members}").expect("a String takes all");
        self.groups.push(entry);
    }
}

/// Who the job is, and the user database that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Who the job is.
    pub account: Account,
    /// The database with the job's entry.
    pub database: UserDatabase,
    /// True if the database differs from what the root has.
    pub changed: bool,
}

/// Decides who the job is in a root with this user database.
///
/// The `host` image: the caller, or [`JOB_USER`] if that is root. A root of its own: the same ids, but
/// the name and home that its passwd file gives them. `user` of the spec goes before both.
pub fn identify(spec: &JobSpec, host: &HostView, found: &UserDatabase) -> Identity {
    let is_host = spec.image == Image::Host;
    let caller = User {
        uid: host.uid,
        gid: host.gid,
    };
    let default = if host.is_root() { JOB_USER } else { caller };
    let user = spec.user.unwrap_or(default);
    let is_caller = user == default;
    let mut database = if is_host {
        found.without_people()
    } else {
        found.clone()
    };
    let caller_home = host.home.to_str().filter(|home| is_passwd_field(home));
    let synthetic_home = |name: &str| match caller_home {
        // The caller's tools live in the caller's home, so the job has to have the same one.
        Some(home) if is_host || (is_caller && !host.is_root()) => home.to_owned(),
        _ if user.uid == 0 => "/root".to_owned(),
        _ => format!("/home/{name}"),
    };
    let names: BTreeSet<&str> = database
        .users
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    let account = match database.by_uid(user.uid) {
        Some(entry) => Account {
            user,
            name: entry.name.clone(),
            home: entry.home.clone(),
            groups: Vec::new(),
        },
        None => {
            let wanted = if is_caller && !host.is_root() {
                host.name.as_str()
            } else {
                JOB_NAME
            };
            let name = free_name(wanted, user.uid, &names);
            Account {
                user,
                home: synthetic_home(&name),
                name,
                groups: Vec::new(),
            }
        }
    };
    let mut account = account;
    let mut changed = is_host;
    let is_caller_itself = is_host && is_caller && !host.is_root();
    if is_caller_itself || !can_be_home(&account.home, is_host) {
        let home = synthetic_home(&account.name);
        if home != account.home {
            account.home = home;
            database.move_home(user.uid, &account.home);
            changed = true;
        }
    }
    changed |= database.ensure(&account);
    Identity {
        account,
        database,
        changed,
    }
}

/// True if a directory can be made the job's own without taking it from the system.
fn can_be_home(home: &str, is_host: bool) -> bool {
    const TAKEN: &[&str] = &["/proc", "/dev", "/sys", "/nonexistent"];
    const SYSTEM: &[&str] = &[
        "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/run",
    ];
    let below = |list: &[&str]| list.iter().any(|path| Path::new(home).starts_with(path));
    home.starts_with('/')
        && !home.split('/').any(|name| name == "..")
        && !below(TAKEN)
        && !(is_host && (home == "/" || below(SYSTEM)))
}

fn is_passwd_field(text: &str) -> bool {
    !text.is_empty() && !text.contains([':', '\n'])
}

fn free_name(wanted: &str, id: u32, taken: &BTreeSet<&str>) -> String {
    let wanted = if UserDatabase::is_name(wanted) {
        wanted
    } else {
        JOB_NAME
    };
    if !taken.contains(wanted) {
        return wanted.to_owned();
    }
    let numbered = format!("{JOB_NAME}{id}");
    if taken.contains(numbered.as_str()) {
        format!("{JOB_NAME}-{id}-x")
    } else {
        numbered
    }
}

fn user_entry(name: &str, user: User, home: &str) -> PasswdEntry {
    PasswdEntry {
        name: name.to_owned(),
        uid: user.uid,
        gid: user.gid,
        home: home.to_owned(),
        shell: "/bin/sh".to_owned(),
    }
}

fn start_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

fn parse_user(line: &str) -> Option<PasswdEntry> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell] = fields[..] else {
        return None;
    };
    Some(PasswdEntry {
        name: Some(name).filter(|name| !name.is_empty())?.to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        home: home.to_owned(),
        shell: if shell.is_empty() {
            "/bin/sh".to_owned()
        } else {
            shell.to_owned()
        },
    })
}

fn parse_group(line: &str) -> Option<GroupEntry> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members] = fields[..] else {
        return None;
    };
    Some(GroupEntry {
        name: Some(name).filter(|name| !name.is_empty())?.to_owned(),
        gid: gid.parse().ok()?,
        members: members
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_looked_up_as_images_name_it() {
        let found = UserDatabase::parse(
            "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/srv:/bin/sh\n7:x:8:9::/:/bin/sh\n",
            "root:x:0:\nwww:x:35:\naudio:x:50:web,root\n9:x:51:x,web\nown:x:34:web\naudio2:x:50:web\n",
        );
        let with = |uid, gid, groups: &[u32]| {
            Ok(LookedUp {
                user: User { uid, gid },
                groups: groups.to_vec(),
            })
        };
        let user = |uid, gid| with(uid, gid, &[]);
        for (text, expected) in [
            ("web", with(33, 34, &[50, 51])),
            ("web:", with(33, 34, &[50, 51])),
            ("web:audio", user(33, 50)),
            ("web:9", user(33, 9)),
            ("web:www", user(33, 35)),
            ("web:5", user(33, 5)),
            ("33", with(33, 34, &[50, 51])),
            ("33:", with(33, 34, &[50, 51])),
            ("1234", user(1234, 0)),
            ("1234:www", user(1234, 35)),
            // Digits are a number, whoever has them for a name.
            ("7", user(7, 0)),
            ("root", with(0, 0, &[50])),
            ("", with(0, 0, &[50])),
            (":5", user(0, 5)),
            (":www", user(0, 35)),
            ("99999999999", Err("99999999999")),
            ("web:99999999999", Err("99999999999")),
            ("web:www:x", Err("www:x")),
            ("nobody", Err("nobody")),
            ("web:staff", Err("staff")),
        ] {
            assert_eq!(found.look_up(text), expected, "{text}");
        }
        assert_eq!(UserDatabase::default().look_up("root:root"), user(0, 0));
    }

    #[test]
    fn what_is_kept_of_a_database_reads_back_as_it_is() {
        let found = UserDatabase::parse("nobody:x:65534:65534::/:\r\r\n", "a:x:5:\r\n");
        let kept = found.without_people();
        assert!(kept.by_uid(65_534).is_some());
        assert_eq!(UserDatabase::parse(kept.passwd(), kept.group()), kept);
    }
}
